//! Deltas on their way from one pool to another.
use std::fs;
use std::process::{Command, Stdio};

use block::ByteLen;
use engine::{Op, Zeroing};
use serde_json::{Value, json};

use crate::bytes::{MIB, next, noise, scribble, volume, write, zero};
use crate::shell::Shell;

/// `here.img` with a volume `data`, and `there.img` with none.
pub fn two_pools() -> Shell {
    // Small, since all of them is looked at again and again.
    two_pools_of("12MiB", &[])
}

pub fn two_pools_of(size: &str, more: &[&str]) -> Shell {
    let shell = Shell::new();
    for pool in ["here.img", "there.img"] {
        shell.succeeds(&["disk", "create", pool, "--size", size]);
    }
    let create = ["disk", "volume", "create", "here.img", "data", "--size", "3MiB"];
    shell.succeeds(&[&create[..], more].concat());
    shell
}

impl Shell {
    pub fn snapshot(&self, name: &str) -> Value {
        self.json(&["disk", "snapshot", "create", "here.img", "data", name])[0].clone()
    }

    pub fn export(&self, from: &str, to: &str, file: &str) -> Value {
        let to = format!("data@{to}");
        let export = ["disk", "export", "here.img", "--from", from, "--to", &to, "--file", file];
        self.changes_nothing_in("here.img", || self.json(&export))
    }

    pub fn import(&self, file: &str, more: &[&str]) -> Value {
        let import = ["disk", "import", "there.img", "data", "--file", file];
        self.json(&[&import[..], more].concat())
    }

    fn changes_nothing_in<T>(&self, file: &str, act: impl FnOnce() -> T) -> T {
        let before = self.read(file);
        let result = act();
        assert!(self.read(file) == before, "{file} was changed");
        result
    }

    /// Everything of the names is the same in both pools, and both are sound.
    #[track_caller]
    pub fn same(&self, names: &[&str]) {
        for name in names {
            assert!(self.bytes("here.img", name) == self.bytes("there.img", name), "{name}");
        }
        for pool in ["here.img", "there.img"] {
            self.succeeds(&["disk", "check", pool, "--data"]);
        }
        let all = self.json(&["disk", "snapshot", "list", "there.img", "--all"]);
        let own = all.as_array().expect("a list").iter().filter(|s| s["internal"] == json!(true));
        assert_eq!(own.count(), 0, "no internal snapshot is left: {all}");
        let hidden = self.json(&["disk", "volume", "list", "there.img", "--all"]);
        assert_eq!(
            hidden.as_array().expect("a list").len(),
            1,
            "no hidden volume is left: {hidden}"
        );
    }

    pub fn positions(&self, pool: &str) -> Vec<(String, u64, u64)> {
        let list = self.json(&["disk", "snapshot", "list", pool]);
        let one = |s: &Value| {
            let number = |key: &str| s[key].as_u64().expect("a number");
            (s["uid"].as_str().expect("a uid").to_owned(), number("term"), number("seq"))
        };
        list.as_array().expect("a list").iter().map(one).collect()
    }
}

/// Everything that a volume can go through, exported and imported after each step.
fn a_whole_story(seed: u64, volume_options: &[&str], import_options: &[&str]) {
    let shell = two_pools_of("32MiB", volume_options);
    let carry = |from: &str, to: &str| {
        shell.snapshot(to);
        shell.export(from, to, to);
        let done = shell.import(to, import_options);
        assert_eq!(done["snapshot"], to);
        shell.same(&["data", &format!("data@{to}")]);
    };
    shell.change("here.img", |pool| scribble(pool, "data", seed, 60));
    carry("empty", "full");
    shell.change("here.img", |pool| scribble(pool, "data", seed + 1, 40));
    carry("full", "more");
    // Discarded, zeroed, and filled again in part.
    shell.change("here.img", |pool| {
        zero(pool, "data", MIB / 2, MIB, Zeroing::Discard);
        zero(pool, "data", 0, 64 << 10, Zeroing::Zeroes);
        write(pool, "data", MIB, &noise(seed + 2, 128 << 10));
    });
    carry("more", "holes");
    // All of it gone.
    shell.change("here.img", |pool| zero(pool, "data", 0, 3 * MIB, Zeroing::Discard));
    carry("holes", "nothing");
    shell.change("here.img", |pool| scribble(pool, "data", seed + 3, 20));
    shell.succeeds(&["disk", "volume", "grow", "here.img", "data", "--size", "5MiB"]);
    shell.change("here.img", |pool| {
        write(pool, "data", 5 * MIB - 8192, &noise(seed + 4, 8192));
        scribble(pool, "data", seed + 5, 20);
    });
    carry("nothing", "larger");
    // Back to an older one, and on from there.
    shell.succeeds(&["disk", "snapshot", "rollback", "here.img", "data@more"]);
    shell.change("here.img", |pool| scribble(pool, "data", seed + 6, 10));
    carry("larger", "back");
    carry("back", "unchanged");
    shell.same(&["data@full", "data@more", "data@holes", "data@nothing", "data@larger"]);
}

#[test]
fn a_volume_follows_another_through_everything_by_catching_up() {
    a_whole_story(1, &[], &["--create"]);
}

#[test]
fn a_mirror_follows_a_volume_through_everything() {
    a_whole_story(100, &[], &["--create", "--mode", "mirror"]);
}

#[test]
fn small_and_large_blocks_travel_too() {
    a_whole_story(200, &["--block-size", "512"], &["--create"]);
    let large = ["--block-size", "32KiB", "--compression", "gzip-1"];
    a_whole_story(300, &large, &["--create", "--compression", "lz4"]);
}

/// Protects from a replica that has the bytes, but claims another place in the sequence.
#[test]
fn catching_up_ends_exactly_where_the_source_was() {
    let shell = two_pools();
    // One operation between two snapshots leaves no place for anything but the snapshot.
    for (name, from) in [("one", "empty"), ("two", "one"), ("three", "two")] {
        shell.change("here.img", |pool| {
            let seed = name.len() as u64;
            write(pool, "data", 4096 * seed, &noise(seed, 12 << 10));
        });
        shell.snapshot(name);
        shell.export(from, name, name);
        assert_eq!(shell.import(name, &["--create"])["mode"], "catch-up");
        shell.same(&["data", &format!("data@{name}")]);
        assert_eq!(shell.positions("here.img"), shell.positions("there.img"));
    }
    // A rollback is one operation, whatever it changes.
    shell.succeeds(&["disk", "snapshot", "rollback", "here.img", "data@one"]);
    shell.snapshot("four");
    shell.export("three", "four", "four");
    shell.import("four", &[]);
    // None at all.
    shell.snapshot("five");
    shell.export("four", "five", "five");
    shell.import("five", &[]);
    shell.same(&["data", "data@four", "data@five"]);
    assert_eq!(shell.positions("here.img"), shell.positions("there.img"));
    let uid = |pool| shell.json(&["disk", "volumes", pool])[0]["uid"].clone();
    assert_eq!(uid("here.img"), uid("there.img"));
}

/// A replica that stopped at some seq gets what came after it.
#[test]
fn a_copy_of_a_pool_catches_up_from_its_seq() {
    let shell = two_pools();
    shell.change("here.img", |pool| scribble(pool, "data", 1, 30));
    let at = shell.snapshot("monday")["seq"].clone();
    fs::copy(shell.path("here.img"), shell.path("there.img")).unwrap();
    shell.change("here.img", |pool| scribble(pool, "data", 2, 30));
    shell.snapshot("tuesday");
    shell.export(&format!("seq:{at}"), "tuesday", "delta");
    assert_eq!(shell.import("delta", &[])["mode"], "catch-up");
    shell.same(&["data", "data@monday", "data@tuesday"]);
    assert_eq!(shell.positions("here.img"), shell.positions("there.img"));
    // A mirror counts otherwise.
    shell.succeeds(&["disk", "volume", "delete", "there.img", "data", "--with-snapshots"]);
    let mirror = ["disk", "import", "there.img", "data", "--file", "delta", "--create"];
    shell.refuses(&[&mirror[..], &["--mode", "mirror"]].concat(), &["begins at a seq"]);
}

#[test]
fn a_mirror_has_a_sequence_and_an_identity_of_its_own() {
    let shell = two_pools();
    shell.change("here.img", |pool| scribble(pool, "data", 1, 30));
    shell.snapshot("monday");
    shell.export("empty", "monday", "full");
    let done = shell.import("full", &["--create", "--mode", "mirror"]);
    assert_eq!((&done["mode"], &done["seq"]), (&json!("mirror"), &json!(3)));
    let uid = |pool| shell.json(&["disk", "volumes", pool])[0]["uid"].clone();
    assert_ne!(uid("here.img"), uid("there.img"));
    shell.change("here.img", |pool| scribble(pool, "data", 2, 30));
    shell.snapshot("tuesday");
    shell.export("monday", "tuesday", "delta");
    // Nobody has to say so again.
    assert_eq!(shell.import("delta", &[])["mode"], "mirror");
    shell.same(&["data", "data@tuesday"]);
    // What a mirror got can be exported on.
    let on = ["disk", "export", "there.img", "--from", "monday", "--to", "data@tuesday"];
    shell.succeeds(&[&on[..], &["--file", "further"]].concat());
}

/// A rollback to the base makes a volume fit again, as the refusal says.
#[test]
fn a_volume_that_moved_on_is_rolled_back_and_fits() {
    let shell = two_pools();
    shell.change("here.img", |pool| scribble(pool, "data", 1, 30));
    shell.snapshot("monday");
    shell.export("empty", "monday", "full");
    shell.import("full", &["--create", "--mode", "mirror"]);
    shell.change("here.img", |pool| scribble(pool, "data", 2, 30));
    shell.snapshot("tuesday");
    shell.export("monday", "tuesday", "delta");
    shell.change("there.img", |pool| scribble(pool, "data", 3, 5));
    let import = ["disk", "import", "there.img", "data", "--file", "delta"];
    shell.refuses(&import, &["moved beyond that", "roll it back"]);
    shell.succeeds(&["disk", "snapshot", "rollback", "there.img", "data@monday"]);
    shell.import("delta", &[]);
    shell.same(&["data", "data@monday", "data@tuesday"]);
}

#[test]
fn a_copy_in_the_same_pool_is_a_volume_of_its_own() {
    let shell = two_pools();
    shell.change("here.img", |pool| scribble(pool, "data", 1, 30));
    shell.snapshot("monday");
    shell.export("empty", "monday", "full");
    let import = ["disk", "import", "here.img", "copy", "--file", "full", "--create"];
    shell.refuses(&[&import[..], &["--mode", "catch-up"]].concat(), &["under another name"]);
    assert_eq!(shell.json(&import)["mode"], "mirror");
    assert!(shell.bytes("here.img", "copy") == shell.bytes("here.img", "data"));
    let volumes = shell.json(&["disk", "volumes", "here.img"]);
    assert_ne!(volumes[0]["uid"], volumes[1]["uid"]);
}

#[test]
fn a_pipe_carries_a_delta_as_well_as_a_file() {
    let shell = two_pools();
    shell.change("here.img", |pool| scribble(pool, "data", 1, 60));
    shell.snapshot("monday");
    let program = env!("CARGO_BIN_EXE_pollux");
    let export = ["disk", "export", "here.img", "--from", "empty", "--to", "data@monday"];
    let mut source = Command::new(program)
        .args(export)
        .current_dir(shell.path("."))
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let import = ["disk", "import", "there.img", "data", "--create", "--snapshot", "first"];
    let output = Command::new(program)
        .args(import)
        .current_dir(shell.path("."))
        .stdin(source.stdout.take().unwrap())
        .output()
        .unwrap();
    assert!(source.wait().unwrap().success());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(output.stderr.is_empty(), "a bar is only for terminals");
    shell.same(&["data"]);
    assert!(shell.bytes("there.img", "data@first") == shell.bytes("here.img", "data@monday"));
}

#[test]
fn an_export_is_there_when_it_is_whole_and_replaces_nothing_by_itself() {
    let shell = two_pools();
    shell.change("here.img", |pool| scribble(pool, "data", 1, 30));
    shell.snapshot("monday");
    let told = shell.export("empty", "monday", "delta");
    assert_eq!(told["file_size"], fs::metadata(shell.path("delta")).unwrap().len());
    assert_eq!((&told["from"], &told["to"]), (&json!("empty"), &json!("data@monday")));
    let again = ["disk", "export", "here.img", "--from", "empty", "--to", "data@monday"];
    let again = [&again[..], &["--file", "delta"]].concat();
    shell.refuses(&again, &["delta: exists", "--force"]);
    let before = shell.read("delta");
    shell.succeeds(&[&again[..], &["--force", "--quiet"]].concat());
    assert!(shell.read("delta") == before, "the same again is the same");
    let names: Vec<_> = fs::read_dir(shell.path(".")).unwrap().collect();
    assert_eq!(names.len(), 3, "no unfinished file is left: {names:?}");
}

/// Damage must not travel: it would get a good checksum on the way.
#[test]
fn what_is_damaged_is_not_exported() {
    let shell = two_pools();
    let secret = noise(7, 64 << 10);
    shell.change("here.img", |pool| write(pool, "data", 8192, &secret));
    shell.snapshot("monday");
    let mut bytes = shell.read("here.img");
    let at = bytes.windows(64).position(|window| *window == secret[4096..4160]).unwrap();
    bytes[at + 9] ^= 1;
    shell.put("here.img", &bytes);
    let export = ["disk", "export", "here.img", "--from", "empty", "--to", "data@monday"];
    let export = [&export[..], &["--file", "delta"]].concat();
    shell.refuses(&export, &["here.img", "byte 12288 of data@monday is damaged"]);
}

#[test]
fn exports_that_cannot_be() {
    let shell = two_pools();
    shell.change("here.img", |pool| scribble(pool, "data", 1, 10));
    shell.snapshot("monday");
    shell.snapshot("tuesday");
    shell.succeeds(&["disk", "volume", "create", "here.img", "other", "--size", "1MiB"]);
    shell.succeeds(&["disk", "snapshot", "create", "here.img", "other", "monday"]);
    let refuses = |from: &str, to: &str, more: &[&str], words: &[&str]| {
        let export = ["disk", "export", "here.img", "--from", from, "--to", to, "--file", "new"];
        shell.refuses(&[&export[..], more].concat(), words);
    };
    refuses("empty", "data@sunday", &[], &["no snapshot \"data@sunday\""]);
    refuses("empty", "data", &[], &["VOLUME@SNAPSHOT"]);
    refuses("sunday", "data@monday", &[], &["has no snapshot \"sunday\"", "seq:N"]);
    refuses("other@sunday", "data@monday", &[], &["no snapshot \"other@sunday\""]);
    refuses("other@monday", "data@monday", &[], &["different volumes"]);
    refuses("tuesday", "data@monday", &[], &["data@tuesday is newer than data@monday"]);
    refuses("seq:x", "data@monday", &[], &["no seq"]);
    refuses("seq:99", "data@monday", &[], &["the base must not be later"]);
    refuses("empty", "data@monday", &["--resume-from", "1000"], &["a multiple of 4096"]);
    refuses("empty", "data@monday", &["--resume-from", "4MiB"], &["cannot go on at"]);
    let export = ["disk", "export", "here.img", "--from", "empty", "--to", "data@monday"];
    let to = |file| [&export[..], &["--file", file]].concat();
    shell.refuses(&to("missing/new"), &["missing/new", "cannot be written"]);
    shell.refuses(&to("."), &["no regular file"]);
    shell.misunderstands(&["disk", "export", "here.img", "--to", "data@monday"], "--from");
}

#[test]
fn a_volume_in_use_takes_no_import() {
    let shell = two_pools();
    shell.change("here.img", |pool| scribble(pool, "data", 1, 10));
    shell.snapshot("monday");
    shell.export("empty", "monday", "full");
    shell.succeeds(&["disk", "volume", "create", "there.img", "data", "--size", "3MiB"]);
    shell.change("there.img", |pool| {
        let volume = volume(pool, "data").id;
        pool.run(Op::Attach { volume, attached: true }).unwrap();
    });
    let import = ["disk", "import", "there.img", "data", "--file", "full"];
    shell.refuses(&import, &["\"data\" is marked as in use"]);
}

/// A larger volume grows its destination, also when nothing else happened.
#[test]
fn growing_alone_is_a_delta_too() {
    let shell = two_pools();
    shell.change("here.img", |pool| scribble(pool, "data", 1, 10));
    shell.snapshot("monday");
    shell.export("empty", "monday", "full");
    shell.import("full", &["--create"]);
    shell.change("here.img", |pool| {
        let volume = volume(pool, "data");
        let size = ByteLen(4 * MIB);
        pool.run(Op::Grow { volume: volume.id, position: Some(next(&volume)), size }).unwrap();
    });
    shell.snapshot("tuesday");
    shell.export("monday", "tuesday", "delta");
    shell.import("delta", &[]);
    shell.same(&["data", "data@tuesday"]);
    assert_eq!(shell.positions("here.img"), shell.positions("there.img"));
}

/// The last granule of a volume with small blocks may be cut by its end.
#[test]
fn a_volume_that_ends_within_a_granule_travels_whole() {
    let shell = Shell::new();
    for pool in ["here.img", "there.img"] {
        shell.succeeds(&["disk", "create", pool, "--size", "12MiB"]);
    }
    let size = MIB + 1536;
    let create = ["disk", "volume", "create", "here.img", "data", "--block-size", "512"];
    shell.succeeds(&[&create[..], &["--size", &size.to_string()]].concat());
    shell.change("here.img", |pool| {
        write(pool, "data", 0, &noise(1, 8192));
        write(pool, "data", size - 1024, &noise(2, 1024));
    });
    shell.snapshot("monday");
    shell.export("empty", "monday", "full");
    shell.import("full", &["--create"]);
    shell.same(&["data", "data@monday"]);
    shell.change("here.img", |pool| {
        zero(pool, "data", size - 512, 512, Zeroing::Discard);
        write(pool, "data", 4096, &noise(3, 512));
        zero(pool, "data", size - 1536, 1536, Zeroing::Discard);
    });
    shell.snapshot("tuesday");
    shell.export("monday", "tuesday", "delta");
    shell.import("delta", &[]);
    shell.same(&["data", "data@tuesday"]);
    // The end is a place to go on from, too.
    let export = ["disk", "export", "here.img", "--from", "monday", "--to", "data@tuesday"];
    let end = size.to_string();
    let rest = shell.json(&[&export[..], &["--file", "rest", "--resume-from", &end]].concat());
    assert_eq!((&rest["data"], &rest["holes"]), (&json!(0), &json!(0)));
}
