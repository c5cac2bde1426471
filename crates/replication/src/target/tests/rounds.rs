//! Several that catch up at once.
use block::{Position, Seq};

use crate::client::{Command, RequestId};
use crate::message::{AskId, OpenedRound, ToTarget};
use crate::replica::ROUNDS_MAX;
use crate::state::{SharedState, SnapshotSpec};
use crate::target::Event;
use crate::target::tests::served;
use crate::target::tests::stage::{Fake, members, write};
use crate::words::{ReplicaId, SnapshotUid, Span};

/// Protects from a source that is thawed while another destination still copies from it: that one's
/// round fails, and what the target keeps for it is not there.
#[test]
fn a_source_that_two_copy_from_is_closed_by_the_last() {
    let mut stage = served(3);
    stage.ask(1, 1, write(0));
    stage.pass(Span::secs(2));
    stage.replicas.insert(ReplicaId(4), Fake::new());
    stage.replicas.insert(ReplicaId(5), Fake::new());
    stage.fake(5).begins_imports = false;
    stage.change_desired(members(5));
    stage.pass(Span::secs(1));
    let at = stage.fake(4).position;
    assert!(at.seq.0 > 0, "the fourth has caught up");
    let import = stage.fake(5).import.expect("it was told to begin");
    let source = |stage: &super::Stage| {
        let frozen = stage.replicas.iter().find(|(_, fake)| fake.frozen.contains(&import.source));
        frozen.map(|(replica, _)| *replica)
    };
    assert!(source(&stage).is_some(), "the fifth copies from it");
    stage.say(5, ToTarget::ImportBegun { kept: None });
    stage.pass(Span::secs(1));
    assert_eq!(stage.held(5), stage.held(1), "it went on with what was frozen");
    assert_eq!(source(&stage), None, "nothing stays frozen");
}

/// Protects from a source that stays frozen for the rest of the reign, with all the space that it holds: a user's snapshot
/// that is gone says nothing of the point at which an import of the same destination was begun.
#[test]
fn a_snapshot_that_is_gone_does_not_hide_what_is_frozen() {
    let mut stage = served(3);
    stage.ask(1, 1, write(0));
    stage.pass(Span::secs(2));
    stage.replicas.insert(ReplicaId(4), Fake::new());
    stage.fake(4).begins_imports = false;
    stage.change_desired(members(4));
    stage.pass(Span::secs(1));
    let is_frozen = |stage: &super::Stage| stage.replicas.values().any(|it| !it.frozen.is_empty());
    assert!(is_frozen(&stage), "the fourth copies from it");
    stage.cut_off(4);
    let spec = SnapshotSpec { uid: SnapshotUid([7; 16]), name: "monday".into(), created: 0 };
    stage.step(Event::Command { id: RequestId(50), command: Command::Snapshot(spec) });
    stage.pass(Span::secs(1));
    stage.reconnect(4);
    stage.pass(Span::secs(30));
    assert!(is_frozen(&stage), "its import may go on");
    stage.cut_off(4);
    stage.pass(Span::secs(60));
    assert!(!is_frozen(&stage), "what is not gone on with is closed in time");
}

/// Protects the target's memory, and the time of its steps, from a replica that says what it was not asked.
#[test]
fn rounds_that_nobody_asked_for_are_kept_up_to_a_bound_and_closed_beyond_it() {
    let mut stage = served(3);
    let opened = |seq: u64| {
        let position = Position { seq: Seq(seq), ..Position::default() };
        let shared = SharedState::default();
        let (size, snapshots) = (shared.size, Vec::new());
        Box::new(OpenedRound { position, shared, size, snapshot: None, snapshots })
    };
    for seq in 0..5000 {
        let opened = opened(seq);
        stage.fake(2).frozen.insert(opened.position);
        let id = AskId(1_000_000 + seq);
        stage.say(2, ToTarget::RoundOpened { id, opened: Ok(opened) });
    }
    let kept: Vec<u64> = stage.target.kept_sources().map(|(_, at)| at.seq.0).collect();
    assert_eq!(kept.len(), ROUNDS_MAX);
    assert_eq!(stage.fake(2).frozen.len(), ROUNDS_MAX, "the others were closed");
    assert!(kept.into_iter().all(|seq| seq >= 5000 - ROUNDS_MAX as u64), "the newest are kept");
    stage.pass(Span::secs(61));
    assert!(stage.fake(2).frozen.is_empty(), "and these are closed in time");
}
