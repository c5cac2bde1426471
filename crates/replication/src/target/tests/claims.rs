//! Whose volume it is, and whose word counts: grants, and welcomes that cannot be true.
use block::{ByteLen, Position, Seq, Term};

use crate::catalog::{CatalogAnswer, VolumeObject};
use crate::history::{Reign, Reigns};
use crate::message::{ForTarget, ToTarget};
use crate::target::tests::stage::{Fake, Stage, read};
use crate::target::{Begin, Event, Standing, Stopped};
use crate::words::{CatalogVersion, Grant, Moment, NodeId, ReplicaId, Span, StageNumber};

/// A node that resumed a target from its memory, while the catalog names another node.
fn resumed_elsewhere() -> Stage {
    let mut stage = Stage::new(3);
    stage.pass(Span::secs(1));
    stage.catalog.holder = NodeId(9);
    stage.catalog.grant = Grant(stage.catalog.grant.0 + 1);
    stage.catalog.version = CatalogVersion(stage.catalog.version.0 + 1);
    stage.begin_on(NodeId(1), Begin::Granted, 77);
    stage.pass(Span::secs(5));
    assert!(!stage.is_serving(), "the grant is another node's");
    assert_eq!(stage.stopped(), None, "it waits for its grant");
    stage
}

/// Protects from a takeover that is confirmed and never happens: a run that waits for its grant is
/// there already, and would be found so by every further attempt.
#[test]
fn a_run_that_waits_for_its_grant_asks_for_it_when_it_is_to_take_over() {
    let mut stage = resumed_elsewhere();
    stage.step(Event::TakeOver);
    stage.pass(Span::secs(4));
    assert_eq!((stage.catalog.holder, stage.catalog.grant), (NodeId(1), Grant(3)));
    assert!(stage.is_serving(), "{:?}", stage.target.status(stage.now));
}

#[test]
fn a_run_that_waits_for_its_grant_goes_on_when_it_gets_it() {
    let mut stage = resumed_elsewhere();
    stage.catalog.holder = NodeId(1);
    stage.catalog.grant = Grant(3);
    stage.catalog.version = CatalogVersion(stage.catalog.version.0 + 1);
    let object = Box::new(stage.catalog.clone());
    stage.step(Event::Catalog(CatalogAnswer::Object(object)));
    stage.pass(Span::secs(4));
    assert!(stage.is_serving(), "{:?}", stage.target.status(stage.now));
}

/// Protects from a reign that is broken off, or a grant that is raised, for a call that came twice.
#[test]
fn a_target_that_serves_is_not_disturbed_by_another_take_over() {
    let mut stage = Stage::new(3);
    stage.pass(Span::secs(1));
    let before = stage.catalog.clone();
    stage.step(Event::TakeOver);
    stage.pass(Span::secs(1));
    assert!(stage.is_serving() && stage.stopped().is_none());
    assert_eq!(stage.catalog, before);
}

/// Protects from two targets that outbid one another for ever: a catalog that went back gave a grant again, to a node
/// that did not know of the first.
#[test]
fn of_two_nodes_with_one_grant_the_one_that_the_catalog_names_goes_on() {
    let mut stage = Stage::new(3);
    stage.pass(Span::secs(1));
    let mut again = stage.catalog.clone();
    again.version = CatalogVersion(again.version.0 + 1);
    stage.step(Event::Catalog(CatalogAnswer::Object(Box::new(again.clone()))));
    assert_eq!(stage.stopped(), None, "it is its own grant");
    again.holder = NodeId(9);
    let older = Box::new(VolumeObject { version: CatalogVersion(0), ..again.clone() });
    stage.step(Event::Catalog(CatalogAnswer::Object(older)));
    assert_eq!(stage.stopped(), None, "an older object is not obeyed");
    stage.step(Event::Catalog(CatalogAnswer::Object(Box::new(again))));
    assert_eq!(stage.stopped(), Some(Stopped::Superseded));
}

/// Protects from one replica that stops the target on every node in turn: its store was damaged, or
/// it is not what it says it is.
#[test]
fn a_replica_whose_history_cannot_be_is_marked_and_the_others_serve() {
    let reigns = |list: &[(u64, u64)]| {
        let reign = |(term, first): &(u64, u64)| Reign { term: Term(*term), first: Seq(*first) };
        Reigns::new(list.iter().map(reign).collect()).expect("they grow")
    };
    let far = (1 << 56) - 2;
    type Story<'a> = (&'a str, Box<dyn Fn(&mut Fake)>);
    let stories: [Story<'_>; 7] = [
        ("a reign behind the end", Box::new(move |it| it.shared.reigns = reigns(&[(1, 900)]))),
        ("entries without a reign", Box::new(|it| it.position = Position::new(1, 5))),
        (
            "an end of another term",
            Box::new(move |it| {
                it.shared.reigns = reigns(&[(1, 1)]);
                it.position = Position::new(7, 5);
            }),
        ),
        (
            "a term to come",
            Box::new(move |it| {
                it.shared.reigns = reigns(&[(u64::MAX, 1)]);
                it.position = Position::new(u64::MAX, 5);
            }),
        ),
        (
            "seqs that run out",
            Box::new(move |it| {
                it.shared.reigns = reigns(&[(1, 1)]);
                it.position = Position::new(1, far);
            }),
        ),
        ("stages that run out", Box::new(|it| it.shared.stages.last = StageNumber(u64::MAX))),
        ("a volume without end", Box::new(|it| it.shared.size = ByteLen(u64::MAX))),
    ];
    for (what, spoil) in stories {
        let mut stage = Stage::new(3);
        stage.cut_off(1);
        stage.begin_on(NodeId(2), Begin::TakeOver, 50);
        spoil(stage.fake(1));
        stage.reconnect(1);
        stage.begin_on(NodeId(3), Begin::TakeOver, 51);
        stage.pass(Span::secs(4));
        assert!(stage.is_serving(), "{what}: {:?}", stage.target.status(stage.now));
        let status = stage.target.status(stage.now);
        let of = |id| status.peers.iter().find(move |peer| peer.member.replica == ReplicaId(id));
        let spoiled = of(1).expect("it is listed");
        assert_eq!(spoiled.standing, Standing::Error, "{what}");
        let reason = spoiled.reason.clone().unwrap_or_default();
        assert!(reason.contains("cannot be"), "{what}: {reason}");
    }
}

/// Protects from a lease that a replica makes longer than it is.
#[test]
fn a_renewal_that_was_not_sent_yet_confirms_nothing() {
    let mut stage = Stage::new(3);
    stage.pass(Span::secs(1));
    stage.log_in(1, 1, 1, None);
    for replica in 2..=3 {
        let Event::Message { replica, link, message } = stage.ack_of(replica) else {
            unreachable!("an ack is a message")
        };
        let body = ToTarget::Renewed { sent: Moment(stage.now.0 + 60_000_000) };
        let message = ForTarget { term: message.term, body };
        stage.step(Event::Message { replica, link, message });
    }
    stage.fake(2).silent = true;
    stage.fake(3).silent = true;
    stage.pass(Span::secs(3));
    stage.ask(1, 10, read(0));
    assert_eq!(stage.answer(10), None, "two of three have not renewed the lease");
}
