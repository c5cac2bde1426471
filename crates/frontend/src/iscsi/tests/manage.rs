//! Task management.
use super::client::*;
use crate::iscsi::{CloseReason, ConnNo, Limits, ManageId, Output};
use crate::scsi::words::{Managed, Management, TaskId};

const ABORT: u8 = 1;
const ABORT_SET: u8 = 2;
const CLEAR_ACA: u8 = 3;
const CLEAR_SET: u8 = 4;
const RESET: u8 = 5;
const WARM: u8 = 6;
const COLD: u8 = 7;

fn abort(itt: u32, cmd_sn: u32, ref_itt: u32, ref_cmd_sn: u32) -> Pdu {
    manage(ABORT, itt, cmd_sn).u32(20, ref_itt).u32(32, ref_cmd_sn)
}

/// The response to a function.
fn response(world: &mut World, itt: u32) -> u8 {
    let pdu = world.pdu();
    assert_eq!((pdu.opcode(), pdu.flags(), pdu.number(16)), (MANAGE_RESPONSE, 0x80, itt));
    pdu.header.0[2]
}

#[test]
fn a_task_that_the_unit_has_is_aborted_there() {
    // Whether the unit still had it or not: the answer is kept back, so it is aborted.
    for result in [Managed::Done, Managed::NoTask] {
        for answers in [false, true] {
            let mut world = World::in_session("");
            world.send(&read(5, 1, 512));
            let (_, task, _) = world.command();
            world.send(&abort(9, 2, 5, 1));
            let (id, _, function) = world.manage();
            assert_eq!(function, Management::AbortTask { task });
            if answers {
                world.respond(task, good(vec![piece(&[1; 512])]));
            }
            assert_eq!(world.pdus(), [], "nothing before the unit has said so");
            world.managed(id, result);
            assert_eq!(response(&mut world, 9), 0);
            world.respond(task, good(vec![piece(&[1; 512])]));
            assert_eq!((world.pdus(), world.asked.len()), (vec![], 0));
            // Its tag and its place are free.
            world.send(&command(5, 2));
            world.command();
        }
    }
}

#[test]
fn a_task_that_waits_for_data_is_gone_at_once() {
    let mut world = World::in_session("");
    world.send(&write(5, 1, 4096));
    let tag = world.pdu().number(20);
    world.send(&abort(9, 2, 5, 1));
    assert_eq!(response(&mut world, 9), 0);
    world.send(&data_out(0x80, 5, tag, 0, 0, &[1; 4096]));
    assert_eq!((world.pdus(), world.asked.len()), (vec![], 0));
}

#[test]
fn a_task_that_waits_for_its_turn_is_gone_at_once() {
    let mut world = World::in_session("");
    world.send(&command(6, 2));
    world.send(&abort(9, 3, 6, 2));
    assert_eq!(response(&mut world, 9), 0);
    world.send(&command(5, 1));
    world.command();
    world.send(&command(7, 3));
    world.command();
}

#[test]
fn a_task_that_is_not_here() {
    let mut world = World::in_session("");
    world.send(&command(5, 1));
    let (_, task, _) = world.command();
    world.good(task, 0);
    world.pdus();
    // It was answered before.
    world.send(&abort(9, 2, 5, 1));
    assert_eq!(response(&mut world, 9), 1);
    // It cannot be: the function itself comes first, or the window does not reach so far.
    for ref_cmd_sn in [2, 3, 500] {
        world.send(&abort(9, 2, 77, ref_cmd_sn));
        assert_eq!(response(&mut world, 9), 1);
    }
    // It is still to come: then it counts as here, and what waits for it goes on.
    world.send(&command(7, 3));
    world.nothing_asked();
    world.send(&abort(9, 4, 6, 2));
    assert_eq!(response(&mut world, 9), 0);
    world.command();
    world.send(&command(6, 2));
    world.nothing_asked();
}

#[test]
fn a_function_of_the_order_waits_for_its_turn() {
    let mut world = World::in_session("");
    let mut request = abort(9, 2, 5, 1);
    request.header.0[0] = 0x02;
    world.send(&request);
    world.nothing_asked();
    world.send(&command(5, 1));
    assert!(matches!(world.asked.remove(0), Output::Command { .. }));
    assert!(matches!(world.asked(), Output::Manage { .. }));
}

/// Three tasks of two units with the unit, and one that waits for data.
fn busy() -> World {
    let mut world = World::in_session("");
    world.send(&command(1, 1));
    world.send(&command(2, 2));
    world.send(&command(3, 3).byte(9, 1));
    world.send(&write(4, 4, 512));
    world.pdus();
    world.asked.clear();
    world
}

#[test]
fn sets_of_tasks_end_together() {
    for (function, expected, others) in [
        (ABORT_SET, Management::AbortTaskSet, 1),
        (CLEAR_SET, Management::ClearTaskSet, 1),
        (RESET, Management::LogicalUnitReset, 1),
        (WARM, Management::TargetWarmReset, 0),
        (CLEAR_ACA, Management::ClearAca, 4),
    ] {
        let mut world = busy();
        world.send(&manage(function, 9, 5));
        let (id, lun, found) = world.manage();
        assert_eq!((lun, found), (0, expected));
        // A command behind it is none of its business.
        world.send(&command(5, 5));
        let (_, later, _) = world.command();
        world.managed(id, Managed::Done);
        assert_eq!(response(&mut world, 9), 0);
        for task in 1..=3 {
            world.good(TaskId(task), 0);
        }
        world.good(later, 0);
        let answered = world.pdus().len();
        let waiting = usize::from(function == CLEAR_ACA);
        assert_eq!(answered + waiting, others + 1, "{expected:?}");
    }
}

#[test]
fn what_the_unit_does_not_do_harms_nobody() {
    for (result, code) in [
        (Managed::NotSupported, 5),
        (Managed::NoUnit, 2),
        (Managed::NoTask, 1),
        (Managed::Rejected, 255),
    ] {
        let mut world = busy();
        world.send(&manage(WARM, 9, 5));
        let (id, ..) = world.manage();
        // Answered meanwhile, and given all its data meanwhile.
        world.good(TaskId(1), 0);
        assert_eq!(world.pdus(), []);
        world.managed(id, result);
        let pdus = world.pdus();
        assert_eq!((pdus[0].opcode(), pdus[0].header.0[2]), (MANAGE_RESPONSE, code));
        assert_eq!((pdus[1].opcode(), pdus[1].number(16)), (SCSI_RESPONSE, 1));
        world.good(TaskId(2), 0);
        assert_eq!(world.pdu().number(16), 2);
    }
}

#[test]
fn data_that_comes_while_a_function_is_under_way_is_kept() {
    let mut world = World::in_session("");
    world.send(&write(5, 1, 512));
    let tag = world.pdu().number(20);
    world.send(&manage(RESET, 9, 2));
    let (id, ..) = world.manage();
    world.send(&data_out(0x80, 5, tag, 0, 0, &pattern(512)));
    world.nothing_asked();
    world.managed(id, Managed::NotSupported);
    assert_eq!(response(&mut world, 9), 5);
    let (_, _, command) = world.command();
    assert_eq!(&*command.data_out, pattern(512));
}

#[test]
fn functions_that_nobody_has() {
    let mut world = World::in_session("");
    for (function, code) in [(8, 4), (9, 5), (0, 5)] {
        world.send(&manage(function, 9, 1));
        assert_eq!(response(&mut world, 9), code);
    }
    world.nothing_asked();
}

#[test]
fn functions_are_counted() {
    let mut world = World::in_session_with(Limits { manages_max: 1, ..Limits::default() }, "");
    world.send(&manage(RESET, 8, 1));
    world.manage();
    world.send(&manage(RESET, 9, 1));
    assert_eq!(response(&mut world, 9), 255);
    // What nobody asked for is not answered.
    world.managed(ManageId(99), Managed::Done);
    assert_eq!(world.pdus(), []);
}

#[test]
fn a_cold_reset_ends_all_sessions_of_the_target() {
    let mut world = World::in_session("");
    let stage = format!("InitiatorName=iqn.b TargetName={TARGET}:stage.1");
    world.log_in(ConnNo(2), &login_raw(0x87, &stage));
    world.log_in(ConnNo(3), &login_raw(0x87, "InitiatorName=iqn.c TargetName=iqn.elsewhere"));
    world.send(&manage(COLD, 9, 1));
    let (id, ..) = world.manage();
    world.managed(id, Managed::Done);
    assert_eq!(response(&mut world, 9), 0);
    let closed: Vec<_> = world
        .asked
        .iter()
        .map(|output| match output {
            Output::Close { conn, reason: Some(CloseReason::ColdReset) } => (conn.0, 0),
            Output::Ended { nexus } => (0, nexus.0),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(closed, [(1, 0), (0, 1), (2, 0), (0, 2)]);
    assert!(world.portal.wants_bytes(ConnNo(3)));
}
