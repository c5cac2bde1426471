//! What waits to be sent on a connection, in order.
use std::collections::VecDeque;
use std::io::IoSlice;

use frontend::piece::Piece;

/// Small pieces behind one another become one: less work for the kernel than a slice for each.
const JOIN_MAX: usize = 4096;

#[derive(Debug, Default)]
pub struct Outbox {
    pieces: VecDeque<Piece>,
    /// Bytes of the first piece that are gone.
    gone: usize,
    len: usize,
}

impl Outbox {
    pub fn len(&self) -> usize {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub fn push(&mut self, piece: Piece) {
        self.len += piece.as_bytes().len();
        if let Piece::Bytes(bytes) = &piece
            && let Some(Piece::Bytes(last)) = self.pieces.back_mut()
            && last.len() + bytes.len() <= JOIN_MAX
        {
            return last.extend_from_slice(bytes);
        }
        self.pieces.push_back(piece);
    }

    /// The first bytes, in as many pieces as there is room for.
    pub fn slices<'a>(&'a self, into: &mut [IoSlice<'a>]) -> usize {
        let mut count = 0;
        for (slice, piece) in into.iter_mut().zip(&self.pieces) {
            let gone = if count == 0 { self.gone } else { 0 };
            *slice = IoSlice::new(&piece.as_bytes()[gone..]);
            count += 1;
        }
        count
    }

    /// The first bytes in one, at most as many as `stage` has room for: where they lie if so many are
    /// in one piece, otherwise gathered in `stage`.
    pub fn first<'a>(&'a self, stage: &'a mut [u8]) -> &'a [u8] {
        let mut have = 0;
        for (number, piece) in self.pieces.iter().enumerate() {
            let bytes = &piece.as_bytes()[if number == 0 { self.gone } else { 0 }..];
            if number == 0 && bytes.len() >= stage.len() {
                return &bytes[..stage.len()];
            }
            let now = bytes.len().min(stage.len() - have);
            stage[have..have + now].copy_from_slice(&bytes[..now]);
            have += now;
            if have == stage.len() {
                break;
            }
        }
        &stage[..have]
    }

    /// So many of the first bytes are on their way.
    pub fn forget(&mut self, len: usize) {
        self.len -= len;
        let mut left = len + self.gone;
        while let Some(piece) = self.pieces.front() {
            let len = piece.as_bytes().len();
            if left < len {
                break;
            }
            left -= len;
            self.pieces.pop_front();
        }
        self.gone = left;
    }
}

#[cfg(test)]
mod tests {
    use block::Data;

    use super::*;

    #[test]
    fn the_first_bytes_are_gathered_only_where_they_have_to_be() {
        let mut outbox = Outbox::default();
        outbox.push(Piece::Bytes(vec![1; 10]));
        outbox.push(Piece::Data(Data::copy_of(&[2; 100])));
        let mut stage = [0; 16];
        assert_eq!(outbox.first(&mut stage), [&[1; 10][..], &[2; 6]].concat());
        outbox.forget(16);
        assert_eq!((outbox.first(&mut stage), outbox.len()), (&[2; 16][..], 94));
        assert_eq!(stage[..10], [1; 10], "it was not copied");
        outbox.forget(84);
        assert_eq!(outbox.first(&mut stage), [2; 10]);
        outbox.forget(10);
        assert!(outbox.is_empty() && outbox.first(&mut stage).is_empty());
    }
}
