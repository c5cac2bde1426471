//! What goes to a server next: heads of our own, and data that is not copied before the kernel
//! copies it.
use std::io::{self, ErrorKind, IoSlice, Write};
use std::ops::Range;

use super::content::Content;

enum Piece {
    Head(Range<usize>),
    Data { offset: u64, len: usize },
}

pub struct Outbox {
    heads: Vec<u8>,
    pieces: Vec<Piece>,
    content: Content,
}

impl Outbox {
    pub fn new(content: Content) -> Outbox {
        Outbox { heads: Vec::new(), pieces: Vec::new(), content }
    }

    pub fn head(&mut self, bytes: &[u8]) {
        let from = self.heads.len();
        self.heads.extend_from_slice(bytes);
        let end = self.heads.len();
        match self.pieces.last_mut() {
            Some(Piece::Head(range)) => range.end = end,
            _ => self.pieces.push(Piece::Head(from..end)),
        }
    }

    /// What the volume holds at this offset.
    pub fn data(&mut self, offset: u64, len: usize) {
        self.pieces.push(Piece::Data { offset, len });
    }

    /// Sends all of it; waits where the server does not take it yet.
    pub fn send(&mut self, to: &mut impl Write) -> io::Result<()> {
        let slice = |piece: &Piece| match piece {
            Piece::Head(range) => &self.heads[range.clone()],
            Piece::Data { offset, len } => self.content.at(*offset, *len),
        };
        let mut slices: Vec<IoSlice<'_>> =
            self.pieces.iter().map(|piece| IoSlice::new(slice(piece))).collect();
        let mut left = &mut slices[..];
        while !left.is_empty() {
            match to.write_vectored(left) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(count) => IoSlice::advance_slices(&mut left, count),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        self.heads.clear();
        self.pieces.clear();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_and_data_leave_in_the_order_that_they_came() {
        let content = Content::new();
        let mut outbox = Outbox::new(content.clone());
        outbox.head(b"ab");
        outbox.head(b"cd");
        outbox.data(4096, 8);
        outbox.head(b"e");
        let mut sent = Vec::new();
        outbox.send(&mut sent).unwrap();
        assert_eq!(sent, [b"abcd", content.at(4096, 8), b"e"].concat());
        outbox.send(&mut sent).unwrap();
        assert_eq!(sent.len(), 13);
    }
}
