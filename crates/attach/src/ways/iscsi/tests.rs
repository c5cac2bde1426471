use std::cell::Cell;

use super::*;

fn lost() -> Result<(), WayError> {
    let device = PathBuf::from("/dev/sdx");
    Err(WayError::Unwritten { device, reason: "Input/output error".into() })
}

/// Protects writes that the kernel still has in memory while its session is lost: a logout would drop them.
#[test]
fn a_session_is_not_left_with_writes_that_did_not_arrive() {
    let left = Cell::new(0);
    let log_out = || {
        left.set(left.get() + 1);
        Ok(())
    };
    let kept = leave(Unwritten::Keep, lost, log_out).expect_err("they would be lost");
    let shown = kept.to_string();
    assert!(shown.contains("/dev/sdx") && shown.contains("Input/output error"), "{shown}");
    assert_eq!(left.get(), 0, "the device stays");
    leave(Unwritten::Keep, || Ok(()), log_out).expect("everything is written");
    leave(Unwritten::Drop, lost, log_out).expect("they are given up");
    assert_eq!(left.get(), 2);
}

#[test]
fn what_is_in_memory_is_written_or_told_and_noted() {
    let folder = std::env::temp_dir().join(format!("pollux-write-back-{}", std::process::id()));
    fs::create_dir_all(&folder).expect("a folder");
    let (path, folder) = (folder.join("device"), Folder(folder));
    fs::write(&path, "x").expect("a file");
    write_back(&path, &folder).expect("a file is written");
    assert!(!folder.unwritten().exists());
    fs::remove_file(&path).expect("it is there");
    let gone = write_back(&path, &folder).expect_err("no device is there");
    assert!(matches!(&gone, WayError::Unwritten { device, .. } if *device == path), "{gone}");
    assert!(folder.unwritten().exists());
    folder.remove().expect("it is ours");
}
