//! Where a volume stands in its own sequence of operations.
use std::fmt;

/// The number of a target's reign over a volume. Every start of a target gets a higher one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Term(pub u64);

/// The number of an operation within a volume: one growing sequence.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Seq(pub u64);

/// The last operation that a replica has. Compared term first: an entry of a later reign is newer
/// than any entry of an earlier one, whatever its number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position {
    pub term: Term,
    pub seq: Seq,
}

impl Position {
    pub fn new(term: u64, seq: u64) -> Position {
        Position { term: Term(term), seq: Seq(seq) }
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.term.0, self.seq.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_compare_by_term_first() {
        assert!(Position::new(2, 1) > Position::new(1, 9));
        assert!(Position::new(2, 2) > Position::new(2, 1));
    }
}
