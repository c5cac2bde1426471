//! Which history a position belongs to: the list of reigns.
//!
//! Invariants: terms and first seqs both grow; a reign's first entry is its barrier, which only
//! that reign's target can have written; so two histories that both have a reign are the same up
//! to where either of them leaves it.
use block::{Position, Seq, Term};

use crate::bounds::bounds;

/// How many reigns are remembered: as many as the small state has room for beside everything else.
/// A replica that left before the oldest of them has no common position with anybody and comes
/// back as new.
pub const REIGNS_MAX: usize = 26;

/// Where a reign began: the seq of its barrier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reign {
    pub term: Term,
    pub first: Seq,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reigns(Vec<Reign>);

impl Reigns {
    pub fn new(list: Vec<Reign>) -> Option<Reigns> {
        let grows = list.is_sorted_by(|a, b| a.term < b.term && a.first < b.first);
        (grows && list.len() <= REIGNS_MAX).then_some(Reigns(list))
    }

    pub fn list(&self) -> &[Reign] {
        &self.0
    }

    pub fn push(&mut self, reign: Reign) {
        let grows =
            self.0.last().is_none_or(|last| last.term < reign.term && last.first < reign.first);
        assert!(
            grows,
            "a reign begins after the one before it: {reign:?} behind {:?}",
            self.0.last()
        );
        if self.0.len() >= bounds().reigns {
            self.0.remove(0);
        }
        self.0.push(reign);
    }

    /// The reigns that had begun at a seq.
    pub fn up_to(&self, seq: Seq) -> Reigns {
        Reigns(self.0.iter().copied().filter(|reign| reign.first <= seq).collect())
    }

    /// The term under which the entry at `seq` was written, if that is still known.
    pub fn term_at(&self, seq: Seq) -> Option<Term> {
        self.0.iter().rev().find(|reign| reign.first <= seq).map(|reign| reign.term)
    }
}

/// A history: its reigns, and where it ends.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct History {
    pub reigns: Reigns,
    pub end: Position,
}

impl History {
    /// Whether an entry at this position is part of it. The beginning always is.
    pub fn contains(&self, position: Position) -> bool {
        position.seq == Seq(0)
            || (position.seq <= self.end.seq
                && self.reigns.term_at(position.seq) == Some(position.term))
    }

    /// Whether an entry at this position can be part of it: where reigns are forgotten, nothing
    /// speaks against it.
    pub fn may_contain(&self, position: Position) -> bool {
        let forgotten = self.reigns.0.first().is_none_or(|reign| position.seq < reign.first);
        self.contains(position) || (forgotten && position.seq <= self.end.seq)
    }

    /// The last position that both have. `None`: they share no reign that is still remembered.
    pub fn common(&self, other: &History) -> Option<Position> {
        let start = Position::default();
        if self.end == start || other.end == start {
            return Some(start);
        }
        let shared = self.reigns.0.iter().rev().find(|reign| other.reigns.0.contains(reign));
        match shared {
            Some(reign) => {
                let seq = self.end_of(reign.term).min(other.end_of(reign.term));
                Some(Position { term: reign.term, seq })
            }
            // Both remember their very first reign, and it is not the same.
            None if self.is_whole() && other.is_whole() => Some(start),
            None => None,
        }
    }

    /// The last seq of a reign within this history.
    fn end_of(&self, term: Term) -> Seq {
        let next = self.reigns.0.iter().find(|reign| reign.term > term);
        next.map_or(self.end.seq, |next| Seq(next.first.0 - 1))
    }

    fn is_whole(&self) -> bool {
        self.reigns.0.first().is_none_or(|reign| reign.first == Seq(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reigns as (term, first seq), and where the history ends.
    fn history(reigns: &[(u64, u64)], end: u64) -> History {
        let list =
            reigns.iter().map(|(term, first)| Reign { term: Term(*term), first: Seq(*first) });
        let reigns = Reigns::new(list.collect()).expect("reigns grow");
        let term = reigns.term_at(Seq(end)).unwrap_or_default();
        History { reigns, end: Position { term, seq: Seq(end) } }
    }

    #[test]
    fn a_prefix_is_common_as_a_whole() {
        let long = history(&[(1, 1), (2, 10), (5, 20)], 30);
        let short = history(&[(1, 1), (2, 10)], 15);
        assert_eq!(long.common(&short), Some(Position::new(2, 15)));
        assert_eq!(short.common(&long), Some(Position::new(2, 15)));
    }

    /// Protects from a tail that is taken for a part of the history because its numbers are lower.
    #[test]
    fn a_tail_of_another_reign_is_not_common() {
        let winner = history(&[(1, 1), (3, 11)], 40);
        let loser = history(&[(1, 1), (2, 8)], 25);
        assert_eq!(winner.common(&loser), Some(Position::new(1, 7)));
        assert!(!winner.contains(Position::new(2, 8)));
        assert!(!winner.contains(Position::new(1, 12)));
        assert!(winner.contains(Position::new(1, 10)));
    }

    /// Protects from guessing when the reigns that two had in common are forgotten.
    #[test]
    fn what_nobody_remembers_is_not_common() {
        let long = history(&[(7, 100), (8, 200)], 300);
        let old = history(&[(1, 1)], 50);
        assert_eq!(long.common(&old), None);
        assert_eq!(long.common(&History::default()), Some(Position::default()));
        let first = history(&[(2, 1)], 5);
        assert_eq!(old.common(&first), Some(Position::default()), "neither ever agreed");
    }

    #[test]
    fn the_oldest_reign_is_forgotten_first() {
        let mut reigns = Reigns::default();
        for number in 1..=REIGNS_MAX as u64 + 2 {
            reigns.push(Reign { term: Term(number), first: Seq(number * 10) });
        }
        assert_eq!(reigns.list().len(), REIGNS_MAX);
        assert_eq!(reigns.list()[0].term, Term(3));
    }
}
