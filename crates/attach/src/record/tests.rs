use std::os::unix::fs::PermissionsExt;

use super::*;

fn record(volume: &str) -> Record {
    Record {
        volume: volume.into(),
        uid: "00ff".into(),
        initiator: "iqn.x:host".into(),
        stage: 3,
        way: Way::Fuse,
        why: "fuse is there".into(),
        read_only: false,
        patience_ms: 1000,
        secret: Some(Secret { user: "u".into(), secret: "s".repeat(12), ..Secret::default() }),
        site: SiteAt { api: "127.0.0.1:1".into(), token_file: "/t".into(), ca: None },
    }
}

fn scratch(name: &str) -> PathBuf {
    let path = std::env::temp_dir().join(format!("pollux-record-{name}-{}", std::process::id()));
    // Of an earlier run that was killed.
    let _ = fs::remove_dir_all(&path);
    path
}

#[test]
fn a_record_is_found_again_and_only_its_owner_reads_it() {
    let state = scratch("again");
    assert_eq!(all(&state).expect("no folder is an empty one"), []);
    let folder = Folder::of(&state, "00ff");
    assert_eq!(folder.read().expect("no record is no error"), None);
    folder.write(&record("b")).expect("it is written");
    Folder::of(&state, "00aa").write(&record("a")).expect("it is written");
    let mode = fs::metadata(folder.0.join(RECORD)).expect("it is there").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let names: Vec<String> =
        all(&state).expect("they are read").into_iter().map(|(_, it)| it.volume).collect();
    assert_eq!(names, ["a", "b"]);
    folder.remove().expect("it is removed");
    folder.remove().expect("what is gone is gone");
    assert_eq!(folder.read().expect("no record is no error"), None);
    fs::remove_dir_all(state).expect("it was ours");
}

#[test]
fn what_is_no_record_is_told_with_its_place() {
    let folder = Folder(scratch("strange"));
    fs::create_dir_all(&folder.0).expect("a folder");
    fs::write(folder.0.join(RECORD), "{").expect("a file");
    let error = folder.read().expect_err("it is no record").to_string();
    assert!(error.contains(RECORD), "{error}");
    fs::remove_dir_all(&folder.0).expect("it was ours");
}

#[test]
fn a_secret_is_in_no_text() {
    assert!(!format!("{:?}", record("a")).contains("ssss"));
}
