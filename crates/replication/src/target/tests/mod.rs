//! A target against replicas that do as they are told: one rule of the protocol each.
mod batches;
mod claims;
mod extents;
mod lost_catalog;
mod pace;
mod rounds;
mod space;
mod stage;

use block::Seq;

use crate::client::{Command, CommandError, ConnectionId, RequestId};
use crate::membership::{Membership, Voters};
use crate::target::front::REMEMBERED_MAX;
use crate::target::tests::stage::{Stage, member, members, read, write};
use crate::target::{Event, Stopped};
use crate::words::{Grant, ReplicaId, Span, Start, Token};

/// A stage on which the volume is served, with one client logged in.
fn served(rf: u64) -> Stage {
    let mut stage = Stage::new(rf);
    stage.pass(Span::secs(1));
    assert!(stage.is_serving(), "{:?}", stage.target.status(stage.now));
    stage.log_in(1, 1, 1, None);
    assert_eq!(stage.login_answer(1), Some(true));
    stage
}

/// Protects from memory that grows with every client there ever was, and from forgetting one that matters.
#[test]
fn clients_that_were_here_long_ago_are_forgotten() {
    let mut stage = served(3);
    let most = u64::try_from(REMEMBERED_MAX).unwrap();
    // One that stays, and one that comes again and again, beside many that come once.
    stage.log_in(2, 2, 7, None);
    for client in 10..most + 2000 {
        stage.log_in(client, client, 5, None);
        stage.step(Event::Gone { connection: ConnectionId(client) });
        if client.is_multiple_of(1000) {
            stage.log_in(1_000_000 + client, 3, client, None);
            stage.step(Event::Gone { connection: ConnectionId(1_000_000 + client) });
        }
    }
    let remembered = stage.target.front.remembered();
    assert!(remembered <= REMEMBERED_MAX + 4, "{remembered} clients are remembered");
    let mut older = |client, number| {
        let connection = 2_000_000 + client;
        stage.log_in(connection, client, number, None);
        stage.login_answer(connection)
    };
    assert_eq!(older(2, 6), Some(false), "it is connected");
    assert_eq!(older(3, 999), Some(false), "it was here not long ago");
    assert_eq!(older(most + 1500, 4), Some(false));
    assert_eq!(older(10, 4), Some(true), "nobody knows it any more");
}

#[test]
fn an_empty_volume_is_served_at_once() {
    let stage = served(3);
    assert_eq!(stage.catalog.grant, Grant(1));
    assert_eq!(stage.held(1), Seq(2), "the barrier, and the membership");
}

/// Protects from acknowledging what too few hold, and from waiting for the slowest.
#[test]
fn a_write_is_acknowledged_when_a_quorum_holds_it() {
    let mut stage = served(3);
    stage.fake(1).mute = true;
    stage.fake(2).mute = true;
    stage.ask(1, 10, write(0));
    assert_eq!(stage.answer(10), None, "only one replica said that it holds it");
    stage.fake(2).mute = false;
    stage.ask(1, 11, write(1));
    assert_eq!(
        (stage.answer(10).as_deref(), stage.answer(11).as_deref()),
        (Some("ok"), Some("ok"))
    );
}

/// Protects from showing what can still vanish.
#[test]
fn a_read_waits_for_what_it_may_have_seen() {
    let mut stage = served(3);
    stage.fake(2).mute = true;
    stage.fake(3).mute = true;
    stage.ask(1, 10, write(0));
    stage.ask(1, 11, read(0));
    stage.ask(1, 12, read(5));
    assert_eq!(stage.answer(11), None);
    assert_eq!(stage.answer(12).as_deref(), Some("ok"), "nothing touches block 5");
    stage.fake(2).mute = false;
    stage.ask(1, 13, write(9));
    assert_eq!(stage.answer(11).as_deref(), Some("ok"));
}

/// Protects from a copy that stays damaged because the first who was asked has other bytes there.
#[test]
fn a_repair_goes_on_with_another_copy_if_the_bytes_are_not_the_right_ones() {
    let mut stage = served(3);
    stage.fake(1).damaged = Some(false);
    stage.ask(1, 10, read(0));
    assert_eq!(stage.answer(10).as_deref(), Some("ok"), "somebody else answered it");
    assert_eq!(stage.fake(1).damaged, None, "it was repaired");
    let reads = [stage.fake(2).reads, stage.fake(3).reads];
    assert_eq!(reads.iter().sum::<usize>(), 3, "two copies for the repair, and the read itself");
    assert!(reads.iter().all(|reads| *reads > 0));
}

/// Protects from an old target that still answers reads when a new one serves.
#[test]
fn reads_wait_without_the_lease() {
    let mut stage = served(3);
    stage.fake(2).silent = true;
    stage.fake(3).silent = true;
    stage.pass(Span::secs(3));
    stage.ask(1, 10, read(0));
    assert_eq!(stage.answer(10), None);
    assert!(stage.target.status(stage.now).waiting_for_lease > 0);
}

/// Protects from a target that keeps a volume which others could serve: it has to say that it reaches too few.
#[test]
fn a_target_knows_whether_a_quorum_answers() {
    let mut stage = served(3);
    let answers = |stage: &Stage| stage.target.status(stage.now).quorum_answers;
    stage.cut_off(3);
    stage.pass(Span::secs(3));
    assert!(answers(&stage), "two of three do");
    stage.cut_off(2);
    stage.pass(Span::secs(3));
    assert!(stage.is_serving(), "its reign goes on");
    assert!(!answers(&stage), "one of three is no quorum");
    stage.reconnect(2);
    stage.pass(Span::secs(1));
    assert!(answers(&stage));
    // Its packets vanish: the connection looks as before for a while.
    stage.fake(2).silent = true;
    stage.pass(Span::secs(3));
    assert!(!answers(&stage), "nothing was heard for longer than a lease");
    // One that begins, and has not reached them.
    stage.cut_off(2);
    stage.take_over(2);
    stage.pass(Span::secs(1));
    assert!(!stage.is_serving() && !answers(&stage));
}

/// Protects from a volume that stays with a node which can neither serve nor close it.
#[test]
fn a_target_that_closes_without_a_quorum_says_so() {
    let mut stage = served(3);
    stage.cut_off(2);
    stage.cut_off(3);
    stage.step(Event::Command { id: RequestId(50), command: Command::Close });
    stage.pass(Span::secs(3));
    let status = stage.target.status(stage.now);
    assert!(!status.serving && !status.quorum_answers);
}

/// Protects from showing what was committed when it was read, and is not any more when the lease
/// comes back.
#[test]
fn a_read_that_waits_for_the_lease_is_judged_again_when_the_books_go_back() {
    let mut stage = served(3);
    stage.cut_off(3);
    stage.ask(1, 10, write(0));
    stage.fake(1).renews = false;
    stage.fake(2).renews = false;
    stage.pass(Span::secs(3));
    stage.ask(1, 11, read(0));
    assert_eq!((stage.answer(10).as_deref(), stage.answer(11)), (Some("ok"), None));
    // It comes back without the write, and takes nothing in.
    stage.cut_off(2);
    let back = stage.fake(2);
    back.position.seq = Seq(back.entries.pop().expect("it had the write").seq.0 - 1);
    (back.boot, back.mute, back.renews) = (crate::words::Boot(2), true, true);
    stage.fake(1).renews = true;
    stage.reconnect(2);
    stage.pass(Span::secs(1));
    assert_eq!(stage.answer(11), None, "only one replica has it");
    stage.fake(2).mute = false;
    stage.ask(1, 12, write(5));
    stage.pass(Span::secs(1));
    assert_eq!(stage.answer(11).as_deref(), Some("ok"));
}

/// Protects from two that serve at once: the successor waits out what the old one may have.
#[test]
fn a_successor_waits_a_full_lease() {
    let mut stage = served(3);
    stage.take_over(2);
    stage.pass(Span::millis(1900));
    assert!(!stage.is_serving());
    stage.pass(Span::millis(200));
    assert!(stage.is_serving());
}

#[test]
fn a_clean_close_spares_the_successor_the_wait() {
    let mut stage = served(3);
    stage.step(Event::Command { id: RequestId(50), command: Command::Close });
    assert_eq!(stage.stopped(), Some(Stopped::Closed));
    stage.take_over(2);
    stage.pass(Span::millis(100));
    assert!(stage.is_serving());
}

/// Protects from a restart that needs the catalog, and from two runs with one number.
#[test]
fn the_same_node_starts_again_without_the_catalog() {
    let mut stage = served(3);
    let term = stage.target.term();
    stage.start_again(77);
    stage.pass(Span::secs(3));
    assert!(stage.is_serving());
    assert_eq!(
        (Grant::of(stage.target.term()), Start::of(stage.target.term())),
        (Grant(1), Start(2))
    );
    assert!(stage.target.term() > term);
}

#[test]
fn a_higher_grant_ends_the_reign() {
    let mut stage = served(3);
    stage.catalog.grant = Grant(9);
    stage.change_desired(members(3));
    assert_eq!(stage.stopped(), Some(Stopped::Superseded));
}

/// Protects from going on silently when acknowledged writes may be gone (P8).
#[test]
fn lost_writes_are_told_to_whoever_was_attached() {
    let mut stage = served(3);
    stage.ask(1, 10, write(0));
    for replica in 1..=3 {
        stage.fake(replica).regressed = true;
    }
    stage.take_over(2);
    stage.pass(Span::secs(4));
    assert!(stage.is_serving());
    stage.log_in(2, 1, 2, Some(0));
    stage.log_in(3, 2, 1, None);
    assert_eq!((stage.login_answer(2), stage.login_answer(3)), (Some(false), Some(false)));
    let stages = stage.target.status(stage.now).stages;
    stage.log_in(4, 3, 1, Some(stages.lowest.0));
    assert_eq!(stage.login_answer(4), Some(true));
}

/// Protects from a false alarm: RF-CF+1 replicas that lost nothing prove that nothing is lost.
#[test]
fn enough_replicas_that_lost_nothing_prove_it() {
    let mut stage = served(3);
    stage.fake(1).regressed = true;
    stage.take_over(2);
    stage.pass(Span::secs(3));
    assert!(!stage.target.status(stage.now).stages.plain_refused);
}

/// Protects from an older request that runs after a newer one (P9).
#[test]
fn a_new_login_waits_for_older_work_and_ends_the_older_connection() {
    let mut stage = served(3);
    stage.fake(2).mute = true;
    stage.fake(3).mute = true;
    stage.ask(1, 10, write(0));
    stage.log_in(2, 1, 2, None);
    assert_eq!(stage.login_answer(2), None, "the older write is still on its way");
    stage.ask(1, 11, write(1));
    assert!(stage.answer(11).is_some_and(|answer| answer != "ok"));
    stage.fake(2).mute = false;
    stage.log_in(3, 9, 1, None);
    stage.ask(3, 12, write(2));
    assert_eq!(stage.login_answer(2), Some(true));
    stage.log_in(4, 1, 1, None);
    assert_eq!(stage.login_answer(4), Some(false), "an older number");
}

/// Protects from requests that hang for ever, and from a failure before the time has come (P6).
#[test]
fn without_a_quorum_requests_are_held_and_then_fail() {
    let mut stage = served(3);
    stage.cut_off(2);
    stage.cut_off(3);
    stage.ask(1, 10, write(0));
    stage.pass(Span::secs(59));
    assert_eq!(stage.answer(10), None);
    stage.pass(Span::secs(2));
    assert!(stage.answer(10).is_some_and(|answer| answer.contains("1 replicas follow")));
    stage.reconnect(2);
    stage.pass(Span::secs(1));
    stage.ask(1, 11, write(1));
    assert_eq!(stage.answer(11).as_deref(), Some("ok"), "it comes back by itself");
}

/// Protects from acks of what an older boot had and lost.
#[test]
fn a_new_welcome_replaces_the_books_and_the_window_is_replayed() {
    let mut stage = served(3);
    stage.cut_off(3);
    stage.ask(1, 10, write(0));
    stage.cut_off(2);
    let back = stage.fake(2);
    let lost = back.entries.pop().expect("it had the write");
    back.position.seq = Seq(lost.seq.0 - 1);
    back.boot = crate::words::Boot(2);
    stage.reconnect(2);
    stage.pass(Span::secs(1));
    assert_eq!(stage.held(2), lost.seq, "it was sent again");
}

/// Protects from a membership that only the target knows, and from steps under one quorum.
#[test]
fn membership_grows_step_by_step_through_the_catalog() {
    let mut stage = served(1);
    stage.change_desired(members(3));
    stage.pass(Span::secs(3));
    let membership = stage.target.status(stage.now).membership;
    assert_eq!(membership.voters.members, members(3), "{membership:?}");
    assert_eq!(membership.next, None);
    assert_eq!(stage.catalog.membership, membership);
    assert_eq!(membership.version, 5, "two steps, each there and away from both quorums");
}

#[test]
fn nothing_changes_while_the_catalog_is_away() {
    let mut stage = served(1);
    stage.catalog_is_away = true;
    stage.change_desired(members(3));
    stage.pass(Span::secs(3));
    assert_eq!(stage.target.status(stage.now).membership.voters.members, [member(1)]);
    stage.ask(1, 10, write(0));
    assert_eq!(stage.answer(10).as_deref(), Some("ok"), "but it serves");
}

/// Protects from a cut that is not one instant (Q10).
#[test]
fn a_held_volume_gives_no_seq_and_acknowledges_nothing() {
    let mut stage = served(3);
    let hold = Command::Hold { token: Token(5), lasts: Span::secs(5) };
    stage.step(Event::Command { id: RequestId(90), command: hold });
    let before = stage.held(1);
    stage.ask(1, 10, write(0));
    assert_eq!((stage.held(1), stage.answer(10)), (before, None));
    stage.step(Event::Command { id: RequestId(91), command: Command::Release { token: Token(5) } });
    assert_eq!(stage.answer(10).as_deref(), Some("ok"));
    let hold = Command::Hold { token: Token(6), lasts: Span::secs(1) };
    stage.step(Event::Command { id: RequestId(92), command: hold });
    stage.pass(Span::secs(2));
    assert_eq!(stage.target.status(stage.now).holds_broken, 1);
}

/// Protects from a volume that is gone for good though one copy is left (Q12), and from going on
/// with it as if nothing could be missing.
#[test]
fn an_operator_chooses_the_last_copy() {
    let mut stage = served(3);
    stage.ask(1, 10, write(0));
    stage.cut_off(2);
    stage.cut_off(3);
    stage.take_over(2);
    stage.pass(Span::secs(8));
    assert!(!stage.is_serving(), "one of three is no quorum");
    let choose = Command::Choose { replica: ReplicaId(1) };
    stage.step(Event::Command { id: RequestId(90), command: choose });
    stage.pass(Span::secs(4));
    assert!(stage.is_serving());
    let status = stage.target.status(stage.now);
    assert_eq!(status.membership.voters.members, [member(1)]);
    assert!(status.stages.plain_refused, "whoever was attached has to know");
    assert_eq!(stage.catalog.membership, status.membership, "and it is on record");
    assert!(!stage.catalog.chosen, "the barrier has told it");
}

/// Protects from an operator who waits for ever, because another one chose too.
#[test]
fn a_second_choice_takes_the_place_of_the_first() {
    let mut stage = served(3);
    stage.cut_off(2);
    stage.cut_off(3);
    stage.take_over(2);
    stage.pass(Span::secs(8));
    stage.catalog_is_away = true;
    stage.command(90, Command::Choose { replica: ReplicaId(1) });
    stage.command(91, Command::Choose { replica: ReplicaId(1) });
    assert_eq!(stage.command_answer(90), Some(Err(CommandError::Busy)));
    // One that cannot be made does not take its place.
    stage.command(92, Command::Choose { replica: ReplicaId(2) });
    let refused = stage.command_answer(92);
    assert!(matches!(refused, Some(Err(CommandError::Invalid { .. }))), "{refused:?}");
    stage.catalog_is_away = false;
    stage.pass(Span::secs(4));
    assert_eq!(stage.command_answer(91), Some(Ok(())));
    assert!(stage.is_serving());
}

/// One copy is left, and it was away while the others went on: in a reign of their own, in which a
/// client was attached.
fn left_behind() -> Stage {
    let mut stage = served(3);
    stage.ask(1, 10, write(0));
    stage.cut_off(1);
    stage.start_again(300);
    stage.pass(Span::secs(4));
    stage.step(Event::Command { id: RequestId(80), command: Command::NewStage });
    stage.pass(Span::secs(1));
    assert!(stage.is_serving() && stage.held(2) > stage.held(1));
    stage.cut_off(2);
    stage.cut_off(3);
    stage.reconnect(1);
    stage.start_again(400);
    stage.pass(Span::secs(4));
    let choose = Command::Choose { replica: ReplicaId(1) };
    stage.step(Event::Command { id: RequestId(90), command: choose });
    stage.pass(Span::secs(4));
    assert!(stage.is_serving());
    stage
}

/// Protects from two reigns with one term: who was given up and comes back would be taken for one that
/// has the same history (Q12, Q3).
#[test]
fn a_choice_begins_no_reign_that_there_was() {
    let mut stage = left_behind();
    let (chosen, lost) = (&stage.fake(1).shared.reigns.clone(), &stage.fake(2).shared.reigns);
    let of_lost = lost.list().last().expect("it served");
    assert!(!chosen.list().contains(of_lost), "{chosen:?} {lost:?}");
    let newest = chosen.list().last().expect("it serves");
    assert!(newest.term > of_lost.term, "{chosen:?} {lost:?}");
}

/// Protects from a client that goes on under an old mount, because the chosen copy does not know that
/// it was ever attached (Q12, P8).
#[test]
fn a_choice_refuses_stages_that_the_copy_never_heard_of() {
    let mut stage = left_behind();
    let given = stage.fake(2).shared.stages.last;
    assert!(given.0 > 0, "it was given while the chosen copy was away");
    stage.log_in(7, 7, 1, Some(given.0));
    assert_eq!(stage.login_answer(7), Some(false));
}

/// Protects from a catalog that was restored from a backup and would bring old voters back (Q1).
#[test]
fn a_restored_catalog_is_noticed_and_not_obeyed() {
    let mut stage = served(3);
    for replica in 1..=3 {
        stage.fake(replica).seen = 7;
    }
    stage.take_over(2);
    stage.pass(Span::secs(8));
    assert!(!stage.is_serving());
    let why = stage.target.status(stage.now).held_because.expect("it does not serve");
    assert!(why.contains("restored"), "{why}");
    stage.step(Event::Command { id: RequestId(90), command: Command::ConfirmCatalog });
    assert_eq!(stage.catalog.membership.version, 8, "the highest seen plus one");
    assert_eq!(stage.stopped(), Some(Stopped::Superseded), "by the grant that confirms it");
    stage.start_again(500);
    stage.pass(Span::secs(4));
    assert!(stage.is_serving());
}

/// Protects from a step that never ends because its new voters are gone.
#[test]
fn a_step_whose_new_voters_are_lost_is_taken_back() {
    let mut stage = served(3);
    stage.catalog_is_away = true;
    stage.cut_off(3);
    let next = Some(Voters::of(&[member(1), member(3)]));
    stage.catalog.membership = Membership { version: 2, next, ..stage.catalog.membership.clone() };
    stage.change_desired(members(3));
    stage.catalog_is_away = false;
    stage.ask(1, 10, write(0));
    assert_eq!(stage.answer(10), None, "the new quorum is needed too");
    stage.pass(Span::secs(12));
    assert_eq!(stage.answer(10).as_deref(), Some("ok"));
    let membership = stage.target.status(stage.now).membership;
    assert_eq!((membership.voters.members, membership.next), (members(3), None));
}
