//! Who has a vote.
//!
//! Invariants: only the catalog makes a membership valid; versions grow by one; two memberships
//! that follow one another have quorums that always meet, since a change goes through a step in
//! which both the old and the new quorum are needed.
use crate::words::{Incarnation, ReplicaId};

/// Voters of one set. Seven replicas, and one that comes before another goes; a state keeps two
/// such sets while a change is under way.
pub const MEMBERS_MAX: usize = 8;

/// A replica with the content that is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Member {
    pub replica: ReplicaId,
    pub incarnation: Incarnation,
}

/// Those who vote, and how many replicas are wanted. A voter may be missing for a while: one that
/// gave up its vote. What is needed follows from `rf` all the same.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Voters {
    pub members: Vec<Member>,
    pub rf: u8,
}

impl Voters {
    pub fn of(members: &[Member]) -> Voters {
        let rf = u8::try_from(members.len()).expect("a volume has at most 255 replicas");
        Voters { members: members.to_vec(), rf }
    }

    /// How many have to hold a write: more than half.
    pub fn cf(&self) -> usize {
        usize::from(self.rf) / 2 + 1
    }

    /// How many have to answer so that at least one of them has whatever CF hold.
    pub fn meeting(&self) -> usize {
        (usize::from(self.rf) + 1).saturating_sub(self.cf())
    }

    pub fn has(&self, member: Member) -> bool {
        self.members.contains(&member)
    }

    /// The highest value that at least CF of the voters reach.
    fn reached<T: Ord + Copy>(&self, value: &impl Fn(Member) -> Option<T>) -> Option<T> {
        // Counted for every batch of acks: without memory of its own. Nothing is below everything.
        let mut values = [None; MEMBERS_MAX];
        for (slot, member) in values.iter_mut().zip(&self.members) {
            *slot = value(*member);
        }
        values.sort_unstable_by(|a, b| b.cmp(a));
        values.get(self.cf() - 1).copied().flatten()
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Membership {
    pub version: u64,
    pub voters: Voters,
    /// A change under way: both quorums are needed.
    pub next: Option<Voters>,
}

impl Membership {
    /// Whether those that `counts` names are a quorum; of both, while a change is under way.
    pub fn is_quorum(&self, counts: impl Fn(Member) -> bool) -> bool {
        self.reached(|member| counts(member).then_some(())).is_some()
    }

    /// The highest value that a quorum reaches.
    pub fn reached<T: Ord + Copy>(&self, value: impl Fn(Member) -> Option<T>) -> Option<T> {
        let old = self.voters.reached(&value)?;
        match &self.next {
            Some(next) => Some(old.min(next.reached(&value)?)),
            None => Some(old),
        }
    }

    /// Whether so many answered that whatever was acknowledged is held by one of them. While a
    /// change is under way everything is still held by a quorum of the old voters.
    pub fn is_met(&self, counts: impl Fn(Member) -> bool) -> bool {
        let answered = self.voters.members.iter().filter(|member| counts(**member));
        answered.count() >= self.voters.meeting()
    }

    /// Everybody who has a vote, of before or after a change.
    pub fn everybody(&self) -> Vec<Member> {
        let mut all = self.voters.members.clone();
        all.extend(self.next.iter().flat_map(|next| next.members.iter().copied()));
        all.sort_unstable();
        all.dedup();
        all
    }

    pub fn has(&self, member: Member) -> bool {
        self.voters.has(member) || self.next.as_ref().is_some_and(|next| next.has(member))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn members(ids: &[u64]) -> Vec<Member> {
        let member = |id: &u64| Member { replica: ReplicaId(*id), incarnation: Incarnation(1) };
        ids.iter().map(member).collect()
    }

    fn only(ids: &[u64]) -> impl Fn(Member) -> bool {
        move |member| ids.contains(&member.replica.0)
    }

    fn of(ids: &[u64]) -> Membership {
        Membership { version: 1, voters: Voters::of(&members(ids)), next: None }
    }

    #[test]
    fn more_than_half_is_needed() {
        let needed = [(1, 1), (2, 2), (3, 2), (4, 3), (5, 3)];
        for (rf, cf) in needed {
            let ids: Vec<u64> = (1..=rf).collect();
            assert_eq!(Voters::of(&members(&ids)).cf(), cf, "RF {rf}");
        }
        assert!(of(&[1, 2, 3]).is_quorum(only(&[1, 3])));
        assert!(!of(&[1, 2, 3]).is_quorum(only(&[1, 9])));
    }

    /// Protects from a change during which the old and the new voters decide apart.
    #[test]
    fn during_a_change_both_quorums_are_needed() {
        let changing =
            Membership { next: Some(Voters::of(&members(&[1, 4, 5]))), ..of(&[1, 2, 3]) };
        assert!(!changing.is_quorum(only(&[2, 3])));
        assert!(!changing.is_quorum(only(&[4, 5])));
        assert!(changing.is_quorum(only(&[1, 2, 4])));
        let held = |member: Member| Some(member.replica.0 * 10);
        assert_eq!(changing.reached(held), Some(20));
    }

    /// Protects from an emptied replica whose vote is given up: what is needed does not shrink.
    #[test]
    fn a_vote_that_was_given_up_is_still_reckoned_with() {
        let mut given_up = of(&[1, 2]);
        given_up.voters.rf = 3;
        assert_eq!(given_up.voters.cf(), 2);
        assert!(!given_up.is_quorum(only(&[1])));
    }

    /// Protects from another content under the name of a voter.
    #[test]
    fn an_incarnation_that_is_not_listed_does_not_count() {
        let other = Member { replica: ReplicaId(1), incarnation: Incarnation(2) };
        assert!(!of(&[1, 2, 3]).has(other));
    }
}
