use std::io::Write;
use std::sync::atomic::{AtomicU64, Ordering};

use super::*;

struct Folder(PathBuf);

impl Folder {
    fn new() -> Folder {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("pollux-csi-{}-{number}", std::process::id()));
        fs::create_dir(&path).unwrap();
        Folder(path)
    }

    fn socket(&self) -> PathBuf {
        self.0.join("csi.sock")
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn a_socket_is_for_this_user_alone_and_goes_with_its_owner() {
    let folder = Folder::new();
    let (socket, listener) = Socket::open(&folder.socket()).unwrap();
    let mode = fs::symlink_metadata(folder.socket()).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    listener.set_nonblocking(false).unwrap();
    UnixStream::connect(folder.socket()).unwrap().write_all(b"x").unwrap();
    listener.accept().unwrap();
    drop(socket);
    assert!(!folder.socket().exists());
}

#[test]
fn what_a_killed_process_left_is_replaced() {
    let folder = Folder::new();
    drop(UnixListener::bind(folder.socket()).unwrap());
    assert!(folder.socket().exists());
    let (_socket, _listener) = Socket::open(&folder.socket()).unwrap();
    UnixStream::connect(folder.socket()).unwrap();
}

#[test]
fn a_socket_that_is_served_is_left_alone() {
    let folder = Folder::new();
    let (_socket, _listener) = Socket::open(&folder.socket()).unwrap();
    let error = Socket::open(&folder.socket()).unwrap_err();
    assert!(matches!(error, SocketError::Live(_)), "{error}");
    UnixStream::connect(folder.socket()).unwrap();
}

/// Protects from deleting somebody's file that was named by mistake.
#[test]
fn what_is_no_socket_is_not_replaced() {
    let folder = Folder::new();
    fs::write(folder.socket(), "precious").unwrap();
    let error = Socket::open(&folder.socket()).unwrap_err();
    assert!(matches!(error, SocketError::NoSocket(_)), "{error}");
    assert_eq!(fs::read_to_string(folder.socket()).unwrap(), "precious");
}

#[test]
fn the_socket_of_a_successor_stays() {
    let folder = Folder::new();
    let (socket, _old) = Socket::open(&folder.socket()).unwrap();
    fs::remove_file(folder.socket()).unwrap();
    let (_next, _listener) = Socket::open(&folder.socket()).unwrap();
    drop(socket);
    UnixStream::connect(folder.socket()).unwrap();
}

#[test]
fn a_path_that_is_none_is_told() {
    let long = PathBuf::from(format!("/tmp/{}", "x".repeat(200)));
    for path in [long, "/nowhere/csi.sock".into()] {
        let error = Socket::open(&path).unwrap_err();
        assert!(matches!(error, SocketError::Bind { .. }), "{error}");
    }
}
