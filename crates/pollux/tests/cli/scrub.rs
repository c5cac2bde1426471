//! Damage that is looked for, named, and mended.
use std::collections::HashMap;
use std::fs;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::bytes::{MIB, noise, write};
use crate::shell::Shell;

const SCRUB: [&str; 3] = ["disk", "scrub", "pool.img"];

/// `data` with a snapshot that shares most of it, and a good copy of it all in `copy.img`.
fn with_copy(volume: &[&str], content: &[u8]) -> Shell {
    let shell = Shell::new();
    shell.succeeds(&["disk", "create", "pool.img", "--size", "16MiB"]);
    let create = ["disk", "volume", "create", "pool.img", "data", "--size", "3MiB"];
    shell.succeeds(&[&create[..], volume].concat());
    shell.change("pool.img", |pool| write(pool, "data", 0, content));
    shell.succeeds(&["disk", "snapshot", "create", "pool.img", "data", "monday"]);
    shell.change("pool.img", |pool| write(pool, "data", 2 * MIB, &noise(2, 64 << 10)));
    fs::copy(shell.path("pool.img"), shell.path("copy.img")).expect("a copy");
    shell
}

/// Flips a bit of a stored block that begins with these bytes.
fn damage(shell: &Shell, block: &[u8]) {
    let mut bytes = shell.read("pool.img");
    let at = bytes.chunks(512).position(|sector| sector[..64] == block[..64]);
    bytes[at.expect("the block is stored") * 512 + 77] ^= 4;
    shell.put("pool.img", &bytes);
}

/// Scrubs, and returns the answer of a scrub that found damage which it could not mend.
fn left(shell: &Shell, more: &[&str]) -> Value {
    let output = shell.run(&[&SCRUB[..], more, &["--output", "json"]].concat());
    let error = String::from_utf8(output.stderr).expect("errors are text");
    assert_eq!(output.status.code(), Some(1), "{error}");
    assert!(error.starts_with("error: pool.img: ") && error.contains("damages"), "{error}");
    serde_json::from_slice(&output.stdout).expect("JSON")
}

#[test]
fn a_healthy_pool_has_no_damage() {
    let shell = with_copy(&[], &noise(1, 1 << 20));
    let found = shell.json(&SCRUB);
    assert_eq!((&found["left"], &found["repaired"]), (&json!(0), &json!(0)));
    assert!(found["verified"].as_u64() > Some(MIB), "{found}");
    let table = shell.succeeds(&SCRUB);
    assert!(table.contains("no damage"), "{table}");
}

#[test]
fn damaged_data_is_named_and_mended_from_another_pool() {
    let content = noise(1, 1 << 20);
    let shell = with_copy(&[], &content);
    let before = shell.everything("pool.img");
    damage(&shell, &content[8 * 4096..]);
    damage(&shell, &content[70 * 4096..]);
    let found = left(&shell, &[]);
    assert_eq!((&found["left"], &found["repaired"]), (&json!(2), &json!(0)));
    let first = &found["damages"][0];
    assert_eq!((&first["part"], &first["offset"]), (&json!("data"), &json!(8 * 4096)));
    let mut owners: Vec<&str> =
        first["owners"].as_array().expect("a list").iter().filter_map(Value::as_str).collect();
    owners.sort_unstable();
    assert_eq!(owners, ["data", "data@monday"]);
    // The volume of the donor has gone on, but its snapshot still has the block.
    shell.change("copy.img", |pool| write(pool, "data", 0, &noise(3, 1 << 20)));
    let mended = shell.json(&[&SCRUB[..], &["--repair-from", "copy.img"]].concat());
    assert_eq!((&mended["left"], &mended["repaired"]), (&json!(0), &json!(2)));
    assert!(shell.everything("pool.img") == before);
    assert_eq!(shell.json(&SCRUB)["damages"], json!([]));
    shell.succeeds(&["disk", "check", "pool.img", "--data"]);
}

#[test]
fn compressed_blocks_are_mended_too() {
    // Long runs of a byte, which shrink, and none like another.
    let content: Vec<u8> =
        (0..64u8).flat_map(|n| [&noise(n.into(), 64)[..], &[n; 16320]].concat()).collect();
    let shell = with_copy(&["--block-size", "16KiB", "--compression", "lz4"], &content);
    let volume = &shell.json(&["disk", "volumes", "pool.img"])[0];
    assert!(volume["stored"].as_u64() < volume["logical"].as_u64(), "{volume}");
    assert_eq!(volume["compression"], "lz4");
    let before = shell.everything("pool.img");
    // A stored block begins with its length; what follows is as it was.
    let mut bytes = shell.read("pool.img");
    let at = bytes.windows(48).position(|window| *window == content[5 * 16384..][..48]);
    bytes[at.expect("the block is stored") + 20] ^= 1;
    shell.put("pool.img", &bytes);
    assert_eq!(left(&shell, &[])["left"], 1);
    let mended = shell.json(&[&SCRUB[..], &["--repair-from", "copy.img"]].concat());
    assert_eq!((&mended["left"], &mended["repaired"]), (&json!(0), &json!(1)));
    assert!(shell.everything("pool.img") == before);
}

/// Bookkeeping lies in two places, and needs nobody else.
#[test]
fn damaged_bookkeeping_is_mended_from_its_second_copy() {
    let shell = with_copy(&[], &noise(1, 1 << 20));
    let mut bytes = shell.read("pool.img");
    let mut places: HashMap<Vec<u8>, Vec<usize>> = HashMap::new();
    for (number, page) in bytes.chunks(4096).enumerate() {
        if page.iter().any(|byte| *byte != 0) {
            places.entry(page.to_vec()).or_default().push(number);
        }
    }
    let twins: Vec<usize> =
        places.into_values().filter(|at| at.len() == 2).map(|at| at[1]).collect();
    assert!(twins.len() > 4, "pages in two places: {}", twins.len());
    for page in twins {
        bytes[page * 4096 + 2000] ^= 1;
    }
    shell.put("pool.img", &bytes);
    let before = shell.everything("copy.img");
    let found = shell.json(&SCRUB);
    assert_eq!(found["left"], 0, "{found}");
    assert!(found["repaired"].as_u64() > Some(1), "{found}");
    assert_eq!(shell.json(&SCRUB)["damages"], json!([]));
    assert!(shell.everything("pool.img") == before);
}

#[test]
fn a_pool_without_the_same_bytes_mends_nothing() {
    let content = noise(1, 1 << 20);
    let shell = with_copy(&[], &content);
    damage(&shell, &content[8 * 4096..]);
    shell.succeeds(&["disk", "create", "copy.img", "--force"]);
    let from = ["--repair-from", "copy.img"];
    assert_eq!(left(&shell, &from)["left"], 1);
    // The same name is not the same volume.
    shell.succeeds(&["disk", "volume", "create", "copy.img", "data", "--size", "3MiB"]);
    shell.change("copy.img", |pool| write(pool, "data", 0, &content));
    assert_eq!(left(&shell, &from)["left"], 1);
    let table = String::from_utf8(shell.run(&SCRUB).stdout).expect("text");
    assert!(table.contains("data of data") && table.contains("byte 32768"), "{table}");
}

#[test]
fn a_scrub_keeps_to_its_rate() {
    let shell = with_copy(&[], &noise(1, 2 << 20));
    let begun = Instant::now();
    shell.succeeds(&[&SCRUB[..], &["--rate", "2"]].concat());
    assert!(begun.elapsed() > Duration::from_millis(800), "{:?}", begun.elapsed());
}

#[test]
fn scrubs_that_cannot_be() {
    let shell = with_copy(&[], &noise(1, 4096));
    let from = |pool| [&SCRUB[..], &["--repair-from", pool]].concat();
    shell.refuses(&from("pool.img"), &["the pool that is scrubbed"]);
    shell.refuses(&from("missing.img"), &["missing.img does not exist"]);
    shell.put("letter", &[7; 8192]);
    shell.refuses(&from("letter"), &["letter: "]);
    shell.misunderstands(&[&SCRUB[..], &["--rate", "0"]].concat(), "--rate");
}
