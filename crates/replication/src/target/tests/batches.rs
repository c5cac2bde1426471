//! Events that came together.
use crate::client::{Command, ConnectionId, Login, RequestId};
use crate::target::tests::served;
use crate::target::tests::stage::{Stage, read, write};
use crate::target::{Event, Output};
use crate::words::{ClientId, ConnectionNumber, Span, Token};

/// The ids of what was answered well, in the order of the answers.
fn done(stage: &Stage) -> Vec<u64> {
    let replies = stage.heard.iter().filter_map(|output| match output {
        Output::Reply { id, result: Ok(_), .. } => Some(id.0),
        _ => None,
    });
    replies.collect()
}

/// Protects from a message, an ack and a system call for every single write.
#[test]
fn requests_that_came_together_are_one_message() {
    let mut stage = served(3);
    stage.fake(1).batches = 0;
    let writes = (0..100).map(|n| Stage::request(1, 100 + n, write(n))).collect();
    stage.step_all(writes);
    assert_eq!(stage.fake(1).batches, 1);
    assert_eq!(done(&stage), (100..200).collect::<Vec<u64>>());
}

#[test]
fn what_came_together_with_reads_is_answered_like_what_came_apart() {
    let mut stage = served(3);
    stage.fake(2).mute = true;
    stage.fake(3).mute = true;
    stage.step_all(vec![
        Stage::request(1, 10, write(0)),
        Stage::request(1, 11, read(0)),
        Stage::request(1, 12, read(5)),
    ]);
    assert_eq!(done(&stage), [12], "only one replica holds what the first read may have seen");
    stage.fake(3).mute = false;
    stage.ask(1, 13, write(7));
    let mut answered = done(&stage);
    answered.sort_unstable();
    assert_eq!(answered, [10, 11, 12, 13]);
}

/// Protects from a request of before a login that gets its seq behind it (P9).
#[test]
fn a_login_finds_done_what_came_before_it() {
    let mut stage = served(3);
    stage.fake(2).mute = true;
    stage.fake(3).mute = true;
    let login = Login { client: ClientId(1), number: ConnectionNumber(2), stage: None };
    stage.step_all(vec![
        Stage::request(1, 10, write(0)),
        Event::Login { connection: ConnectionId(2), login },
        Stage::request(1, 11, write(1)),
    ]);
    assert_eq!(stage.login_answer(2), None, "the older write has its seq and is on its way");
    assert!(stage.answer(11).is_some_and(|answer| answer != "ok"));
    stage.fake(2).mute = false;
    stage.log_in(3, 9, 1, None);
    stage.ask(3, 12, write(2));
    assert_eq!(stage.login_answer(2), Some(true));
}

/// Protects from a write that is in a cut which was held before it (Q10).
#[test]
fn a_hold_divides_what_came_together_with_it() {
    let mut stage = served(1);
    let hold = Command::Hold { token: Token(5), lasts: Span::secs(5) };
    stage.step_all(vec![
        Stage::request(1, 10, write(0)),
        Event::Command { id: RequestId(90), command: hold },
        Stage::request(1, 11, write(1)),
    ]);
    let held = stage.held(1);
    assert_eq!(stage.fake(1).entries.len() as u64, held.0);
    assert_eq!(done(&stage), [0; 0], "nothing is acknowledged during a hold");
    let release = Command::Release { token: Token(5) };
    stage.step_all(vec![Event::Command { id: RequestId(91), command: release }]);
    assert_eq!(done(&stage), [10, 11]);
    assert_eq!(stage.held(1).0, held.0 + 1, "the second got its seq behind the hold");
}

/// Protects from telling a client that there was no quorum when there was one in time.
#[test]
fn a_tick_counts_what_came_before_it() {
    let mut stage = served(1);
    stage.fake(1).mute = true;
    stage.ask(1, 10, write(0));
    stage.now = stage.now + Span::secs(61);
    let ack = stage.ack_of(1);
    stage.step_all(vec![ack, Event::Tick]);
    assert_eq!(stage.answer(10).as_deref(), Some("ok"));
}
