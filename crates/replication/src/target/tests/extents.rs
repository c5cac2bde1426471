//! Questions for what is allocated travel like reads.
use block::{ByteLen, ByteOffset};

use crate::client::{Answer, Extent, Request, RequestId};
use crate::constants::EXTENTS_MAX;
use crate::message::ReadFailure;
use crate::target::Output;
use crate::target::tests::served;
use crate::target::tests::stage::{Stage, write};
use crate::words::Span;

fn extents(block: u64, blocks: u64) -> Request {
    Request::Extents { offset: ByteOffset(block * 4096), len: ByteLen(blocks * 4096) }
}

fn extent(len: u64, has_data: bool) -> Extent {
    Extent { len: ByteLen(len), has_data }
}

fn told(stage: &Stage, id: u64) -> Option<Vec<Extent>> {
    stage.heard.iter().find_map(|output| match output {
        Output::Reply { id: it, result: Ok(Answer::Extents(extents)), .. }
            if *it == RequestId(id) =>
        {
            Some(extents.clone())
        }
        _ => None,
    })
}

/// Protects from a hole or a block that can still vanish (P3).
#[test]
fn they_wait_for_what_they_may_have_seen() {
    let mut stage = served(3);
    stage.fake(2).mute = true;
    stage.fake(3).mute = true;
    stage.ask(1, 10, write(3));
    stage.ask(1, 11, extents(0, 4));
    stage.ask(1, 12, extents(4, 4));
    assert_eq!(told(&stage, 11), None);
    assert_eq!(told(&stage, 12), Some(vec![extent(4 * 4096, false)]));
    stage.fake(2).mute = false;
    stage.ask(1, 13, write(9));
    assert!(told(&stage, 11).is_some());
}

/// Protects from an old target that tells of holes which a new one has filled (P5).
#[test]
fn they_wait_without_the_lease() {
    let mut stage = served(3);
    stage.fake(2).silent = true;
    stage.fake(3).silent = true;
    stage.pass(Span::secs(3));
    stage.ask(1, 10, extents(0, 1));
    assert_eq!(told(&stage, 10), None);
}

#[test]
fn who_cannot_find_out_is_not_the_last_to_be_asked() {
    let mut stage = served(3);
    stage.fake(1).extents = Some(Err(ReadFailure::Damaged { offset: ByteOffset(0) }));
    stage.fake(2).extents = Some(Err(ReadFailure::Busy));
    stage.fake(3).extents = Some(Err(ReadFailure::Failed));
    stage.ask(1, 10, extents(0, 1));
    assert!(told(&stage, 10).is_none());
    stage.fake(2).extents = None;
    stage.pass(Span::millis(200));
    assert_eq!(told(&stage, 10), Some(vec![extent(4096, false)]));
    for replica in 1..=3 {
        let damaged = ReadFailure::Damaged { offset: ByteOffset(0) };
        stage.fake(replica).extents = Some(Err(damaged));
    }
    stage.ask(1, 11, extents(0, 1));
    let answer = stage.answer(11).expect("nobody is left who could know");
    assert!(answer.contains("no replica has an intact copy"), "{answer}");
}

/// Protects from a front end that is told of something beside what it asked for.
#[test]
fn an_answer_that_does_not_fit_is_not_passed_on() {
    let bad = [
        vec![],
        vec![extent(0, true)],
        vec![extent(100, true)],
        vec![extent(3 * 4096, true)],
        vec![extent(512, true), extent(512, true)],
        vec![extent(u64::MAX, true), extent(512, false)],
    ];
    for answer in bad {
        let mut stage = served(1);
        stage.fake(1).extents = Some(Ok(answer.clone()));
        stage.ask(1, 10, extents(0, 2));
        assert_eq!(stage.answer(10), None, "{answer:?}");
        let good = vec![extent(512, true), extent(512, false)];
        stage.fake(1).extents = Some(Ok(good.clone()));
        stage.pass(Span::millis(200));
        assert_eq!(told(&stage, 10), Some(good), "an answer may end early");
    }
}

#[test]
fn a_store_is_asked_for_no_more_than_the_bound() {
    let mut stage = served(1);
    stage.ask(1, 10, Request::Extents { offset: ByteOffset(0), len: ByteLen(1 << 20) });
    assert_eq!(told(&stage, 10), Some(vec![extent(1 << 20, false)]));
    let beyond = Request::Extents { offset: ByteOffset(512), len: ByteLen(1 << 20) };
    stage.ask(1, 11, beyond);
    let answer = stage.answer(11).expect("it is refused at once");
    assert!(answer.contains("not within the volume"), "{answer}");
    let size = ByteLen(64 << 20);
    let command = crate::client::Command::Resize { size };
    stage.step(crate::target::Event::Command { id: RequestId(90), command });
    stage.ask(1, 12, Request::Extents { offset: ByteOffset(0), len: size });
    assert_eq!(told(&stage, 12), Some(vec![extent(EXTENTS_MAX.0, false)]));
}
