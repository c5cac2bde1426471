//! LZJB: a small Lempel-Ziv code of bytes, without entropy coding.
//!
//! A stream is a row of groups: a map byte and up to eight items, of which bit i of the map (from
//! the lowest) says what item i is. Clear: one byte as it is. Set: a copy, two bytes, of which the
//! upper 6 bits are the length - 3, the lower 10 the distance back to where it is copied from.
//! A copy may reach into what it writes itself. Bits without an item are clear.

const COPY_MIN: usize = 3;
const COPY_MAX: usize = COPY_MIN + (1 << 6) - 1;
const DISTANCE_MAX: usize = (1 << 10) - 1;
const ITEMS: usize = 8;

/// Where three bytes that hash alike were last seen.
const SEEN_BITS: u32 = 10;

fn hash(bytes: &[u8]) -> usize {
    let word = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], 0]);
    (word.wrapping_mul(0x9e37_79b1) >> (32 - SEEN_BITS)) as usize
}

pub fn encode(plain: &[u8], out: &mut [u8]) -> Option<usize> {
    let mut seen = [0u32; 1 << SEEN_BITS];
    let (mut from, mut to, mut map_at, mut item) = (0, 0, 0, ITEMS);
    while from < plain.len() {
        if item == ITEMS {
            (map_at, item) = (to, 0);
            *out.get_mut(to)? = 0;
            to += 1;
        }
        match earlier(plain, from, &mut seen) {
            Some((distance, len)) => {
                let copy = (len - COPY_MIN) << 10 | distance;
                let copy = u16::try_from(copy).expect("six bits and ten");
                out.get_mut(to..to + 2)?.copy_from_slice(&copy.to_be_bytes());
                out[map_at] |= 1 << item;
                (from, to) = (from + len, to + 2);
            }
            None => {
                *out.get_mut(to)? = plain[from];
                (from, to) = (from + 1, to + 1);
            }
        }
        item += 1;
    }
    Some(to)
}

/// The distance and length of a copy that gives the next bytes.
fn earlier(plain: &[u8], at: usize, seen: &mut [u32; 1 << SEEN_BITS]) -> Option<(usize, usize)> {
    let rest = plain.get(at..).filter(|rest| rest.len() >= COPY_MIN)?;
    let last = &mut seen[hash(rest)];
    let distance = at - *last as usize;
    *last = u32::try_from(at).expect("a granule is small");
    if distance == 0 || distance > DISTANCE_MAX {
        return None;
    }
    let same = rest.iter().zip(&plain[at - distance..]).take(COPY_MAX);
    let len = same.take_while(|(a, b)| a == b).count();
    (len >= COPY_MIN).then_some((distance, len))
}

pub fn decode(packed: &[u8], out: &mut [u8]) -> Option<()> {
    let (mut bytes, mut at) = (packed.iter(), 0);
    while at < out.len() {
        let map = bytes.next()?;
        for item in 0..ITEMS {
            let is_copy = map >> item & 1 == 1;
            if at == out.len() {
                // The last group may be short.
                if is_copy {
                    return None;
                }
                continue;
            }
            let first = *bytes.next()?;
            if !is_copy {
                out[at] = first;
                at += 1;
                continue;
            }
            let copy = usize::from(u16::from_be_bytes([first, *bytes.next()?]));
            let (len, distance) = ((copy >> 10) + COPY_MIN, copy & DISTANCE_MAX);
            if distance == 0 || distance > at || len > out.len() - at {
                return None;
            }
            for to in at..at + len {
                out[to] = out[to - distance];
            }
            at += len;
        }
    }
    (bytes.len() == 0).then_some(())
}
