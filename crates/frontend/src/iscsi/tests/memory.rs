//! Memory of writes, and when no more bytes are wanted.
use super::client::*;
use crate::iscsi::pdu::NO_TAG;
use crate::iscsi::{Event, Limits, Output};
use crate::scsi::words::TaskId;

const EAGER: &str = "InitialR2T=No FirstBurstLength=1024 MaxBurstLength=65536";

fn world() -> World {
    World::in_session_with(Limits { write_bytes_max: 10_000, ..Limits::default() }, EAGER)
}

/// A write with its first 1000 bytes.
fn begun(itt: u32, cmd_sn: u32, len: usize) -> Pdu {
    write(itt, cmd_sn, u32::try_from(len).expect("short")).data(&pattern(len)[..1000])
}

/// Answers an R2T with all that it asks for.
fn fulfil(world: &mut World, len: usize, r2t: &Pdu) {
    assert_eq!(r2t.opcode(), R2T);
    let (offset, end) = (r2t.number(40), r2t.number(40) + r2t.number(44));
    let data = pattern(len);
    let data = &data[offset as usize..end as usize];
    world.send(&data_out(0x80, r2t.number(16), r2t.number(20), 0, offset, data));
}

#[test]
fn writes_beyond_the_bound_wait_for_memory() {
    let mut world = world();
    world.send(&begun(1, 1, 8000));
    world.send(&begun(2, 2, 8000));
    world.send(&write(3, 3, 8000));
    assert_eq!(world.memory.taken, [8000, 1000], "room for what comes unasked");
    let first = world.pdu();
    assert!(world.portal.wants_bytes(CONN), "data is on its way");
    fulfil(&mut world, 8000, &first);
    assert_eq!(world.pdus(), [], "the others are not asked for");
    let (_, task, command) = world.command();
    assert_eq!(&*command.data_out, pattern(8000));
    world.good(task, 8000);
    let pdus = world.pdus();
    assert_eq!((pdus[0].opcode(), pdus[1].opcode(), pdus.len()), (SCSI_RESPONSE, R2T, 2));
    assert_eq!(world.memory.taken, [8000, 1000, 8000]);
    fulfil(&mut world, 8000, &pdus[1]);
    let (_, task, command) = world.command();
    assert_eq!(&*command.data_out, pattern(8000), "what came before has moved along");
    world.good(task, 8000);
    let pdus = world.pdus();
    fulfil(&mut world, 8000, &pdus[1]);
    let (_, _, command) = world.command();
    assert_eq!(&*command.data_out, pattern(8000));
}

#[test]
fn bytes_are_not_wanted_while_only_the_unit_can_help() {
    let mut world = world();
    world.send(&begun(1, 1, 8000));
    let first = world.pdu();
    fulfil(&mut world, 8000, &first);
    assert!(world.portal.wants_bytes(CONN), "the bound is not reached");
    for n in 2..=4 {
        world.send(&begun(n, n, 8000));
    }
    assert!(!world.portal.wants_bytes(CONN));
    // Time does not run against whoever is kept waiting.
    world.pass(1000);
    assert_eq!(world.pdus(), []);
    let Output::Command { task, .. } = world.asked.remove(0) else { panic!("a command") };
    world.good(task, 8000);
    assert!(world.portal.wants_bytes(CONN), "the next is asked for its data");
    world.pass(29);
    world.nothing_asked();
}

#[test]
fn a_pdu_that_is_cut_is_always_wanted() {
    let mut world = world();
    world.send(&begun(1, 1, 8000));
    let first = world.pdu();
    fulfil(&mut world, 8000, &first);
    for n in 2..=4 {
        world.send(&begun(n, n, 8000));
    }
    let bytes = nop(9, 5).encode((false, false));
    world.send_bytes(CONN, &bytes[..10]);
    assert!(world.portal.wants_bytes(CONN));
    world.send_bytes(CONN, &bytes[10..]);
    assert!(!world.portal.wants_bytes(CONN));
}

#[test]
fn a_gap_in_the_order_is_always_wanted() {
    let mut world = world();
    for n in 2..=5 {
        world.send(&begun(n, n, 8000));
    }
    assert!(world.portal.wants_bytes(CONN), "the first command is still to come");
    world.send(&command(1, 1));
    let order: Vec<_> = world.pdus().iter().map(|pdu| pdu.number(16)).collect();
    assert_eq!(order, [2], "in the order of commands");
}

#[test]
fn small_writes_do_not_wait() {
    let mut world = world();
    world.send(&begun(1, 1, 9500));
    world.pdu();
    world.send(&write(2, 2, 1000).data(&pattern(1000)));
    let (_, _, command) = world.command();
    assert_eq!(&*command.data_out, pattern(1000));
}

#[test]
fn one_write_always_has_room() {
    let limits = Limits { write_bytes_max: 100, ..Limits::default() };
    let mut world = World::in_session_with(limits, EAGER);
    for n in 1..=3 {
        world.send(&begun(n, n, 8000));
    }
    for n in 1..=3 {
        let r2t = world.pdus().pop().expect("an R2T");
        assert_eq!(r2t.number(16), n);
        fulfil(&mut world, 8000, &r2t);
        let (_, task, command) = world.command();
        assert_eq!(&*command.data_out, pattern(8000));
        world.good(task, 8000);
    }
}

#[test]
fn an_aborted_write_gives_its_memory_back() {
    let mut world = world();
    world.send(&begun(1, 1, 8000));
    world.pdus();
    world.send(&begun(2, 2, 8000));
    world.send(&begun(3, 3, 8000));
    let abort = |itt: u32| manage(1, 9, 4).u32(20, itt).u32(32, itt);
    world.send(&abort(2));
    world.pdu();
    world.send(&abort(1));
    let pdus = world.pdus();
    assert_eq!(pdus[0].opcode(), MANAGE_RESPONSE);
    assert_eq!((pdus[1].opcode(), pdus[1].number(16)), (R2T, 3));
}

#[test]
fn memory_may_come_in_the_middle_of_unasked_data() {
    let mut world = world();
    world.send(&write(1, 1, 8000).data(&pattern(1000)));
    let r2t = world.pdu();
    fulfil(&mut world, 8000, &r2t);
    world.command();
    // Half of a PDU is there when the first write is over.
    let data = pattern(4000);
    world.send(&write(2, 2, 4000).byte(1, 0x21).data(&data[..100]));
    let bytes = data_out(0x80, 2, NO_TAG, 0, 100, &data[100..1000]).encode((false, false));
    world.send_bytes(CONN, &bytes[..300]);
    let landing = world.portal.landing(CONN);
    assert_eq!(landing.len(), 900 - (300 - 48));
    landing[..50].copy_from_slice(&bytes[300..350]);
    world.event(Event::Landed { conn: CONN, len: 50 });
    world.good(TaskId(1), 8000);
    assert_eq!(world.pdu().opcode(), SCSI_RESPONSE);
    world.send_bytes(CONN, &bytes[350..]);
    let r2t = world.pdu();
    fulfil(&mut world, 4000, &r2t);
    let (_, _, command) = world.command();
    assert_eq!(&*command.data_out, data);
    assert_eq!(world.memory.taken, [8000, 1024, 4000]);
}

/// Protects from memory without a bound: 128 reads of 16 MiB are asked for with 6 KB.
#[test]
fn a_session_has_so_much_read_and_not_sent() {
    let limits = Limits { transfer_max: 1 << 20, read_bytes_max: 3 << 20, ..Limits::default() };
    let mut world = World::new(limits);
    world.log_in(CONN, &login(0x87, ""));
    for number in 0..10 {
        world.send(&read(100 + number, 1 + number, 1 << 20));
    }
    let given = |world: &mut World| -> Vec<TaskId> {
        let asked = std::mem::take(&mut world.asked);
        let task = |output| match output {
            Output::Command { task, .. } => task,
            other => panic!("{other:?}"),
        };
        asked.into_iter().map(task).collect()
    };
    let first = given(&mut world);
    assert_eq!(first.len(), 3);
    for task in &first {
        world.respond(*task, good(vec![piece(&[7; 1 << 20])]));
    }
    assert!(given(&mut world).is_empty(), "the answers are not sent");
    assert!(world.portal.watches_unsent(CONN));
    world.event(Event::Unsent { conn: CONN, bytes: 1 << 20 });
    let second = given(&mut world);
    assert_eq!(second.len(), 2);
    // What is aborted needs no room, and those behind it go on.
    world.send(&manage(1, 200, 11).u32(20, 105).u32(32, 6));
    assert_eq!(world.pdus().last().map(Pdu::opcode), Some(MANAGE_RESPONSE));
    world.event(Event::Unsent { conn: CONN, bytes: 0 });
    assert_eq!(given(&mut world).len(), 1);
    for task in second {
        world.respond(task, good(vec![]));
    }
    assert_eq!(given(&mut world).len(), 2, "a failed read leaves nothing to be sent");
    world.event(Event::Unsent { conn: CONN, bytes: 0 });
    assert!(!world.portal.watches_unsent(CONN));
}

/// Protects from a large read that stays in memory for the few bytes of it that the initiator takes.
#[test]
fn what_is_cut_off_is_not_kept() {
    let mut world = World::in_session("");
    world.send(&read(1, 1, 512));
    let task = match world.asked() {
        Output::Command { task, .. } => task,
        other => panic!("{other:?}"),
    };
    world.respond(task, good(vec![piece(&[7; 1 << 20])]));
    assert_eq!(world.shared, 0, "no slice of the whole is sent");
    let pdu = world.pdu();
    assert_eq!((pdu.data.len(), pdu.number(44)), (512, (1 << 20) - 512));
}
