//! ZLE: zero-length encoding. Runs of zero bytes become one byte each, all else stays.
//!
//! A stream is a row of runs. A run begins with one byte c: below 64, c + 1 bytes follow as they
//! are; from 64 on, it stands for c - 63 zeros.

/// The longest run of bytes that are kept, and what tells such a run from one of zeros.
const LITERALS_MAX: usize = 64;
/// The longest run of zeros.
const ZEROS_MAX: usize = 256 - LITERALS_MAX;

pub fn encode(plain: &[u8], out: &mut [u8]) -> Option<usize> {
    let (mut rest, mut at) = (plain, 0);
    while let Some(first) = rest.first() {
        let run = if *first == 0 { zeros(rest) } else { literals(rest) };
        let (run, after) = rest.split_at(run);
        let (mark, kept) = match first {
            0 => (run.len() + LITERALS_MAX - 1, &[][..]),
            _ => (run.len() - 1, run),
        };
        *out.get_mut(at)? = u8::try_from(mark).expect("runs are short");
        out.get_mut(at + 1..at + 1 + kept.len())?.copy_from_slice(kept);
        at += 1 + kept.len();
        rest = after;
    }
    Some(at)
}

fn zeros(bytes: &[u8]) -> usize {
    bytes.iter().take(ZEROS_MAX).take_while(|byte| **byte == 0).count()
}

/// Bytes before the next run of zeros. A zero alone is no run: it would cost as much as it saves.
fn literals(bytes: &[u8]) -> usize {
    let bytes = &bytes[..bytes.len().min(LITERALS_MAX)];
    bytes.windows(2).position(|pair| pair == [0, 0]).unwrap_or(bytes.len())
}

pub fn decode(mut packed: &[u8], mut out: &mut [u8]) -> Option<()> {
    while let Some((mark, after)) = packed.split_first() {
        let mark = usize::from(*mark);
        packed = match mark.checked_sub(LITERALS_MAX) {
            Some(zeros) => {
                out.split_off_mut(..zeros + 1)?.fill(0);
                after
            }
            None => {
                let (kept, after) = after.split_at_checked(mark + 1)?;
                out.split_off_mut(..mark + 1)?.copy_from_slice(kept);
                after
            }
        };
    }
    out.is_empty().then_some(())
}
