//! Snapshots and clones: made, listed, gone back to, deleted.
use engine::Op;
use serde_json::json;

use crate::bytes::{MIB, noise, scribble, volume, write};
use crate::shell::Shell;

fn snapshot<'a>(verb: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    [&["disk", "snapshot", verb, "pool.img"], more].concat()
}

/// `data` with two snapshots, and something else in each and in the volume.
fn with_snapshots() -> Shell {
    let shell = Shell::with_pool();
    for (seed, name) in [(1, "monday"), (2, "tuesday")] {
        shell.change("pool.img", |pool| scribble(pool, "data", seed, 20));
        shell.succeeds(&snapshot("create", &["data", name]));
    }
    shell.change("pool.img", |pool| scribble(pool, "data", 3, 20));
    shell
}

#[test]
fn a_snapshot_stays_as_it_was() {
    let shell = Shell::with_pool();
    shell.change("pool.img", |pool| scribble(pool, "data", 1, 30));
    let before = shell.bytes("pool.img", "data");
    let made = shell.json(&snapshot("create", &["data", "monday"]));
    assert_eq!(made[0]["name"], "monday");
    assert_eq!(made[0]["volume"], "data");
    assert_eq!(made[0]["parent"], json!(null));
    assert_eq!(made[0]["seq"], 31, "the volume's sequence goes on");
    assert_eq!(made[0]["created"].as_str().unwrap().len(), "2026-07-30T12:34:56Z".len());
    shell.change("pool.img", |pool| scribble(pool, "data", 2, 30));
    assert!(shell.bytes("pool.img", "data@monday") == before);
    assert!(shell.bytes("pool.img", "data") != before);
    shell.succeeds(&["disk", "check", "pool.img", "--data"]);
}

#[test]
fn snapshots_are_listed_with_their_family() {
    let shell = with_snapshots();
    shell.succeeds(&snapshot("clone", &["data@monday", "web"]));
    shell.changes_nothing(|| {
        let list = shell.json(&snapshot("list", &[]));
        assert_eq!((&list[0]["name"], &list[1]["name"]), (&json!("monday"), &json!("tuesday")));
        assert_eq!(list[1]["parent"], "monday");
        assert_eq!(list[0]["clones"], json!(["web"]));
        assert!(list[0]["logical"].as_u64() > Some(0), "{list}");
        assert_eq!(list[0]["stored"], list[0]["logical"]);
        let table = shell.succeeds(&snapshot("list", &[]));
        for word in ["NAME", "CLONES", "web", "CREATED (UTC)", "20"] {
            assert!(table.contains(word), "{word:?} is not in {table}");
        }
        assert_eq!(shell.json(&snapshot("list", &["web"])), json!([]));
        let volumes = shell.json(&["disk", "volume", "list", "pool.img"]);
        assert_eq!(volumes, shell.json(&["disk", "volumes", "pool.img"]));
        assert_eq!(volumes[0]["newest_snapshot"], "tuesday");
        assert_eq!(volumes[1]["newest_snapshot"], json!(null));
        assert!(volumes[0]["logical"].as_u64() > Some(0));
    });
}

#[test]
fn a_clone_begins_as_its_snapshot_and_goes_its_own_way() {
    let shell = with_snapshots();
    let made = shell.json(&snapshot("clone", &["data@monday", "web", "--size", "3MiB"]));
    assert_eq!((&made[0]["name"], &made[0]["size"]), (&json!("web"), &json!(3 * MIB)));
    let mut expected = shell.bytes("pool.img", "data@monday");
    expected.resize(3 << 20, 0);
    assert!(shell.bytes("pool.img", "web") == expected);
    let (old, new) = (shell.bytes("pool.img", "data@monday"), noise(9, 8192));
    shell.change("pool.img", |pool| write(pool, "web", 2 << 20, &new));
    expected[2 << 20..][..8192].copy_from_slice(&new);
    assert!(shell.bytes("pool.img", "web") == expected);
    assert!(shell.bytes("pool.img", "data@monday") == old);
}

#[test]
fn a_deleted_snapshot_with_a_clone_is_hidden_and_goes_with_it() {
    let shell = with_snapshots();
    shell.succeeds(&snapshot("clone", &["data@monday", "web"]));
    let web = shell.bytes("pool.img", "web");
    let deleted = shell.json(&snapshot("delete", &["data@monday"]));
    assert_eq!(deleted, json!({ "deleted": "data@monday", "kept_for_clones": ["web"] }));
    assert_eq!(shell.json(&snapshot("list", &[])).as_array().unwrap().len(), 1);
    let all = shell.json(&snapshot("list", &["--all"]));
    assert_eq!((&all[0]["name"], &all[0]["hidden"]), (&json!("monday"), &json!(true)));
    assert!(shell.bytes("pool.img", "web") == web);
    // Its name is free again.
    shell.succeeds(&snapshot("create", &["data", "monday"]));
    shell.succeeds(&["disk", "volume", "delete", "pool.img", "web"]);
    let all = shell.json(&snapshot("list", &["--all"]));
    assert_eq!(all.as_array().unwrap().len(), 2, "{all}");
    shell.succeeds(&["disk", "check", "pool.img", "--data"]);
}

#[test]
fn a_rollback_brings_the_old_bytes_back_and_keeps_newer_snapshots() {
    let shell = with_snapshots();
    let [monday, tuesday] = ["data@monday", "data@tuesday"].map(|of| shell.bytes("pool.img", of));
    let before = shell.json(&["disk", "volumes", "pool.img"]);
    let after = shell.json(&snapshot("rollback", &["data@monday"]));
    assert_eq!(after[0]["seq"].as_u64(), before[0]["seq"].as_u64().map(|seq| seq + 1));
    assert!(shell.bytes("pool.img", "data") == monday);
    assert!(shell.bytes("pool.img", "data@tuesday") == tuesday);
    shell.succeeds(&snapshot("rollback", &["data@tuesday"]));
    assert!(shell.bytes("pool.img", "data") == tuesday);
    shell.succeeds(&["disk", "check", "pool.img", "--data"]);
}

#[test]
fn a_volume_in_use_is_rolled_back_only_by_force() {
    let shell = with_snapshots();
    shell.change("pool.img", |pool| {
        let volume = volume(pool, "data").id;
        pool.run(Op::Attach { volume, attached: true }).unwrap();
    });
    let words = ["\"data\" is marked as in use", "--force"];
    shell.refuses(&snapshot("rollback", &["data@monday"]), &words);
    let delete = ["disk", "volume", "delete", "pool.img", "data", "--with-snapshots"];
    shell.refuses(&delete, &["\"data\" is marked as in use"]);
    assert_eq!(shell.json(&["disk", "volumes", "pool.img"])[0]["attached"], true);
    shell.succeeds(&snapshot("rollback", &["data@monday", "--force"]));
    assert!(shell.bytes("pool.img", "data") == shell.bytes("pool.img", "data@monday"));
}

#[test]
fn a_volume_with_snapshots_is_deleted_only_with_a_word_on_them() {
    let shell = with_snapshots();
    let delete =
        |more: &[&'static str]| [&["disk", "volume", "delete", "pool.img", "data"], more].concat();
    shell.refuses(
        &delete(&[]),
        &["monday, tuesday", "--with-snapshots", "--keep-snapshots", "pool.img"],
    );
    shell.misunderstands(&delete(&["--with-snapshots", "--keep-snapshots"]), "cannot be used");
    let tuesday = shell.bytes("pool.img", "data@tuesday");
    let deleted = shell.json(&delete(&["--keep-snapshots"]));
    assert_eq!(deleted["kept_snapshots"], json!(["monday", "tuesday"]));
    let list = shell.json(&snapshot("list", &[]));
    assert_eq!(list[0]["volume"], json!(null));
    shell.refuses(&snapshot("rollback", &["@tuesday"]), &["is gone", "clone the snapshot"]);
    shell.succeeds(&snapshot("clone", &["@tuesday", "data"]));
    assert!(shell.bytes("pool.img", "data") == tuesday);
    shell.succeeds(&snapshot("delete", &["@monday"]));
    // A uid is a name too.
    let uid = shell.json(&snapshot("list", &[]))[0]["uid"].clone();
    shell.succeeds(&snapshot("delete", &[uid.as_str().unwrap()]));
    shell.succeeds(&delete(&[]));
    assert_eq!(shell.json(&snapshot("list", &["--all"])), json!([]));
}

#[test]
fn snapshots_go_with_their_volume_when_told() {
    let shell = with_snapshots();
    let free = |shell: &Shell| shell.json(&["disk", "info", "pool.img"])["free"].as_u64();
    let before = free(&shell);
    let delete = ["disk", "volume", "delete", "pool.img", "data", "--with-snapshots"];
    assert_eq!(shell.json(&delete)["deleted_snapshots"], json!(["monday", "tuesday"]));
    assert_eq!(shell.json(&snapshot("list", &["--all"])), json!([]));
    assert!(free(&shell) > before, "the space came back");
    shell.succeeds(&["disk", "check", "pool.img", "--data"]);
}

/// Protects from a question that leaves a trace, and from figures that do not add up.
#[test]
fn usage_tells_what_is_shared_and_changes_nothing() {
    let shell = Shell::with_pool();
    shell.change("pool.img", |pool| write(pool, "data", 0, &noise(1, 64 << 10)));
    shell.succeeds(&snapshot("create", &["data", "monday"]));
    shell.change("pool.img", |pool| write(pool, "data", 0, &noise(2, 16 << 10)));
    shell.changes_nothing(|| {
        let of_snapshot = shell.json(&snapshot("usage", &["data@monday"]));
        let expected = |name: &str| {
            json!([{
                "name": name, "logical": 65536, "stored": 65536, "unique": 16384, "shared": 49152,
            }])
        };
        assert_eq!(of_snapshot, expected("data@monday"));
        assert_eq!(shell.json(&snapshot("usage", &[])), of_snapshot);
        let of_volume = shell.json(&["disk", "volume", "usage", "pool.img", "data"]);
        assert_eq!(of_volume, expected("data"));
        let table = shell.succeeds(&["disk", "volume", "usage", "pool.img"]);
        assert!(table.contains("UNIQUE") && table.contains("16 KiB"), "{table}");
    });
}

/// A pool that was not closed is asked as well, and stays as it is.
#[test]
fn usage_counts_what_is_only_in_the_journal() {
    let shell = Shell::with_pool();
    let mut pool = shell.open("pool.img");
    write(&mut pool, "data", 0, &noise(1, 64 << 10));
    drop(pool.abandon());
    shell.changes_nothing(|| {
        let usage = shell.json(&["disk", "volume", "usage", "pool.img", "data"]);
        assert_eq!(usage[0]["unique"], 65536);
    });
}

#[test]
fn snapshots_that_cannot_be() {
    let shell = with_snapshots();
    let create = |name| snapshot("create", &["data", name]);
    shell.refuses(&create("monday"), &["\"data@monday\" exists already"]);
    let long = "n".repeat(256);
    for name in ["", "a\nb", "a@b", long.as_str()] {
        shell.refuses(&create(name), &["cannot name a snapshot"]);
    }
    let unknown = ["no volume \"dada\"", "pollux disk volumes pool.img"];
    shell.refuses(&snapshot("create", &["dada", "monday"]), &unknown);
    shell.refuses(&snapshot("list", &["dada"]), &unknown);
    shell.refuses(&["disk", "volume", "usage", "pool.img", "dada"], &unknown);
    let missing = ["no snapshot \"data@sunday\"", "pollux disk snapshot list pool.img"];
    let on_one: [&[&str]; 4] = [&["delete"], &["rollback"], &["usage"], &["clone", "web"]];
    for words in on_one {
        let command = |snapshot_name| {
            [&["disk", "snapshot", words[0], "pool.img", snapshot_name], &words[1..]].concat()
        };
        shell.refuses(&command("data@sunday"), &missing);
        shell.refuses(&command("monday"), &["VOLUME@SNAPSHOT"]);
        shell.refuses(&command("@monday"), &["no snapshot \"@monday\""]);
    }
    let clone = |more: &[&'static str]| [&snapshot("clone", &["data@monday"])[..], more].concat();
    shell.refuses(&clone(&["data"]), &["\"data\" exists already"]);
    shell.refuses(&clone(&["web", "--size", "512KiB"]), &["cannot shrink", "1 MiB"]);
    shell.refuses(&clone(&["web", "--size", "1000001"]), &["the size must be"]);
    shell.refuses(&clone(&[""]), &["cannot name a volume"]);
}
