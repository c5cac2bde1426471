//! What every measured volume and file holds, from the first write to the last.
//!
//! The same bytes belong to the same offset always: whoever reads knows what must come, and
//! nothing has to be remembered of what was written.
use std::sync::Arc;

use sim::Rng;

/// It repeats after so many bytes: more than a processor's second cache.
const PERIOD: usize = 8 << 20;

/// The longest piece that is taken at once.
const PIECE_MAX: usize = 1 << 20;

/// Bytes of a piece that are compared. All of them would cost the client more than the wire does.
const GLANCE: usize = 16;

#[derive(Clone)]
pub struct Content(Arc<[u8]>);

impl Content {
    pub fn new() -> Content {
        let mut bytes = vec![0; PERIOD + PIECE_MAX];
        Rng::new(1).fill(&mut bytes[..PERIOD]);
        bytes.copy_within(..PIECE_MAX, PERIOD);
        Content(bytes.into())
    }

    /// At most [`PIECE_MAX`] bytes, from this offset of the volume on.
    pub fn at(&self, offset: u64, len: usize) -> &[u8] {
        let period = PERIOD as u64;
        let from = usize::try_from(offset % period).expect("a period fits memory");
        &self.0[from..from + len]
    }

    /// Whether these can be the bytes of this offset, as far as it is looked at.
    pub fn is_like(&self, offset: u64, bytes: &[u8]) -> bool {
        let seen = &bytes[..bytes.len().min(GLANCE)];
        seen == self.at(offset, seen.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bytes_of_an_offset_are_always_the_same() {
        let content = Content::new();
        let far = content.at(PERIOD as u64 - 100, 4096).to_vec();
        assert_eq!(far[100..], *content.at(0, 3996));
        assert!(content.is_like(3 * PERIOD as u64 + 4096, content.at(4096, 4096)));
        assert!(!content.is_like(8192, content.at(4096, 4096)));
    }
}
