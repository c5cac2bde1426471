//! Commands that are taken back.
use super::rig::*;
use crate::scsi::Event;
use crate::scsi::words::{Managed, Management, Status};

fn swap(old: u8, new: u8) -> Vec<u8> {
    [[old; 512], [new; 512]].concat()
}

/// The control page with TAS.
fn tell_aborted(rig: &mut Rig) {
    let mut list = vec![0, 0, 0, 0, 0x0A, 0x0A, 2, 0x10, 0, 0x40, 0, 0, 0xFF, 0xFF];
    list.extend([0; 2]);
    rig.good(A, &[0x15, 0x10, 0, 0, 16, 0], &list);
    for nexus in [B, C] {
        assert_eq!(rig.hear(nexus), [[0x2A, 1]]);
    }
}

#[test]
fn an_aborted_command_is_answered_for_when_the_volume_answered() {
    let mut rig = Rig::new(512);
    let task = rig.send(A, &write(0, 1), &[1; 512]);
    let id = rig.manage(A, Management::AbortTask { task });
    let again = rig.manage(A, Management::AbortTask { task });
    assert!(rig.managed.is_empty());
    rig.answer(0);
    assert_eq!(rig.managed(id), Some(Managed::Done));
    assert_eq!(rig.managed(again), Some(Managed::Done));
    assert!(rig.done.is_empty() && rig.unit.is_idle());
    let id = rig.manage(A, Management::AbortTask { task });
    assert_eq!(rig.managed(id), Some(Managed::NoTask));
}

#[test]
fn a_command_that_waits_is_dropped_at_once() {
    let mut rig = Rig::new(512);
    let first = rig.send(A, &compare(0), &swap(0, 1));
    let second = rig.send(A, &compare(0), &swap(1, 2));
    let third = rig.send(A, &read(0, 1), &[]);
    let id = rig.manage(A, Management::AbortTask { task: second });
    assert_eq!(rig.managed(id), Some(Managed::Done));
    rig.settle();
    assert!(rig.take(first).is_some());
    assert_eq!(data_in(&rig.take(third).unwrap()), [1; 512]);
    assert!(rig.unit.is_idle() && rig.done.is_empty());
}

#[test]
fn an_aborted_compare_and_write_does_not_write_after_its_look() {
    let mut rig = Rig::new(512);
    let task = rig.send(A, &compare(0), &swap(0, 1));
    let next = rig.send(B, &read(0, 1), &[]);
    rig.manage(A, Management::AbortTask { task });
    assert_eq!(rig.asks.len(), 1, "its blocks are held until the look is over");
    rig.settle();
    assert_eq!(data_in(&rig.take(next).unwrap()), [0; 512]);
    assert_eq!(rig.blocks(0, 1), [0; 512]);
}

#[test]
fn another_initiators_command_is_not_found() {
    let mut rig = Rig::new(512);
    let task = rig.send(A, &write(0, 1), &[1; 512]);
    let id = rig.manage(B, Management::AbortTask { task });
    assert_eq!(rig.managed(id), Some(Managed::NoTask));
    rig.settle();
    assert!(rig.take(task).is_some());
}

#[test]
fn abort_task_set_takes_back_all_of_one_initiator() {
    let mut rig = Rig::new(512);
    rig.send(A, &write(0, 1), &[1; 512]);
    rig.send(A, &write(1, 1), &[1; 512]);
    let other = rig.send(B, &write(2, 1), &[1; 512]);
    let id = rig.manage(A, Management::AbortTaskSet);
    rig.answer(0);
    assert_eq!(rig.managed(id), None);
    rig.answer(0);
    assert_eq!(rig.managed(id), Some(Managed::Done));
    rig.settle();
    assert!(rig.take(other).is_some() && rig.done.is_empty());
    assert_eq!(rig.hear(B), Vec::<[u8; 2]>::new());
}

#[test]
fn clear_task_set_takes_back_all_and_tells_the_others() {
    let mut rig = Rig::new(512);
    rig.send(A, &write(0, 1), &[1; 512]);
    rig.send(B, &write(1, 1), &[1; 512]);
    let id = rig.manage(A, Management::ClearTaskSet);
    rig.settle();
    assert_eq!(rig.managed(id), Some(Managed::Done));
    assert!(rig.done.is_empty());
    assert_eq!(rig.hear(A), Vec::<[u8; 2]>::new());
    assert_eq!(rig.hear(B), [[0x2F, 0]]);
    assert_eq!(rig.hear(C), Vec::<[u8; 2]>::new());
}

#[test]
fn with_tas_the_others_get_a_status_instead() {
    let mut rig = Rig::new(512);
    tell_aborted(&mut rig);
    let own = rig.send(A, &write(0, 1), &[1; 512]);
    let under_way = rig.send(B, &compare(1), &swap(0, 1));
    let waiting = rig.send(C, &compare(1), &swap(0, 1));
    let id = rig.manage(A, Management::ClearTaskSet);
    assert_eq!(rig.take(waiting).unwrap().status, Status::TaskAborted);
    assert!(rig.take(under_way).is_none());
    rig.settle();
    assert_eq!(rig.take(under_way).unwrap().status, Status::TaskAborted);
    assert!(rig.take(own).is_none());
    assert_eq!(rig.managed(id), Some(Managed::Done));
    assert_eq!(rig.hear(B), Vec::<[u8; 2]>::new());
}

#[test]
fn a_reset_brings_everything_back_to_its_beginning() {
    for (function, code) in [
        (Management::LogicalUnitReset, [0x29, 3]),
        (Management::TargetWarmReset, [0x29, 2]),
        (Management::TargetColdReset, [0x29, 2]),
    ] {
        let mut rig = Rig::new(512);
        tell_aborted(&mut rig);
        rig.good(A, &[0x16, 0, 0, 0, 0, 0], &[]);
        rig.send(A, &write(0, 1), &[1; 512]);
        let id = rig.manage(B, function);
        assert_eq!(rig.managed(id), None);
        rig.settle();
        assert_eq!(rig.managed(id), Some(Managed::Done));
        assert_eq!(rig.done.pop().unwrap().2.status, Status::TaskAborted);
        for nexus in [A, B, C] {
            assert_eq!(rig.hear(nexus), [code]);
        }
        rig.good(C, &read(0, 1), &[]);
        assert_eq!(rig.good(A, &[0x1A, 8, 0x0A, 0, 255, 0], &[])[4 + 5], 0, "TAS is off again");
    }
}

#[test]
fn functions_for_units_that_are_not_there() {
    let mut rig = Rig::new(512);
    for function in [Management::LogicalUnitReset, Management::AbortTaskSet, Management::ClearAca] {
        rig.step(Event::Manage { nexus: A, id: 7, lun: 1 << 48, function });
        assert_eq!(rig.managed(7), Some(Managed::NoUnit));
    }
    let id = rig.manage(A, Management::ClearAca);
    assert_eq!(rig.managed(id), Some(Managed::NotSupported));
}

#[test]
fn a_lost_nexus_takes_its_commands_with_it() {
    let mut rig = Rig::new(512);
    rig.send(A, &compare(0), &swap(0, 1));
    rig.send(A, &compare(0), &swap(1, 2));
    let other = rig.send(B, &read(0, 1), &[]);
    let id = rig.manage(A, Management::AbortTaskSet);
    rig.step(Event::NexusLost { nexus: A });
    rig.step(Event::NexusLost { nexus: A });
    rig.settle();
    assert_eq!(data_in(&rig.take(other).unwrap()), [0; 512]);
    assert!(rig.done.is_empty() && rig.unit.is_idle());
    assert_eq!(rig.managed(id), None, "nobody is there to be told");
    let late = rig.send(A, &read(0, 1), &[]);
    assert_eq!(rig.take(late).unwrap().status, Status::Busy);
}

#[test]
fn a_reservation_that_was_kept_holds_although_it_was_aborted() {
    let mut rig = Rig::new(512);
    let (bytes, list) = super::reserve::out(0, 0, 0, 0xA);
    let task = rig.send(A, &bytes, &list);
    rig.manage(A, Management::AbortTask { task });
    rig.settle();
    assert!(rig.done.is_empty());
    assert_eq!(rig.good(B, &super::reserve::inp(0), &[])[8..], 0xA_u64.to_be_bytes());
}

#[test]
fn answers_to_nothing_are_ignored() {
    let mut rig = Rig::new(512);
    for id in [0, 1, u64::MAX, 1 << 32] {
        let id = crate::ask::AskId(id);
        rig.step(Event::Answered { id, result: Ok(crate::ask::Answer::Done) });
    }
    assert!(rig.done.is_empty());
}
