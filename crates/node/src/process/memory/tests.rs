#![allow(clippy::unwrap_used, reason = "a test that cannot go on says so by its line")]
use super::*;

struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn folder(name: &str) -> Folder {
    Folder(std::env::temp_dir().join(format!("pollux-memory-{name}-{}", std::process::id())))
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[test]
fn what_was_kept_is_there_and_what_was_cut_short_is_not() {
    let folder = folder("kept");
    let memory = Memory::open(&folder.0).unwrap();
    memory.keep("db", b"one").unwrap();
    memory.keep("db", b"two").unwrap();
    fs::write(folder.0.join("volumes/log@new"), b"half").unwrap();
    let all = Memory::open(&folder.0).unwrap().all().unwrap();
    assert_eq!(all, [("db".to_owned(), b"two".to_vec())]);
    memory.keep("log", b"whole").unwrap();
    assert_eq!(memory.all().unwrap().len(), 2, "what was cut short is replaced");
    memory.forget("log").unwrap();
    memory.forget("db").unwrap();
    memory.forget("db").unwrap();
    assert!(memory.all().unwrap().is_empty());
}

/// Protects from a volume whose name is that of another one's unfinished file: it was not remembered, and lost its file
/// whenever the other one was.
#[test]
fn no_volume_has_the_name_of_an_unfinished_file() {
    let folder = folder("names");
    let memory = Memory::open(&folder.0).unwrap();
    memory.keep("db.new", b"mine").unwrap();
    memory.keep("db", b"other").unwrap();
    let mut all = memory.all().unwrap();
    all.sort();
    let kept = |name: &str, bytes: &[u8]| (name.to_owned(), bytes.to_vec());
    assert_eq!(all, [kept("db", b"other"), kept("db.new", b"mine")]);
}

/// Protects from others on the machine who read what volumes there are and who may use them.
#[test]
fn only_the_owner_reads_it() {
    let folder = folder("modes");
    let inside = folder.0.join("volumes");
    fs::create_dir_all(&inside).unwrap();
    fs::set_permissions(&inside, Permissions::from_mode(0o755)).unwrap();
    fs::write(inside.join("old"), b"of an earlier version").unwrap();
    fs::set_permissions(inside.join("old"), Permissions::from_mode(0o644)).unwrap();
    let memory = Memory::open(&folder.0).unwrap();
    memory.keep("db", b"one").unwrap();
    assert_eq!(mode(&inside), 0o700);
    assert_eq!((mode(&inside.join("old")), mode(&inside.join("db"))), (0o600, 0o600));
}
