//! Who waits for whom.
use super::rig::*;
use crate::ask::{Ask, AskId};
use crate::scsi::words::{Attribute, Status};

/// COMPARE AND WRITE of a block that has `old` everywhere.
fn swap(old: u8, new: u8) -> Vec<u8> {
    [[old; 512], [new; 512]].concat()
}

#[test]
fn plain_commands_do_not_wait_for_each_other() {
    let mut rig = Rig::new(512);
    rig.send(A, &write(0, 8), &[1; 8 * 512]);
    rig.send(B, &read(0, 8), &[]);
    rig.send(C, &write(4, 8), &[2; 8 * 512]);
    assert_eq!(rig.asks.len(), 3);
}

/// Protects from a volume that stops answering after so many requests: ids stay within their bits and
/// apart from each other however far the counter is, also while questions from before are under way.
#[test]
fn the_counter_of_questions_may_pass_every_limit() {
    for last in [(1 << 31) - 1, (1 << 32) - 1, (1 << 47) - 1, u64::MAX] {
        let mut rig = Rig::new(512);
        let early = rig.send(A, &read(0, 1), &[]);
        rig.unit.tasks.next_ask = last - 2;
        let around: Vec<_> = (0..6).map(|lba| rig.send(B, &read(lba, 1), &[])).collect();
        assert_eq!(rig.asks.len(), 7);
        for (id, _) in &rig.asks {
            assert!(id.0 < 1 << AskId::BITS, "{id:?} with the counter at {last}");
        }
        rig.settle();
        for task in around.into_iter().chain([early]) {
            assert!(rig.take(task).is_some(), "every command is answered");
        }
        assert!(rig.unit.is_idle());
    }
}

#[test]
fn nothing_touches_a_block_between_the_look_and_the_write() {
    let mut rig = Rig::new(512);
    let first = rig.send(A, &compare(5), &swap(0, 1));
    let second = rig.send(B, &compare(5), &swap(0, 2));
    let write = rig.send(C, &write(5, 1), &[3; 512]);
    let look = rig.send(C, &read(5, 1), &[]);
    let elsewhere = rig.send(C, &read(6, 1), &[]);
    assert_eq!(rig.asks.len(), 2, "the first look, and the read elsewhere");
    rig.answer(1);
    assert!(rig.take(elsewhere).is_some());
    rig.answer(0);
    assert!(matches!(rig.asks[..], [(_, Ask::Write { .. })]));
    rig.answer(0);
    assert_eq!(rig.take(first).unwrap().status, Status::Good);
    rig.answer(0);
    assert_eq!(codes(&rig.take(second).unwrap()), (0xE, [0x1D, 0]));
    assert_eq!(rig.asks.len(), 2, "then the plain ones together");
    rig.settle();
    assert!(rig.take(write).is_some());
    assert_eq!(data_in(&rig.take(look).unwrap()), [3; 512]);
    assert!(rig.unit.is_idle());
}

#[test]
fn a_compare_and_write_waits_for_writes_under_way() {
    let mut rig = Rig::new(512);
    rig.send(A, &write(0, 8), &[9; 8 * 512]);
    let swapped = rig.send(B, &compare(5), &swap(9, 1));
    let later = rig.send(A, &read(5, 1), &[]);
    assert_eq!(rig.asks.len(), 1);
    rig.settle();
    assert_eq!(rig.take(swapped).unwrap().status, Status::Good);
    assert_eq!(data_in(&rig.take(later).unwrap()), [1; 512]);
}

#[test]
fn other_commands_of_many_questions_keep_their_blocks_too() {
    for (bytes, data) in [
        (sixteen(0x8B, 0, 0, 4), vec![1; 4 * 512]),
        (ten(0x2E, 2, 0, 4), vec![1; 4 * 512]),
        (ten(0x41, 0, 0, 4), vec![1; 512]),
    ] {
        let mut rig = Rig::new(512);
        rig.send(A, &bytes, &data);
        rig.send(B, &write(3, 1), &[2; 512]);
        assert_eq!(rig.asks.len(), 1, "{bytes:02X?}");
        rig.settle();
        assert_eq!(rig.blocks(2, 1), [1; 512]);
        assert_eq!(rig.blocks(3, 1), [2; 512]);
    }
}

#[test]
fn an_unmap_and_a_compare_and_write_keep_apart() {
    let mut rig = Rig::new(512);
    let mut list = vec![0, 22, 0, 16, 0, 0, 0, 0];
    list.extend(4_u64.to_be_bytes());
    list.extend([0, 0, 0, 4, 0, 0, 0, 0]);
    rig.send(A, &compare(5), &swap(0, 1));
    rig.send(B, &ten(0x42, 0, 0, 24), &list);
    assert_eq!(rig.asks.len(), 1);
    rig.settle();
    assert_eq!(rig.blocks(5, 1), [0; 512]);
    rig.send(B, &ten(0x42, 0, 0, 24), &list);
    let swapped = rig.send(A, &compare(5), &swap(0, 1));
    assert_eq!(rig.asks.len(), 1);
    rig.settle();
    assert_eq!(rig.take(swapped).unwrap().status, Status::Good);
}

#[test]
fn an_ordered_command_waits_for_all_before_and_holds_all_after() {
    let mut rig = Rig::new(512);
    rig.send(A, &write(0, 1), &[1; 512]);
    let ordered = rig.send_as(B, Attribute::Ordered, &read(100, 1), &[]);
    let later = rig.send(C, &read(200, 1), &[]);
    let ready = rig.send(C, &[0x00], &[]);
    assert_eq!(rig.asks.len(), 1);
    rig.answer(0);
    assert_eq!(rig.asks.len(), 1);
    assert!(rig.take(ready).is_none());
    rig.answer(0);
    assert!(rig.take(ordered).is_some() && rig.take(ready).is_some());
    assert_eq!(rig.asks.len(), 1);
    rig.answer(0);
    assert!(rig.take(later).is_some());
}

#[test]
fn ordered_commands_follow_each_other() {
    let mut rig = Rig::new(512);
    for value in 1..=5 {
        rig.send_as(A, Attribute::Ordered, &write(0, 1), &[value; 512]);
    }
    for value in 1..=5 {
        assert_eq!(rig.asks.len(), 1);
        rig.answer(0);
        assert_eq!(rig.blocks(0, 1), [value; 512]);
    }
}

#[test]
fn a_command_at_the_head_overtakes_what_waits_but_not_what_runs() {
    let mut rig = Rig::new(512);
    rig.send(A, &write(0, 1), &[1; 512]);
    let ordered = rig.send_as(A, Attribute::Ordered, &write(1, 1), &[2; 512]);
    let head = rig.send_as(B, Attribute::HeadOfQueue, &read(0, 1), &[]);
    assert_eq!(rig.asks.len(), 2, "the write that runs, and the head");
    rig.answer(0);
    assert_eq!(rig.asks.len(), 1, "what waits lets the head before it");
    rig.answer(0);
    assert!(rig.take(head).is_some() && rig.take(ordered).is_none());
    rig.answer(0);
    assert!(rig.take(ordered).is_some());

    rig.send(A, &compare(0), &swap(1, 2));
    let head = rig.send_as(B, Attribute::HeadOfQueue, &read(0, 1), &[]);
    assert_eq!(rig.asks.len(), 1, "a swap that runs is not torn");
    rig.settle();
    assert_eq!(data_in(&rig.take(head).unwrap()), [2; 512]);
}

#[test]
fn what_waits_behind_the_head_starts_in_the_order_of_its_arrival() {
    let mut rig = Rig::new(512);
    rig.send(A, &compare(0), &swap(0, 1));
    let waiting: Vec<_> = (0..4).map(|_| rig.send(B, &read(0, 1), &[])).collect();
    rig.send_as(C, Attribute::HeadOfQueue, &compare(0), &swap(1, 2));
    rig.settle();
    let order: Vec<_> = rig.done.iter().map(|(_, task, _)| *task).collect();
    assert_eq!(order[2..], waiting);
}

#[test]
fn reservations_are_looked_at_when_a_command_starts() {
    let mut rig = Rig::new(512);
    let registered = super::reserve::register(&mut rig, A, 0xA);
    assert_eq!(registered, Status::Good);
    rig.send(B, &compare(0), &swap(0, 1));
    let reserve = super::reserve::out(1, 3, 0xA, 0);
    let reserve = rig.send(A, &reserve.0, &reserve.1);
    let write = rig.send(C, &write(0, 1), &[7; 512]);
    rig.settle();
    assert_eq!(rig.take(reserve).unwrap().status, Status::Good);
    assert_eq!(rig.take(write).unwrap().status, Status::ReservationConflict);
    assert_eq!(rig.blocks(0, 1), [1; 512]);
}

#[test]
fn a_full_task_set_says_so() {
    let mut rig = Rig::new(512);
    for _ in 0..2048 {
        rig.send(A, &read(0, 1), &[]);
    }
    assert_eq!(rig.asks.len(), 2048);
    let task = rig.send(A, &read(0, 1), &[]);
    assert_eq!(rig.take(task).unwrap().status, Status::TaskSetFull);
    rig.answer(0);
    rig.send(A, &read(0, 1), &[]);
    assert_eq!(rig.asks.len(), 2048);
    rig.settle();
    assert!(rig.unit.is_idle());
}

#[test]
fn an_aca_command_has_nothing_to_belong_to() {
    let mut rig = Rig::new(512);
    let task = rig.send_as(A, Attribute::Aca, &[0x00], &[]);
    assert_eq!(codes(&rig.take(task).unwrap()), (5, [0x49, 0]));
}
