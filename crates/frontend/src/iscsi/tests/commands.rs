//! The order of commands, and what is ignored.
use super::client::*;
use crate::iscsi::Limits;
use crate::scsi::words::{Attribute, NexusId, TaskId};

fn order(world: &mut World) -> Vec<u8> {
    let commands = world.asked.drain(..).map(|output| match output {
        crate::iscsi::Output::Command { command, .. } => command.cdb[1],
        other => panic!("{other:?}"),
    });
    commands.collect()
}

/// A command that can be told from others.
fn marked(itt: u32, cmd_sn: u32, mark: u8) -> Pdu {
    command(itt, cmd_sn).byte(33, mark)
}

#[test]
fn a_command_is_passed_on_as_it_is() {
    for (flags, attribute) in [
        (0x80, Attribute::Untagged),
        (0x81, Attribute::Simple),
        (0x82, Attribute::Ordered),
        (0x83, Attribute::HeadOfQueue),
        (0x84, Attribute::Aca),
    ] {
        let mut world = World::in_session("");
        let mut request = command(5, 1).byte(1, flags).byte(9, 3).byte(47, 9);
        request.header.0[32] = 0x12;
        world.send(&request);
        let (nexus, task, command) = world.command();
        assert_eq!((nexus, task, command.attribute), (NexusId(1), TaskId(1), attribute));
        assert_eq!(command.lun, 0x0003_0000_0000_0000);
        assert_eq!((command.cdb[0], command.cdb[15]), (0x12, 9));
    }
}

#[test]
fn commands_are_given_in_order() {
    let mut world = World::in_session("");
    world.send(&marked(7, 3, 3));
    world.send(&marked(6, 2, 2));
    world.nothing_asked();
    // What is not counted does not wait.
    world.send(&marked(9, 1, 9).immediate());
    assert_eq!(order(&mut world), [9]);
    world.send(&nop(8, 4));
    assert_eq!(world.pdus(), []);
    world.send(&marked(5, 1, 1));
    assert_eq!(order(&mut world), [1, 2, 3]);
    let pong = world.pdu();
    assert_eq!((pong.opcode(), pong.number(28), pong.number(32)), (NOP_IN, 5, 129));
}

#[test]
fn commands_outside_of_the_window_are_ignored() {
    let mut world = World::in_session_with(Limits { window: 4, ..Limits::default() }, "");
    for outside in [0, 5, 6, u32::MAX, 1 << 31] {
        world.send(&marked(5, outside, 1));
        world.send(&nop(5, outside));
    }
    assert_eq!((world.pdus(), world.asked.len()), (vec![], 0));
    for cmd_sn in 1..=4 {
        world.send(&marked(cmd_sn, cmd_sn, 1));
    }
    assert_eq!(world.asked.len(), 4);
    world.send(&marked(5, 5, 1));
    assert_eq!(world.asked.len(), 4, "the window is closed");
    world.good(TaskId(1), 0);
    let pdu = world.pdu();
    assert_eq!((pdu.number(28), pdu.number(32)), (5, 5));
    world.send(&marked(5, 5, 1));
    assert_eq!(world.asked.len(), 5);
}

#[test]
fn the_same_command_twice_is_one() {
    let mut world = World::in_session("");
    world.send(&marked(5, 1, 1));
    world.send(&marked(5, 1, 1));
    world.send(&marked(7, 3, 3));
    world.send(&marked(7, 3, 4));
    assert_eq!(order(&mut world), [1]);
    assert_eq!(world.pdus(), []);
    world.send(&marked(6, 2, 2));
    assert_eq!(order(&mut world), [2, 3]);
}

#[test]
fn data_of_an_ignored_command_is_ignored_too() {
    let mut world = World::in_session("InitialR2T=No");
    world.lands = true;
    world.send(&write(5, 200, 2000).byte(1, 0x21).data(&[1; 1000]));
    world.send(&data_out(0x80, 5, crate::iscsi::pdu::NO_TAG, 0, 1000, &[1; 1000]));
    assert_eq!((world.pdus(), world.asked.len(), world.memory.taken.len()), (vec![], 0, 0));
}

#[test]
fn numbers_go_round() {
    let mut world = World::new(Limits { window: 4, ..Limits::default() });
    world.log_in(CONN, &login(0x87, "").u32(24, u32::MAX - 1));
    for (itt, cmd_sn) in [(1, u32::MAX - 1), (2, u32::MAX), (3, 0), (4, 1)] {
        world.send(&marked(itt, cmd_sn, 1));
        let (_, task, _) = world.command();
        world.good(task, 0);
        assert_eq!(world.pdu().number(28), cmd_sn.wrapping_add(1));
    }
}

#[test]
fn immediate_commands_are_counted_apart() {
    let mut world =
        World::in_session_with(Limits { immediate_max: 1, window: 1, ..Limits::default() }, "");
    world.send(&marked(5, 1, 1));
    world.send(&marked(6, 2, 2).immediate());
    assert_eq!(order(&mut world), [1, 2]);
    world.send(&marked(7, 2, 3).immediate());
    let pdu = world.pdu();
    assert_eq!((pdu.opcode(), pdu.header.0[2], pdu.number(28), pdu.number(32)), (REJECT, 6, 2, 1));
    world.good(TaskId(2), 0);
    assert_eq!(world.pdu().number(32), 1, "the window does not move");
    world.send(&marked(7, 2, 3).immediate());
    assert_eq!(order(&mut world), [3]);
}

#[test]
fn statuses_are_numbered() {
    let mut world = World::in_session("");
    for n in 0..3 {
        world.send(&command(5, n + 1));
        let (_, task, _) = world.command();
        world.good(task, 0);
        assert_eq!(world.pdu().number(24), n + 2, "the login had the first");
    }
}
