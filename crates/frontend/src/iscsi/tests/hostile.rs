//! Streams in any cut, streams that were tampered with, and streams of nothing but chance.
use super::client::*;
use crate::iscsi::drive;
use crate::iscsi::pdu::NO_TAG;
use crate::iscsi::{Event, Limits, Output, TargetRecord};
use crate::scsi::words::{Managed, Response};

/// A small generator: the same numbers for the same seed.
struct Chance(u64);

impl Chance {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.next() % u64::try_from(end).expect("small")).expect("small")
    }

    fn byte(&mut self) -> u8 {
        self.next().to_le_bytes()[0]
    }
}

const KEYS: &str = "InitialR2T=No FirstBurstLength=2048 MaxBurstLength=4096 \
                    MaxRecvDataSegmentLength=1024 MaxOutstandingR2T=2";

/// Requests of every kind. The tags of transfers are known: they are counted from one.
fn conversation() -> Vec<Pdu> {
    let data = pattern(12_000);
    vec![
        nop(1, 1).data(&data[..333]),
        write(2, 2, 1501).data(&data[..1501]),
        write(3, 3, 2000).byte(1, 0x21).data(&data[..100]),
        read(4, 4, 5000),
        data_out(0x00, 3, NO_TAG, 0, 100, &data[100..1001]),
        data_out(0x80, 3, NO_TAG, 1, 1001, &data[1001..2000]),
        write(5, 5, 12_000).data(&data[..2000]),
        data_out(0x00, 5, 1, 0, 2000, &data[2000..3001]),
        command(6, 6),
        data_out(0x80, 5, 1, 1, 3001, &data[3001..6096]),
        text_request(0x80, 7, NO_TAG, "SendTargets=All"),
        data_out(0x80, 5, 2, 0, 6096, &data[6096..10_192]),
        data_out(0x80, 5, 3, 0, 10_192, &data[10_192..]),
        Pdu::new(0x10, 0x80),
        manage(5, 8, 7),
        read(9, 7, 999),
        logout(0, 10),
    ]
}

/// Carries out what a portal asks, until it asks nothing more.
fn serve(world: &mut World) {
    while !world.asked.is_empty() {
        match world.asked.remove(0) {
            Output::Command { nexus, task, command } => {
                let len = command.room_in as usize;
                let took_out = u32::try_from(command.data_out.len()).expect("short");
                assert_eq!(&*command.data_out, pattern(command.data_out.len()));
                let response = Response { took_out, ..good(vec![piece(&pattern(len))]) };
                world.event(Event::Response { nexus, task, response });
            }
            Output::Manage { nexus, id, .. } => {
                world.event(Event::Managed { nexus, id, result: Managed::Done });
            }
            Output::List { conn, .. } => {
                let targets = vec![TargetRecord { iqn: TARGET.into(), portals: vec![] }];
                world.event(Event::Listed { conn, targets });
            }
            Output::Close { .. } | Output::Ended { .. } => {}
            other => panic!("{other:?}"),
        }
    }
}

/// Gives a stream in cuts, and everything that is answered.
fn played(keys: &str, cut: usize, lands: bool) -> Vec<u8> {
    let mut world = World::in_session(keys);
    let digests = world.digests;
    let stream: Vec<u8> = conversation().iter().flat_map(|pdu| pdu.encode(digests)).collect();
    world.lands = lands;
    world.cut = cut;
    let mut rest = &stream[..];
    while !rest.is_empty() {
        let (front, behind) = rest.split_at(rest.len().min(cut));
        rest = behind;
        world.send_bytes(CONN, front);
        if cut == 1 {
            // The owner may be quick or slow: here it is quick.
            serve(&mut world);
        }
    }
    serve(&mut world);
    world.sent.remove(&CONN).expect("something was sent")
}

/// What was answered, by task: the order of answers is the owner's.
fn by_task(mut stream: Vec<u8>, digests: (bool, bool)) -> Vec<(u32, u8, Vec<u8>)> {
    let pdus = decode(&mut stream, digests);
    assert!(stream.is_empty());
    let mut answers: Vec<_> =
        pdus.into_iter().map(|pdu| (pdu.number(16), pdu.opcode(), pdu.data)).collect();
    answers.sort_by_key(|answer| answer.0);
    answers
}

#[test]
fn a_stream_in_any_cut_is_the_same_stream() {
    for (keys, digests) in [
        (KEYS.to_owned(), (false, false)),
        (format!("{KEYS} HeaderDigest=CRC32C DataDigest=CRC32C"), (true, true)),
    ] {
        let whole = played(&keys, usize::MAX, false);
        for (cut, lands) in [(2, false), (47, false), (48, true), (49, false), (5000, true)] {
            assert_eq!(played(&keys, cut, lands), whole, "cut {cut}");
        }
        let bytes = by_task(played(&keys, 1, false), digests);
        assert_eq!(bytes, by_task(played(&keys, 1, true), digests));
        assert!(bytes.iter().any(|(itt, opcode, _)| (*itt, *opcode) == (5, SCSI_RESPONSE)));
    }
}

#[test]
fn a_stream_that_was_tampered_with_harms_nobody() {
    let mut chance = Chance(0x5eed);
    for round in 0..3000 {
        let digests = round % 2 == 0;
        let (keys, digests) = match digests {
            true => (format!("{KEYS} HeaderDigest=CRC32C DataDigest=CRC32C"), (true, true)),
            false => (KEYS.into(), (false, false)),
        };
        let limits = Limits { write_bytes_max: 9000, ..Limits::default() };
        let mut world = World::in_session_with(limits, &keys);
        world.cut = 1 + chance.below(5000);
        world.lands = chance.below(2) == 0;
        let mut pdus = conversation();
        for _ in 0..chance.below(4) {
            let at = chance.below(pdus.len());
            match chance.below(4) {
                0 => drop(pdus.remove(at)),
                1 => pdus.insert(at, pdus[chance.below(pdus.len())].clone()),
                2 => pdus.swap(at, 0),
                _ => pdus[at].header.0[chance.below(48)] = chance.byte(),
            }
        }
        let mut stream: Vec<u8> = pdus.iter().flat_map(|pdu| pdu.encode(digests)).collect();
        for _ in 0..chance.below(4) {
            let at = chance.below(stream.len());
            stream[at] ^= 1 << chance.below(8);
        }
        world.send_bytes(CONN, &stream);
        world.pass(100);
        let max = Limits::default().transfer_max as usize;
        assert!(world.memory.taken.iter().all(|len| *len <= max));
        let closes = world.asked.iter().filter(|output| matches!(output, Output::Close { .. }));
        assert!(closes.count() <= 1);
    }
}

#[test]
fn a_login_that_was_tampered_with_harms_nobody() {
    let mut chance = Chance(0x10_610);
    for _ in 0..3000 {
        let mut world = World::new(Limits::default());
        world.accept(CONN);
        let mut bytes = login(0x87, KEYS).encode((false, false));
        for _ in 0..1 + chance.below(6) {
            let at = chance.below(bytes.len());
            bytes[at] = chance.byte();
        }
        world.cut = 1 + chance.below(bytes.len());
        world.send_bytes(CONN, &bytes);
        world.found(CONN, crate::iscsi::Access::default());
        world.logged_in(crate::iscsi::SessionNo(1));
        world.send_bytes(CONN, &bytes);
        world.pass(100);
        assert!(!world.portal.wants_bytes(CONN), "it is closed by now");
    }
}

#[test]
fn chance_harms_nobody() {
    let mut chance = Chance(0xc4a9);
    for round in 0..20_000usize {
        let len = 2 + chance.below(700);
        let mut bytes: Vec<u8> = (0..len).map(|_| chance.byte()).collect();
        // Opcodes and lengths that lead somewhere, now and then.
        for at in (2..len).step_by(48 + 61) {
            bytes[at] = [0, 1, 2, 4, 5, 6, 0x41, 0x44, 0x10][chance.below(9)];
            for (place, value) in [(4, 0), (5, 0), (6, 0), (19, 3), (23, 64), (27, 1)] {
                if let (Some(byte), false) = (bytes.get_mut(at + place), chance.below(8) == 0) {
                    *byte = value;
                }
                if let (Some(byte), true) = (bytes.get_mut(at + 16), place == 19) {
                    *byte = 0;
                }
            }
        }
        bytes[0] = u8::try_from(round % 32).expect("small");
        drive(&bytes);
    }
}

/// Whatever tasks took, of the window and of memory, they give back.
#[test]
fn nothing_is_left_behind() {
    let limits = Limits { write_bytes_max: 12_000, ..Limits::default() };
    let mut world = World::in_session_with(limits, &format!("{KEYS} ImmediateData=Yes"));
    let mut requests = conversation();
    requests.truncate(requests.len() - 1);
    for pdu in &requests {
        world.send(pdu);
        serve(&mut world);
    }
    // One more that is aborted with its data on the way, and one that fails.
    world.send(&write(20, 8, 9000));
    world.send(&manage(1, 21, 9).u32(20, 20).u32(32, 8));
    world.send(&write(22, 9, 1000).data(&pattern(1001)));
    world.pdus();
    world.send(&nop(23, 10));
    let pong = world.pdu();
    assert_eq!((pong.number(28), pong.number(32)), (11, 11 + 127));
    for itt in [24, 25] {
        world.send(&write(itt, itt - 13, 6000));
    }
    let asked: Vec<_> = world.pdus().iter().map(|pdu| (pdu.opcode(), pdu.number(16))).collect();
    assert_eq!(asked, [(R2T, 24), (R2T, 24), (R2T, 25), (R2T, 25)]);
}
