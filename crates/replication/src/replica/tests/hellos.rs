use block::{Position, Seq, Term};

use crate::entry::Change;
use crate::membership::{Member, Membership, Voters};
use crate::message::{AskId, Refusal, ToReplica, ToTarget};
use crate::replica::{Event, LinkId, WipeRefusal};
use crate::state::{Promise, Stages};
use crate::store::{StoreError, StoreOp};
use crate::words::{Boot, Incarnation, Moment, ReplicaId, Span};

use super::rig::{Rig, write};

/// A promise that a power cut takes back would let two targets both have a quorum.
#[test]
fn a_welcome_waits_until_the_promise_is_durable() {
    let mut rig = Rig::new();
    rig.answer();
    rig.hello(1, 5);
    while !rig.is_welcome() {
        rig.answer_first();
        if rig.is_welcome() {
            break;
        }
    }
    assert_eq!(rig.durable_state().promise, Promise { term: Term(5), run: Boot(9) });
    assert_eq!(rig.welcome().position, Position::default());
    assert_eq!(rig.welcome().incarnation, Incarnation(3));
    // Also with the flush done but not answered, nothing was said.
    let mut rig = Rig::new();
    rig.answer();
    rig.hello(1, 5);
    rig.answer_first();
    assert_eq!(rig.durable_state().promise.term, Term(5));
    assert!(!rig.is_welcome());
}

/// An entry of the older target that arrives in the store after the welcome would be above the
/// position that the new target was told.
#[test]
fn what_the_store_has_is_awaited_and_what_it_has_not_is_forgotten() {
    let mut rig = Rig::new();
    rig.reign(1, 5, 1);
    let many = (0..100).map(|n| write(n % 8, 1)).collect();
    rig.entries(1, 5, 2, many);
    rig.answer_first(); // the mark
    rig.hello(2, 6);
    assert_eq!(rig.dropped, [LinkId(1)]);
    assert!(!rig.is_welcome());
    rig.answer();
    // 64 were given at once.
    assert_eq!(rig.welcome().position, Position::new(5, 65));
    assert_eq!(rig.replica.durable(), Seq(65));
    assert_eq!(rig.store.facts().position, Position::new(5, 65));
    let to_old = |(link, _): &(LinkId, ToTarget)| *link == LinkId(1);
    assert!(!rig.sent.iter().any(to_old), "the older connection hears nothing more");
}

/// Entries that the store was too busy for are given again, but not into another target's reign.
#[test]
fn entries_that_were_refused_as_busy_end_with_their_stream() {
    let mut rig = Rig::new();
    rig.reign(1, 5, 1);
    rig.store.refuse = Some((Seq(3), StoreError::Busy, true));
    rig.entries(1, 5, 2, vec![write(0, 1), write(1, 1), write(2, 1)]);
    rig.hello(2, 6);
    rig.answer();
    rig.tick_after(Span::millis(100));
    rig.answer();
    assert_eq!(rig.welcome().position, Position::new(5, 2));
    assert_eq!(rig.store.facts().position, Position::new(5, 2));
}

#[test]
fn lower_terms_other_runs_and_older_memberships_are_refused() {
    let mut rig = Rig::new();
    rig.hello_of(1, 5, 9, 4);
    rig.answer();
    rig.sent.clear();
    let promised = Promise { term: Term(5), run: Boot(9) };
    for (link, term, run, version, refusal) in [
        (2, 4, 9, 4, Refusal::Promised(promised)),
        (3, 5, 8, 4, Refusal::Promised(promised)),
        (4, 6, 9, 3, Refusal::OlderMembership { seen: 4 }),
    ] {
        rig.hello_of(link, term, run, version);
        let (to, body) = rig.sent.pop().unwrap();
        assert_eq!(to, LinkId(link));
        assert!(matches!(body, ToTarget::Refused(given) if given == refusal));
        assert_eq!(rig.dropped.pop(), Some(LinkId(link)));
    }
    // The stream that it has goes on.
    rig.entries(1, 5, 1, vec![Change::Barrier { stages: Stages::default() }]);
    rig.answer();
    assert_eq!(rig.acked(), Some((1, 1)));
}

#[test]
fn the_same_target_may_come_again_over_another_connection() {
    let mut rig = Rig::new();
    rig.reign(1, 5, 1);
    rig.hello(2, 5);
    rig.answer();
    assert_eq!(rig.dropped, [LinkId(1)]);
    assert_eq!(rig.welcome().position, Position::new(5, 1));
    rig.entries(2, 5, 2, vec![Change::Flush]);
    rig.answer();
    assert_eq!(rig.acked(), Some((2, 2)));
}

#[test]
fn a_second_hello_during_a_greeting_is_the_one_that_is_welcomed() {
    let mut rig = Rig::new();
    rig.hello(1, 5);
    rig.hello(2, 6);
    rig.hello(3, 5);
    rig.answer();
    let welcomed = |(_, body): &&(LinkId, ToTarget)| matches!(body, ToTarget::Welcome(_));
    let links: Vec<_> = rig.sent.iter().filter(welcomed).map(|(link, _)| *link).collect();
    assert_eq!(links, [LinkId(2)]);
    assert_eq!(rig.dropped, [LinkId(1), LinkId(3)]);
    assert_eq!(rig.durable_state().promise.term, Term(6));
}

/// A partitioned target must neither write nor be told that its reign goes on.
#[test]
fn messages_of_older_connections_and_terms_do_nothing() {
    let mut rig = Rig::new();
    rig.reign(1, 5, 1);
    rig.hello(2, 6);
    rig.answer();
    rig.sent.clear();
    rig.dropped.clear();
    rig.entries(1, 5, 2, vec![write(0, 1)]);
    rig.say(1, 5, ToReplica::Renew { sent: Moment(1), settled: Seq(0) });
    rig.say(2, 5, ToReplica::Renew { sent: Moment(2), settled: Seq(0) });
    rig.answer();
    assert!(rig.sent.is_empty());
    assert_eq!(rig.dropped, [LinkId(1), LinkId(1)]);
    assert_eq!(rig.replica.position(), Position::new(5, 1));
    rig.say(2, 6, ToReplica::Renew { sent: Moment(3), settled: Seq(0) });
    assert!(matches!(rig.sent[..], [(LinkId(2), ToTarget::Renewed { sent: Moment(3) })]));
}

#[test]
fn answers_for_a_connection_that_is_gone_are_dropped() {
    let mut rig = Rig::new();
    rig.reign(1, 5, 1);
    let (offset, len) = (block::ByteOffset(0), block::ByteLen(4096));
    rig.say(
        1,
        5,
        ToReplica::Read { id: AskId(1), of: crate::message::RoundPoint::Now, offset, len },
    );
    rig.step(Event::LinkLost { link: LinkId(1) });
    rig.hello(2, 5);
    rig.answer();
    assert!(!rig.sent.iter().any(|(_, body)| matches!(body, ToTarget::ReadDone { .. })));
}

#[test]
fn a_clean_end_makes_everything_durable_and_takes_nothing_more() {
    let mut rig = Rig::new();
    rig.reign(1, 5, 1);
    rig.entries(1, 5, 2, vec![write(0, 1)]);
    rig.answer();
    assert!(rig.durable_state().dirty.is_some());
    rig.step(Event::Close);
    assert!(!rig.closed);
    rig.hello(2, 6);
    rig.answer();
    assert!(rig.closed);
    assert!(rig.durable_state().dirty.is_none());
    assert_eq!(rig.durable_state().promise.term, Term(5));
    let mut rig = rig.restart(2);
    assert!(!rig.replica.is_regressed());
    assert_eq!(rig.replica.position(), Position::new(5, 2));
    rig.hello(3, 6);
    rig.answer();
    assert!(!rig.welcome().dirty);
}

/// Q13: an old command, or one that means another content, must not destroy a vote.
#[test]
fn only_a_replica_that_left_the_membership_may_be_wiped() {
    let mut rig = Rig::new();
    rig.hello_of(1, 5, 9, 4);
    rig.answer();
    let me = Member { replica: ReplicaId(1), incarnation: Incarnation(3) };
    let other = Member { replica: ReplicaId(2), incarnation: Incarnation(3) };
    let voters = |members: &[Member]| Voters::of(members);
    let membership = |version, now: &[Member], next: Option<&[Member]>| Membership {
        version,
        voters: voters(now),
        next: next.map(voters),
    };
    let may = |member, given: &Membership| rig.replica.may_wipe(member, given);
    let gone = membership(5, &[other], None);
    assert_eq!(may(me, &gone), Ok(()));
    let older = Err(WipeRefusal::OlderMembership { seen: 4, given: 3 });
    assert_eq!(may(me, &membership(3, &[other], None)), older);
    let meant = Member { incarnation: Incarnation(2), ..me };
    assert_eq!(may(meant, &gone), Err(WipeRefusal::OtherIncarnation { has: Incarnation(3) }));
    assert_eq!(may(me, &membership(5, &[me], None)), Err(WipeRefusal::Voter));
    assert_eq!(may(me, &membership(5, &[other], Some(&[me]))), Err(WipeRefusal::Voter));
    assert!(!rig.log_has(|op| matches!(op, StoreOp::Abandon)));
}
