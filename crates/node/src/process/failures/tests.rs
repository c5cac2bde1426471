use super::*;

/// A state folder, and one in memory, that go away with the test.
struct Folders(PathBuf);

impl Folders {
    fn new(name: &str) -> Folders {
        let folder = std::env::temp_dir().join(format!("pollux-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(folder.join("state")).unwrap();
        fs::create_dir_all(folder.join("memory")).unwrap();
        Folders(folder)
    }

    fn state(&self) -> PathBuf {
        self.0.join("state")
    }

    fn open(&self) -> Failures {
        Failures::open_beside(&self.state(), &self.0.join("memory")).unwrap()
    }
}

impl Drop for Folders {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

const POOL: [u8; 16] = [7; 16];
const OTHER: [u8; 16] = [8; 16];

#[test]
fn a_pool_is_another_device_behind_each_failure() {
    let folders = Folders::new("failures");
    let failures = folders.open();
    let before = failures.device(POOL, 0).unwrap();
    failures.note(POOL).unwrap();
    let once = failures.device(POOL, 0).unwrap();
    failures.note(POOL).unwrap();
    let twice = failures.device(POOL, 0).unwrap();
    assert!(before != once && once != twice && before != twice);
    assert_eq!(failures.device(POOL, 0).unwrap(), twice, "asking changes nothing");
    assert_ne!(failures.device(POOL, 1).unwrap(), twice, "the pool itself may tell of one");
    assert_eq!(failures.device(OTHER, 0).unwrap(), u128::from_le_bytes(OTHER));

    let mut file = OpenOptions::new().append(true).open(failures.path()).unwrap();
    file.write_all(&digits(OTHER).as_bytes()[..5]).unwrap();
    assert_ne!(failures.device(OTHER, 0).unwrap(), u128::from_le_bytes(OTHER), "half a line");
    failures.note(POOL).unwrap();
    assert_ne!(failures.device(POOL, 0).unwrap(), twice, "behind half a line");
}

/// Protects from a state folder on the disk that failed.
#[test]
fn a_state_folder_that_takes_no_note_is_not_needed_for_one() {
    let folders = Folders::new("failures-lost");
    let failures = folders.open();
    let before = failures.device(POOL, 0).unwrap();
    fs::rename(folders.state(), folders.0.join("away")).unwrap();
    failures.note(POOL).expect("memory takes it");
    fs::rename(folders.0.join("away"), folders.state()).unwrap();
    let after = folders.open().device(POOL, 0).unwrap();
    assert_ne!(after, before);
    assert_eq!(fs::read_dir(folders.0.join("memory")).unwrap().count(), 0, "it was taken over");
    assert_eq!(folders.open().device(POOL, 0).unwrap(), after, "for good");
}

/// Protects from a full disk.
#[test]
fn the_space_of_a_note_is_taken_beforehand() {
    use std::os::unix::fs::MetadataExt;
    let folders = Folders::new("failures-space");
    let failures = folders.open();
    let found = fs::metadata(failures.path()).unwrap();
    assert_eq!(found.len(), 0);
    assert!(found.blocks() * 512 >= SPACE, "{} blocks", found.blocks());
}

/// Protects from a node that does not start, since its state folder is full.
#[test]
fn a_full_state_folder_is_no_reason_to_refuse() {
    for error in [Errno::NOSPC, Errno::DQUOT, Errno::OPNOTSUPP, Errno::NOSYS] {
        begun(Err(error)).unwrap();
    }
    assert_eq!(begun(Err(Errno::IO)).unwrap_err().raw_os_error(), Some(Errno::IO.raw_os_error()));
}

/// Protects from a failure that is forgotten, since nobody could read whose it was.
#[test]
fn a_failure_of_an_unknown_pool_counts_for_each() {
    let folders = Folders::new("failures-unknown");
    let failures = folders.open();
    let before = [POOL, OTHER].map(|pool| failures.device(pool, 0).unwrap());
    failures.note_every().unwrap();
    let once = [POOL, OTHER].map(|pool| failures.device(pool, 0).unwrap());
    assert!(before[0] != once[0] && before[1] != once[1]);
    assert_eq!(folders.open().device(OTHER, 0).unwrap(), once[1], "for good, and once");

    fs::rename(folders.state(), folders.0.join("away")).unwrap();
    failures.note_every().expect("memory takes it");
    fs::rename(folders.0.join("away"), folders.state()).unwrap();
    let twice = [POOL, OTHER].map(|pool| folders.open().device(pool, 0).unwrap());
    assert!(once[0] != twice[0] && once[1] != twice[1]);
    let mut file = OpenOptions::new().append(true).open(failures.path()).unwrap();
    file.write_all(&EVERY.as_bytes()[..3]).unwrap();
    assert_ne!(failures.device(POOL, 0).unwrap(), twice[0], "half a line");
}
