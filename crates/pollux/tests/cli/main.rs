//! Protects from a command line that fails without a word, with the wrong one, or too late: after
//! it has changed something.
mod bytes;
mod interrupted;
#[path = "../loop_device/mod.rs"]
mod loop_device;
mod readme;
mod refused;
mod scrub;
mod shell;
mod snapshots;
mod streams;
mod transfer;

use std::fs;

use block::Term;
use pollux::proof::{Load, Script};
use shell::Shell;

#[test]
fn a_pool_is_made_shown_and_checked() {
    let shell = Shell::new();
    let made = shell.json(&["disk", "create", "pool.img", "--size", "16MiB"]);
    assert_eq!(made["size"], 16 << 20);
    assert_eq!(made["clean"], true);
    let volume = ["disk", "volume", "create", "pool.img", "logs", "--size", "1GiB"];
    let options = ["--block-size", "8KiB", "--compression", "gzip"];
    let volume = shell.json(&[&volume[..], &options].concat());
    assert_eq!(volume[0]["compression"], "gzip-6");
    assert_eq!(volume[0]["size"], 1 << 30);
    assert_eq!(volume[0]["block_size"], 8192);
    shell.changes_nothing(|| {
        let info = shell.json(&["disk", "info", "pool.img"]);
        assert_eq!(info["uuid"], made["uuid"]);
        assert_eq!(info["volumes"], 1);
        assert_eq!(shell.json(&["disk", "volumes", "pool.img"]), volume);
        let check = shell.json(&["disk", "check", "pool.img", "--data"]);
        assert_eq!(check["problems"], serde_json::json!([]));
    });
}

#[test]
fn a_new_pool_has_its_space_unless_it_is_to_be_sparse() {
    use std::os::unix::fs::MetadataExt;
    let shell = Shell::new();
    let has = |name| fs::metadata(shell.path(name)).unwrap().blocks() * 512;
    shell.succeeds(&["disk", "create", "whole", "--size", "64MiB"]);
    assert!(has("whole") >= 64 << 20, "{}", has("whole"));
    shell.succeeds(&["disk", "grow", "whole", "--size", "80MiB"]);
    assert!(has("whole") >= 80 << 20, "{}", has("whole"));
    shell.succeeds(&["disk", "create", "sparse", "--size", "64MiB", "--sparse"]);
    assert!(has("sparse") < 40 << 20, "{}", has("sparse"));
    shell.succeeds(&["disk", "volume", "create", "sparse", "data", "--size", "1GiB"]);
    shell.succeeds(&["disk", "grow", "sparse", "--size", "80MiB"]);
    assert!(has("sparse") < 40 << 20, "{}", has("sparse"));
    shell.succeeds(&["disk", "check", "sparse", "--data"]);
    let error = shell.fails(&["disk", "create", "huge", "--size", "8TiB"]);
    assert!(error.contains("no space") && error.contains("--sparse"), "{error}");
    assert!(!shell.path("huge").exists());
}

#[test]
fn tables_show_sizes_as_people_read_them() {
    let shell = Shell::with_pool();
    let info = shell.succeeds(&["disk", "info", "pool.img"]);
    assert!(info.contains("16 MiB") && info.contains("closed"), "{info}");
    let volumes = shell.succeeds(&["disk", "volumes", "pool.img"]);
    assert!(volumes.contains("NAME") && volumes.contains("data"), "{volumes}");
    assert!(volumes.contains("1 MiB"), "{volumes}");
    let check = shell.succeeds(&["disk", "check", "pool.img"]);
    assert!(check.contains("no problem"), "{check}");
}

#[test]
fn volumes_grow_and_go() {
    let shell = Shell::with_pool();
    let grown = ["disk", "volume", "grow", "pool.img", "data", "--size", "2MiB"];
    assert_eq!(shell.json(&grown)[0]["size"], 2 << 20);
    let deleted = shell.json(&["disk", "volume", "delete", "pool.img", "data"]);
    assert_eq!(deleted["deleted"], "data");
    assert_eq!(shell.json(&["disk", "volumes", "pool.img"]), serde_json::json!([]));
    shell.succeeds(&["disk", "volume", "create", "pool.img", "data", "--size", "1MiB"]);
}

#[test]
fn a_pool_grows_with_its_file() {
    let shell = Shell::with_pool();
    let grown = shell.json(&["disk", "grow", "pool.img", "--size", "64MiB"]);
    assert_eq!((&grown["size_before"], &grown["size"]), (&(16 << 20).into(), &(64 << 20).into()));
    assert_eq!(shell.json(&["disk", "info", "pool.img"])["size"], 64 << 20);
    let again = shell.json(&["disk", "grow", "pool.img"]);
    assert_eq!(again["size"], 64 << 20, "growing twice is growing once");
    shell.succeeds(&["disk", "check", "pool.img", "--data"]);
}

#[test]
fn force_makes_a_new_pool_of_an_existing_file() {
    let shell = Shell::with_pool();
    let before = shell.json(&["disk", "info", "pool.img"]);
    let after = shell.json(&["disk", "create", "pool.img", "--force", "--sector", "512"]);
    assert_ne!(before["uuid"], after["uuid"]);
    assert_eq!((&after["volumes"], &after["sector"]), (&0.into(), &512.into()));
}

#[test]
fn an_empty_file_is_as_good_as_none() {
    let shell = Shell::new();
    fs::write(shell.path("pool.img"), b"").unwrap();
    let made = shell.json(&["disk", "create", "pool.img", "--size", "16MiB"]);
    assert_eq!(made["size"], 16 << 20);
}

/// A pool that was not closed is a pool like any other, and says so.
#[test]
fn a_pool_that_was_not_closed_is_shown_as_such_and_not_changed() {
    let shell = Shell::with_pool();
    drop(written(&shell).abandon());
    shell.changes_nothing(|| {
        let info = shell.json(&["disk", "info", "pool.img"]);
        assert_eq!(info["clean"], false);
        assert!(info["journal_slots"].as_u64() > Some(0), "{info}");
        let volumes = shell.json(&["disk", "volumes", "pool.img"]);
        assert!(volumes[0]["seq"].as_u64() > Some(0), "the journal counts: {volumes}");
        shell.succeeds(&["disk", "check", "pool.img", "--data"]);
    });
}

/// Protects from a check that passes whatever it reads.
#[test]
fn damage_is_found_where_it_is_looked_for() {
    let shell = Shell::with_pool();
    drop(written(&shell).close().unwrap());
    let mut bytes = fs::read(shell.path("pool.img")).unwrap();
    // Stored sectors begin with the number of their volume, which is 1, and of their term, 9.
    let term = 9u64.to_le_bytes();
    let stored = (0..bytes.len())
        .step_by(4096)
        .find(|&at| bytes[at..at + 8] == 1u64.to_le_bytes() && bytes[at + 16..at + 24] == term);
    bytes[stored.expect("something was stored") + 100] ^= 1;
    fs::write(shell.path("pool.img"), bytes).unwrap();
    shell.succeeds(&["disk", "check", "pool.img"]);
    shell.changes_nothing(|| {
        let output = shell.run(&["disk", "check", "pool.img", "--data", "--output", "json"]);
        assert_eq!(output.status.code(), Some(1));
        let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(report["problems"].as_array().map(Vec::len), Some(1), "{report}");
        let error = String::from_utf8(output.stderr).unwrap();
        assert!(error.starts_with("error: pool.img: the check found 1 problem"), "{error}");
    });
}

/// The pool of the shell, opened, with something in its volume.
fn written(shell: &Shell) -> engine::Pool<disk::FileDisk> {
    let pool = shell.open_pool();
    let script = Script::new(&pool.volumes(), Term(9), 1);
    let mut load = Load::new(pool, script, 4);
    for _ in 0..10 {
        let planned = load.plan();
        load.carry_out(&planned).expect("the pool has room");
    }
    load.drain().expect("the pool answers");
    load.into_pool()
}
