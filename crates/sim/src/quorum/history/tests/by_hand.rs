//! Histories of one sector without losses, written by hand.
use replication::words::{ClientId, SnapshotUid};

use super::super::register::WriteIndex;
use super::super::stamp::{self, Place, Value};
use super::super::violation::{Seen, Unexplained, Violation};
use super::super::volume::{Extent, Volume};
use crate::quorum::Sparse;

/// The sector that everything is about, in a volume of two.
const SECTOR: Extent = Extent { first: 1, count: 1 };

pub struct Story {
    pub volume: Volume,
    writes: Vec<WriteIndex>,
}

pub fn bytes(value: u64) -> Vec<u8> {
    stamp::content(Value(value), Place { volume: 0, sector: 1 }, 1)
}

/// Both sectors.
pub fn whole(value: u64) -> Sparse {
    Sparse::from(&[vec![0; 512], bytes(value)].concat()[..])
}

fn why(judged: Result<(), Violation>) -> Option<Unexplained> {
    match judged {
        Ok(()) => None,
        Err(Violation::Content { why, .. }) => Some(why),
        Err(other) => panic!("{other}"),
    }
}

impl Story {
    /// Write 1 began at 10 and was acknowledged at 20.
    pub fn new() -> Story {
        let mut story = Story { volume: Volume::new(0), writes: vec![usize::MAX] };
        story.write(1, 10);
        story.ack(1, 20);
        story
    }

    /// Writes are numbered from 1 on, in the order of their beginnings.
    pub fn write(&mut self, value: u64, began: u64) {
        assert_eq!(value, self.writes.len() as u64);
        self.writes.push(self.volume.begin(began, SECTOR, Value(value), false));
    }

    pub fn write_fua(&mut self, value: u64, began: u64) {
        self.writes.push(self.volume.begin(began, SECTOR, Value(value), true));
    }

    fn index(&self, value: u64) -> WriteIndex {
        self.writes[usize::try_from(value).unwrap()]
    }

    pub fn ack(&mut self, value: u64, at: u64) {
        self.volume.ack(at, self.index(value));
    }

    pub fn zero(&mut self, began: u64, acked: u64) {
        let index = self.volume.begin(began, SECTOR, Value::ZEROS, false);
        self.volume.ack(acked, index);
    }

    pub fn decide(&mut self, value: u64, at: u64) {
        self.volume.decide(at, self.index(value));
    }

    fn refuse(&mut self, value: u64) -> Option<Unexplained> {
        let index = self.index(value);
        why(self.volume.refuse(index, SECTOR, Seen::Final))
    }

    pub fn read(&mut self, value: u64, start: u64, end: u64) -> Option<Unexplained> {
        let seen = Seen::Read { client: ClientId(1), sent: start, answered: end };
        why(self.volume.read(seen, 1, &bytes(value), start, end))
    }

    pub fn last(&self, value: u64, now: u64) -> Option<Unexplained> {
        why(self.volume.check_final(now, &whole(value), true))
    }

    pub fn snapshot(&self, uid: SnapshotUid, value: u64) -> Option<Unexplained> {
        why(self.volume.check_snapshot(uid, &whole(value)))
    }
}

pub fn stale(found: u64, newer: u64) -> Option<Unexplained> {
    Some(Unexplained::Stale { found: Value(found), newer: Value(newer) })
}

#[test]
fn an_acknowledged_write_is_not_lost_nor_forgotten() {
    let mut story = Story::new();
    assert_eq!(story.read(1, 30, 40), None);
    assert_eq!(story.read(0, 50, 60), Some(Unexplained::Zeros { newer: Value(1) }));
    story.write(2, 100);
    story.ack(2, 110);
    assert_eq!(story.read(1, 120, 130), stale(1, 2), "though nobody read 2");
    assert_eq!(story.last(1, 200), stale(1, 2));
    assert_eq!(story.last(2, 200), None);
}

#[test]
fn a_read_beside_a_write_may_return_either_but_not_go_back() {
    let mut story = Story::new();
    story.write(2, 100);
    assert_eq!(story.read(1, 101, 110), None);
    assert_eq!(story.read(2, 105, 120), None);
    assert_eq!(story.read(1, 119, 130), None, "it began before the read of 2 was over");
    assert_eq!(story.read(1, 121, 140), stale(1, 2), "it began later");
}

#[test]
fn two_writes_at_once_may_end_in_either_order_and_only_in_one() {
    let mut story = Story::new();
    story.write(2, 100);
    story.write(3, 101);
    story.ack(2, 110);
    story.ack(3, 111);
    assert_eq!(story.read(2, 120, 130), None);
    assert_eq!(story.last(3, 200), stale(3, 2));
    assert_eq!(story.read(3, 131, 140), stale(3, 2));
}

#[test]
fn a_write_without_an_answer_may_surface_late_and_then_stays() {
    let mut story = Story::new();
    story.write(2, 100);
    story.write(3, 200);
    story.ack(3, 210);
    assert_eq!(story.read(3, 220, 230), None);
    assert_eq!(story.read(2, 300, 310), None, "nobody knows when it took effect");
    assert_eq!(story.read(3, 320, 330), stale(3, 2));
    assert_eq!(story.last(3, 400), stale(3, 2));
}

#[test]
fn a_write_that_a_login_decided_does_not_run_after_a_newer_one() {
    let mut story = Story::new();
    story.write(2, 100);
    story.decide(2, 150);
    story.write(3, 160);
    story.ack(3, 170);
    assert_eq!(story.last(3, 200), None);
    assert_eq!(story.read(2, 200, 210), stale(2, 3));
}

#[test]
fn a_write_that_a_login_decided_may_have_been_done_before_it() {
    let mut story = Story::new();
    story.write(2, 100);
    story.decide(2, 150);
    assert_eq!(story.read(2, 200, 210), None);
    assert_eq!(story.read(1, 220, 230), stale(1, 2));
}

#[test]
fn a_write_that_was_not_done_when_it_was_decided_is_never_done() {
    let mut story = Story::new();
    story.write(2, 100);
    story.decide(2, 150);
    assert_eq!(story.read(1, 160, 170), None);
    assert_eq!(story.read(2, 200, 210), stale(2, 1));
}

#[test]
fn what_was_refused_is_not_there_before_nor_after() {
    let mut story = Story::new();
    story.write(2, 100);
    assert_eq!(story.refuse(2), None);
    assert_eq!(story.read(2, 200, 210), Some(Unexplained::Refused(Value(2))));
    story.write(3, 300);
    assert_eq!(story.read(3, 310, 320), None);
    assert_eq!(story.refuse(3), Some(Unexplained::Refused(Value(3))));
}

#[test]
fn bytes_from_nowhere_are_found() {
    let mut story = Story::new();
    assert_eq!(story.read(7, 30, 40), Some(Unexplained::NeverWritten(Value(7))));
    let mut torn = bytes(1);
    torn[300] ^= 1;
    let judged = story.volume.read(Seen::Final, 1, &torn, 30, 40);
    assert_eq!(why(judged), Some(Unexplained::NoValue));
    let judged = story.volume.read(Seen::Final, 0, &bytes(1), 30, 40);
    assert_eq!(why(judged), Some(Unexplained::NoValue), "it is the neighbour's");
}

#[test]
fn zeros_are_explained_by_zeroing_only_while_it_is_the_newest() {
    let mut story = Story::new();
    story.zero(100, 110);
    assert_eq!(story.read(1, 120, 130), stale(1, 0));
    assert_eq!(story.read(0, 120, 130), None);
    story.write(2, 200);
    assert_eq!(story.read(0, 201, 205), None);
    story.ack(2, 210);
    assert_eq!(story.read(0, 220, 230), Some(Unexplained::Zeros { newer: Value(2) }));
}

#[test]
fn a_snapshot_has_what_was_there_between_asking_and_answer() {
    let uid = SnapshotUid([1; 16]);
    let mut story = Story::new();
    story.write(2, 100);
    story.ack(2, 110);
    story.volume.snapshot_asked(200, uid);
    story.write(3, 210);
    story.volume.snapshot_done(220, uid);
    story.ack(3, 230);
    story.write(4, 240);
    assert_eq!(story.snapshot(uid, 2), None);
    assert_eq!(story.snapshot(uid, 3), None);
    assert_eq!(story.snapshot(uid, 1), stale(1, 3), "it was overwritten before");
    assert_eq!(story.snapshot(uid, 4), stale(4, 3), "it was not yet written");
}

#[test]
fn a_rollback_writes_what_the_snapshot_has() {
    let uid = SnapshotUid([1; 16]);
    let mut story = Story::new();
    story.volume.snapshot_asked(30, uid);
    story.volume.snapshot_done(40, uid);
    story.write(2, 100);
    story.ack(2, 110);
    story.volume.rollback_asked(200, uid);
    assert_eq!(story.read(2, 201, 205), None, "not yet");
    assert_eq!(story.read(1, 206, 210), None, "done, though not yet answered");
    assert_eq!(story.read(2, 211, 215), stale(2, 1));
    story.volume.rollback_done(220, uid);
    story.write(3, 230);
    story.ack(3, 240);
    assert_eq!(story.last(1, 300), stale(1, 3));
    assert_eq!(story.last(3, 300), None);
}

#[test]
fn a_rollback_takes_what_is_written_elsewhere_while_it_waits() {
    // Protects from a false alarm: the sector is first written after the rollback was asked for.
    let uid = SnapshotUid([1; 16]);
    let mut volume = Volume::new(0);
    volume.snapshot_asked(30, uid);
    volume.snapshot_done(40, uid);
    volume.rollback_asked(50, uid);
    let write = volume.begin(60, SECTOR, Value(1), false);
    volume.ack(70, write);
    volume.rollback_done(80, uid);
    assert_eq!(volume.check_final(100, &whole(0), true), Ok(()));
    assert_eq!(volume.check_final(100, &whole(1), true), Ok(()));
}

/// Protects from a copy that leaves out what was written, because there was said to be no data.
#[test]
fn what_is_said_to_be_a_hole_is_zeros() {
    let mut story = Story::new();
    let seen = Seen::Final;
    let hole = |story: &mut Story, start, end| why(story.volume.hole(seen, SECTOR, start, end));
    let both = Extent { first: 0, count: 2 };
    assert_eq!(hole(&mut story, 1, 12), None, "the write was under way");
    assert_eq!(hole(&mut story, 30, 40), Some(Unexplained::Zeros { newer: Value(1) }));
    assert!(story.volume.hole(seen, both, 30, 40).is_err());
    story.zero(50, 60);
    assert_eq!(hole(&mut story, 70, 80), None);
    story.write(2, 100);
    story.ack(2, 110);
    assert!(hole(&mut story, 120, 130).is_some());
}
