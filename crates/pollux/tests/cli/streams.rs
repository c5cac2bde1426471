//! Streams that are damaged, cut, foreign or out of place: refused, and nothing changed.
use std::fs;

use block::{ByteLen, ByteOffset, Position, Seq};
use engine::BlockSize;
use engine::delta::{Base, DATA_MAX, Header, Reader, Snapshot, Writer};
use serde_json::json;

use crate::bytes::{MIB, noise, scribble, write, zero};
use crate::shell::Shell;
use crate::transfer::two_pools;

const IMPORT: [&str; 6] = ["disk", "import", "there.img", "data", "--file", "delta"];

/// Where each frame begins, and the end.
pub fn frames(stream: &[u8]) -> Vec<usize> {
    let mut reader = Reader::new();
    let (mut begins, mut at) = (vec![0], 0);
    while at < stream.len() {
        let _ = reader.push(&stream[at..at + 1]);
        at += 1;
        if reader.next().expect("a good stream").is_some() {
            begins.push(at);
        }
    }
    begins
}

/// `there.img` has what `here.img` had on monday; `delta` leads from there to tuesday, with data
/// and holes.
fn with_delta() -> Shell {
    let shell = two_pools();
    shell.change("here.img", |pool| {
        write(pool, "data", 0, &noise(1, 256 << 10));
        write(pool, "data", MIB, &noise(2, 64 << 10));
    });
    shell.snapshot("monday");
    shell.export("empty", "monday", "full");
    shell.import("full", &["--create"]);
    shell.change("here.img", |pool| {
        write(pool, "data", 4096, &noise(3, 4096));
        zero(pool, "data", 64 << 10, 32 << 10, engine::Zeroing::Discard);
        write(pool, "data", 2 * MIB, &noise(4, 8192));
        write(pool, "data", 2 * MIB + (64 << 10), &noise(5, 4096));
    });
    shell.snapshot("tuesday");
    shell.export("monday", "tuesday", "delta");
    shell
}

/// A bad stream is refused with one line, and changes nothing that anybody can see.
#[track_caller]
fn refused_softly(shell: &Shell, before: &[(String, Vec<u8>)], what: &str) -> String {
    let error = shell.fails(&IMPORT);
    assert!(shell.everything("there.img") == before, "{what}: the volume was changed");
    error
}

/// Every kind of frame, every field of its head, and its payload. What was taken before the damage
/// is kept, and the good stream goes on from there.
#[test]
fn a_stream_with_any_byte_damaged_is_refused_and_the_good_one_still_fits() {
    let shell = with_delta();
    let good = shell.read("delta");
    let begins = frames(&good);
    let pristine = shell.read("there.img");
    let before = shell.everything("there.img");
    let mut places = Vec::new();
    for pair in begins.windows(2) {
        let (begin, end) = (pair[0], pair[1]);
        assert!(good[begin..].starts_with(b"PLXD"), "a frame begins at {begin}");
        places.extend((0..64).step_by(7).map(|at| begin + at));
        // Payloads: first, somewhere, last.
        places.extend([64, 64 + 100, end - begin - 1].map(|at| begin + at));
    }
    places.retain(|at| *at < good.len());
    let mut went_on = 0;
    for (turn, at) in places.into_iter().enumerate() {
        let mut bad = good.clone();
        bad[at] ^= 1 << (turn % 8);
        shell.put("delta", &bad);
        let error = refused_softly(&shell, &before, &format!("byte {at}"));
        match at < begins[1] {
            true => {
                let now = shell.read("there.img");
                assert!(now == pristine, "byte {at}: a bad header leaves every byte");
            }
            false => assert!(error.contains("--abandon") || !error.contains("kept"), "{error}"),
        }
        if turn % 7 == 0 {
            went_on += u64::from(error.contains("what arrived is kept"));
            shell.put("delta", &good);
            shell.import("delta", &[]);
            shell.same(&["data", "data@monday", "data@tuesday"]);
        }
        shell.put("there.img", &pristine);
    }
    assert!(went_on > 3, "imports that went on after damage: {went_on}");
}

#[test]
fn a_stream_that_is_none_leaves_every_byte() {
    let shell = with_delta();
    let good = shell.read("delta");
    let mut version = good.clone();
    version[4] = 9;
    let sum = engine::Checksum::of(&version[..56]).0;
    version[56..64].copy_from_slice(&sum.to_le_bytes());
    let swapped = [&good[frames(&good)[1]..], &good[..]].concat();
    let cases: [(&[u8], &str); 6] = [
        (b"", "cut short at byte 0"),
        (b"PLX", "cut short at byte 3"),
        (
            b"dear reader, this is a letter and no delta at all, whatever its name may say",
            "foreign",
        ),
        (&good[..frames(&good)[1] - 1], "cut short"),
        (&version, "stream version 9"),
        (&swapped, "frames were lost or swapped"),
    ];
    for (stream, words) in cases {
        shell.put("delta", stream);
        shell.refuses(&IMPORT, &["delta: ", words]);
    }
    fs::remove_file(shell.path("delta")).unwrap();
    shell.refuses(&IMPORT, &["delta: ", "No such file"]);
    let folder = ["disk", "import", "there.img", "data", "--file", "."];
    shell.refuses(&folder, &["is a directory"]);
}

#[test]
fn two_streams_in_one_file_are_refused() {
    let shell = with_delta();
    let good = shell.read("delta");
    shell.put("delta", &[&good[..], &good[..]].concat());
    let before = shell.everything("there.img");
    let error = refused_softly(&shell, &before, "joined");
    assert!(error.contains("more bytes follow"), "{error}");
    shell.put("delta", &good);
    shell.import("delta", &[]);
    shell.same(&["data", "data@tuesday"]);
}

#[test]
fn a_delta_is_not_imported_twice_or_out_of_order() {
    let shell = with_delta();
    shell.change("here.img", |pool| scribble(pool, "data", 9, 10));
    shell.snapshot("wednesday");
    fs::rename(shell.path("delta"), shell.path("second")).unwrap();
    shell.export("tuesday", "wednesday", "delta");
    shell.refuses(&IMPORT, &["snapshot \"tuesday\"", "does not have"]);
    shell.import("second", &[]);
    shell.import("delta", &[]);
    shell.same(&["data", "data@tuesday", "data@wednesday"]);
    shell.refuses(&IMPORT, &["has snapshot \"wednesday\" already", "nothing is left"]);
    let full = ["disk", "import", "there.img", "data", "--file", "full"];
    shell.refuses(&full, &["has snapshot \"monday\" already"]);
}

#[test]
fn a_delta_of_another_volume_does_not_fit() {
    let shell = with_delta();
    shell.succeeds(&["disk", "volume", "create", "there.img", "other", "--size", "3MiB"]);
    shell.change("there.img", |pool| scribble(pool, "other", 1, 10));
    let other = |file, more: &[&'static str]| {
        [&["disk", "import", "there.img", "other", "--file", file], more].concat()
    };
    shell.refuses(&other("delta", &[]), &["other: ", "does not have"]);
    shell.refuses(&other("full", &[]), &["other: ", "moved beyond that"]);
    let caught_up = other("full", &["--mode", "catch-up"]);
    shell.refuses(&caught_up, &["the delta is of volume", "--mode mirror"]);
    shell.refuses(&other("full", &["--snapshot", "a@b"]), &["cannot name a snapshot"]);
    let unknown = ["disk", "import", "there.img", "dada", "--file", "full"];
    shell.refuses(&unknown, &["no volume \"dada\"", "--create"]);
    let unknown = ["disk", "import", "there.img", "dada", "--file", "delta", "--create"];
    shell.refuses(&unknown, &["does not have", "everything into a new volume"]);
    for (options, words) in [
        (["--size", "2MiB", "--block-size", "8KiB"], "import into a volume with the same blocks"),
        (["--size", "4MiB", "--block-size", "4KiB"], "cannot shrink"),
    ] {
        let create = ["disk", "volume", "create", "there.img", "shape"];
        shell.succeeds(&[&create[..], &options].concat());
        let import = ["disk", "import", "there.img", "shape", "--file", "full"];
        shell.refuses(&import, &[words]);
        shell.succeeds(&["disk", "volume", "delete", "there.img", "shape"]);
    }
}

/// A volume with its own data is no empty one, also when that is only in the journal.
#[test]
fn a_whole_volume_goes_only_into_an_empty_one() {
    let shell = with_delta();
    let import = ["disk", "import", "there.img", "fresh", "--file", "full"];
    shell.succeeds(&["disk", "volume", "create", "there.img", "fresh", "--size", "3MiB"]);
    let mut pool = shell.open("there.img");
    write(&mut pool, "fresh", 0, &noise(1, 4096));
    drop(pool.abandon());
    shell.refuses(&import, &["moved beyond that"]);
    shell.change("there.img", |pool| {
        zero(pool, "fresh", 0, 3 * MIB, engine::Zeroing::Discard);
    });
    shell.succeeds(&import);
    assert!(shell.bytes("there.img", "fresh") == shell.bytes("here.img", "data@monday"));
}

#[test]
fn a_name_that_is_taken_can_be_replaced() {
    let shell = with_delta();
    shell.succeeds(&["disk", "snapshot", "create", "there.img", "data", "tuesday"]);
    shell.refuses(&IMPORT, &["another snapshot", "\"tuesday\""]);
    // The snapshot took a place in the sequence; there is still one for each step.
    shell.import("delta", &["--snapshot", "later"]);
    shell.same(&["data", "data@monday"]);
    assert!(shell.bytes("there.img", "data@later") == shell.bytes("here.img", "data@tuesday"));
}

/// A volume that went on by itself has no room for what its source did meanwhile.
#[test]
fn places_in_the_sequence_are_not_taken_twice() {
    let shell = with_delta();
    for name in ["a", "b", "c", "d", "e"] {
        shell.succeeds(&["disk", "snapshot", "create", "there.img", "data", name]);
    }
    shell.refuses(&IMPORT, &["there is no room", "--mode mirror"]);
    assert_eq!(shell.import("delta", &["--mode", "mirror"])["mode"], "mirror");
    shell.same(&["data", "data@tuesday"]);
}

fn forged() -> Header {
    Header {
        volume: [1; 16],
        block_size: BlockSize::DEFAULT,
        size: ByteLen(3 * MIB),
        base: Base::Empty,
        snapshot: Snapshot {
            uid: [2; 16],
            name: "forged".into(),
            position: Position::new(1, 2),
            created_ms: 0,
        },
        own_sequence: true,
        resume_from: ByteOffset(0),
    }
}

/// Streams that are whole, but say what cannot be.
#[test]
fn a_forged_stream_does_no_harm() {
    let shell = with_delta();
    let before = shell.everything("there.img");
    let stream = |header: &Header, ranges: u64| {
        let mut out = Vec::new();
        let mut writer = Writer::new(header, &mut out).unwrap();
        for at in 0..ranges {
            let offset = ByteOffset(at * DATA_MAX);
            writer.bytes(offset, Seq(1), &noise(at, 1 << 20), &mut out).unwrap();
        }
        writer.finish(&mut out);
        shell.put("delta", &out);
    };
    let import = |more: &[&'static str]| {
        [&["disk", "import", "there.img", "new", "--file", "delta", "--create"], more].concat()
    };
    // Two MiB by one operation.
    stream(&forged(), 2);
    let error = shell.fails(&import(&[]));
    assert!(error.contains("no single one changes so much"), "{error}");
    assert!(shell.everything("there.img") == before, "not even an empty volume is left");
    let no_name =
        Header { snapshot: Snapshot { name: String::new(), ..forged().snapshot }, ..forged() };
    stream(&no_name, 1);
    shell.refuses(&import(&[]), &["has no name", "--snapshot"]);
    let position = Position::new(0, 0);
    stream(&Header { snapshot: Snapshot { position, ..forged().snapshot }, ..forged() }, 0);
    shell.refuses(&import(&[]), &["there is no room"]);
    let resumed = Header { resume_from: ByteOffset(MIB), ..forged() };
    stream(&resumed, 0);
    shell.refuses(&import(&[]), &["continues at", "the import is at byte 0"]);
    // A foreign sequence is never caught up with.
    stream(&Header { own_sequence: false, ..forged() }, 1);
    shell.refuses(&import(&["--mode", "catch-up"]), &["--mode mirror"]);
    assert_eq!(shell.json(&import(&[]))["mode"], "mirror");
    let volumes = shell.json(&["disk", "volumes", "there.img"]);
    assert_ne!(volumes[1]["uid"], json!("01010101-0101-0101-0101-010101010101"));
}
