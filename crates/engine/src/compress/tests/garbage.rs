//! Bytes that no encoder wrote. No decoder may panic, and none may write beyond its granule.
use super::content::{contents, next, random, text};
use super::*;

const GRANULE: usize = 32 << 10;

fn encodings() -> Vec<Encoding> {
    all().into_iter().filter_map(Compression::encoding).collect()
}

/// A stored form around any bytes.
fn framed(packed: &[u8]) -> Vec<u8> {
    let mut stored = u32::try_from(packed.len()).unwrap().to_le_bytes().to_vec();
    stored.extend_from_slice(packed);
    stored.resize(stored.len().next_multiple_of(PAGE), 0);
    stored
}

#[test]
fn random_bytes_are_no_granule() {
    let mut out = vec![0; GRANULE];
    let encodings = encodings();
    for seed in 0..4000u64 {
        let mut state = seed;
        let len = usize::try_from(next(&mut state) % (3 * PAGE as u64)).unwrap();
        let bytes = random(len, seed);
        let encoding = encodings[usize::try_from(seed).unwrap() % encodings.len()];
        let _ = decode(encoding, &bytes, &mut out);
        let found = decode(encoding, &framed(&bytes), &mut out);
        assert_eq!(found, Err(DecodeProblem::Stream), "seed {seed}, {encoding:?}");
    }
}

#[test]
fn a_stream_that_was_cut_or_changed_does_no_harm() {
    let encodings = encodings();
    let kinds = contents(GRANULE);
    let mut seed = 0;
    for (what, granule) in &kinds {
        for compression in all() {
            let Some((encoding, stored)) = encode(compression, granule) else { continue };
            let len = usize::try_from(u32::from_le_bytes(stored[..4].try_into().unwrap())).unwrap();
            let packed = &stored[LENGTH..LENGTH + len];
            let mut out = vec![0; GRANULE];
            for _ in 0..20 {
                let cut = usize::try_from(next(&mut seed)).unwrap() % len;
                let found = decode(encoding, &framed(&packed[..cut]), &mut out);
                assert!(found.is_err(), "{what}, {compression}, cut at {cut} of {len}");
                let mut flipped = packed.to_vec();
                for _ in 0..=next(&mut seed) % 3 {
                    let bit = usize::try_from(next(&mut seed)).unwrap() % (8 * len);
                    flipped[bit / 8] ^= 1 << (bit % 8);
                }
                // It may be another granule by chance; the checksum is there for that.
                let _ = decode(encoding, &framed(&flipped), &mut out);
                let other = encodings[usize::try_from(next(&mut seed)).unwrap() % encodings.len()];
                let _ = decode(other, &stored, &mut out);
            }
        }
    }
}

/// Protects from a granule that is taken for one of another length.
#[test]
fn only_a_granule_of_the_right_length_is_taken() {
    let granule = text(GRANULE);
    for compression in all().into_iter().filter(|c| *c != Compression::Zle) {
        let (encoding, stored) = encode(compression, &granule).unwrap();
        for len in [stored.len() + 1, GRANULE - 512, GRANULE - 1, GRANULE + 1, 2 * GRANULE] {
            let found = decode(encoding, &stored, &mut vec![0; len]);
            assert_eq!(found, Err(DecodeProblem::Stream), "{compression} as {len} bytes");
        }
    }
}

#[test]
fn what_stands_around_the_stream_is_looked_at() {
    let granule = text(GRANULE);
    let mut out = vec![0; GRANULE];
    for compression in all().into_iter().filter(|c| *c != Compression::Zle) {
        let (encoding, stored) = encode(compression, &granule).unwrap();
        let bad_length = |stored: &[u8]| Err(DecodeProblem::Length { stored: stored.len() });
        let mut check = |stored: &[u8]| decode(encoding, stored, &mut out);
        // A page too many or too few, no whole pages, nothing at all.
        let longer = [&stored[..], &[0; PAGE]].concat();
        for wrong in [&longer[..], &stored[..stored.len() - PAGE], &stored[..5], &[]] {
            assert_eq!(check(wrong), bad_length(wrong), "{compression}, {} bytes", wrong.len());
        }
        for len in [0, u32::MAX, u32::try_from(stored.len() - LENGTH + 1).unwrap()] {
            let mut wrong = stored.clone();
            wrong[..LENGTH].copy_from_slice(&len.to_le_bytes());
            assert_eq!(check(&wrong), bad_length(&wrong), "{compression}, length {len}");
        }
        let mut wrong = stored.clone();
        *wrong.last_mut().unwrap() = 1;
        assert_eq!(check(&wrong), Err(DecodeProblem::Padding), "{compression}");
        // As long as raw, or longer: an encoder would have kept it raw.
        let found = decode(encoding, &stored, &mut vec![0; stored.len()]);
        assert_eq!(found, bad_length(&stored), "{compression}");
    }
    assert_eq!(decode(Encoding::Unknown, &[0; PAGE], &mut out), Err(DecodeProblem::Unknown));
    let raw = Err(DecodeProblem::Length { stored: PAGE });
    assert_eq!(decode(Encoding::Raw, &[0; PAGE], &mut out), raw);
    assert_eq!(decode(Encoding::Raw, &granule, &mut out), Ok(()));
    assert_eq!(out, granule);
}

#[test]
fn streams_that_break_the_rules_of_their_format_are_refused() {
    let zle = |packed: &[u8], len| zle::decode(packed, &mut vec![0; len]);
    assert_eq!(zle(&[1, 7, 7], 2), Some(()));
    assert_eq!(zle(&[1, 7], 2), None, "a run without its bytes");
    assert_eq!(zle(&[1, 7, 7], 1), None, "a run beyond the end");
    assert_eq!(zle(&[1, 7, 7], 3), None, "too short");
    assert_eq!(zle(&[255], 191), None, "zeros beyond the end");
    let lzjb = |packed: &[u8], len| lzjb::decode(packed, &mut vec![0; len]);
    assert_eq!(lzjb(&[0b10, 7, 0, 1], 4), Some(()));
    assert_eq!(lzjb(&[0b10, 7, 0, 0], 4), None, "a copy of itself");
    assert_eq!(lzjb(&[0b10, 7, 0, 2], 4), None, "a copy from before the start");
    assert_eq!(lzjb(&[0b10, 7, 0, 1], 3), None, "a copy beyond the end");
    assert_eq!(lzjb(&[0b10, 7, 0], 4), None, "half a copy");
    assert_eq!(lzjb(&[0b10, 7, 0, 1, 0], 4), None, "something behind the end");
    assert_eq!(lzjb(&[0b110, 7, 0, 1], 4), None, "a bit without an item");
    assert_eq!(lzjb(&[0b10, 7, 0, 1], 5), None, "too short");
    // A whole DEFLATE stream, and bytes behind it.
    let mut packed = vec![0; 64];
    let len = gzip::encode(GzipLevel::DEFAULT, &[7; 100], &mut packed).unwrap();
    assert_eq!(gzip::decode(&packed[..len], &mut [0; 100]), Some(()));
    assert_eq!(gzip::decode(&packed[..len + 1], &mut [0; 100]), None);
}
