//! What initiators see when the volume fails, and when their commands are wrong.
use block::{ByteOffset, Data};

use super::rig::*;
use crate::ask::{Answer, AskError};
use crate::scsi::Event;
use crate::scsi::words::{Attribute, Command, Status, TaskId};

#[test]
fn every_command_that_asks_tells_of_a_failure() {
    let same = vec![1; 512];
    for (bytes, data, asks_before) in [
        (read(0, 1), vec![], 0),
        (write(0, 1), vec![1; 512], 0),
        (ten(0x2F, 2, 0, 1), vec![1; 512], 0),
        (ten(0x2E, 2, 0, 1), vec![1; 512], 0),
        (ten(0x2E, 2, 0, 1), vec![1; 512], 1),
        (compare(0), vec![0; 1024], 0),
        (compare(0), vec![0; 1024], 1),
        (sixteen(0x8B, 0, 0, 1), vec![1; 512], 0),
        (sixteen(0x8B, 0, 0, 1), vec![1; 512], 1),
        (ten(0x41, 0, 0, 8), same.clone(), 0),
        (ten(0x41, 8, 0, 8), vec![0; 512], 0),
        (ten(0x35, 0, 0, 0), vec![], 0),
        (sixteen(0x9E, 0x12, 0, 24), vec![], 0),
    ] {
        let mut rig = Rig::new(512);
        let task = rig.send(A, &bytes, &data);
        for _ in 0..asks_before {
            rig.answer(0);
        }
        rig.fail(0, AskError::NoQuorum { reason: "two of three are away".into() });
        assert_eq!(codes(&rig.take(task).unwrap()), (2, [4, 1]), "{bytes:02X?}");
        assert!(rig.unit.is_idle() && rig.asks.is_empty());
        let task = rig.send(A, &bytes, &data);
        rig.fail(0, AskError::Busy);
        assert_eq!(rig.take(task).unwrap().status, Status::TaskSetFull);
        let task = rig.send(A, &bytes, &data);
        rig.answer_with(0, Answer::Read(Data::copy_of(&[1])));
        assert_eq!(codes(&rig.take(task).unwrap()), (4, [0x44, 0]), "an answer to nothing asked");
    }
}

#[test]
fn damage_is_told_with_its_address() {
    let mut rig = Rig::new(512);
    let task = rig.send(A, &read(0, 16), &[]);
    rig.fail(0, AskError::Damaged { offset: ByteOffset(4096) });
    let response = rig.take(task).unwrap();
    assert_eq!(codes(&response), (3, [0x11, 0]));
    assert_eq!((response.sense[0], response.sense[6]), (0xF0, 8));
}

#[test]
fn a_failure_among_many_questions_waits_for_the_others() {
    let mut rig = Rig::new(512);
    let mut list = vec![0, 54, 0, 48, 0, 0, 0, 0];
    for first in [0_u64, 16, 32] {
        list.extend(first.to_be_bytes());
        list.extend([0, 0, 0, 4, 0, 0, 0, 0]);
    }
    let task = rig.send(A, &ten(0x42, 0, 0, 56), &list);
    assert_eq!(rig.asks.len(), 3);
    rig.fail(1, AskError::NoSpace);
    assert!(rig.take(task).is_none());
    rig.settle();
    assert_eq!(codes(&rig.take(task).unwrap()), (7, [0x27, 7]));
    assert!(rig.unit.is_idle());
}

#[test]
fn wrong_fields_are_pointed_at() {
    let mut rig = Rig::new(512);
    for (bytes, pointer) in [
        // RDPROTECT, WRPROTECT, VRPROTECT.
        (ten(0x28, 0x20, 0, 1), [0xCD, 0, 1]),
        (ten(0x2A, 0xE0, 0, 1), [0xCF, 0, 1]),
        (ten(0x2F, 0x40, 0, 1), [0xCE, 0, 1]),
        // NACA.
        (vec![0x00, 0, 0, 0, 0, 4], [0xCA, 0, 5]),
        ([read(0, 1)[..9].to_vec(), vec![4]].concat(), [0xCA, 0, 9]),
        // A page without EVPD, and a page that there is not.
        (vec![0x12, 0, 1, 0, 255, 0], [0xC0, 0, 2]),
        (vec![0x12, 1, 0xC0, 0, 255, 0], [0xC0, 0, 2]),
        // A service action that there is not.
        (vec![0x9E, 0x1F], [0xCC, 0, 1]),
    ] {
        let response = rig.run(A, &bytes, &[1; 512]);
        assert_eq!(codes(&response), (5, [0x24, 0]), "{bytes:02X?}");
        assert_eq!(response.sense[15..18], pointer, "{bytes:02X?}");
    }
}

#[test]
fn unknown_commands_are_told_from_wrong_ones() {
    let mut rig = Rig::new(512);
    for opcode in [0x04, 0x48, 0x9C, 0xC0, 0xFF] {
        assert_eq!(rig.bad(A, &[opcode], &[]), (5, [0x20, 0]));
    }
}

fn to_lun(rig: &mut Rig, lun: u64, bytes: &[u8]) -> crate::scsi::words::Response {
    let task = TaskId(1 << 60);
    let (cdb, data_out) = (cdb(bytes), Data::copy_of(&[]));
    let command = Command { lun, cdb, attribute: Attribute::Simple, data_out, room_in: 255 };
    rig.step(Event::Command { nexus: A, task, command });
    rig.take(task).unwrap()
}

#[test]
fn there_is_nobody_at_other_numbers() {
    let mut rig = Rig::new(512);
    let lun = 1 << 48;
    assert_eq!(codes(&to_lun(&mut rig, lun, &[0x00])), (5, [0x25, 0]));
    assert_eq!(codes(&to_lun(&mut rig, lun, &read(0, 1))), (5, [0x25, 0]));
    let inquiry = to_lun(&mut rig, lun, &[0x12, 0, 0, 0, 36, 0]);
    assert_eq!((data_in(&inquiry)[0], data_in(&inquiry).len()), (0x7F, 36));
    assert_eq!(codes(&to_lun(&mut rig, lun, &[0x12, 1, 0x83, 0, 36, 0])), (5, [0x25, 0]));
    let sense = data_in(&to_lun(&mut rig, lun, &[0x03, 0, 0, 0, 18, 0]));
    assert_eq!((sense[2], sense[12]), (5, 0x25));
    let luns = to_lun(&mut rig, lun, &[0xA0, 0, 0, 0, 0, 0, 0, 0, 0, 16, 0, 0]);
    assert_eq!(data_in(&luns), [0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
}
