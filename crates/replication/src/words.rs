//! Numbers with an origin: who, since when, in which reign.
use std::fmt;

use block::Term;

/// A machine that runs targets and replicas.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub u64);

/// A place that a volume has in some pool. It stays the same when the content is lost; the
/// incarnation does not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ReplicaId(pub u64);

/// New whenever the content of a replica was lost or created anew.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Incarnation(pub u64);

/// One run of a process. Two runs never have the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Boot(pub u64);

/// One run of a kernel together with one device: while it lasts, what a device completed is not
/// lost, whatever becomes of the process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Powered {
    pub kernel: u128,
    pub device: u128,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct VolumeUid(pub [u8; 16]);

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SnapshotUid(pub [u8; 16]);

/// The number of a grant of the catalog: which node may run the target.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Grant(pub u64);

/// How often the target was started under one grant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Start(pub u64);

/// Bits of a term that count starts; the grant is above them. 16 million starts of one node
/// without the catalog are more than a crash loop makes in a year.
const START_BITS: u32 = 24;

impl Grant {
    pub const MAX: Grant = Grant((1 << (64 - START_BITS)) - 1);

    pub fn term(self, start: Start) -> Term {
        assert!(self <= Grant::MAX, "a grant has {} bits", 64 - START_BITS);
        assert!(start.0 < 1 << START_BITS, "a start has {START_BITS} bits");
        Term(self.0 << START_BITS | start.0)
    }

    pub fn of(term: Term) -> Grant {
        Grant(term.0 >> START_BITS)
    }

    /// `None`: this is the last one.
    pub fn next(self) -> Option<Grant> {
        (self < Grant::MAX).then_some(Grant(self.0 + 1))
    }
}

impl Start {
    pub const MAX: Start = Start((1 << START_BITS) - 1);

    pub fn of(term: Term) -> Start {
        Start(term.0 & ((1 << START_BITS) - 1))
    }

    pub fn next(self) -> Start {
        Start(self.0 + 1)
    }
}

/// The version of a volume's object in the catalog.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CatalogVersion(pub u64);

/// Who talks to a target. It outlives connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClientId(pub u64);

/// Grows with every connection of one client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnectionNumber(pub u64);

/// Grows with every stage of a volume. A mount keeps the one that it was staged with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StageNumber(pub u64);

/// Names one group hold; given by the coordinator.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Token(pub u64);

/// A moment on one machine's clock, in microseconds. The clock never jumps back and counts the
/// time during which the machine sleeps. Moments of two machines cannot be compared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Moment(pub u64);

/// A length of time in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Span(pub u64);

impl Span {
    pub const fn millis(millis: u64) -> Span {
        Span(millis.saturating_mul(1000))
    }

    pub const fn secs(secs: u64) -> Span {
        Span(secs.saturating_mul(1_000_000))
    }
}

impl Moment {
    pub fn since(self, earlier: Moment) -> Span {
        Span(self.0.saturating_sub(earlier.0))
    }
}

impl std::ops::Add<Span> for Moment {
    type Output = Moment;

    fn add(self, span: Span) -> Moment {
        Moment(self.0.saturating_add(span.0))
    }
}

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

impl fmt::Display for ReplicaId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_higher_grant_beats_every_start_below_it() {
        assert!(Grant(2).term(Start(0)) > Grant(1).term(Start(9_999_999)));
        assert!(Grant(2).term(Start(2)) > Grant(2).term(Start(1)));
        let term = Grant(77).term(Start(5));
        assert_eq!((Grant::of(term), Start::of(term)), (Grant(77), Start(5)));
    }
}
