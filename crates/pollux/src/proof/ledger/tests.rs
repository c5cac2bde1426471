//! The judge must be able to condemn: each test tells it of something that did not happen so.
use block::{SectorSize, Seq, Term};
use engine::Limits;
use sim::{CrashDisk, Image};

use super::*;
use crate::proof::{Load, Script, StepKind, format, open};

const VOLUME: ByteLen = ByteLen(256 << 10);

/// A pool after some acknowledged load, and a ledger that followed it.
fn after_load() -> (Pool<CrashDisk>, Ledger) {
    let disk = CrashDisk::new(ByteLen(16 << 20), SectorSize::B4096, 1);
    let pool = format(disk, [7; 16], VOLUME, Limits::tiny()).unwrap();
    let mut ledger = Ledger::new(&pool.volumes(), Promise::Held);
    let script = Script::new(&pool.volumes(), Term(1), 1);
    let mut load = Load::new(pool, script, 8);
    for _ in 0..100 {
        let planned = load.plan();
        ledger.follow(&planned).unwrap();
        ledger.follow(&load.carry_out(&planned).unwrap()).unwrap();
    }
    ledger.follow(&load.drain().unwrap()).unwrap();
    (load.into_pool(), ledger)
}

/// A write of 4 KiB that would be the next on a volume.
fn next_step(pool: &Pool<CrashDisk>) -> Step {
    let volume = &pool.volumes()[0];
    let position = Position { term: Term(2), seq: Seq(volume.held.seq.0 + 1) };
    Step { kind: StepKind::Write, volume: volume.id, position, first: 16, sectors: 8 }
}

fn acked(step: Step) -> Event {
    Event::Acked { volume: step.volume, position: step.position }
}

#[track_caller]
fn condemned(result: Result<Verified>, why: &str) {
    let text = format!("{:#}", result.expect_err("the judge was blind"));
    assert!(text.contains(why), "{text}");
}

#[test]
fn an_honest_pool_is_acquitted_and_its_unpromised_operations_are_counted() {
    let (mut pool, mut ledger) = after_load();
    let before = ledger.verify(&mut pool).unwrap();
    assert!(before.promised > 100, "{before:?}");
    let done = next_step(&pool);
    pool.run(done.op()).unwrap();
    let not_done = Step { position: Position::new(2, done.position.seq.0 + 1), ..done };
    ledger.follow(&[Event::Issued(done), Event::Issued(not_done)]).unwrap();
    let after = ledger.verify(&mut pool).unwrap();
    let counts = (after.promised, after.unpromised_kept, after.unpromised_gone);
    assert_eq!(counts, (0, 1, 1));
}

#[test]
fn a_lost_acknowledged_operation_is_found() {
    let (mut pool, mut ledger) = after_load();
    let step = next_step(&pool);
    ledger.follow(&[Event::Issued(step), acked(step)]).unwrap();
    condemned(ledger.verify(&mut pool), "LOST");
}

#[test]
fn a_lost_flushed_operation_is_found() {
    let (mut pool, mut ledger) = after_load();
    ledger.promise = Promise::Durable;
    let step = next_step(&pool);
    let number = 1 << 32;
    let events = [Event::Issued(step), acked(step)];
    ledger.follow(&events).unwrap();
    let mut acquitted = ledger.clone();
    assert_eq!(acquitted.verify(&mut pool).unwrap().unpromised_gone, 1, "it was not flushed");
    ledger.follow(&[Event::FlushIssued { number }, Event::Flushed { number }]).unwrap();
    condemned(ledger.verify(&mut pool), "LOST");
}

#[test]
fn an_operation_that_was_done_in_part_is_found() {
    let (mut pool, mut ledger) = after_load();
    let step = next_step(&pool);
    pool.run(Step { sectors: step.sectors - 1, ..step }.op()).unwrap();
    ledger.follow(&[Event::Issued(step)]).unwrap();
    condemned(ledger.verify(&mut pool), "must hold write 2.");
}

#[test]
fn a_write_that_went_elsewhere_is_found() {
    let (mut pool, mut ledger) = after_load();
    let step = next_step(&pool);
    pool.run(Step { first: step.first + 1, ..step }.op()).unwrap();
    ledger.follow(&[Event::Issued(step), acked(step)]).unwrap();
    condemned(ledger.verify(&mut pool), "but holds");
}

#[test]
fn a_position_that_nobody_asked_for_is_found() {
    let (mut pool, mut ledger) = after_load();
    pool.run(next_step(&pool).op()).unwrap();
    condemned(ledger.verify(&mut pool), "nobody asked for");
}

/// Protects from a pool that shows a state and takes it back at the next opening.
#[test]
fn a_pool_that_changes_back_is_found() {
    let (mut pool, mut ledger) = after_load();
    pool.checkpoint().unwrap();
    let before: Image = pool.disk().durable_image();
    let step = next_step(&pool);
    ledger.follow(&[Event::Issued(step)]).unwrap();
    pool.run(step.op()).unwrap();
    ledger.verify(&mut pool).unwrap();
    let mut pool = open(CrashDisk::from_image(before, 2), Limits::tiny()).unwrap();
    condemned(ledger.verify(&mut pool), "LOST");
    let (_, mut ledger) = after_load();
    let skipping = Step { position: Position::new(2, step.position.seq.0 + 1), ..step };
    assert!(ledger.follow(&[Event::Issued(skipping)]).is_err(), "a writer that saw another past");
}
