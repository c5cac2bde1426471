//! Reservations as initiators live with them.
use super::rig::*;
use crate::ask::AskError;
use crate::scsi::Event;
use crate::scsi::words::{NexusId, Rights, Status};

/// PERSISTENT RESERVE OUT: the CDB and its list.
pub(super) fn out(action: u8, kind: u8, key: u64, other: u64) -> (Vec<u8>, Vec<u8>) {
    let mut list = key.to_be_bytes().to_vec();
    list.extend(other.to_be_bytes());
    list.extend([0; 8]);
    (vec![0x5F, action, kind, 0, 0, 0, 0, 0, 24, 0], list)
}

/// PERSISTENT RESERVE IN.
pub(super) fn inp(action: u8) -> Vec<u8> {
    vec![0x5E, action, 0, 0, 0, 0, 0, 0x40, 0, 0]
}

pub(super) fn register(rig: &mut Rig, nexus: NexusId, key: u64) -> Status {
    let (bytes, list) = out(6, 0, 0, key);
    rig.status(nexus, &bytes, &list)
}

fn reserve(rig: &mut Rig, nexus: NexusId, action: u8, kind: u8, key: u64, other: u64) -> Status {
    let (bytes, list) = out(action, kind, key, other);
    rig.status(nexus, &bytes, &list)
}

fn keys(rig: &mut Rig) -> Vec<u64> {
    let bytes = rig.good(A, &inp(0), &[]);
    bytes[8..].chunks(8).map(|key| u64::from_be_bytes(key.try_into().unwrap())).collect()
}

#[test]
fn a_reservation_holds_only_when_it_is_kept() {
    let mut rig = Rig::new(512);
    let (bytes, list) = out(0, 0, 0, 0xA);
    let task = rig.send(A, &bytes, &list);
    let read = rig.send(B, &inp(0), &[]);
    assert!(rig.take(task).is_none() && rig.take(read).is_none());
    rig.settle();
    assert_eq!(rig.take(task).unwrap().status, Status::Good);
    assert_eq!(data_in(&rig.take(read).unwrap()).len(), 16);
    let kept = rig.volume.kept.clone();
    let task = rig.send(A, &out(1, 1, 0xA, 0).0, &out(1, 1, 0xA, 0).1);
    rig.fail(0, AskError::NoQuorum { reason: String::new() });
    assert_eq!(codes(&rig.take(task).unwrap()), (2, [4, 1]));
    assert_eq!(rig.good(A, &inp(1), &[]).len(), 8, "nothing is held");
    assert_eq!(rig.volume.kept, kept);
}

#[test]
fn reservations_move_with_the_volume() {
    let mut rig = Rig::new(512);
    register(&mut rig, A, 0xA);
    register(&mut rig, B, 0xB);
    reserve(&mut rig, A, 1, 3, 0xA, 0);
    let mut moved = Rig::of(export(512), &rig.volume.kept);
    for nexus in [A, B, C] {
        moved.up(nexus);
        moved.hear(nexus);
    }
    assert_eq!(moved.good(C, &inp(3), &[]), rig.good(C, &inp(3), &[]));
    assert_eq!(moved.status(B, &read(0, 1), &[]), Status::ReservationConflict);
    moved.good(A, &read(0, 1), &[]);
}

#[test]
fn registrations_outlive_sessions() {
    let mut rig = Rig::new(512);
    register(&mut rig, A, 0xA);
    reserve(&mut rig, A, 1, 3, 0xA, 0);
    rig.step(Event::NexusLost { nexus: A });
    assert_eq!(rig.status(B, &read(0, 1), &[]), Status::ReservationConflict);
    let again = NexusId(9);
    rig.step(Event::NexusUp { nexus: again, port: port(A), rights: Rights::Write });
    rig.hear(again);
    rig.good(again, &read(0, 1), &[]);
}

#[test]
fn others_hear_of_what_is_taken_from_them() {
    let mut rig = Rig::new(512);
    for (nexus, key) in [(A, 0xA), (B, 0xB), (C, 0xC)] {
        register(&mut rig, nexus, key);
    }
    // Registrants only: who releases tells the others.
    assert_eq!(reserve(&mut rig, A, 1, 5, 0xA, 0), Status::Good);
    assert_eq!(reserve(&mut rig, A, 2, 5, 0xA, 0), Status::Good);
    assert_eq!((rig.hear(A), rig.hear(B), rig.hear(C)), (vec![], vec![[0x2A, 4]], vec![[0x2A, 4]]));
    // A holder is preempted, and the kind changes.
    assert_eq!(reserve(&mut rig, A, 1, 5, 0xA, 0), Status::Good);
    assert_eq!(reserve(&mut rig, B, 4, 1, 0xB, 0xA), Status::Good);
    assert_eq!((rig.hear(A), rig.hear(B), rig.hear(C)), (vec![[0x2A, 5]], vec![], vec![[0x2A, 4]]));
    assert_eq!(keys(&mut rig), [0xB, 0xC]);
    // Everything is cleared.
    assert_eq!(reserve(&mut rig, C, 3, 0, 0xC, 0), Status::Good);
    assert_eq!((rig.hear(A), rig.hear(B), rig.hear(C)), (vec![], vec![[0x2A, 3]], vec![]));
    assert_eq!(keys(&mut rig), []);
}

#[test]
fn whoever_is_preempted_has_no_write_left() {
    let mut rig = Rig::new(512);
    register(&mut rig, A, 0xA);
    register(&mut rig, B, 0xB);
    reserve(&mut rig, A, 1, 3, 0xA, 0);
    rig.send(A, &write(0, 1), &[1; 512]);
    let (bytes, list) = out(5, 3, 0xB, 0xA);
    let preempt = rig.send(B, &bytes, &list);
    let late = rig.send(A, &write(0, 1), &[2; 512]);
    assert_eq!(rig.asks.len(), 1, "the write under way ends first");
    rig.answer(0);
    assert!(rig.take(preempt).is_none());
    rig.answer(0);
    assert_eq!(rig.take(preempt).unwrap().status, Status::Good);
    assert!(rig.asks.is_empty());
    assert_eq!(codes(&rig.take(late).unwrap()), (6, [0x2A, 5]));
    assert_eq!(rig.status(A, &write(0, 1), &[2; 512]), Status::ReservationConflict);
    assert_eq!(rig.blocks(0, 1), [1; 512]);
}

#[test]
fn registrations_beyond_the_room_are_refused_and_can_be_taken_back() {
    let mut rig = Rig::new(512);
    let mut sessions = Vec::new();
    let refused = loop {
        let nexus = NexusId(100 + sessions.len() as u64);
        rig.up(nexus);
        rig.hear(nexus);
        let (bytes, list) = out(6, 0, 0, 7);
        let response = rig.run(nexus, &bytes, &list);
        if response.status != Status::Good {
            break codes(&response);
        }
        sessions.push(nexus);
    };
    assert_eq!(refused, (5, [0x55, 4]));
    assert!(rig.volume.kept.len() <= ROOM && sessions.len() > 10);
    // The room shrank since: what is there may still become less.
    let kept = rig.volume.kept.clone();
    rig.unit = crate::scsi::Unit::new(export(512), identity(), &kept, 100).unwrap();
    for nexus in &sessions {
        rig.up(*nexus);
        rig.hear(*nexus);
        assert_eq!(register(&mut rig, *nexus, 0), Status::Good);
    }
}

#[test]
fn reserve_keeps_others_out_until_release_loss_or_reset() {
    let mut rig = Rig::new(512);
    for (take, give) in [(&[0x16][..], &[0x17][..]), (&[0x56], &[0x57])] {
        rig.good(A, take, &[]);
        rig.good(A, take, &[]);
        for bytes in [take.to_vec(), read(0, 1), vec![0x00], inp(0), vec![0x1A, 0, 0x3F, 0, 255, 0]]
        {
            assert_eq!(rig.status(B, &bytes, &[]), Status::ReservationConflict, "{bytes:02X?}");
        }
        let (bytes, list) = out(6, 0, 0, 1);
        assert_eq!(rig.status(B, &bytes, &list), Status::ReservationConflict);
        assert_eq!(rig.status(A, &bytes, &list), Status::ReservationConflict);
        for bytes in [
            &[0x12, 0, 0, 0, 36, 0][..],
            &[0x03, 0, 0, 0, 18, 0],
            &[0xA0, 0, 0, 0, 0, 0, 0, 0, 0, 16, 0, 0],
            &ten(0x25, 0, 0, 0),
            &[0x1B, 0, 0, 0, 1, 0],
            &[0x1E, 0, 0, 0, 0, 0],
            give,
        ] {
            rig.good(B, bytes, &[]);
        }
        assert_eq!(rig.status(B, &[0x1B], &[]), Status::ReservationConflict, "a stop");
        assert_eq!(rig.status(B, take, &[]), Status::ReservationConflict);
        rig.good(A, give, &[]);
        rig.good(B, take, &[]);
        rig.good(B, give, &[]);
    }
    rig.good(A, &[0x16], &[]);
    rig.step(Event::NexusLost { nexus: A });
    rig.good(B, &[0x16], &[]);
}

#[test]
fn reserve_beside_persistent_reservations() {
    let mut rig = Rig::new(512);
    register(&mut rig, A, 0xA);
    for nexus in [A, B] {
        assert_eq!(rig.status(nexus, &[0x16], &[]), Status::ReservationConflict);
        assert_eq!(rig.status(nexus, &[0x17], &[]), Status::ReservationConflict);
    }
    register(&mut rig, B, 0xB);
    reserve(&mut rig, A, 1, 1, 0xA, 0);
    rig.good(A, &[0x16], &[]);
    assert_eq!(rig.status(B, &[0x16], &[]), Status::ReservationConflict);
    reserve(&mut rig, A, 2, 1, 0xA, 0);
    reserve(&mut rig, A, 1, 6, 0xA, 0);
    for nexus in [A, B] {
        rig.good(nexus, &[0x16], &[]);
        rig.good(nexus, &[0x17], &[]);
    }
    assert_eq!(rig.status(C, &[0x16], &[]), Status::ReservationConflict);
    rig.good(B, &read(0, 1), &[]);
}

#[test]
fn lists_of_the_wrong_length_are_refused() {
    let mut rig = Rig::new(512);
    let (bytes, list) = out(0, 0, 0, 1);
    assert_eq!(rig.bad(A, &bytes, &list[..20]), (5, [0x1A, 0]));
    let mut short = bytes.clone();
    short[8] = 20;
    assert_eq!(rig.bad(A, &short, &list), (5, [0x1A, 0]));
    let mut long = bytes.clone();
    long[8] = 28;
    assert_eq!(rig.bad(A, &long, &[list.clone(), vec![0; 4]].concat()), (5, [0x1A, 0]));
    assert_eq!(rig.bad(A, &[0x5F, 8, 0, 0, 0, 0, 0, 0, 24, 0], &list), (5, [0x24, 0]));
    assert_eq!(rig.bad(A, &[0x5E, 4, 0, 0, 0, 0, 0, 0, 24, 0], &[]), (5, [0x24, 0]));
}
