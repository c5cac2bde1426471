use crate::constants::IDLE_FLUSH;
use crate::entry::Change;
use crate::message::ToReplica;
use crate::store::StoreOp;

use super::rig::{Rig, powered, write};

/// P8: what was acknowledged and not durable is lost with the power; the mark is what tells.
#[test]
fn nothing_that_is_not_durable_is_acknowledged_before_the_mark_is() {
    let mut rig = Rig::new();
    rig.reign(1, 5, 1);
    rig.entries(1, 5, 2, vec![write(0, 1), write(1, 1)]);
    while let Some((tag, result)) = rig.answers.pop_front() {
        rig.step(crate::replica::Event::Stored { tag, result });
        if rig.acked().is_some_and(|(held, durable)| held > durable) {
            assert_eq!(rig.durable_state().dirty, Some(powered(1)));
        }
    }
    assert_eq!(rig.acked().map(|acked| acked.0), Some(3));
}

#[test]
fn entries_that_are_flushed_need_no_mark() {
    let mut rig = Rig::new();
    rig.reign(1, 5, 1);
    rig.entries(1, 5, 2, vec![Change::Flush, Change::Close]);
    rig.answer();
    assert_eq!(rig.acked(), Some((3, 3)));
    assert!(!rig.replica.is_dirty());
}

#[test]
fn a_quiet_second_cleans_it_and_the_next_write_marks_it_again() {
    let mut rig = Rig::new();
    rig.reign(1, 5, 1);
    rig.entries(1, 5, 2, vec![write(0, 1)]);
    rig.answer();
    assert!(rig.replica.is_dirty());
    rig.tick_after(IDLE_FLUSH);
    rig.answer();
    assert!(!rig.replica.is_dirty());
    assert!(rig.state().dirty.is_none());
    assert_eq!(rig.acked(), Some((2, 2)));
    rig.entries(1, 5, 3, vec![write(0, 2)]);
    rig.answer();
    assert_eq!(rig.durable_state().dirty, Some(powered(1)));
}

/// The flush of an idle replica says nothing of a write that came behind it.
#[test]
fn a_write_during_the_cleaning_keeps_the_mark() {
    let mut rig = Rig::new();
    rig.reign(1, 5, 1);
    rig.entries(1, 5, 2, vec![write(0, 1)]);
    rig.answer();
    rig.tick_after(IDLE_FLUSH);
    rig.entries(1, 5, 3, vec![write(0, 2)]);
    rig.answer();
    assert_eq!(rig.acked(), Some((3, 2)));
    assert_eq!(rig.durable_state().dirty, Some(powered(1)));
    assert_eq!(rig.state().dirty, Some(powered(1)));
}

#[test]
fn it_has_regressed_if_it_starts_dirty_after_another_power_up() {
    let dirty = || {
        let mut rig = Rig::new();
        rig.reign(1, 5, 1);
        rig.entries(1, 5, 2, vec![write(0, 1)]);
        rig.answer();
        rig
    };
    // The process was killed: nothing is lost.
    let mut rig = dirty().restart(1);
    assert!(rig.replica.is_dirty() && !rig.replica.is_regressed());
    rig.hello(2, 5);
    rig.answer();
    assert!(rig.welcome().dirty && !rig.welcome().regressed);
    // The power was cut.
    let mut rig = dirty().restart(2);
    assert!(rig.replica.is_regressed());
    rig.hello(2, 5);
    rig.answer();
    assert!(rig.welcome().regressed);
    assert!(rig.durable_state().regressed);
    // It stays so over restarts, also after clean ones, until the target knows better.
    let mut rig = rig.restart(3);
    assert!(rig.replica.is_regressed());
    rig.hello(3, 5);
    rig.answer();
    rig.say(3, 5, ToReplica::Recovered);
    rig.answer();
    assert!(!rig.replica.is_regressed());
    assert!(!rig.state().regressed);
}

/// A state that is written beside the sequence must not have what an entry brings that may fail.
#[test]
fn a_state_between_two_positions_waits_for_the_entries_that_were_given() {
    let mut rig = Rig::new();
    rig.reign(1, 5, 1);
    rig.entries(1, 5, 2, vec![Change::Points(vec![1])]);
    rig.store.log.clear();
    rig.entries(1, 5, 3, vec![write(0, 1), Change::Points(vec![2])]);
    assert!(!rig.log_has(|op| matches!(op, StoreOp::SetState { .. })));
    rig.answer();
    assert_eq!(rig.state().shared.points, [2]);
    assert_eq!(rig.acked().map(|acked| acked.0), Some(4));
}
