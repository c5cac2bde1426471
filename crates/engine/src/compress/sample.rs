//! The early way out: what will hardly shrink is not compressed at all.
use super::{Compression, PAGE, lz4};

/// Bytes of a piece of the sample.
const PIECE: usize = 256;
/// From one piece to the next: a page and a piece, so that no place within pages is favoured, and
/// a run of two pages is never missed.
const STRIDE: usize = PAGE + PIECE;

/// Whether compressing this granule may save a page. Costs little beside compressing it.
pub fn worth_a_try(compression: Compression, granule: &[u8]) -> bool {
    if granule.len() <= PAGE {
        return false;
    }
    match compression {
        Compression::Off => false,
        // It looks at less and less of what does not repeat, so a sample costs as much.
        Compression::Lz4 => true,
        // Each zero saves less than one byte, so this is no guess.
        Compression::Zle => zeros(granule) >= PAGE,
        Compression::Lzjb => repeats(&sample(granule), granule.len()),
        Compression::Gzip(_) => {
            let sample = sample(granule);
            repeats(&sample, granule.len()) || is_uneven(&sample)
        }
    }
}

/// Counted in short parts, whose sums fit a byte: many are counted at once.
fn zeros(granule: &[u8]) -> usize {
    let part = |part: &[u8]| part.iter().map(|byte| u8::from(*byte == 0)).sum::<u8>();
    granule.chunks(128).map(|bytes| usize::from(part(bytes))).sum()
}

/// A sixteenth of the granule, in pieces from all over it.
fn sample(granule: &[u8]) -> Vec<u8> {
    let pieces = granule.chunks(STRIDE).map(|part| &part[..part.len().min(PIECE)]);
    pieces.flatten().copied().collect()
}

/// Whether a Lempel-Ziv code shortens the sample. Pieces have few neighbours to repeat, so a
/// quarter of the share that has to be saved will do.
fn repeats(sample: &[u8], granule: usize) -> bool {
    let mut out = vec![0; lz4::room_for(sample.len())];
    let len = lz4::encode(sample, &mut out).unwrap_or(usize::MAX);
    len <= sample.len() - sample.len() * PAGE / granule / 4
}

/// Whether some bytes are so much more frequent than others that a Huffman code saves something.
///
/// The sum of the squares of all counts is n + n(n - 1)/256 where bytes are random, within a
/// hundredth for 4 KiB.
fn is_uneven(sample: &[u8]) -> bool {
    let mut counts = [0u64; 256];
    sample.iter().for_each(|byte| counts[usize::from(*byte)] += 1);
    let squares: u64 = counts.iter().map(|count| count * count).sum();
    let n = sample.len() as u64;
    let even = n + n * n / 256;
    squares > even + even / 8
}
