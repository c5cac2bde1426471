use block::Data;

use super::*;
use crate::scsi::disk::Span;
use crate::scsi::opcodes;
use crate::scsi::words::{Attribute, Command};

fn order() -> Order {
    let (cdb, data_out) = ([0; 16], Data::copy_of(&[]));
    let command = Command { lun: 0, cdb, attribute: Attribute::Simple, data_out, room_in: 0 };
    Order { command, decoded: opcodes::find(&cdb) }
}

fn arrive(tasks: &mut Tasks, id: u64, claim: Claim, first: bool) -> Option<Slot> {
    let arrival = Arrival { nexus: NexusId(1), id: TaskId(id), claim, first };
    match tasks.insert(arrival) {
        Ok(slot) => Some(slot),
        Err(slot) => {
            tasks.get_mut(slot).unwrap().stage = Stage::Waiting(Box::new(order()));
            None
        }
    }
}

fn sole(first: u64) -> Claim {
    Claim::Sole(Span::new(first, 1_u64))
}

fn shared(first: u64, blocks: u64) -> Claim {
    Claim::Shared(Span::new(first, blocks))
}

fn end(tasks: &mut Tasks, slot: Slot) -> Vec<u64> {
    let mut ready = Vec::new();
    tasks.remove(slot, &mut ready);
    let id = |slot: &Slot, tasks: &mut Tasks| tasks.get_mut(*slot).unwrap().id.unwrap().0;
    ready.iter().map(|slot| id(slot, tasks)).collect()
}

#[test]
fn a_task_waits_for_all_that_it_conflicts_with() {
    let mut tasks = Tasks::default();
    let a = arrive(&mut tasks, 1, sole(1), false).unwrap();
    let b = arrive(&mut tasks, 2, sole(2), false).unwrap();
    assert!(arrive(&mut tasks, 3, shared(0, 10), false).is_none());
    assert!(arrive(&mut tasks, 4, shared(3, 5), false).is_some());
    assert_eq!(end(&mut tasks, a), []);
    assert_eq!(end(&mut tasks, b), [3]);
}

#[test]
fn a_slot_that_is_used_again_is_not_taken_for_what_was_in_it() {
    let mut tasks = Tasks::default();
    let a = arrive(&mut tasks, 1, sole(1), false).unwrap();
    assert!(arrive(&mut tasks, 2, sole(1), false).is_none());
    let waiting = tasks.select(|task| task.id == Some(TaskId(2)))[0];
    assert_eq!(end(&mut tasks, waiting), []);
    let other = arrive(&mut tasks, 3, sole(9), false).unwrap();
    assert_eq!(other, waiting);
    assert!(arrive(&mut tasks, 4, sole(9), false).is_none());
    assert_eq!(end(&mut tasks, a), []);
    assert_eq!(end(&mut tasks, other), [4]);
}

#[test]
fn followers_start_in_the_order_of_their_arrival() {
    let mut tasks = Tasks::default();
    let a = arrive(&mut tasks, 1, Claim::All, false).unwrap();
    for id in 2..10 {
        assert!(arrive(&mut tasks, id, shared(0, 1), false).is_none());
    }
    let middle = tasks.select(|task| task.id == Some(TaskId(5)))[0];
    end(&mut tasks, middle);
    assert!(arrive(&mut tasks, 10, shared(0, 1), false).is_none());
    assert_eq!(end(&mut tasks, a), [2, 3, 4, 6, 7, 8, 9, 10]);
}

#[test]
fn who_goes_first_is_waited_for_by_what_waits() {
    let mut tasks = Tasks::default();
    let a = arrive(&mut tasks, 1, shared(0, 1), false).unwrap();
    assert!(arrive(&mut tasks, 2, sole(0), false).is_none());
    let head = arrive(&mut tasks, 3, shared(0, 1), true).unwrap();
    assert_eq!(end(&mut tasks, a), []);
    assert_eq!(end(&mut tasks, head), [2]);
}

#[test]
fn the_name_of_a_question_names_its_task() {
    assert_eq!(Slot::of_ask(AskId(0xFFFF_FFFF_0000_0007)), Slot(7));
}
