//! The socket that an orchestrator calls: for this user alone, and of one process at a time.
use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use thiserror::Error;

/// Connections that wait to be taken.
const BACKLOG: i32 = 128;

#[derive(Debug, Error)]
pub enum SocketError {
    #[error("{}: another process serves there: end it first", .0.display())]
    Live(PathBuf),
    #[error("{} is there and no socket: it is not replaced", .0.display())]
    NoSocket(PathBuf),
    #[error("{} cannot be served on: {reason}", path.display())]
    Bind { path: PathBuf, reason: io::Error },
}

/// A socket that is there for as long as this is. It goes before its listener does: that one keeps the
/// number of the file from being given to another.
#[derive(Debug)]
pub struct Socket {
    path: PathBuf,
    /// Device and number of the file: another one at the same path is not ours.
    file: (u64, u64),
}

impl Socket {
    pub fn open(path: &Path) -> Result<(Socket, UnixListener), SocketError> {
        let failed = |reason: io::Error| SocketError::Bind { path: path.into(), reason };
        make_way(path)?;
        let listener = listen(path).map_err(failed)?;
        let file = number(path).map_err(failed)?;
        Ok((Socket { path: path.into(), file }, listener))
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        if number(&self.path).is_ok_and(|file| file == self.file) {
            // Nobody serves it any more: the next one replaces what is left of it.
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// What a killed process left behind goes; what somebody answers at stays.
fn make_way(path: &Path) -> Result<(), SocketError> {
    let failed = |reason: io::Error| SocketError::Bind { path: path.into(), reason };
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(failed(error)),
        Ok(there) if !there.file_type().is_socket() => {
            return Err(SocketError::NoSocket(path.into()));
        }
        Ok(_) => {}
    }
    match UnixStream::connect(path) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            fs::remove_file(path).map_err(failed)
        }
        Err(error) => Err(failed(error)),
        Ok(_) => Err(SocketError::Live(path.into())),
    }
}

/// It is closed to others before it listens: in between nobody can connect.
fn listen(path: &Path) -> io::Result<UnixListener> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    rustix::net::bind(&socket, &SocketAddrUnix::new(path)?)?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o600))?;
    rustix::net::listen(&socket, BACKLOG)?;
    Ok(socket.into())
}

fn number(path: &Path) -> io::Result<(u64, u64)> {
    let there = fs::symlink_metadata(path)?;
    Ok((there.dev(), there.ino()))
}

#[cfg(test)]
mod tests;
