//! On files: the tools take them for devices.
use std::fs;

use super::*;

const SIZE: u64 = 320 << 20;

/// Kinds whose tools are here.
fn kinds() -> Vec<Kind> {
    let is_here = |kind: &Kind| {
        let tool = format!("mkfs.{}", kind.name());
        let found = tools::run(&tool, &["-V".as_ref()]).is_ok();
        if !found {
            eprintln!("SKIPPED: {}: there is no {tool}", kind.name());
        }
        found
    };
    Kind::ALL.into_iter().filter(is_here).collect()
}

struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Scratch {
        let path = std::env::temp_dir().join(format!("pollux-fs-{name}-{}", std::process::id()));
        File::create(&path).and_then(|file| file.set_len(SIZE)).expect("a file");
        Scratch(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // It is in the folder for temporary files.
        let _ = fs::remove_file(&self.0);
    }
}

fn write(path: &Path, at: u64, bytes: &[u8]) {
    use std::os::unix::fs::FileExt;
    let file = OpenOptions::new().write(true).open(path).expect("it is there");
    file.write_all_at(bytes, at).expect("it is written");
}

#[test]
fn a_file_system_is_made_and_known_again() {
    for kind in kinds() {
        let scratch = Scratch::new(kind.name());
        assert_eq!(look(&scratch.0).expect("looked at"), Found::Nothing);
        make(&scratch.0, kind).expect("made");
        let found = look(&scratch.0).expect("looked at");
        assert!(
            matches!(&found, Found::FileSystem { kind: it, uuid } if *it == kind && !uuid.is_empty()),
            "{found:?}"
        );
        check(&scratch.0, kind).expect("it is new");
    }
}

/// Protects from a device that is taken for blank because nothing on it is known.
#[test]
fn data_that_nobody_knows_is_not_told_from_nothing() {
    for at in [0, 4096, SIZE / 2, SIZE - 1] {
        let scratch = Scratch::new("unknown");
        write(&scratch.0, at, b"x");
        assert_eq!(look(&scratch.0).expect("looked at"), Found::Nothing, "{at}");
    }
}

#[test]
fn an_xfs_that_was_not_finished_is_no_file_system() {
    if !kinds().contains(&Kind::Xfs) {
        return;
    }
    let scratch = Scratch::new("begun");
    make(&scratch.0, Kind::Xfs).expect("made");
    write(&scratch.0, XFS_IN_PROGRESS as u64, &[1]);
    let found = look(&scratch.0).expect("looked at");
    assert!(matches!(found, Found::Unclear { .. }), "{found:?}");
}

#[test]
fn what_is_discarded_is_blank() {
    let scratch = Scratch::new("discarded");
    for at in [0, SIZE / 2, SIZE - 1] {
        write(&scratch.0, at, b"x");
    }
    discard(&scratch.0).expect("a file has holes");
    let bytes = fs::read(&scratch.0).expect("it is there");
    assert!(bytes.len() as u64 == SIZE && bytes.iter().all(|byte| *byte == 0));
}

#[test]
fn a_partition_table_is_something_else() {
    let scratch = Scratch::new("table");
    let mut sector = [0; 512];
    sector[446..462].copy_from_slice(&[0, 0, 2, 0, 0x83, 0, 0, 0, 0, 8, 0, 0, 0, 0x10, 0, 0]);
    sector[510..].copy_from_slice(&[0x55, 0xaa]);
    write(&scratch.0, 0, &sector);
    let found = look(&scratch.0).expect("looked at");
    assert_eq!(found, Found::Other { what: "dos".into() });
}

/// As a kernel does it that finds one.
fn note_error(device: &Path) {
    let args = ["-w", "-R", "set_super_value state 3"].map(OsStr::new);
    let args: Vec<&OsStr> = args.into_iter().chain([device.as_os_str()]).collect();
    tools::must("debugfs", &args).expect("it comes with mkfs.ext4");
}

#[test]
fn one_in_which_an_error_was_found_is_mended() {
    if !kinds().contains(&Kind::Ext4) {
        return;
    }
    let scratch = Scratch::new("errors");
    make(&scratch.0, Kind::Ext4).expect("made");
    note_error(&scratch.0);
    assert!(has_errors(&head(&scratch.0).expect("it is there")));
    check(&scratch.0, Kind::Ext4).expect("nothing else is wrong with it");
    assert!(!has_errors(&head(&scratch.0).expect("it is there")));
}

#[test]
fn a_damaged_one_is_refused_and_not_formatted_over() {
    if !kinds().contains(&Kind::Ext4) {
        return;
    }
    let scratch = Scratch::new("damaged");
    make(&scratch.0, Kind::Ext4).expect("made");
    // Descriptors, bitmaps and inodes of the first group.
    write(&scratch.0, 4096, &vec![0x5a; 1 << 20]);
    write(&scratch.0, SIZE / 2, b"somebody's data");
    // Its tool is not let at it before its kernel has found an error: a mount finds it, and refuses.
    let before = fs::read(&scratch.0).expect("it is there");
    check(&scratch.0, Kind::Ext4).expect("it says that it is sound");
    assert!(before == fs::read(&scratch.0).expect("it is there"));
    let scratch = Scratch::new("damaged-and-noted");
    make(&scratch.0, Kind::Ext4).expect("made");
    note_error(&scratch.0);
    write(&scratch.0, 4096, &vec![0x5a; 1 << 20]);
    write(&scratch.0, SIZE / 2, b"somebody's data");
    let refused = check(&scratch.0, Kind::Ext4).expect_err("it is damaged");
    assert!(matches!(refused, FileSystemError::Damaged { .. }), "{refused}");
    // Its own tool may mend what it can before it gives up.
    let after = fs::read(&scratch.0).expect("it is there");
    assert!(after[(SIZE / 2) as usize..].starts_with(b"somebody's data"));
    assert!(matches!(look(&scratch.0), Ok(Found::FileSystem { kind: Kind::Ext4, .. })));
}
