//! How fast granules are compressed, and how soon those that do not shrink are given up:
//! `cargo run --release -p engine --example compression`.
#![forbid(unsafe_code)]

use std::hint::black_box;
use std::time::{Duration, Instant};

use engine::Compression;
use engine::compress::{decode, encode, worth_a_try};

const GRANULES: [usize; 3] = [8 << 10, 64 << 10, 128 << 10];
const NAMES: [&str; 6] = ["lz4", "gzip-1", "gzip-6", "gzip-9", "zle", "lzjb"];
/// Of each measurement: long enough to be steady.
const TIME: Duration = Duration::from_millis(300);

fn main() {
    println!("megabytes of granules a second, on one core");
    println!("granule  content  compression    write   encode   decode  stored");
    for granule in GRANULES {
        for (content, bytes) in [("text", text(granule)), ("random", random(granule))] {
            for name in NAMES {
                let compression: Compression = name.parse().expect("a known name");
                row(content, compression, &bytes);
            }
        }
    }
}

/// A write looks at a sample first, and compresses only what may shrink.
fn write(compression: Compression, granule: &[u8]) -> Option<Vec<u8>> {
    let tried = worth_a_try(compression, granule);
    tried.then(|| encode(compression, granule)).flatten().map(|(_, stored)| stored)
}

fn row(content: &str, compression: Compression, granule: &[u8]) {
    let (len, kib) = (granule.len(), granule.len() >> 10);
    let written = rate(len, || _ = black_box(write(compression, black_box(granule))));
    let encoded = rate(len, || _ = black_box(encode(compression, black_box(granule))));
    let mut out = vec![0; len];
    let decoded = encode(compression, granule).map_or("-".into(), |(encoding, stored)| {
        let mut one = || decode(encoding, black_box(&stored), &mut out).expect("just encoded");
        format!("{:.0}", rate(len, &mut one))
    });
    let stored = match write(compression, granule) {
        None => "raw".into(),
        Some(stored) => format!("{} of {} pages", stored.len() / 4096, len / 4096),
    };
    println!(
        "{kib:3} KiB  {content:7}  {compression:11}  {written:7.0}  {encoded:7.0}  {decoded:>7}  {stored}"
    );
}

/// Megabytes a second.
fn rate(len: usize, mut one: impl FnMut()) -> f64 {
    let start = Instant::now();
    let mut count = 0;
    while start.elapsed() < TIME {
        (0..16).for_each(|_| one());
        count += 16;
    }
    (count * len) as f64 / start.elapsed().as_secs_f64() / 1e6
}

/// Words of a small vocabulary with numbers between them, as logs and tables have.
fn text(len: usize) -> Vec<u8> {
    const WORDS: [&str; 12] = [
        "volume",
        "replica",
        "granule",
        "the",
        "of",
        "checkpoint",
        "journal",
        "is",
        "held",
        "position",
        "error",
        "and",
    ];
    let mut state = 7;
    let mut text = Vec::new();
    while text.len() < len {
        let number = next(&mut state);
        let word = WORDS[usize::try_from(number % 12).expect("small")];
        text.extend_from_slice(word.as_bytes());
        text.push(b' ');
        if number >> 8 & 3 == 0 {
            text.extend_from_slice(format!("{} ", number >> 40).as_bytes());
        }
    }
    text.truncate(len);
    text
}

fn random(len: usize) -> Vec<u8> {
    let mut state = 9;
    (0..len / 8).flat_map(|_| next(&mut state).to_le_bytes()).collect()
}

fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mixed = (*state ^ *state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ mixed >> 31
}
