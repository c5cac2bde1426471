//! What was compressed is what comes out again, and nothing else is taken for it.
mod content;
mod garbage;
mod names;

use super::*;
use crate::units::Checksum;
use content::{contents, random, text};

fn all() -> Vec<Compression> {
    let gzip = (1..=9).filter_map(GzipLevel::new).map(Compression::Gzip);
    gzip.chain([Compression::Lz4, Compression::Zle, Compression::Lzjb]).collect()
}

const GRANULES: [usize; 5] = [8 << 10, 16 << 10, 32 << 10, 64 << 10, 128 << 10];

fn compression(name: &str) -> Compression {
    name.parse().expect("a known name")
}

#[test]
fn every_granule_comes_back_as_it_was() {
    for len in GRANULES {
        for (what, granule) in contents(len) {
            for compression in all() {
                let Some((encoding, stored)) = encode(compression, &granule) else { continue };
                let found = format!("{what} of {len} with {compression}");
                assert_eq!(Some(encoding), compression.encoding(), "{found}");
                assert!(stored.len() + PAGE <= len, "{found}: a page is saved");
                let [sectors, whole, page] = [stored.len(), len, PAGE].map(|len| len as u64 / 512);
                assert!(can_be(encoding, sectors, whole, page), "{found}");
                // What was in the memory before must not show.
                let mut out = vec![0xa5; len];
                assert_eq!(decode(encoding, &stored, &mut out), Ok(()), "{found}");
                assert!(out == granule, "{found}: other bytes came out");
            }
        }
    }
}

/// Protects from a codec that silently never compresses anything.
#[test]
fn what_can_shrink_does() {
    let pages = |name: &str, granule: &[u8]| {
        encode(compression(name), granule).map(|(_, stored)| stored.len() / PAGE)
    };
    for name in ["lz4", "gzip-1", "gzip-6", "gzip-9", "zle", "lzjb"] {
        // LZJB needs two bytes for 66: of 128 KiB zeros more than one page is left.
        let few = pages(name, &[0; 128 << 10]).expect("zeros shrink");
        assert!(few <= 2, "{name}: zeros took {few} pages");
        let mut half = random(64 << 10, 1);
        half[20 << 10..][..32 << 10].fill(0);
        assert_eq!(pages(name, &half), Some(if name == "lzjb" { 10 } else { 9 }), "{name}");
    }
    for name in ["lz4", "gzip-1", "gzip-6", "gzip-9", "lzjb"] {
        let shrunk = pages(name, &text(64 << 10)).expect("text shrinks");
        assert!(shrunk <= 10, "{name}: text took {shrunk} pages of 16");
    }
    assert!(pages("gzip-9", &text(64 << 10)) <= pages("gzip-1", &text(64 << 10)));
}

#[test]
fn what_does_not_save_a_page_is_not_compressed() {
    for compression in all() {
        for len in GRANULES {
            assert_eq!(encode(compression, &random(len, 2)), None, "{compression} {len}");
            let mut nearly = random(len, 3);
            nearly[..PAGE].fill(0);
            assert_eq!(encode(compression, &nearly), None, "{compression} {len}: 4 bytes short");
        }
        assert_eq!(encode(compression, &[0; PAGE]), None, "a page cannot save one");
        assert_eq!(encode(compression, &[]), None);
        assert!(!worth_a_try(compression, &[0; PAGE]), "so it is not tried");
    }
    assert_eq!(encode(Compression::Off, &[0; 64 << 10]), None);
}

/// Repair makes a block anew from a good copy, and compares the checksum. Protects from an encoder
/// whose output depends on what it did before, and from a library that was updated unnoticed.
#[test]
fn the_same_granule_gives_the_same_bytes() {
    let granule = text(64 << 10);
    for compression in all() {
        let first = encode(compression, &granule);
        let _ = encode(compression, &random(32 << 10, 4));
        let _ = encode(compression, &text(128 << 10));
        assert!(first == encode(compression, &granule), "{compression} after others");
        let elsewhere = granule.clone();
        let fresh = std::thread::spawn(move || encode(compression, &elsewhere)).join();
        assert!(first == fresh.expect("it does not panic"), "{compression} in a fresh thread");
    }
    // If a library is updated and this changes: blocks that were written before can be read as
    // ever, but are not made anew with the same checksum. Say so in the decision record.
    let sum = |name: &str| {
        let stored = encode(compression(name), &granule).map(|(_, stored)| stored);
        Checksum::of(&stored.expect("text shrinks")).0
    };
    let known = ["lz4", "gzip-1", "gzip-6", "gzip-9", "lzjb"].map(|name| (name, sum(name)));
    assert_eq!(
        known,
        [
            ("lz4", 0x35c7_abac_9f2e_6376),
            ("gzip-1", 0x3352_effc_eb36_0ae1),
            ("gzip-6", 0x1d78_d460_fe71_0815),
            ("gzip-9", 0xb642_e072_c7da_0fbf),
            ("lzjb", 0x3f3a_7fe6_ce0e_4c11),
        ]
    );
}

/// Protects from a format that only its own decoder can read: these were worked out by hand.
#[test]
fn short_streams_are_what_their_description_says() {
    let mut out = [0; 16];
    let len = zle::encode(&[0, 0, 0, 0, 0, 1, 2, 0, 3], &mut out).unwrap();
    assert_eq!(out[..len], [64 + 4, 3, 1, 2, 0, 3]);
    let len = lzjb::encode(b"aaaaaab", &mut out).unwrap();
    assert_eq!(out[..len], [0b010, b'a', (5 - 3) << 2, 1, b'b']);
    let mut plain = [0; 9];
    assert_eq!(zle::decode(&[64 + 4, 3, 1, 2, 0, 3], &mut plain), Some(()));
    assert_eq!(plain, [0, 0, 0, 0, 0, 1, 2, 0, 3]);
    let mut plain = [0; 8];
    assert_eq!(lzjb::decode(&[0b100, b'x', b'y', 3 << 2, 2], &mut plain), Some(()));
    assert_eq!(&plain, b"xyxyxyxy");
    let mut plain = [0; 20];
    assert_eq!(lz4::decode(b"\x1az\x01\x00\x50zzzzz", &mut plain), Some(()));
    assert_eq!(&plain, b"zzzzzzzzzzzzzzzzzzzz");
}

/// Short inputs of few letters meet every branch of the codecs that are our own.
#[test]
fn thousands_of_short_inputs_come_back() {
    for seed in 0..6000 {
        let mut bytes = random(1 + seed % 700, seed as u64);
        let letters = 1 + u8::try_from(seed % 5).unwrap();
        bytes.iter_mut().for_each(|byte| *byte = if *byte < 200 { 0 } else { *byte % letters });
        let mut packed = vec![0; lz4::room_for(2 * bytes.len() + 16)];
        type Encode = fn(&[u8], &mut [u8]) -> Option<usize>;
        type Decode = fn(&[u8], &mut [u8]) -> Option<()>;
        let codecs: [(Encode, Decode); 4] = [
            (lz4::encode, lz4::decode),
            (zle::encode, zle::decode),
            (lzjb::encode, lzjb::decode),
            (|plain, out| gzip::encode(GzipLevel::DEFAULT, plain, out), gzip::decode),
        ];
        for (number, (encode, decode)) in codecs.into_iter().enumerate() {
            let len = encode(&bytes, &mut packed).expect("there is room");
            let mut out = vec![0xa5; bytes.len()];
            assert_eq!(decode(&packed[..len], &mut out), Some(()), "codec {number}, seed {seed}");
            assert_eq!(out, bytes, "codec {number}, seed {seed}");
            // A room that is too small is noticed, wherever it ends.
            if number > 0 {
                for short in 0..len.min(40) {
                    assert_eq!(encode(&bytes, &mut packed[..short]), None, "codec {number}");
                }
            }
        }
    }
}

#[test]
fn what_hardly_shrinks_is_given_up_before_it_is_compressed() {
    let given_up = |name: &str, granule: &[u8]| !worth_a_try(compression(name), granule);
    for len in GRANULES {
        for seed in 0..100 {
            for name in ["gzip-1", "gzip-9", "zle", "lzjb"] {
                assert!(given_up(name, &random(len, seed)), "{name} on random {len}, seed {seed}");
            }
        }
        for name in ["lz4", "gzip-1", "gzip-9", "lzjb"] {
            assert!(!given_up(name, &text(len)), "{name} on text of {len}");
            assert!(!given_up(name, &vec![7; len]), "{name} on one letter, {len}");
        }
        assert!(given_up("zle", &text(len)), "text has no zeros");
        assert!(!given_up("zle", &vec![0; len]));
    }
    // Letters of six bits repeat nothing, but a Huffman code saves a quarter.
    let letters: Vec<u8> = random(64 << 10, 5).iter().map(|byte| b' ' + byte % 64).collect();
    assert!(!given_up("gzip", &letters) && given_up("lzjb", &letters));
    assert!(encode(compression("gzip"), &letters).is_some());
    // Two pages of zeros within random bytes are seen wherever they are.
    for at in 0..15 {
        let mut granule = random(64 << 10, at);
        granule[usize::try_from(at).unwrap() * PAGE..][..2 * PAGE].fill(0);
        assert!(!given_up("gzip", &granule) && !given_up("lzjb", &granule), "zeros at page {at}");
        assert!(encode(compression("gzip"), &granule).is_some(), "zeros at page {at}");
    }
}
