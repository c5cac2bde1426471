//! What commands do to blocks, one by one.
use super::rig::*;
use super::volume::GRANULE;
use crate::ask::Ask;
use crate::scsi::words::{Managed, Management, Rights, Status};

/// All lengths of a command that names blocks, for the same blocks.
fn forms(six: Option<u8>, ten_op: u8, twelve: Option<u8>, long: u8, flags: u8) -> Vec<Vec<u8>> {
    let mut forms = vec![ten(ten_op, flags, 3, 2), sixteen(long, flags, 3, 2)];
    forms.extend(six.map(|op| vec![op, 0, 0, 3, 2, 0]));
    forms.extend(twelve.map(|op| {
        let mut bytes = vec![op, flags];
        bytes.extend(3_u32.to_be_bytes());
        bytes.extend(2_u32.to_be_bytes());
        bytes.extend([0, 0]);
        bytes
    }));
    forms
}

fn pattern(rig: &Rig, blocks: usize, seed: u8) -> Vec<u8> {
    let byte = |at: usize| seed.wrapping_add(u8::try_from(at % 251).unwrap());
    (0..blocks * rig.block).map(byte).collect()
}

#[test]
fn every_form_of_write_is_read_by_every_form_of_read() {
    for block in [512, 4096] {
        let mut rig = Rig::new(block);
        let mut seed = 0;
        for write in forms(Some(0x0A), 0x2A, Some(0xAA), 0x8A, 0) {
            for read in forms(Some(0x08), 0x28, Some(0xA8), 0x88, 0) {
                seed += 1;
                let data = pattern(&rig, 2, seed);
                rig.good(A, &write, &data);
                assert_eq!(rig.good(B, &read, &[]), data);
                assert_eq!(rig.blocks(3, 2), data);
            }
        }
        assert_eq!(rig.volume.through, 0);
    }
}

#[test]
fn no_block_length_of_a_six_byte_form_means_256() {
    let mut rig = Rig::new(512);
    assert_eq!(rig.good(A, &[0x08, 0, 0, 0, 0, 0], &[]).len(), 256 * 512);
}

#[test]
fn force_unit_access_reaches_the_volume() {
    let mut rig = Rig::new(512);
    let data = pattern(&rig, 2, 1);
    for (count, write) in forms(None, 0x2A, Some(0xAA), 0x8A, 0x08).iter().enumerate() {
        rig.good(A, write, &data);
        assert_eq!(rig.volume.through, count + 1);
    }
    rig.good(A, &ten(0x28, 0x18, 3, 2), &[]);
}

#[test]
fn commands_outside_the_disk_are_refused_by_all_that_name_blocks() {
    let mut rig = Rig::new(512);
    let last = (SIZE / 512) as u64;
    let data = vec![0; 4 * 512];
    for op in [0x88, 0x8A, 0x8B, 0x8E, 0x8F, 0x90, 0x91, 0x93] {
        for (first, blocks) in [(last - 1, 2), (last, 1), (last + 1, 0), (u64::MAX, 1)] {
            let data = if op == 0x93 { &data[..512] } else { &data[..] };
            let bytes = sixteen(op, 0, first, blocks);
            assert_eq!(rig.bad(A, &bytes, data), (5, [0x21, 0]), "{op:02X} at {first}");
        }
    }
    assert_eq!(rig.bad(A, &compare(last), &data), (5, [0x21, 0]));
    assert_eq!(rig.bad(A, &sixteen(0x9E, 0x12, last, 24), &[]), (5, [0x21, 0]));
    assert!(rig.asks.is_empty());
}

#[test]
fn an_empty_command_at_the_end_of_the_disk_is_good() {
    let mut rig = Rig::new(512);
    let last = (SIZE / 512) as u64;
    for op in [0x88, 0x8A, 0x8B, 0x8E, 0x8F] {
        assert_eq!(rig.good(A, &sixteen(op, 0, last, 0), &[]), []);
    }
}

#[test]
fn a_transfer_that_is_too_long_is_an_invalid_field() {
    let mut rig =
        Rig::of(crate::export::Export { size: block::ByteLen(1 << 30), ..export(512) }, &[]);
    rig.up(A);
    rig.hear(A);
    for op in [0x88, 0x8A, 0x8B, 0x8E, 0x8F] {
        let response = rig.run(A, &sixteen(op, 0, 0, 32769), &[]);
        assert_eq!(codes(&response), (5, [0x24, 0]));
        assert_eq!(response.sense[15..18], [0xC0, 0, 10]);
    }
}

#[test]
fn data_shorter_than_a_write_needs_is_written_as_far_as_whole_blocks_go() {
    let mut rig = Rig::new(512);
    for op in [0x2A, 0x2E] {
        let data = pattern(&rig, 1, op);
        let response = rig.run(A, &ten(op, 0, 0, 2), &data);
        assert_eq!((response.status, response.took_out), (Status::Good, 1024));
        assert_eq!(rig.blocks(0, 1), data);
        assert_eq!(rig.blocks(1, 1), [0; 512]);
        let response = rig.run(A, &ten(op, 0, 0, 1), &[]);
        assert_eq!((response.status, response.took_out), (Status::Good, 512));
        let response = rig.run(A, &ten(op, 0, 0, 1), &[1; 200]);
        assert_eq!((codes(&response), response.took_out), ((5, [0x0E, 3]), 512));
        assert_eq!(rig.blocks(0, 1), data);
    }
}

#[test]
fn data_longer_than_a_write_needs_is_not_written() {
    let mut rig = Rig::new(512);
    let response = rig.run(A, &write(0, 1), &[7; 1024]);
    assert_eq!((response.status, response.took_out), (Status::Good, 512));
    assert_eq!(rig.blocks(1, 1), [0; 512]);
}

#[test]
fn other_commands_need_all_their_data() {
    let mut rig = Rig::new(512);
    for bytes in [ten(0x2F, 2, 0, 2), sixteen(0x8B, 0, 0, 2), ten(0x2F, 6, 0, 4)] {
        assert_eq!(rig.bad(A, &bytes, &[0; 100]), (5, [0x0E, 3]));
    }
    assert!(rig.asks.is_empty());
}

/// Protects from a comparison with something else than the initiator means.
#[test]
fn a_compare_and_write_needs_exactly_its_data() {
    let mut rig = Rig::new(512);
    for len in [0, 100, 512, 2048] {
        assert_eq!(rig.bad(A, &compare(0), &vec![0; len]), (5, [0x24, 0]));
    }
    assert!(rig.asks.is_empty());
}

#[test]
fn verify_compares_with_what_it_is_told_to() {
    let mut rig = Rig::new(512);
    let data = pattern(&rig, 2, 9);
    rig.good(A, &write(3, 2), &data);
    let mut wrong = data.clone();
    wrong[700] ^= 1;
    for flags in [0x00, 0x02] {
        for verify in forms(None, 0x2F, Some(0xAF), 0x8F, flags) {
            rig.good(A, &verify, &data);
            let response = rig.run(A, &verify, &wrong);
            if flags == 0 {
                assert_eq!((response.status, response.took_out), (Status::Good, 0));
            } else {
                assert_eq!(codes(&response), (0xE, [0x1D, 0]));
                assert_eq!(response.sense[0], 0xF0);
                assert_eq!(response.sense[3..7], 700_u32.to_be_bytes());
            }
        }
    }
    assert_eq!(rig.bad(A, &ten(0x2F, 4, 3, 2), &data), (5, [0x24, 0]));
}

#[test]
fn verify_compares_one_block_with_many() {
    let mut rig = Rig::new(512);
    rig.good(A, &write(3, 2), &[5; 1024]);
    rig.good(A, &ten(0x2F, 6, 3, 2), &[5; 512]);
    rig.good(A, &write(4, 1), &[6; 512]);
    let response = rig.run(A, &ten(0x2F, 6, 3, 2), &[5; 512]);
    assert_eq!(codes(&response), (0xE, [0x1D, 0]));
    assert_eq!(response.sense[3..7], 512_u32.to_be_bytes());
    assert_eq!(response.took_out, 512);
}

#[test]
fn write_and_verify_writes_through_and_looks_again() {
    let mut rig = Rig::new(512);
    let data = pattern(&rig, 2, 4);
    for (count, bytes) in forms(None, 0x2E, Some(0xAE), 0x8E, 0x02).iter().enumerate() {
        rig.good(A, bytes, &data);
        assert_eq!(rig.volume.through, count + 1);
    }
    assert_eq!(rig.blocks(3, 2), data);
    let task = rig.send(A, &ten(0x2E, 2, 3, 2), &data);
    rig.answer(0);
    rig.volume.bytes[3 * 512 + 5] ^= 1;
    rig.answer(0);
    assert_eq!(codes(&rig.take(task).unwrap()), (0xE, [0x1D, 0]));
    assert_eq!(rig.bad(A, &ten(0x2E, 6, 3, 2), &data), (5, [0x24, 0]));
}

#[test]
fn compare_and_write_writes_only_what_matches() {
    for block in [512, 4096] {
        let mut rig = Rig::new(block);
        let (old, new) = (pattern(&rig, 1, 1), pattern(&rig, 1, 2));
        rig.good(A, &write(5, 1), &old);
        let response = rig.run(A, &compare(5), &[old.clone(), new.clone()].concat());
        assert_eq!(
            (response.status, response.took_out),
            (Status::Good, 2 * u32::try_from(block).unwrap())
        );
        assert_eq!(rig.blocks(5, 1), new);
        let mut wrong = new.clone();
        wrong[300] ^= 1;
        let response = rig.run(A, &compare(5), &[wrong, old].concat());
        assert_eq!(codes(&response), (0xE, [0x1D, 0]));
        assert_eq!(response.sense[3..7], 300_u32.to_be_bytes());
        assert_eq!(rig.blocks(5, 1), new);
    }
    let mut rig = Rig::new(512);
    assert_eq!(rig.bad(A, &sixteen(0x89, 0, 0, 2), &[0; 2048]), (5, [0x24, 0]));
    assert_eq!(rig.good(A, &sixteen(0x89, 0, 0, 0), &[]), []);
}

#[test]
fn or_write_adds_bits() {
    let mut rig = Rig::new(512);
    rig.good(A, &write(0, 2), &[0b0101; 1024]);
    rig.good(A, &sixteen(0x8B, 8, 0, 2), &[0b0011; 1024]);
    assert_eq!(rig.blocks(0, 2), [0b0111; 1024]);
    assert_eq!(rig.volume.through, 1);
}

#[test]
fn write_same_of_zeros_asks_for_zeros() {
    let mut rig = Rig::new(512);
    for (bytes, data, discards) in [
        (ten(0x41, 0, 0, 16), vec![0; 512], false),
        (ten(0x41, 8, 0, 16), vec![0; 512], true),
        (sixteen(0x93, 0, 0, 16), vec![0; 512], false),
        (sixteen(0x93, 8, 0, 16), vec![0; 512], true),
        (sixteen(0x93, 1, 0, 16), vec![], false),
        (sixteen(0x93, 9, 0, 16), vec![], true),
    ] {
        rig.good(A, &write(0, 16), &[7; 16 * 512]);
        rig.good(A, &bytes, &data);
        assert_eq!(rig.blocks(0, 16), [0; 16 * 512]);
        assert_eq!(rig.volume.mapped[..2], [!discards; 2], "{bytes:02X?}");
    }
}

#[test]
fn write_same_of_a_pattern_writes_bounded_chunks() {
    let mut rig =
        Rig::of(crate::export::Export { size: block::ByteLen(64 << 20), ..export(512) }, &[]);
    rig.volume = super::volume::Volume::new(64 << 20);
    rig.up(A);
    rig.hear(A);
    let block: Vec<u8> = (0..512).map(|at| u8::try_from(at % 256).unwrap()).collect();
    let task = rig.send(A, &sixteen(0x93, 8, 1, 65535), &block);
    let mut most = 0;
    while !rig.asks.is_empty() {
        most = most.max(rig.asks.len());
        for (_, ask) in &rig.asks {
            assert!(matches!(ask, Ask::Write { data, .. } if data.len() <= 1 << 20));
        }
        rig.answer(rig.asks.len() - 1);
    }
    assert_eq!(most, 4);
    assert_eq!(rig.take(task).unwrap().status, Status::Good);
    assert!(rig.blocks(1, 65535).chunks(512).all(|chunk| chunk == block));
    assert_eq!(rig.blocks(0, 1), [0; 512]);
    assert_eq!(rig.blocks(65536, 1), [0; 512]);
    assert!(rig.unit.is_idle());
}

#[test]
fn write_same_refuses_what_the_block_limits_rule_out() {
    let mut rig = Rig::new(512);
    for bytes in [ten(0x41, 0, 0, 0), sixteen(0x93, 8, 0, 0), sixteen(0x93, 0x10, 0, 1)] {
        assert_eq!(rig.bad(A, &bytes, &[0; 512]), (5, [0x24, 0]));
    }
    for data in [&[0; 256][..], &[0; 1024], &[]] {
        assert_eq!(rig.bad(A, &ten(0x41, 8, 0, 1), data), (5, [0x0E, 3]));
    }
    assert_eq!(rig.bad(A, &sixteen(0x93, 1, 0, 1), &[0; 512]), (5, [0x0E, 3]));
    assert!(rig.asks.is_empty());
}

fn unmap_list(ranges: &[(u64, u32)]) -> Vec<u8> {
    let len = u16::try_from(ranges.len() * 16).unwrap();
    let mut list = (len + 6).to_be_bytes().to_vec();
    list.extend(len.to_be_bytes());
    list.extend([0; 4]);
    for (first, blocks) in ranges {
        list.extend(first.to_be_bytes());
        list.extend(blocks.to_be_bytes());
        list.extend([0; 4]);
    }
    list
}

fn unmap(len: usize) -> Vec<u8> {
    ten(0x42, 0, 0, u16::try_from(len).unwrap())
}

#[test]
fn unmap_gives_space_back() {
    let mut rig = Rig::new(512);
    rig.good(A, &write(0, 64), &[7; 64 * 512]);
    let list = unmap_list(&[(0, 8), (8, 8), (32, 8), (5, 0)]);
    let task = rig.send(A, &unmap(list.len()), &list);
    assert_eq!(rig.asks.len(), 2, "neighbours are joined");
    rig.settle();
    assert_eq!(rig.take(task).unwrap().status, Status::Good);
    assert_eq!(rig.blocks(0, 16), [0; 16 * 512]);
    assert_eq!(rig.blocks(16, 16), [7; 16 * 512]);
    assert_eq!(rig.volume.mapped[..8], [false, false, true, true, false, true, true, true]);
}

#[test]
fn unmap_asks_for_a_few_ranges_at_a_time() {
    let mut rig = Rig::new(512);
    let ranges: Vec<_> = (0..256).map(|at| (at * 2, 1)).collect();
    let list = unmap_list(&ranges);
    let task = rig.send(A, &unmap(list.len()), &list);
    let mut asked = 0;
    while !rig.asks.is_empty() {
        assert!(rig.asks.len() <= 8);
        asked += 1;
        rig.answer(0);
    }
    assert_eq!(asked, 256);
    assert_eq!(rig.take(task).unwrap().status, Status::Good);
}

#[test]
fn unmap_lists_are_checked_before_anything_is_done() {
    let mut rig = Rig::new(512);
    let last = (SIZE / 512) as u64;
    let good = unmap_list(&[(0, 1)]);
    for (len, list, expected) in [
        (7, good.clone(), (5, [0x1A, 0])),
        (16, good.clone(), (5, [0x1A, 0])),
        (40, good.clone(), (5, [0x1A, 0])),
        (24, unmap_list(&[(last, 1)]), (5, [0x21, 0])),
        (40, unmap_list(&[(0, 1), (1, u32::MAX)]), (5, [0x21, 0])),
        (8 + 257 * 16, unmap_list(&[(0, 0); 257]), (5, [0x26, 0])),
    ] {
        assert_eq!(rig.bad(A, &unmap(len), &list), expected, "{len}");
    }
    for (len, list) in
        [(0, vec![]), (8, unmap_list(&[])), (24, unmap_list(&[(last, 0)])), (24, good.clone())]
    {
        rig.good(A, &unmap(len), &list);
    }
    assert_eq!(rig.bad(A, &[0x42, 1, 0, 0, 0, 0, 0, 0, 24, 0], &good), (5, [0x24, 0]));
}

#[test]
fn lba_status_tells_runs_of_blocks() {
    let mut rig = Rig::new(512);
    rig.good(A, &write(8, 8), &[7; 8 * 512]);
    let told = rig.good(A, &sixteen(0x9E, 0x12, 1, 8 + 3 * 16), &[]);
    assert_eq!(told[..4], (4 + 3 * 16_u32).to_be_bytes());
    let mut expected = Vec::new();
    for (first, blocks, state) in [(1, 7, 1), (8, 8, 0), (16, 2048 - 16, 1)] {
        expected.extend(u64::to_be_bytes(first));
        expected.extend(u32::to_be_bytes(blocks));
        expected.extend([state, 0, 0, 0]);
    }
    assert_eq!(told[8..], expected);
    assert_eq!(rig.good(A, &sixteen(0x9E, 0x12, 1, 24), &[]), {
        let mut first = 20_u32.to_be_bytes().to_vec();
        first.extend([0; 4]);
        first.extend(&expected[..16]);
        first
    });
    assert_eq!(rig.good(A, &sixteen(0x9E, 0x12, 1, 4), &[]).len(), 4);
}

#[test]
fn prefetch_is_met_where_the_blocks_are() {
    let mut rig = Rig::new(512);
    for bytes in [ten(0x34, 0, 0, 8), ten(0x34, 2, 5, 0), sixteen(0x90, 2, 0, 2048)] {
        assert_eq!(rig.status(A, &bytes, &[]), Status::ConditionMet);
    }
}

#[test]
fn a_flush_is_a_flush_and_an_immediate_one_does_not_wait() {
    let mut rig = Rig::new(512);
    rig.good(A, &ten(0x35, 0, 0, 0), &[]);
    rig.good(A, &sixteen(0x91, 0, 0, 8), &[]);
    assert_eq!(rig.volume.flushes, 2);
    let task = rig.send(A, &ten(0x35, 2, 0, 0), &[]);
    assert_eq!(rig.take(task).unwrap().status, Status::Good);
    assert_eq!(rig.asks.len(), 1);
    rig.settle();
    assert_eq!(rig.volume.flushes, 3);
    assert!(rig.unit.is_idle() && rig.done.is_empty());
}

#[test]
fn a_stop_makes_everything_durable_and_stops_nothing() {
    let mut rig = Rig::new(512);
    for (byte, flushes) in [(0x01, 0), (0x00, 1), (0x04, 1), (0x10, 1)] {
        rig.good(A, &[0x1B, 0, 0, 0, byte, 0], &[]);
        assert_eq!(rig.volume.flushes, flushes);
    }
    rig.good(A, &[0x00], &[]);
    for byte in [0x02, 0x03, 0x20, 0xB0] {
        assert_eq!(rig.bad(A, &[0x1B, 0, 0, 0, byte, 0], &[]), (5, [0x24, 0]));
    }
}

#[test]
fn a_disk_that_is_read_only_is_never_written() {
    for (read_only, rights, code) in [
        (true, Rights::Write, [0x27, 0]),
        (false, Rights::Write, [0x27, 2]),
        (false, Rights::Read, [0x27, 0]),
    ] {
        let mut rig = Rig::of(crate::export::Export { read_only, ..export(512) }, &[]);
        rig.up_with(A, rights);
        rig.hear(A);
        if code == [0x27, 2] {
            // The control page with SWP.
            let mut list = vec![0, 0, 0, 0, 0x0A, 0x0A, 2, 0x10, 8, 0, 0, 0, 0xFF, 0xFF];
            list.extend([0; 2]);
            rig.good(A, &[0x15, 0x10, 0, 0, 16, 0], &list);
        }
        let list = unmap_list(&[(0, 1)]);
        for (bytes, data) in [
            (write(0, 1), &[1; 512][..]),
            (sixteen(0x8A, 0, 0, 1), &[1; 512]),
            (vec![0x0A, 0, 0, 0, 1, 0], &[1; 512]),
            (ten(0x2E, 0, 0, 1), &[1; 512]),
            (sixteen(0x8B, 0, 0, 1), &[1; 512]),
            (compare(0), &[0; 1024]),
            (ten(0x41, 8, 0, 1), &[]),
            (sixteen(0x93, 9, 0, 1), &[]),
            (unmap(list.len()), &list),
        ] {
            assert_eq!(rig.bad(A, &bytes, data), (7, code), "{bytes:02X?}");
        }
        assert_eq!(rig.good(A, &read(0, 1), &[]), [0; 512]);
        rig.good(A, &ten(0x35, 0, 0, 0), &[]);
        assert_eq!(rig.good(A, &[0x1A, 0, 0x3F, 0, 4, 0], &[])[2], 0x90);
    }
}

/// Protects from one initiator's protection that keeps others from writing, and from the other way round.
#[test]
fn a_nexus_that_may_only_read_stands_beside_one_that_writes() {
    let mut rig = Rig::of(export(512), &[]);
    rig.up_with(A, Rights::Write);
    rig.up_with(B, Rights::Read);
    rig.hear(A);
    rig.hear(B);
    rig.good(A, &write(0, 1), &[7; 512]);
    assert_eq!(rig.bad(B, &write(0, 1), &[8; 512]), (7, [0x27, 0]));
    assert_eq!(rig.good(B, &read(0, 1), &[]), [7; 512]);
    let about = |rig: &mut Rig, nexus| rig.good(nexus, &[0x1A, 0, 0x3F, 0, 4, 0], &[])[2];
    assert_eq!((about(&mut rig, A), about(&mut rig, B)), (0x10, 0x90));
}

/// Protects those who write from a host that may only read: it keeps nobody out, takes no commands back
/// but its own, and changes no modes.
#[test]
fn a_nexus_that_may_only_read_changes_nothing_for_others() {
    let mut rig = Rig::of(export(512), &[]);
    rig.up_with(A, Rights::Write);
    rig.up_with(B, Rights::Read);
    rig.hear(A);
    rig.hear(B);
    let register = |new: u8| {
        let mut list = vec![0; 24];
        list[15] = new;
        list
    };
    rig.good(A, &[0x5F, 0, 0, 0, 0, 0, 0, 0, 24, 0], &register(7));
    let mode = {
        let mut list = vec![0, 0, 0, 0, 0x0A, 0x0A, 2, 0x10, 8, 0, 0, 0, 0xFF, 0xFF];
        list.extend([0; 2]);
        list
    };
    // MODE SELECT, RESERVE, and every action of PERSISTENT RESERVE OUT.
    let mut commands =
        vec![(vec![0x15, 0x10, 0, 0, 16, 0], mode), (vec![0x16, 0, 0, 0, 0, 0], vec![])];
    for action in 0..7 {
        commands.push((vec![0x5F, action, 5, 0, 0, 0, 0, 0, 24, 0], register(9)));
    }
    for (bytes, data) in commands {
        assert_eq!(rig.bad(B, &bytes, &data), (7, [0x27, 0]), "{bytes:02X?}");
    }
    let keys = rig.good(B, &[0x5E, 0, 0, 0, 0, 0, 0, 0, 64, 0], &[]);
    assert_eq!(keys[8..], [0, 0, 0, 0, 0, 0, 0, 7], "reading them is reading");
    let written = rig.send(A, &write(0, 1), &[7; 512]);
    for function in [
        Management::ClearTaskSet,
        Management::LogicalUnitReset,
        Management::TargetWarmReset,
        Management::TargetColdReset,
    ] {
        let id = rig.manage(B, function);
        assert_eq!(rig.managed(id), Some(Managed::Rejected), "{function:?}");
    }
    let own = rig.send(B, &read(0, 1), &[]);
    let id = rig.manage(B, Management::AbortTask { task: own });
    let set = rig.manage(B, Management::AbortTaskSet);
    rig.settle();
    assert_eq!(rig.managed(id), Some(Managed::Done));
    assert_eq!(rig.managed(set), Some(Managed::Done));
    assert!(rig.take(written).is_some() && rig.hear(A).is_empty(), "it heard of nothing");
}

#[test]
fn sub_granule_unmaps_read_as_zeros() {
    let mut rig = Rig::new(512);
    rig.good(A, &write(0, 16), &[7; 16 * 512]);
    let list = unmap_list(&[(1, 3)]);
    rig.good(A, &unmap(list.len()), &list);
    assert_eq!(rig.blocks(0, 1), [7; 512]);
    assert_eq!(rig.blocks(1, 3), [0; 3 * 512]);
    assert!(rig.volume.mapped[0] && GRANULE == 8 * 512);
}
