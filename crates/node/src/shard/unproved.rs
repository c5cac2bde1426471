//! Who may stay that has not said yet who it is: the one rule for peers, NBD and iSCSI.
//!
//! There are at most [`UNPROVED_MAX`] of a kind. When one more comes, the oldest goes, if it had
//! [`GRACE`]; if none had, the newcomer waits at the door, in the kernel's queue. Without the grace a flood
//! that is faster than a handshake would push out honest newcomers before they could speak: the faster it
//! is, the less time they would have. With it everybody who was let in has time enough, whatever comes
//! behind; and since whoever was not heard of in that time makes room, so many are let in during each
//! grace that the queue before the door does not stand still.
//!
//! Calls of this node itself are no strangers. They have a time of their own, are never pushed out by
//! anything, and are bounded where they begin: [`CALLS_MAX`] at a time to each node.
use std::collections::{HashMap, VecDeque};

use replication::words::{Moment, NodeId, Span};

/// Connections of a kind that have proved nothing. More handshakes of TLS are done in a grace, so who was
/// let in also has its turn.
pub const UNPROVED_MAX: usize = 512;

/// Nobody is pushed out before. A client on the other side of the world needs half of it for a login
/// of three round trips.
pub const GRACE: Span = Span::secs(1);

/// Calls to one node that are not answered yet. Targets ask again every 300 ms: that is as many as the other
/// side has handshakes for in the meantime, and four nodes that come back at once find room there.
pub const CALLS_MAX: usize = 128;

/// A connection that has until then to say who it is.
#[derive(Clone, Copy, Debug)]
pub struct Awaited {
    pub at: usize,
    pub number: u64,
    /// When it came in.
    pub since: Moment,
    /// `None`: others look after its time.
    pub until: Option<Moment>,
}

/// Connections of one kind that had proved nothing when they were last looked at; the oldest first.
#[derive(Debug, Default)]
pub struct Crowd {
    waiting: VecDeque<Awaited>,
}

impl Crowd {
    /// Who came back to proving nothing keeps its age: nobody stays young by failing again and again.
    pub fn expect(&mut self, it: Awaited) {
        self.waiting.retain(|other| other.number != it.number);
        let place = self.waiting.partition_point(|other| other.since <= it.since);
        self.waiting.insert(place, it);
    }

    pub fn has(&self, it: &Awaited) -> bool {
        self.waiting.iter().any(|other| other.number == it.number)
    }

    /// Whether one more may come in.
    pub fn has_room(&mut self, now: Moment, is_awaited: impl Fn(&Awaited) -> bool) -> bool {
        if self.waiting.len() >= UNPROVED_MAX {
            self.waiting.retain(is_awaited);
        }
        let oldest = self.waiting.front();
        self.waiting.len() < UNPROVED_MAX || oldest.is_some_and(|it| now >= it.since + GRACE)
    }

    /// Who has to go, when one more has come in.
    pub fn one_too_many(&mut self) -> Option<Awaited> {
        if self.waiting.len() > UNPROVED_MAX { self.waiting.pop_front() } else { None }
    }

    /// Forgets those who have proved themselves or are gone; those whose time is over.
    fn late(&mut self, now: Moment, is_awaited: impl Fn(&Awaited) -> bool) -> Vec<Awaited> {
        self.waiting.retain(is_awaited);
        let is_late = |it: &Awaited| it.until.is_some_and(|until| now >= until);
        let late = self.waiting.iter().filter(|it| is_late(it)).copied().collect();
        self.waiting.retain(|it| !is_late(it));
        late
    }
}

#[derive(Debug, Default)]
pub struct Unproved {
    pub peers: Crowd,
    pub nbd: Crowd,
    pub iscsi: Crowd,
    calls: HashMap<NodeId, Crowd>,
}

impl Unproved {
    /// Whether this node may call another once more.
    pub fn may_call(&mut self, node: NodeId, is_awaited: impl Fn(&Awaited) -> bool) -> bool {
        let Some(calls) = self.calls.get_mut(&node) else { return true };
        if calls.waiting.len() >= CALLS_MAX {
            calls.waiting.retain(is_awaited);
        }
        calls.waiting.len() < CALLS_MAX
    }

    pub fn called(&mut self, node: NodeId, it: Awaited) {
        self.calls.entry(node).or_default().expect(it);
    }

    /// Those whose time is over.
    pub fn late(&mut self, now: Moment, is_awaited: impl Fn(&Awaited) -> bool) -> Vec<Awaited> {
        let strangers = [&mut self.peers, &mut self.nbd, &mut self.iscsi];
        let all = strangers.into_iter().chain(self.calls.values_mut());
        all.flat_map(|crowd| crowd.late(now, &is_awaited)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn awaited(number: u64, since: Moment) -> Awaited {
        Awaited { at: 0, number, since, until: Some(since + Span::secs(5)) }
    }

    /// Protects from a flood that locks others out, and from one that pushes them out as they come.
    #[test]
    fn the_oldest_goes_but_not_before_it_could_speak() {
        let mut crowd = Crowd::default();
        for number in 0..512 {
            assert!(crowd.has_room(Moment(number), |_| true));
            crowd.expect(awaited(number, Moment(number)));
            assert!(crowd.one_too_many().is_none());
        }
        assert!(!crowd.has_room(Moment(600), |_| true), "all are young");
        assert!(crowd.has_room(Moment(0) + GRACE, |_| true), "the oldest had its time");
        crowd.expect(awaited(512, Moment(0) + GRACE));
        assert_eq!(crowd.one_too_many().map(|it| it.number), Some(0));
        assert!(!crowd.has_room(Moment(0) + GRACE, |_| true), "the next is younger");
        assert!(crowd.has_room(Moment(600), |it| it.number != 7), "one has proved itself");
    }

    #[test]
    fn who_fails_again_and_again_stays_the_oldest() {
        let mut crowd = Crowd::default();
        (0..512).for_each(|number| crowd.expect(awaited(number, Moment(number))));
        crowd.expect(Awaited { until: Some(Moment(99)), ..awaited(3, Moment(3)) });
        assert_eq!(crowd.waiting.len(), 512);
        assert_eq!(crowd.late(Moment(99), |_| true).first().map(|it| it.number), Some(3));
        assert_eq!(crowd.waiting.len(), 511);
    }
}
