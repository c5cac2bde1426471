//! Protects from a file that forgets, that two own, or whose past is mistaken for another's.
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use proto::v1::{Controller, Deletion, Node};

use super::*;
use crate::catalog::limits::SESSIONS_MAX;

struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Scratch {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("pollux-catalog-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        fs::create_dir(&path).expect("a folder for the test");
        Scratch(path)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn swap(name: &str, expected: u64, port: u16) -> Swap {
    // One number for each name.
    let id = name.bytes().fold(1, |id, byte| id * 256 + u64::from(byte));
    let node =
        Node { id, name: name.into(), peer_address: format!("10.0.0.1:{port}"), ..Node::default() };
    let change = Change::Node(node);
    Swap { kind: Kind::Node, name: name.into(), expected, change, controller: None }
}

fn delete(name: &str, expected: u64) -> Swap {
    let change = Change::Delete(Deletion {});
    Swap { kind: Kind::Node, name: name.into(), expected, change, controller: None }
}

fn versions(committed: &Committed) -> Vec<Option<u64>> {
    let version = |verdict: &Verdict| match verdict {
        Verdict::Done(object) => Some(object.version),
        _ => None,
    };
    committed.verdicts.iter().map(version).collect()
}

fn names(page: &Page) -> Vec<&str> {
    page.objects.iter().map(|object| object.key.as_ref().unwrap().name.as_str()).collect()
}

fn open(path: &Path) -> CatalogFile {
    CatalogFile::open(path).expect("a catalog")
}

#[test]
fn swaps_of_one_transaction_are_judged_one_after_another() {
    let scratch = Scratch::new();
    let file = open(&scratch.path("catalog"));
    let swaps = vec![
        swap("a", 0, 1),
        swap("a", 0, 2),
        swap("a", 1, 3),
        delete("a", 2),
        swap("a", 2, 4),
        swap("a", 0, 5),
        swap("b", 1, 6),
    ];
    let committed = file.commit(swaps).unwrap();
    assert_eq!(versions(&committed), [Some(1), None, Some(2), Some(3), None, Some(4), None]);
    let revisions: Vec<u64> = committed.changed.iter().map(|object| object.revision).collect();
    assert_eq!(revisions, [1, 2, 3, 4]);
    let Verdict::Conflict(Some(present)) = &committed.verdicts[1] else { panic!("a conflict") };
    assert_eq!(present.version, 1, "what the swap before it left");
    assert_eq!(committed.verdicts[4], Verdict::Conflict(None), "it was deleted just before");
    assert_eq!(file.get(Kind::Node, "a").unwrap().unwrap().version, 4);
    assert_eq!(file.get(Kind::Node, "b").unwrap(), None);
}

#[test]
fn everything_is_there_when_it_is_opened_again() {
    let scratch = Scratch::new();
    let path = scratch.path("catalog");
    open(&path).commit(vec![swap("a", 0, 1), swap("b", 0, 2), delete("a", 1)]).unwrap();
    let file = open(&path);
    assert_eq!(file.revision().unwrap(), 3);
    assert_eq!(file.get(Kind::Node, "a").unwrap(), None);
    let again = file.commit(vec![swap("a", 0, 1)]).unwrap();
    assert_eq!(versions(&again), [Some(3)], "a name goes on with higher versions");
}

#[test]
fn what_changed_is_told_once_and_in_order() {
    let scratch = Scratch::new();
    let file = open(&scratch.path("catalog"));
    let swaps = vec![swap("a", 0, 1), swap("b", 0, 1), swap("c", 0, 1), swap("a", 1, 2)];
    file.commit(swaps).unwrap();
    file.commit(vec![delete("b", 1)]).unwrap();
    let all = file.changed_after(0, 9).unwrap();
    assert_eq!((names(&all), all.more), (vec!["c", "a", "b"], false));
    assert!(all.objects[2].body.is_none(), "deleted ones are told");
    let some = file.changed_after(3, 1).unwrap();
    assert_eq!((names(&some), some.more), (vec!["a"], true));
    assert!(file.changed_after(5, 9).unwrap().objects.is_empty());
    assert!(file.changed_after(u64::MAX, 9).unwrap().objects.is_empty());
}

#[test]
fn a_list_comes_in_parts_and_without_what_was_deleted() {
    let scratch = Scratch::new();
    let file = open(&scratch.path("catalog"));
    let all = ["a", "b", "c", "d", "e"];
    file.commit(all.iter().map(|name| swap(name, 0, 1)).collect()).unwrap();
    file.commit(vec![delete("c", 1)]).unwrap();
    let first = file.list(Kind::Node, "", 2).unwrap();
    assert_eq!((names(&first), first.more), (vec!["a", "b"], true));
    let rest = file.list(Kind::Node, "b", 2).unwrap();
    assert_eq!((names(&rest), rest.more), (vec!["d", "e"], false));
    assert!(file.list(Kind::Volume, "", 9).unwrap().objects.is_empty());
}

/// Protects from two nodes that both believe that they hold what was granted to one.
#[test]
fn a_number_is_one_nodes() {
    let scratch = Scratch::new();
    let file = open(&scratch.path("catalog"));
    let mut twin = swap("b", 0, 1);
    let Change::Node(node) = &mut twin.change else { panic!("a node") };
    node.id = 256 + u64::from(b'a');
    let committed = file.commit(vec![swap("a", 0, 1), twin.clone()]).unwrap();
    let Verdict::Refused(wrong) = &committed.verdicts[1] else { panic!("it must be refused") };
    assert_eq!(wrong.field, "node.id");
    let committed = file.commit(vec![delete("a", 1), twin]).unwrap();
    assert_eq!(versions(&committed), [Some(2), Some(1)], "a number is free when its node is gone");
}

#[test]
fn a_second_owner_is_told_that_there_is_one() {
    let scratch = Scratch::new();
    let path = scratch.path("catalog");
    let first = open(&path);
    let error = CatalogFile::open(&path).expect_err("it is in use");
    assert!(matches!(error, OpenError::InUse { .. }), "{error}");
    drop(first);
    open(&path);
}

#[test]
fn a_file_that_is_no_catalog_is_left_alone() {
    let scratch = Scratch::new();
    let path = scratch.path("catalog");
    for content in ["", "x", &"something else ".repeat(1000)] {
        fs::write(&path, content).unwrap();
        let error = CatalogFile::open(&path).expect_err("it is no catalog");
        assert!(matches!(error, OpenError::NotACatalog { .. }), "{error}");
        assert_eq!(fs::read_to_string(&path).unwrap(), content);
    }
    let foreign = scratch.path("foreign");
    drop(Database::create(&foreign).unwrap());
    let error = CatalogFile::open(&foreign).expect_err("somebody else's database");
    assert!(matches!(error, OpenError::NotACatalog { .. }), "{error}");
}

#[test]
fn another_format_is_named() {
    let scratch = Scratch::new();
    let path = scratch.path("catalog");
    let file = open(&path);
    let database = file.database.read().unwrap();
    let writing = database.as_ref().unwrap().begin_write().unwrap();
    writing.open_table(META).unwrap().insert(layout::FORMAT, 9).unwrap();
    writing.commit().unwrap();
    drop(database);
    drop(file);
    let error = CatalogFile::open(&path).expect_err("it is newer");
    assert!(error.to_string().contains("format 9"), "{error}");
}

#[test]
fn a_new_file_is_private_and_nothing_is_left_beside_it() {
    use std::os::unix::fs::PermissionsExt;
    let scratch = Scratch::new();
    let path = scratch.path("catalog");
    // A process with this number died while it made one.
    let aside = format!(".catalog.new-{}", std::process::id());
    fs::write(scratch.path(&aside), "half of a database").unwrap();
    drop(open(&path));
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(fs::read_dir(&scratch.0).unwrap().count(), 1);
    let error = CatalogFile::open(&scratch.path("nowhere/catalog")).expect_err("no folder");
    assert!(matches!(error, OpenError::Io { .. }), "{error}");
}

#[test]
fn a_watcher_is_known_across_openings() {
    let scratch = Scratch::new();
    let path = scratch.path("catalog");
    let first = open(&path);
    first.commit(vec![swap("a", 0, 1), swap("b", 0, 1)]).unwrap();
    let cursor = |file: &CatalogFile, revision| Cursor { session: file.session(), revision };
    let seen = cursor(&first, 2);
    drop(first);
    let second = open(&path);
    assert!(second.knows(&seen).unwrap());
    assert!(!second.knows(&Cursor { revision: 3, ..seen }).unwrap(), "nobody saw that");
    second.commit(vec![swap("c", 0, 1)]).unwrap();
    assert!(!second.knows(&Cursor { revision: 3, ..seen }).unwrap());
    assert!(second.knows(&cursor(&second, 3)).unwrap());
    assert!(!second.knows(&Cursor { session: 0, revision: 0 }).unwrap());
}

/// Protects from a watcher that takes what a restored catalog does later for what it has seen.
#[test]
fn what_was_seen_after_the_backup_is_not_known() {
    let scratch = Scratch::new();
    let (path, backup) = (scratch.path("catalog"), scratch.path("backup"));
    drop(open(&path));
    let file = open(&path);
    let before = Cursor { session: file.session(), revision: 0 };
    drop(file);
    fs::copy(&path, &backup).unwrap();
    let file = open(&path);
    file.commit(vec![swap("a", 0, 1), swap("b", 0, 1)]).unwrap();
    let after = Cursor { session: file.session(), revision: 2 };
    drop(file);
    fs::rename(&backup, &path).unwrap();
    let restored = open(&path);
    restored.commit(vec![swap("x", 0, 1), swap("y", 0, 1), swap("z", 0, 1)]).unwrap();
    assert!(restored.knows(&before).unwrap());
    assert!(!restored.knows(&after).unwrap());
}

#[test]
fn openings_are_forgotten_at_last() {
    let scratch = Scratch::new();
    let path = scratch.path("catalog");
    let file = open(&path);
    let first = Cursor { session: file.session(), revision: 0 };
    let database = file.database.read().unwrap();
    let writing = database.as_ref().unwrap().begin_write().unwrap();
    {
        let mut sessions = writing.open_table(SESSIONS).unwrap();
        for number in 1..SESSIONS_MAX {
            sessions.insert(number, (number, 0)).unwrap();
        }
    }
    writing.commit().unwrap();
    drop(database);
    assert!(file.knows(&first).unwrap());
    drop(file);
    let file = open(&path);
    assert!(!file.knows(&first).unwrap());
    assert!(file.knows(&Cursor { session: 1, revision: 0 }).unwrap());
}

/// Protects from a controller that slept while another took over.
#[test]
fn a_controller_that_has_a_successor_changes_nothing() {
    let folder = Scratch::new();
    let file = open(&folder.path("catalog"));
    let reign = |generation: u64, expected| Swap {
        kind: Kind::Controller,
        name: CONTROLLER.into(),
        expected,
        change: Change::Controller(Controller { generation, ..Controller::default() }),
        controller: None,
    };
    let by = |controller, name| Swap { controller, ..swap(name, 0, 7) };
    let swaps =
        vec![reign(5, 0), by(Some(5), "a"), reign(6, 1), by(Some(5), "b"), by(Some(6), "c")];
    let committed = file.commit(swaps).expect("it is stored");
    assert_eq!(committed.verdicts[3], Verdict::Superseded { by: 6 });
    assert_eq!(versions(&committed), [Some(1), Some(1), Some(2), None, Some(1)]);
    let operator = file.commit(vec![by(None, "d")]).expect("it is stored");
    assert_eq!(versions(&operator), [Some(1)], "an operator does as he likes");
}

/// A small file system in memory over the folder of a test.
struct Small(PathBuf);

impl Small {
    /// `None` where none can be mounted.
    fn over(scratch: &Scratch) -> Option<Small> {
        let at = scratch.path("small");
        fs::create_dir(&at).unwrap();
        let mut mount = std::process::Command::new("mount");
        let mounted = mount.args(["-t", "tmpfs", "-o", "size=16m", "small"]).arg(&at).output();
        if !mounted.is_ok_and(|mounted| mounted.status.success()) {
            eprintln!("SKIPPED: a file system that can be filled needs root");
            return None;
        }
        Some(Small(at))
    }

    fn filler(&self) -> PathBuf {
        self.0.join("filler")
    }

    /// Until nothing more fits.
    fn fill(&self) {
        let mut file = fs::File::create(self.filler()).unwrap();
        let full = (0..1 << 20).map(|_| file.write_all(&[1; 4096])).find_map(Result::err);
        assert!(full.is_some_and(|error| error.kind() == io::ErrorKind::StorageFull));
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        let _ = std::process::Command::new("umount").arg("-l").arg(&self.0).output();
    }
}

#[test]
fn a_full_disk_refuses_changes_and_harms_nothing() {
    let scratch = Scratch::new();
    let Some(small) = Small::over(&scratch) else { return };
    let path = small.0.join("catalog");
    let file = open(&path);
    file.commit(vec![swap("first", 0, 1)]).expect("there is space");
    small.fill();
    let mut stored = vec!["first".to_owned()];
    let names =
        |from: usize| -> Vec<String> { (0..64).map(|n| format!("n-{}", from + n)).collect() };
    let store = |names: &[String]| file.commit(names.iter().map(|name| swap(name, 0, 2)).collect());
    // What was allocated before is used up first.
    let refused = loop {
        let more = names(stored.len());
        match store(&more) {
            Ok(_) => stored.extend(more),
            Err(error) => break error,
        }
        assert!(stored.len() < 100_000, "it never became full");
    };
    assert!(refused.is_full(), "{refused}");
    assert!(refused.to_string().contains("no space"), "{refused}");
    let revision = file.revision().expect("it can be read");
    assert_eq!(revision, stored.len() as u64, "nothing was changed");
    for _ in 0..3 {
        assert!(store(&names(stored.len())).is_err_and(|error| error.is_full()));
        assert!(file.get(Kind::Node, "first").unwrap().is_some());
        assert_eq!(file.revision().unwrap(), revision);
    }
    fs::remove_file(small.filler()).unwrap();
    file.commit(vec![swap("last", 0, 3)]).expect("there is space again");
    drop(file);
    let file = open(&path);
    assert_eq!(file.revision().unwrap(), revision + 1);
    assert!(file.get(Kind::Node, stored.last().unwrap()).unwrap().is_some());
    assert!(file.get(Kind::Node, "last").unwrap().is_some());
}

/// Protects from a transaction that met the full disk after all: the database takes no calls until it is
/// opened again.
#[test]
fn a_database_that_was_given_up_is_opened_again() {
    let scratch = Scratch::new();
    let file = open(&scratch.path("catalog"));
    file.commit(vec![swap("a", 0, 1)]).unwrap();
    *file.database.write().unwrap() = None;
    assert_eq!(file.revision().expect("who reads opens it"), 1);
    *file.database.write().unwrap() = None;
    file.commit(vec![swap("b", 0, 2)]).expect("who writes opens it");
    assert_eq!(file.revision().unwrap(), 2);
}

/// Whether the beginning of a file is in the page cache; `None` where that cannot be told.
fn is_cached(file: &fs::File) -> Option<bool> {
    let mut bytes = [0; 512];
    let mut slices = [io::IoSliceMut::new(&mut bytes)];
    match rustix::io::preadv2(file, &mut slices, 0, rustix::io::ReadWriteFlags::NOWAIT) {
        Ok(_) => Some(true),
        Err(rustix::io::Errno::AGAIN) => Some(false),
        Err(_) => None,
    }
}

/// Protects from going on with what only the page cache has: after a failed sync the disk has lost it.
#[test]
fn a_file_is_read_from_the_disk_when_it_is_opened() {
    let scratch = Scratch::new();
    let path = scratch.path("some");
    fs::write(&path, [7; 8192]).unwrap();
    let file = fs::File::open(&path).unwrap();
    if is_cached(&file) != Some(true) {
        eprintln!("SKIPPED: this file system does not tell what is cached");
        return;
    }
    open::read_from_disk(&path).unwrap();
    match is_cached(&file) {
        Some(true) => {
            let memory = rustix::fs::fstatfs(&file).unwrap().f_type == 0x0102_1994;
            assert!(memory, "pages stay that may not be on the disk");
            eprintln!("SKIPPED: files of a file system in memory have no disk");
        }
        told => assert_eq!(told, Some(false)),
    }
}
