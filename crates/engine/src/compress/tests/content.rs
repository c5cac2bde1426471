//! Bytes of many kinds, each from its seed.

pub fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mixed = (*state ^ *state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ mixed >> 31
}

pub fn random(len: usize, seed: u64) -> Vec<u8> {
    let mut state = seed << 20;
    let mut bytes = vec![0; len];
    for part in bytes.chunks_mut(8) {
        part.copy_from_slice(&next(&mut state).to_le_bytes()[..part.len()]);
    }
    bytes
}

/// Words and numbers, as in logs.
pub fn text(len: usize) -> Vec<u8> {
    const WORDS: [&str; 8] =
        ["volume ", "replica ", "is ", "held ", "at ", "position ", "and ", "granule "];
    let mut state = 7;
    let mut text = String::new();
    while text.len() < len {
        let number = next(&mut state);
        text += WORDS[usize::try_from(number % 8).unwrap()];
        if number >> 8 & 3 == 0 {
            text += &format!("{} ", number >> 44);
        }
    }
    text.truncate(len);
    text.into_bytes()
}

/// A pattern of this many random bytes, over and over.
fn periodic(len: usize, period: usize) -> Vec<u8> {
    random(period, period as u64).into_iter().cycle().take(len).collect()
}

/// What is easy, what is hard, and what lies at the bounds of the formats.
pub fn contents(len: usize) -> Vec<(String, Vec<u8>)> {
    let mut contents = vec![
        ("zeros".into(), vec![0; len]),
        ("ones".into(), vec![0xff; len]),
        ("text".into(), text(len)),
        ("random".into(), random(len, 1)),
    ];
    // The longest copies and distances of LZJB, the window of DEFLATE and of LZ4, and around.
    for period in [2, 3, 65, 66, 67, 1022, 1023, 1024, 4096, 32767, 32768, 32769, 65535] {
        contents.push((format!("period {period}"), periodic(len, period)));
    }
    // Runs around the longest of ZLE, and lone zeros.
    for run in [1, 2, 3, 63, 64, 65, 191, 192, 193, 4096] {
        let mut bytes = random(len, run as u64);
        bytes.chunks_mut(run).step_by(2).for_each(|part| part.fill(0));
        contents.push((format!("zeros in runs of {run}"), bytes));
    }
    // Compressible only at its start, or only at its end.
    for (at, what) in [(0, "start"), (len / 2, "end")] {
        let mut bytes = random(len, 9);
        bytes[at..at + len / 2].copy_from_slice(&text(len / 2));
        contents.push((format!("text at the {what}"), bytes));
    }
    let ramp = (0..len).map(|at| at.to_le_bytes()[at % 3]).collect();
    contents.push(("ramp".into(), ramp));
    contents
}
