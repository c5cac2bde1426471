//! Imports that were interrupted: by a cut stream, by kill -9, at any moment. They go on, and end
//! with the same bytes.
use std::fs;
use std::io::Write;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use engine::{Op, SnapshotsOfDeleted, Stamps};
use serde_json::json;
use sim::Rng;

use crate::bytes::{MIB, noise, scribble, volume, write, zero};
use crate::shell::Shell;
use crate::streams::frames;
use crate::transfer::{two_pools, two_pools_of};

const IMPORT: [&str; 6] = ["disk", "import", "there.img", "data", "--file", "delta"];
const ABANDON: [&str; 5] = ["disk", "import", "there.img", "data", "--abandon"];

/// `delta` leads from monday, which both pools have, to tuesday: 40 writes and holes over 2 MiB.
fn with_long_delta(import: &[&str]) -> Shell {
    let shell = two_pools_of("16MiB", &[]);
    shell.change("here.img", |pool| write(pool, "data", 0, &noise(1, 2 << 20)));
    shell.snapshot("monday");
    shell.export("empty", "monday", "full");
    shell.import("full", &[&["--create"], import].concat());
    shell.change("here.img", |pool| {
        scribble(pool, "data", 2, 40);
        zero(pool, "data", 2 * MIB, MIB / 2, engine::Zeroing::Discard);
    });
    shell.snapshot("tuesday");
    shell.export("monday", "tuesday", "delta");
    shell
}

fn progress(shell: &Shell) -> Option<u64> {
    shell.json(&["disk", "volumes", "there.img"])[0]["import_progress"].as_u64()
}

fn cut_at_many_places(shell: &Shell) {
    let whole = shell.read("delta");
    let pristine = shell.read("there.img");
    let begins = frames(&whole);
    let mut places: Vec<usize> = begins.iter().flat_map(|at| [at.saturating_sub(1), *at]).collect();
    let mut rng = Rng::new(7);
    places.extend((0..10).map(|_| rng.index(whole.len())));
    places.retain(|at| *at < whole.len());
    let before = shell.everything("there.img");
    let mut went_on = 0;
    for at in places.into_iter().step_by(2) {
        shell.put("delta", &whole[..at]);
        let error = shell.fails(&IMPORT);
        assert!(error.contains("cut short"), "cut at {at}: {error}");
        assert!(shell.everything("there.img") == before, "cut at {at}");
        if error.contains("what arrived is kept") {
            went_on += 1;
            assert!(progress(shell).is_some());
        }
        shell.put("delta", &whole);
        shell.import("delta", &[]);
        shell.same(&["data", "data@monday", "data@tuesday"]);
        shell.put("there.img", &pristine);
    }
    assert!(went_on > 5, "imports that went on: {went_on}");
}

#[test]
fn a_cut_stream_is_gone_on_with_wherever_it_was_cut() {
    cut_at_many_places(&with_long_delta(&[]));
}

#[test]
fn so_is_that_of_a_mirror() {
    cut_at_many_places(&with_long_delta(&["--mode", "mirror"]));
}

/// Cuts `delta` in the middle and imports what is left.
fn interrupt(shell: &Shell) -> Vec<u8> {
    let whole = shell.read("delta");
    shell.put("delta", &whole[..whole.len() * 2 / 3]);
    let error = shell.fails(&IMPORT);
    assert!(error.contains("what arrived is kept"), "{error}");
    shell.put("delta", &whole);
    whole
}

/// What arrived does not have to be sent again.
#[test]
fn an_export_begins_where_the_import_stopped() {
    let shell = with_long_delta(&[]);
    interrupt(&shell);
    let at = progress(&shell).expect("an unfinished import");
    assert!(at > 0);
    let export = |from: u64, file| {
        let from = from.to_string();
        let export = ["disk", "export", "here.img", "--from", "monday", "--to", "data@tuesday"];
        shell.json(&[&export[..], &["--file", file, "--resume-from", &from]].concat())
    };
    // Beyond what is there, there would be a gap.
    export(at + 8192, "beyond");
    let beyond = ["disk", "import", "there.img", "data", "--file", "beyond"];
    shell.refuses(&beyond, &["continues at", &format!("the import is at byte {at}")]);
    // A little too early is no harm, and right there is best.
    let pristine = shell.read("there.img");
    for from in [at - 4096, at] {
        let rest = export(from, "rest");
        let sent = rest["data"].as_u64().unwrap() + rest["holes"].as_u64().unwrap();
        assert!(sent <= 3 * MIB - from, "only the rest: {rest}");
        shell.import("rest", &[]);
        shell.same(&["data", "data@tuesday"]);
        shell.put("there.img", &pristine);
        fs::remove_file(shell.path("rest")).unwrap();
    }
    // Without the import that it goes on with, it is nothing.
    shell.succeeds(&ABANDON);
    export(at, "rest");
    let rest = ["disk", "import", "there.img", "data", "--file", "rest"];
    shell.refuses(&rest, &["continues at", "the import is at byte 0"]);
}

#[test]
fn an_unfinished_import_holds_its_volume_and_can_be_dropped() {
    let shell = with_long_delta(&[]);
    let before = shell.everything("there.img");
    shell.refuses(&ABANDON, &["no unfinished import into \"data\""]);
    interrupt(&shell);
    let volumes = shell.succeeds(&["disk", "volume", "list", "there.img"]);
    assert!(volumes.contains("unfinished import"), "{volumes}");
    let all = shell.json(&["disk", "volume", "list", "there.img", "--all"]);
    assert_eq!((&all[1]["name"], &all[1]["hidden"]), (&json!("data"), &json!(true)));
    let words = ["an import into \"data\" is unfinished", "--abandon"];
    shell.refuses(&["disk", "snapshot", "create", "there.img", "data", "new"], &words);
    shell.refuses(&["disk", "snapshot", "rollback", "there.img", "data@monday"], &words);
    shell.refuses(&["disk", "volume", "grow", "there.img", "data", "--size", "8MiB"], &words);
    let delete = ["disk", "volume", "delete", "there.img", "data", "--with-snapshots"];
    shell.refuses(&delete, &words);
    let list = shell.json(&["disk", "snapshot", "list", "there.img", "--all"]);
    let marker = list.as_array().unwrap().iter().find(|s| s["internal"] == json!(true)).unwrap();
    let uid = marker["uid"].as_str().unwrap();
    shell.refuses(&["disk", "snapshot", "delete", "there.img", uid], &words);
    // What was staged with the source's stamps cannot become a mirror's.
    let mirror = [&IMPORT[..], &["--mode", "mirror"]].concat();
    shell.refuses(&mirror, &["begun with --mode catch-up", "--abandon"]);
    // Another delta has to wait.
    shell.change("here.img", |pool| scribble(pool, "data", 3, 5));
    shell.snapshot("wednesday");
    shell.export("monday", "wednesday", "other");
    let other = ["disk", "import", "there.img", "data", "--file", "other"];
    let words = ["an import of another delta (from snapshot \"monday\"", "--abandon"];
    shell.refuses(&other, &words);
    let dropped = shell.json(&ABANDON);
    assert_eq!(dropped["abandoned"], "data");
    assert!(dropped["progress"].as_u64() > Some(0));
    assert!(shell.everything("there.img") == before);
    shell.succeeds(&other);
    assert!(shell.bytes("there.img", "data") == shell.bytes("here.img", "data@wednesday"));
    shell.succeeds(&["disk", "check", "there.img", "--data"]);
}

/// Killed right after it began, and right before it ended: two moments that are hard to meet.
#[test]
fn an_import_that_was_all_but_begun_or_all_but_done_goes_on() {
    let shell = with_long_delta(&[]);
    let whole = shell.read("delta");
    let pristine = shell.read("there.img");
    // All but the end.
    let end = frames(&whole).into_iter().rev().nth(1).unwrap();
    let everything_staged = || {
        shell.put("there.img", &pristine);
        shell.put("delta", &whole[..end]);
        shell.run(&IMPORT);
        shell.put("delta", &whole);
    };
    everything_staged();
    shell.change("there.img", drop_hidden);
    shell.import("delta", &[]);
    shell.same(&["data", "data@monday", "data@tuesday"]);
    let adopt = || {
        everything_staged();
        let to = shell.positions("here.img").pop().unwrap();
        shell.change("there.img", |pool| {
            let all = pool.volumes();
            let hidden = all.iter().find(|volume| volume.staging.is_some()).unwrap();
            let (volume, staging) = (volume(pool, "data").id, hidden.id);
            let position = block::Position::new(to.1, to.2 - 1);
            let stamps = Stamps::Keep;
            pool.run(Op::Adopt { volume, staging, position, stamps, state: None }).unwrap();
        });
    };
    adopt();
    assert!(shell.bytes("there.img", "data") == shell.bytes("here.img", "data@tuesday"));
    shell.import("delta", &[]);
    shell.same(&["data", "data@monday", "data@tuesday"]);
    assert_eq!(shell.positions("here.img"), shell.positions("there.img"));
    // Somebody wrote in between: that is not what the delta leads to.
    adopt();
    shell.change("there.img", |pool| write(pool, "data", 0, &noise(77, 4096)));
    shell.refuses(&IMPORT, &["moved beyond that"]);
    // Also when it took the very place of the adoption.
    everything_staged();
    let to = shell.positions("here.img").pop().unwrap();
    shell.change("there.img", |pool| {
        drop_hidden(pool);
        let (volume, data) = (volume(pool, "data").id, block::Data::copy_of(&noise(78, 4096)));
        let position = block::Position::new(to.1, to.2 - 1);
        pool.run(Op::Write { volume, position, offset: block::ByteOffset(0), data }).unwrap();
    });
    let before = shell.everything("there.img");
    let error = shell.fails(&IMPORT);
    assert!(error.contains("the volume was changed after this delta was imported"), "{error}");
    assert!(shell.everything("there.img") == before);
}

fn drop_hidden(pool: &mut engine::Pool<disk::FileDisk>) {
    let hidden = pool.volumes().into_iter().find(|volume| volume.staging.is_some());
    let volume = hidden.expect("an unfinished import").id;
    pool.run(Op::Delete { volume, snapshots: SnapshotsOfDeleted::Refuse }).expect("it can go");
}

/// A volume that an import made, and left.
#[test]
fn a_volume_that_is_made_by_an_import_is_gone_on_with() {
    let shell = two_pools();
    shell.change("here.img", |pool| scribble(pool, "data", 1, 40));
    shell.snapshot("monday");
    shell.export("empty", "monday", "delta");
    let whole = shell.read("delta");
    let begins = frames(&whole);
    let import = [&IMPORT[..], &["--create"]].concat();
    // Before the first frame was there, not even the volume is made.
    shell.put("delta", &whole[..begins[2] - 1]);
    shell.refuses(&import, &["cut short"]);
    shell.put("delta", &whole[..begins[begins.len() / 2]]);
    let error = shell.fails(&import);
    assert!(error.contains("what arrived is kept"), "{error}");
    assert!(shell.bytes("there.img", "data").iter().all(|byte| *byte == 0));
    shell.put("delta", &whole);
    shell.import("delta", &["--create"]);
    shell.same(&["data", "data@monday"]);
    assert_eq!(shell.positions("here.img"), shell.positions("there.img"));
}

fn start(shell: &Shell, more: &[&str], stdin: Stdio) -> Child {
    Command::new(env!("CARGO_BIN_EXE_pollux"))
        .args(["disk", "import", "there.img", "data"])
        .args(more)
        .current_dir(shell.path("."))
        .stdin(stdin)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("the program starts")
}

fn kill(mut child: Child) {
    child.kill().expect("it can be killed");
    child.wait().expect("it can be waited for");
}

/// 12 MiB on top of something else.
fn with_large_delta() -> Shell {
    let shell = Shell::new();
    for pool in ["here.img", "there.img"] {
        shell.succeeds(&["disk", "create", pool, "--size", "64MiB"]);
    }
    shell.succeeds(&["disk", "volume", "create", "here.img", "data", "--size", "16MiB"]);
    shell.change("here.img", |pool| scribble(pool, "data", 1, 30));
    shell.snapshot("monday");
    shell.export("empty", "monday", "full");
    shell.import("full", &["--create"]);
    shell.change("here.img", |pool| {
        write(pool, "data", 2 * MIB, &noise(5, 12 << 20));
        scribble(pool, "data", 2, 60);
    });
    shell.snapshot("tuesday");
    shell.export("monday", "tuesday", "delta");
    shell
}

/// kill -9 after each part of the stream that arrived.
#[test]
fn a_killed_import_goes_on_where_it_was() {
    let shell = with_large_delta();
    let before = shell.everything("there.img");
    let whole = shell.read("delta");
    let mut reached = Vec::new();
    for part in 1..=8 {
        let mut child = start(&shell, &[], Stdio::piped());
        let mut pipe = child.stdin.take().expect("a pipe");
        pipe.write_all(&whole[..whole.len() * part / 9]).expect("the import reads");
        kill(child);
        drop(pipe);
        reached.push(progress(&shell).unwrap_or(0));
        assert!(shell.everything("there.img") == before, "part {part}");
    }
    assert!(reached.is_sorted(), "an import does not go back: {reached:?}");
    assert!(reached[7] > reached[0], "the imports did nothing, so nothing was shown: {reached:?}");
    shell.import("delta", &[]);
    shell.same(&["data", "data@monday", "data@tuesday"]);
    assert_eq!(shell.positions("here.img"), shell.positions("there.img"));
}

/// kill -9 at any moment, again and again, until one comes through: the volume is what it was, or
/// what it shall be.
#[test]
fn an_import_that_is_killed_at_any_moment_is_old_or_new() {
    let shell = with_large_delta();
    let (old, new) = (shell.bytes("there.img", "data"), shell.bytes("here.img", "data@tuesday"));
    let mut rng = Rng::new(3);
    for _ in 0..12 {
        let child = start(&shell, &["--file", "delta"], Stdio::null());
        std::thread::sleep(Duration::from_micros(rng.range(2_000..150_000)));
        kill(child);
        let found = shell.bytes("there.img", "data");
        assert!(found == old || found == new);
        if shell.json(&["disk", "snapshot", "list", "there.img"]).as_array().unwrap().len() == 2 {
            break;
        }
    }
    // It may have come through in the end; what it left behind then is of no use.
    let output = shell.run(&IMPORT);
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() || error.contains("nothing is left to import"), "{error}");
    assert!(shell.bytes("there.img", "data") == new);
    assert!(shell.bytes("there.img", "data@tuesday") == new);
    shell.succeeds(&["disk", "check", "there.img", "--data"]);
}

/// A pool that is too small for what arrives: the import stops, and goes on when there is room.
#[test]
fn an_import_that_finds_no_space_goes_on_in_a_larger_pool() {
    let shell = Shell::new();
    shell.succeeds(&["disk", "create", "here.img", "--size", "24MiB"]);
    shell.succeeds(&["disk", "create", "there.img", "--size", "8MiB"]);
    shell.succeeds(&["disk", "volume", "create", "here.img", "data", "--size", "12MiB"]);
    shell.change("here.img", |pool| write(pool, "data", 0, &noise(1, 10 << 20)));
    shell.snapshot("monday");
    shell.export("empty", "monday", "delta");
    let free = || shell.json(&["disk", "info", "there.img"])["free"].as_u64();
    let before = free();
    let import = [&IMPORT[..], &["--create"]].concat();
    let error = shell.fails(&import);
    assert!(error.contains("no space") && error.contains("what arrived is kept"), "{error}");
    assert!(shell.bytes("there.img", "data").iter().all(|byte| *byte == 0));
    shell.succeeds(&ABANDON);
    shell.succeeds(&["disk", "volume", "delete", "there.img", "data"]);
    assert_eq!(free(), before, "all of the space came back");
    shell.fails(&import);
    let reached = progress(&shell);
    assert!(reached > Some(MIB), "{reached:?}");
    shell.succeeds(&["disk", "grow", "there.img", "--size", "32MiB"]);
    shell.succeeds(&import);
    shell.same(&["data", "data@monday"]);
}
