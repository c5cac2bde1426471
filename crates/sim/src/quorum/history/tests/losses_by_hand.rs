//! Histories with losses and stages, written by hand.
use block::Data;
use replication::client::{Answer, IoError, LoginError, Request};
use replication::words::{ClientId, SnapshotUid, StageNumber};

use super::super::stamp::Value;
use super::super::violation::{Unexplained, Violation};
use super::super::{ClientAction, Clients, ClientsConfig, VolumeShape};
use super::by_hand::{Story, stale, whole};
use crate::quorum::sparse::Sparse;

/// Write 1 is flushed, 2 and 3 are not.
fn unflushed() -> Story {
    let mut story = Story::new();
    story.volume.flushed(30);
    story.write(2, 100);
    story.ack(2, 110);
    story.write(3, 120);
    story.ack(3, 130);
    story
}

#[test]
fn without_a_loss_unflushed_writes_are_kept_as_well() {
    let mut story = unflushed();
    assert_eq!(story.read(2, 200, 210), stale(2, 3));
}

#[test]
fn a_loss_leaves_one_of_what_was_not_flushed_and_then_it_stays() {
    for kept in 1..=3 {
        let mut story = unflushed();
        story.volume.lose(500, 140, Value(4));
        assert_eq!(story.read(kept, 600, 610), None);
        assert_eq!(story.last(kept, 700), None);
        for other in (1..=3).filter(|other| *other != kept) {
            let older = Some(Unexplained::OlderThanFlushed(Value(other)));
            assert_eq!(story.last(other, 700), older, "{kept} was seen");
        }
        story.write(4, 800);
        story.ack(4, 810);
        assert_eq!(story.read(kept, 900, 910), stale(kept, 4));
    }
}

#[test]
fn what_was_flushed_is_not_lost() {
    let mut story = unflushed();
    story.volume.flushed(115);
    story.volume.lose(500, 140, Value(4));
    assert_eq!(story.last(3, 600), None);
    assert_eq!(story.last(2, 600), None);
    let older = Some(Unexplained::OlderThanFlushed(Value(1)));
    assert_eq!(story.last(1, 600), older, "2 was flushed");
    assert!(story.last(0, 600).is_some());
}

#[test]
fn a_flush_covers_only_what_was_done_when_it_was_sent() {
    let mut story = unflushed();
    story.volume.flushed(105);
    story.volume.lose(500, 140, Value(4));
    assert_eq!(story.last(1, 600), None, "2 was still under way");
}

#[test]
fn a_write_through_the_cache_is_not_lost() {
    let mut story = unflushed();
    story.write_fua(4, 140);
    story.ack(4, 150);
    story.volume.lose(500, 160, Value(5));
    assert_eq!(story.last(4, 600), None);
    assert_eq!(story.last(3, 600), Some(Unexplained::OlderThanFlushed(Value(3))));
}

#[test]
fn a_loss_may_bring_what_never_had_an_answer() {
    let mut story = unflushed();
    story.write(4, 140);
    story.volume.lose(500, 140, Value(5));
    assert_eq!(story.read(4, 600, 610), None);
    assert_eq!(story.last(3, 700), Some(Unexplained::OlderThanFlushed(Value(3))));
}

#[test]
fn a_loss_that_nobody_could_notice_excuses_what_is_there_in_the_end() {
    let story = unflushed();
    assert_eq!(story.volume.check_final(500, &whole(2), false), Ok(()));
    assert!(story.volume.check_final(500, &whole(2), true).is_err());
    assert!(story.volume.check_final(500, &whole(0), false).is_err(), "1 was flushed");
}

#[test]
fn a_snapshot_may_show_a_loss_before_anybody_is_told() {
    let (early, late) = (SnapshotUid([1; 16]), SnapshotUid([2; 16]));
    let mut story = unflushed();
    for (uid, asked) in [(early, 140), (late, 200)] {
        story.volume.snapshot_asked(asked, uid);
        story.volume.snapshot_done(asked + 10, uid);
    }
    assert_eq!(story.snapshot(late, 2), stale(2, 3));
    // Clients worked until 160.
    story.volume.lose(500, 160, Value(4));
    assert_eq!(story.snapshot(late, 2), None);
    assert_eq!(story.snapshot(early, 2), stale(2, 3), "nothing was lost then");
    assert_eq!(story.snapshot(late, 0), stale(0, 3));
}

#[test]
fn a_rollback_after_a_loss_takes_nothing_from_an_earlier_snapshot() {
    // Protects from a false alarm: loss, snapshot, rollback, and only then is somebody told.
    let (old, lossy) = (SnapshotUid([1; 16]), SnapshotUid([2; 16]));
    let mut story = unflushed();
    for (uid, asked) in [(old, 140), (lossy, 200)] {
        story.volume.snapshot_asked(asked, uid);
        story.volume.snapshot_done(asked + 10, uid);
    }
    story.volume.rollback_asked(300, old);
    story.volume.rollback_done(310, old);
    story.volume.lose(500, 160, Value(4));
    assert_eq!(story.snapshot(lossy, 2), None);
    assert_eq!(story.last(3, 600), None, "it is what was rolled back to");
    assert_eq!(story.last(2, 600), Some(Unexplained::OlderThanFlushed(Value(2))));
}

// The clients as a whole.

/// Two clients of one volume, and what they want now.
struct Pair {
    clients: Clients,
    now: u64,
    sent: Vec<ClientAction>,
}

impl Pair {
    fn new() -> Pair {
        let shape = VolumeShape { size: 1 << 20, block_size: 4096 };
        let mut config = ClientsConfig::new(vec![shape], 1);
        config.clients_per_volume = 2;
        config.plain_percent = 0;
        let mut pair = Pair { clients: Clients::new(config), now: 0, sent: Vec::new() };
        pair.live(1, |_| true);
        pair
    }

    /// Everything is answered for a second: logins of `lets_in` well, reads with zeros, and
    /// writes not at all.
    fn live(&mut self, stages_from: u64, lets_in: impl Fn(ClientId) -> bool) {
        let end = self.now + 1_000_000;
        let mut stage = stages_from;
        while let Some(wake) = self.clients.next_wake().filter(|wake| *wake < end) {
            self.now = self.now.max(wake) + 1;
            self.clients.wake(self.now, &mut self.sent);
            for action in std::mem::take(&mut self.sent) {
                match action {
                    ClientAction::AskNewStage { client, volume } => {
                        self.clients.new_stage(self.now, client, volume, StageNumber(stage));
                        stage += 1;
                    }
                    ClientAction::Connect { client, number, .. } => {
                        let refused = Err(LoginError::UnflushedWritesLost);
                        let result = if lets_in(client) { Ok(()) } else { refused };
                        self.clients.logged_in(self.now, client, number, result);
                    }
                    ClientAction::Send { client, number, id, request, .. } => {
                        let zeros = |len| vec![0; usize::try_from(len).unwrap()];
                        let answer = match request {
                            Request::Read { len, .. } => {
                                Ok(Answer::Read(Data::copy_of(&zeros(len.0))))
                            }
                            _ => Err(IoError::Busy),
                        };
                        let _ = self.clients.answered(self.now, client, number, id, answer);
                    }
                    _ => {}
                }
            }
        }
        self.now = end;
    }

    /// The next request of a client. All logins are answered well meanwhile, since a client whose
    /// writes wait has to lose patience first.
    fn next_request(&mut self, of: ClientId) -> ClientAction {
        for _ in 0..10_000 {
            self.now = self.clients.next_wake().unwrap().max(self.now + 1);
            let mut actions = Vec::new();
            self.clients.wake(self.now, &mut actions);
            for action in actions {
                match action {
                    ClientAction::Send { client, .. } if client == of => return action,
                    ClientAction::Connect { client, number, .. } => {
                        self.clients.logged_in(self.now, client, number, Ok(()));
                    }
                    _ => {}
                }
            }
        }
        panic!("client {of:?} asks for nothing");
    }

    /// A client is told of a loss by an answer.
    fn tell(&mut self, client: ClientId) {
        let asked = self.next_request(client);
        let ClientAction::Send { number, id, .. } = asked else { unreachable!() };
        let told = Err(IoError::UnflushedWritesLost);
        let _ = self.clients.answered(self.now, client, number, id, told);
    }
}

#[test]
fn clients_that_are_all_refused_are_staged_anew_and_go_on() {
    let mut pair = Pair::new();
    assert!(pair.clients.counters()["reads done"] > 4);
    pair.tell(ClientId(1));
    for _ in 0..3 {
        pair.live(3, |_| false);
    }
    pair.live(5, |_| true);
    assert_eq!(pair.clients.verdict(), Ok(()));
    assert!(pair.clients.counters()["stagings anew"] >= 1);
}

#[test]
fn a_client_that_goes_on_under_its_old_stage_is_found() {
    let mut pair = Pair::new();
    pair.tell(ClientId(1));
    pair.live(3, |client| client == ClientId(2));
    let verdict = pair.clients.verdict();
    assert!(
        matches!(verdict, Err(Violation::WorksAfterLoss { client: ClientId(2), .. })),
        "{verdict:?}"
    );
}

#[test]
fn a_loss_where_power_was_never_cut_is_found() {
    let mut pair = Pair::new();
    pair.clients.power_losses(1);
    pair.tell(ClientId(1));
    assert_eq!(pair.clients.verdict(), Ok(()));
    pair.clients.power_losses(0);
    assert_eq!(pair.clients.verdict(), Err(Violation::LossWithoutPowerCut { volume: 0 }));
}

#[test]
fn a_choice_leaves_exactly_what_the_copy_has() {
    for has in 0..=3 {
        let mut story = unflushed();
        story.volume.flushed(200);
        let copy = [(1, Value(has))].into_iter().filter(|_| has > 0).collect();
        story.volume.go_on_with(500, 400, &copy, Value(4));
        for other in 0..=3 {
            assert_eq!(story.last(other, 600).is_none(), other == has, "{has} was chosen");
        }
        story.write(4, 800);
        story.ack(4, 810);
        assert!(story.last(has, 900).is_some(), "4 was written since");
    }
}

#[test]
fn a_client_that_goes_on_although_a_copy_was_chosen_is_found() {
    let mut pair = Pair::new();
    pair.clients.chosen(pair.now, 0, &Sparse::new(1 << 20));
    pair.live(3, |_| true);
    let verdict = pair.clients.verdict();
    assert!(matches!(verdict, Err(Violation::WorksAfterChoice { .. })), "{verdict:?}");
}

#[test]
fn clients_that_are_told_of_a_choice_go_on() {
    let mut pair = Pair::new();
    pair.clients.chosen(pair.now, 0, &Sparse::new(1 << 20));
    pair.tell(ClientId(1));
    for _ in 0..3 {
        pair.live(3, |_| false);
    }
    pair.live(5, |_| true);
    assert_eq!(pair.clients.verdict(), Ok(()));
}
