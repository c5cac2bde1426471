//! Whether a volume is formatted, on files: the tools take them for devices.
use std::cell::RefCell;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use super::*;
use crate::host::PermitError;
use crate::tools;

const SIZE: u64 = 32 << 20;
const MIDDLE: u64 = SIZE / 2;

struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Scratch {
        let path = std::env::temp_dir().join(format!("pollux-stage-{name}-{}", std::process::id()));
        File::create(&path).and_then(|file| file.set_len(SIZE)).expect("a file");
        Scratch(path)
    }

    fn write(&self, at: u64, bytes: &[u8]) {
        let file = OpenOptions::new().write(true).open(&self.0).expect("it is there");
        file.write_all_at(bytes, at).expect("it is written");
    }

    fn block(&self, at: u64) -> [u8; 4096] {
        let mut block = [0; 4096];
        let read = File::open(&self.0).and_then(|file| file.read_exact_at(&mut block, at));
        read.expect("it is there");
        block
    }

    fn bytes(&self) -> Vec<u8> {
        fs::read(&self.0).expect("it is there")
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // It is in the folder for temporary files.
        let _ = fs::remove_file(&self.0);
    }
}

/// A site that remembers what it was asked, and what the device looked like then.
struct Site<'a> {
    device: &'a Path,
    unfinished: bool,
    refuses: Option<PermitError>,
    asked: RefCell<Vec<(&'static str, Found)>>,
}

impl<'a> Site<'a> {
    fn new(device: &'a Path) -> Site<'a> {
        Site { device, unfinished: false, refuses: None, asked: RefCell::default() }
    }

    fn note(&self, what: &'static str) {
        let found = filesystem::look(self.device).expect("looked at");
        self.asked.borrow_mut().push((what, found));
    }

    fn names(&self) -> Vec<&'static str> {
        self.asked.borrow().iter().map(|(what, _)| *what).collect()
    }
}

impl Permit for Site<'_> {
    fn is_unfinished(&self) -> Result<bool, PermitError> {
        Ok(self.unfinished)
    }

    fn begin(&self, _: Kind) -> Result<(), PermitError> {
        self.note("begin");
        self.refuses.clone().map_or(Ok(()), Err)
    }

    fn finish(&self) -> Result<(), PermitError> {
        self.note("finish");
        Ok(())
    }
}

fn wanted(read_only: bool) -> Stage<'static> {
    Stage { path: Path::new("/nowhere"), kind: Kind::Ext4, read_only, options: Vec::new() }
}

fn has_tools() -> bool {
    let found = tools::run("mkfs.ext4", &["-V".as_ref()]).is_ok();
    if !found {
        eprintln!("SKIPPED: there is no mkfs.ext4");
    }
    found
}

#[test]
fn the_site_is_asked_before_and_told_after() {
    if !has_tools() {
        return;
    }
    let scratch = Scratch::new("blank");
    let site = Site::new(&scratch.0);
    let (kind, _) = file_system(&scratch.0, &wanted(false), &site).expect("it is made");
    assert_eq!(kind, Kind::Ext4);
    let asked = site.asked.take();
    assert!(matches!(
        &asked[..],
        [("begin", Found::Nothing), ("finish", Found::FileSystem { .. })]
    ));
    // And it is used as it is from then on.
    file_system(&scratch.0, &wanted(false), &site).expect("it is there");
    assert!(site.names().is_empty());
}

/// Protects data in the middle of a volume, where nobody looks.
#[test]
fn without_permission_nothing_is_written() {
    let scratch = Scratch::new("refused");
    scratch.write(MIDDLE, b"somebody's data");
    let before = scratch.bytes();
    let refuses = Some(PermitError::Refused("it has data".into()));
    let site = Site { refuses, ..Site::new(&scratch.0) };
    let refused = file_system(&scratch.0, &wanted(false), &site).expect_err("it has data");
    assert!(matches!(refused, HostError::Permit(PermitError::Refused(_))), "{refused}");
    assert!(before == scratch.bytes());
    assert_eq!(site.names(), ["begin"]);
}

/// What looks whole may lack what the machine had not written when it was lost.
#[test]
fn what_was_cut_off_is_made_anew_and_not_mounted() {
    if !has_tools() {
        return;
    }
    let scratch = Scratch::new("cut-off");
    filesystem::make(&scratch.0, Kind::Ext4).expect("made");
    let Found::FileSystem { uuid: before, .. } = filesystem::look(&scratch.0).expect("looked at")
    else {
        panic!("it was made just now")
    };
    scratch.write(MIDDLE, &[0x5a; 4096]);
    let site = Site { unfinished: true, ..Site::new(&scratch.0) };
    let refused = file_system(&scratch.0, &wanted(true), &site).expect_err("for reading");
    assert!(matches!(refused, HostError::BlankReadOnly), "{refused}");
    let (_, after) = file_system(&scratch.0, &wanted(false), &site).expect("it is made anew");
    assert_ne!(before, after);
    assert_eq!(site.names(), ["begin", "finish"]);
    assert_ne!(scratch.block(MIDDLE), [0x5a; 4096], "it was discarded");
}

#[test]
fn what_is_known_and_not_ours_is_refused_whatever_the_site_says() {
    let scratch = Scratch::new("foreign");
    let mut sector = [0; 512];
    sector[446..462].copy_from_slice(&[0, 0, 2, 0, 0x83, 0, 0, 0, 0, 8, 0, 0, 0, 0x10, 0, 0]);
    sector[510..].copy_from_slice(&[0x55, 0xaa]);
    scratch.write(0, &sector);
    for unfinished in [false, true] {
        let site = Site { unfinished, ..Site::new(&scratch.0) };
        let refused = file_system(&scratch.0, &wanted(false), &site).expect_err("a table");
        assert!(
            matches!(&refused, HostError::Foreign { found, .. } if found == "dos"),
            "{refused}"
        );
        assert!(site.names().is_empty());
    }
}
