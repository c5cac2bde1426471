//! The link beside a target that is cut, moves, and refuses.
mod target;

use std::sync::mpsc::{self, Receiver};
use std::time::Duration;

use block::{ByteLen, ByteOffset};

use super::*;
use target::{Lie, Mood, Target};

const SOON: Duration = Duration::from_secs(20);

fn plan(target: &Target, patience: Duration) -> Plan {
    let identity = Identity {
        initiator: "iqn.test:host".into(),
        export: "db:stage.3".into(),
        client: 1,
        number: 0.into(),
        secret: None,
    };
    Plan { identity, whereabouts: target.whereabouts(), patience }
}

fn ask(link: &Link, work: Work) -> Receiver<Result<Vec<u8>, Failure>> {
    let (tell, told) = mpsc::channel();
    let answer = move |result: Result<&[u8], Failure>| {
        tell.send(result.map(<[u8]>::to_vec)).expect("somebody waits");
    };
    link.submit(work, Box::new(answer));
    told
}

fn write(at: u64, byte: u8) -> Work {
    Work::Write { at: ByteOffset(at), data: vec![byte; 512] }
}

fn read(at: u64) -> Work {
    Work::Read { at: ByteOffset(at), len: ByteLen(512) }
}

#[test]
fn requests_are_answered() {
    let target = Target::start();
    let link = Link::open(plan(&target, SOON), SOON).expect("it is there");
    assert_eq!(link.disk().size, ByteLen(target::SIZE as u64));
    assert_eq!(ask(&link, write(512, 7)).recv(), Ok(Ok(vec![])));
    assert_eq!(ask(&link, read(512)).recv(), Ok(Ok(vec![7; 512])));
    assert_eq!(ask(&link, Work::Flush).recv(), Ok(Ok(vec![])));
    let hole = Work::Discard { at: ByteOffset(512), len: ByteLen(512) };
    assert_eq!(ask(&link, hole).recv(), Ok(Ok(vec![])));
    assert_eq!(ask(&link, read(512)).recv(), Ok(Ok(vec![0; 512])));
    assert_eq!(ask(&link, read(1 << 30)).recv(), Ok(Err(Failure::Target(22))));
}

/// Each connection is cut after three requests, some of them done without a reply.
#[test]
fn every_request_is_answered_once_through_any_number_of_connections() {
    let target = Target::start();
    let link = Link::open(plan(&target, SOON), SOON).expect("it is there");
    target.set(Mood::Brief { requests: 3 });
    let asked: Vec<_> =
        (0..64_u8).map(|at| ask(&link, write(u64::from(at) * 512, at + 1))).collect();
    for answer in asked {
        assert_eq!(answer.recv_timeout(SOON), Ok(Ok(vec![])));
        assert!(answer.recv_timeout(Duration::ZERO).is_err(), "an answer comes once");
    }
    target.set(Mood::Well);
    for at in 0..64_u8 {
        let read = ask(&link, read(u64::from(at) * 512)).recv_timeout(SOON);
        assert_eq!(read, Ok(Ok(vec![at + 1; 512])), "{at}");
    }
    assert!(target.logins() > 10, "it was cut");
    assert!(target.numbers_rose(), "a later connection has a higher number");
}

#[test]
fn a_target_that_moved_is_found() {
    let (before, after) = (Target::start(), Target::start());
    let link = Link::open(plan(&before, SOON), SOON).expect("it is there");
    before.move_to(&after);
    before.set(Mood::Away);
    assert_eq!(ask(&link, write(0, 9)).recv_timeout(SOON), Ok(Ok(vec![])));
    assert_eq!(after.logins(), 1);
}

/// It keeps its connections open and says nothing: a process that was stopped.
#[test]
fn a_silent_target_is_left_when_somebody_else_serves() {
    let (before, after) = (Target::start(), Target::start());
    let link = Link::open(plan(&before, SOON), SOON).expect("it is there");
    before.set(Mood::Silent);
    let answer = ask(&link, write(0, 9));
    assert!(answer.recv_timeout(Duration::from_millis(500)).is_err(), "nobody has answered");
    before.move_to(&after);
    assert_eq!(answer.recv_timeout(SOON), Ok(Ok(vec![])));
}

#[test]
fn who_is_going_is_asked_again_elsewhere() {
    let target = Target::start();
    let link = Link::open(plan(&target, SOON), SOON).expect("it is there");
    target.set(Mood::ShuttingDown { requests: 2 });
    assert_eq!(ask(&link, write(0, 9)).recv_timeout(SOON), Ok(Ok(vec![])));
    assert_eq!(ask(&link, read(0)).recv_timeout(SOON), Ok(Ok(vec![9; 512])));
}

#[test]
fn nobody_waits_longer_than_the_class_allows() {
    let target = Target::start();
    let link = Link::open(plan(&target, Duration::from_millis(300)), SOON).expect("it is there");
    target.set(Mood::Away);
    let answer = ask(&link, write(0, 9));
    assert_eq!(answer.recv_timeout(SOON), Ok(Err(Failure::TooLate)));
    assert!(matches!(link.state(), State::Away { .. }), "{:?}", link.state());
    target.set(Mood::Well);
    // And it comes back by itself.
    let mut again = ask(&link, read(0)).recv_timeout(SOON);
    while again == Ok(Err(Failure::TooLate)) {
        again = ask(&link, read(0)).recv_timeout(SOON);
    }
    assert_eq!(
        again,
        Ok(Ok(vec![0; 512])),
        "what was given up while nobody was there is not written later"
    );
}

#[test]
fn a_stage_that_is_lost_ends_the_link_for_good() {
    let target = Target::start();
    let link = Link::open(plan(&target, SOON), SOON).expect("it is there");
    target.set(Mood::StageLost);
    assert_eq!(ask(&link, write(0, 9)).recv_timeout(SOON), Ok(Err(Failure::Ended)));
    target.set(Mood::Well);
    assert_eq!(ask(&link, read(0)).recv_timeout(SOON), Ok(Err(Failure::Ended)));
    assert!(
        matches!(link.state(), State::Ended { reason } if reason.contains("UnflushedWritesLost"))
    );
    let refused = Target::start();
    refused.set(Mood::StageLost);
    assert!(matches!(Link::open(plan(&refused, SOON), SOON), Err(HandshakeError::StageLost)));
}

#[test]
fn growth_is_seen_when_it_is_asked_for() {
    let target = Target::start();
    let link = Link::open(plan(&target, SOON), SOON).expect("it is there");
    target.grow(2 * target::SIZE);
    assert_eq!(link.refresh().expect("it is there").size, ByteLen(2 * target::SIZE as u64));
    assert_eq!(ask(&link, read(target::SIZE as u64)).recv_timeout(SOON), Ok(Ok(vec![0; 512])));
}

#[test]
fn what_is_under_way_when_a_link_ends_fails() {
    let target = Target::start();
    let link = Link::open(plan(&target, SOON), SOON).expect("it is there");
    target.set(Mood::Silent);
    let answer = ask(&link, write(0, 9));
    drop(link);
    assert_eq!(answer.recv_timeout(SOON), Ok(Err(Failure::Ended)));
}

/// Protects from a division by zero, and from devices that no kernel can have.
#[test]
fn what_no_volume_can_be_is_refused_at_once_and_by_name() {
    const FINE: u64 = 1 << 20;
    for (size, block, words) in [
        (FINE, 0, "a block size of 0"),
        (FINE, 1, "a block size of 1,"),
        (FINE, 256, "a block size of 256"),
        (FINE, 513, "a block size of 513"),
        (FINE, 3 << 9, "a block size of 1536"),
        (FINE, 256 << 10, "a block size of 262144"),
        (FINE, u32::MAX, "a block size of 4294967295"),
        (0, 512, "a size of 0 bytes"),
        (FINE + 1, 512, "a size of 1048577 bytes"),
        (FINE + 512, 4096, "a size of 1049088 bytes"),
        (256 << 40, 4096, "a size of 281474976710656 bytes"),
        (u64::MAX, 512, "a size of 18446744073709551615 bytes"),
    ] {
        let target = Target::start();
        target.lie(Some(Lie::Geometry(size, block)));
        let begun = Instant::now();
        let refused = Link::open(plan(&target, SOON), SOON).err().expect(words).to_string();
        assert!(refused.contains(words) && refused.contains(&target.address()), "{refused}");
        assert!(begun.elapsed() < SOON / 2, "it does not get better by waiting");
    }
}

#[test]
fn a_target_that_says_something_else_later_is_not_used() {
    let target = Target::start();
    let link = Link::open(plan(&target, SOON), SOON).expect("it is there");
    let before = link.disk();
    target.lie(Some(Lie::Geometry(2 << 20, 0)));
    let refused = link.refresh().expect_err("no volume is like this");
    assert!(matches!(refused, HandshakeError::Geometry { .. }), "{refused}");
    for block in [0, 4096] {
        target.lie(Some(Lie::Geometry(2 << 20, block)));
        // Ends the connection.
        target.set(Mood::Well);
        let answer = ask(&link, write(0, 9));
        let begun = Instant::now();
        while !matches!(link.state(), State::Away { reason, .. } if reason.contains("block size")) {
            assert!(begun.elapsed() < SOON, "{:?}", link.state());
            std::thread::yield_now();
        }
        assert_eq!(link.disk(), before);
        target.lie(None);
        assert_eq!(answer.recv_timeout(SOON), Ok(Ok(vec![])), "it is the volume again");
    }
}

#[test]
fn replies_that_do_not_end_are_ended() {
    let target = Target::start();
    target.lie(Some(Lie::Endless));
    let refused = Link::open(plan(&target, SOON), Duration::ZERO).err().expect("it never ends");
    assert!(refused.to_string().contains("do not end"), "{refused}");
}
