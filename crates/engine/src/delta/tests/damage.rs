//! Accidents: bytes that changed, were lost, were added, or never were a stream.
use super::*;
use crate::delta::frame::Head;

/// Where the frames of a stream begin.
fn frames(bytes: &[u8]) -> Vec<usize> {
    let (mut at, mut starts) = (0, Vec::new());
    while at < bytes.len() {
        starts.push(at);
        let head = bytes[at..at + HEAD].try_into().unwrap();
        let number = starts.len() as u64 - 1;
        at += HEAD + Head::decode(head, StreamOffset(0), number).unwrap().payload;
    }
    starts
}

/// Protects from rotten bytes that are imported.
#[test]
fn a_stream_with_any_byte_changed_is_refused() {
    let (mut bytes, whole) = small();
    for at in 0..bytes.len() {
        for mask in [0x01, 0x80, 0xff] {
            bytes[at] ^= mask;
            let (found, result) = read(&bytes, &[usize::MAX]);
            bytes[at] ^= mask;
            let error = result.expect_err("it is another stream");
            match error {
                StreamError::Foreign { at: StreamOffset(0) } => assert!(at < 4),
                StreamError::Damaged { at: StreamOffset(frame), .. } => {
                    let starts = frames(&bytes);
                    let frame_of = starts.iter().rfind(|start| **start <= at).unwrap();
                    assert_eq!(frame, *frame_of as u64, "the frame of byte {at} is named");
                }
                other => panic!("byte {at} changed by {mask:#x}: {other}"),
            }
            assert!(found.is_prefix_of(&whole) && found.end.is_none(), "byte {at}");
        }
    }
}

/// Protects from a cut stream that is taken for a whole one.
#[test]
fn a_stream_that_is_cut_anywhere_is_refused() {
    let (bytes, whole) = small();
    for len in 0..bytes.len() {
        let (found, result) = read(&bytes[..len], &[333]);
        let progress = found.ranges.last().map_or(ByteOffset(0), Range::end);
        let at = StreamOffset(len as u64);
        assert_eq!(result, Err(StreamError::CutShort { at, progress }));
        assert!(found.is_prefix_of(&whole));
    }
    assert_eq!(refusal(&bytes[..100]).retry(), crate::Retry::Later);
}

/// Protects from an import that ends before its bytes do.
#[test]
fn bytes_behind_the_end_are_refused() {
    let (bytes, whole) = small();
    let trailing = StreamError::Trailing { at: StreamOffset(bytes.len() as u64) };
    for behind in [&[0][..], &bytes] {
        let joined = [&bytes, behind].concat();
        for pieces in [1, bytes.len(), usize::MAX] {
            let (found, result) = read(&joined, &[pieces]);
            assert_eq!(result, Err(trailing.clone()));
            assert_eq!(found, whole);
        }
    }
    let mut reader = Reader::new();
    feed(&mut reader, &bytes, &mut Delta::default()).unwrap();
    assert_eq!(reader.push(&[]), &[] as &[u8]);
    assert!(reader.next().unwrap().is_none() && reader.finish().is_ok(), "no byte is no harm");
}

/// Protects from a file of something else, at its first byte, whatever its length.
#[test]
fn foreign_bytes_are_refused_at_once() {
    let foreign = Err(StreamError::Foreign { at: StreamOffset(0) });
    for bytes in [&b"x"[..], b"PLXJ", b"PLXP\x01", &[0; 4096], b"PK\x03\x04", &[0xff; 64]] {
        assert_eq!(read(bytes, &[1]), (Delta::default(), foreign.clone()), "{bytes:?}");
    }
    let cut = StreamError::CutShort { at: StreamOffset(3), progress: ByteOffset(0) };
    assert_eq!(refusal(b"PLX"), cut, "as far as it goes, it is one");
}

/// Protects from frames that a transport lost, doubled or swapped.
#[test]
fn frames_that_are_missing_doubled_or_swapped_are_refused() {
    let (bytes, _) = small();
    let mut bounds = frames(&bytes);
    bounds.push(bytes.len());
    let parts: Vec<&[u8]> = bounds.windows(2).map(|w| &bytes[w[0]..w[1]]).collect();
    let last = parts.len() - 1;
    for frame in 1..last {
        let at = StreamOffset(bounds[frame] as u64);
        let expected = frame as u64;
        let missing = [&parts[..frame], &parts[frame + 1..]].concat().concat();
        let found = expected + 1;
        assert_eq!(refusal(&missing), StreamError::Number { at, expected, found });
        let swapped =
            [&parts[..frame], &[parts[frame + 1], parts[frame]], &parts[frame + 2..]].concat();
        assert_eq!(refusal(&swapped.concat()), StreamError::Number { at, expected, found });
        let doubled = [&parts[..frame], &parts[frame - 1..]].concat().concat();
        let found = expected - 1;
        assert_eq!(refusal(&doubled), StreamError::Number { at, expected, found });
    }
    let headless = parts[1..].concat();
    let (at, expected, found) = (StreamOffset(0), 0, 1);
    assert_eq!(refusal(&headless), StreamError::Number { at, expected, found });
}

/// Protects from a frame of another stream, of the same volume and with the same number.
#[test]
fn a_frame_of_another_stream_is_found_at_the_end() {
    let (mut bytes, mut other) = (small().0, small().1);
    let Range::Bytes { data, .. } = &mut other.ranges[0] else { panic!("it begins with data") };
    data[0] ^= 1;
    let (other, _) = written(&header(), &other.ranges);
    let starts = frames(&bytes);
    bytes[starts[1]..starts[2]].copy_from_slice(&other[starts[1]..starts[2]]);
    let found = refusal(&bytes);
    let what = "the running checksum";
    assert!(matches!(found, StreamError::Sums { what: w, .. } if w == what), "{found}");
}

/// Protects from a reader that panics, loops or takes memory on whatever it is given.
#[test]
fn garbage_is_refused_within_one_frame_of_memory() {
    let (bytes, whole) = small();
    for seed in 0..20_000 {
        let mut rng = Rng(seed);
        let mut garbage = match rng.below(4) {
            0 => {
                let len = rng.below(10_000);
                rng.bytes(len)
            }
            // Behind a good magic, or a good header.
            1 => {
                let len = rng.below(500);
                [b"PLXD".to_vec(), rng.bytes(len)].concat()
            }
            2 => {
                let len = rng.below(500);
                [bytes[..frames(&bytes)[1]].to_vec(), rng.bytes(len)].concat()
            }
            _ => bytes.clone(),
        };
        for _ in 0..rng.below(4) {
            if !garbage.is_empty() {
                let (from, to) = (rng.index(garbage.len()), rng.index(garbage.len()));
                let len = rng.index(64).min(garbage.len() - from.max(to));
                garbage.copy_within(from..from + len, to);
            }
        }
        let piece = 1 + rng.index(3000);
        let (found, result) = read(&garbage, &[piece]);
        assert!(found.is_prefix_of(&whole), "seed {seed}");
        assert_eq!(result.is_ok(), garbage == bytes, "seed {seed}");
        decode_any(&garbage);
    }
}
