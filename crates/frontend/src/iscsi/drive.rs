//! A portal against arbitrary bytes, for a fuzzer.
//!
//! The first two bytes say how the rest is given: behind which login, in which cuts, and whether as
//! it is or as PDUs with the right lengths and digests. Whatever the bytes are, nothing may panic,
//! and no buffer may be longer than allowed.
use std::collections::VecDeque;
use std::time::Duration;

use block::{Buf, Data};

use crate::ask::Buffers;
use crate::piece::Piece;
use crate::scsi::words::{Command, Managed, NexusId, Response, Status, TaskId};

use super::digest::crc;
use super::events::{Access, Chap, ConnNo, Event, Found, Output, Secret, TargetRecord};
use super::limits::Limits;
use super::pdu::{HEADER_LEN, Header, padding};
use super::portal::Portal;

const CONN: ConnNo = ConnNo(1);

/// What commands read is no longer than this, however much the initiator takes.
const ANSWER_MAX: u32 = 1 << 16;

const NAMES: &[u8] = b"InitiatorName=iqn.a\0TargetName=iqn.b\0";
const EAGER: &[u8] = b"InitialR2T=No\0MaxRecvDataSegmentLength=512\0MaxBurstLength=1024\0";
const DIGESTS: &[u8] = b"HeaderDigest=CRC32C\0DataDigest=CRC32C\0";

struct Bounded(usize);

impl Buffers for Bounded {
    fn take(&mut self, len: usize) -> Buf {
        assert!(len <= self.0, "a buffer of {len} bytes for a stranger");
        Buf::zeroed(len)
    }
}

struct Driven {
    portal: Portal,
    buffers: Bounded,
    now: Duration,
    options: u8,
    /// Tasks that are answered later.
    late: VecDeque<(NexusId, TaskId, Command)>,
}

/// Runs a portal against bytes, with a unit that answers by itself.
#[doc(hidden)]
pub fn drive(bytes: &[u8]) {
    let Some((&[options, cut], stream)) = bytes.split_first_chunk::<2>() else { return };
    let limits = Limits { write_bytes_max: 20_000, transfer_max: 10_000, ..Limits::default() };
    let mut driven = Driven {
        buffers: Bounded(limits.transfer_max as usize),
        portal: Portal::new(limits, Box::new(|bytes| bytes.fill(7))),
        now: Duration::ZERO,
        options,
        late: VecDeque::new(),
    };
    driven.event(Event::Accepted {
        conn: CONN,
        portal: "192.0.2.1:3260".into(),
        peer: "192.0.2.9".into(),
    });
    let keys = match options & 3 {
        0 => None,
        1 => Some([NAMES, b"SessionType=Discovery\0"].concat()),
        2 => Some([NAMES, EAGER].concat()),
        _ => Some([NAMES, EAGER, DIGESTS].concat()),
    };
    if let Some(keys) = keys {
        driven.feed(&pdu(0x43, 0x87, &keys), usize::MAX);
    }
    if options & 0x08 == 0 {
        driven.feed(stream, usize::from(cut).max(1));
    } else {
        driven.feed_pdus(stream, usize::from(cut).max(1));
    }
    driven.event(Event::Drain { iqn: "iqn.b".into() });
    driven.now += Duration::from_secs(60);
    driven.event(Event::Tick);
    driven.event(Event::Lost { conn: CONN });
}

fn pdu(opcode: u8, flags: u8, segment: &[u8]) -> Vec<u8> {
    let mut header = Header::new(opcode, flags);
    header.set_segment_len(segment.len());
    header.set_u32(24, 1);
    let mut bytes = [&header.0[..], segment].concat();
    bytes.resize(bytes.len() + padding(segment.len()), 0);
    bytes
}

impl Driven {
    /// Cuts the stream into PDUs whose lengths and digests are right, whatever else they say.
    fn feed_pdus(&mut self, stream: &[u8], cut: usize) {
        let has_digests = self.options & 3 == 3;
        for part in stream.chunks(HEADER_LEN + 61) {
            let mut header = Header::new(0, 0);
            let (front, segment) = part.split_at(part.len().min(HEADER_LEN));
            header.set(0, front);
            header.0[4] = 0;
            header.set_segment_len(segment.len());
            let mut bytes = header.0.to_vec();
            if has_digests {
                bytes.extend_from_slice(&crc(&header.0));
            }
            let start = bytes.len();
            bytes.extend_from_slice(segment);
            bytes.resize(bytes.len() + padding(segment.len()), 0);
            if has_digests && !segment.is_empty() {
                let digest = crc(&bytes[start..]);
                bytes.extend_from_slice(&digest);
            }
            self.feed(&bytes, cut);
        }
    }

    fn feed(&mut self, stream: &[u8], cut: usize) {
        let mut rest = stream;
        while !rest.is_empty() {
            if !self.portal.wants_bytes(CONN) {
                self.answer_late();
            }
            let landing = self.portal.landing(CONN);
            let lands = self.options & 4 != 0 && !landing.is_empty();
            let max = if lands { landing.len() } else { rest.len() };
            let (front, behind) = rest.split_at(rest.len().min(max).min(cut));
            rest = behind;
            if lands {
                landing[..front.len()].copy_from_slice(front);
                self.event(Event::Landed { conn: CONN, len: front.len() });
            } else {
                self.event(Event::Received { conn: CONN, bytes: front });
            }
            if self.late.len() > 4 {
                self.answer_late();
            }
        }
    }

    fn event(&mut self, event: Event<'_>) {
        let mut out = Vec::new();
        self.portal.step(self.now, event, &mut self.buffers, &mut out);
        for output in out {
            self.carry_out(output);
        }
    }

    fn carry_out(&mut self, output: Output) {
        match output {
            Output::Send { .. } | Output::Close { .. } => {}
            Output::List { conn, .. } => {
                let portals = vec!["192.0.2.1:3260".into()];
                let targets = vec![TargetRecord { iqn: "iqn.b".into(), portals }; 9];
                self.event(Event::Listed { conn, targets });
            }
            Output::Find { conn, .. } => {
                let (user, secret) = ("me".into(), Secret::new("secret"));
                let mutual = Some(("you".into(), Secret::new("other")));
                let chap = Chap { user, secret, mutual };
                let access = Access { chap: (self.options & 0x10 != 0).then_some(chap) };
                self.event(Event::Found { conn, result: Ok(Found { access }) });
            }
            Output::Login { session, .. } => {
                self.event(Event::LoggedIn { session, result: Ok(()) })
            }
            Output::Command { nexus, task, command } => match command.cdb[1] & 1 {
                0 => self.answer(nexus, task, &command),
                _ => self.late.push_back((nexus, task, command)),
            },
            Output::Manage { nexus, id, lun, .. } => {
                let result = if lun & 1 == 0 { Managed::Done } else { Managed::NotSupported };
                self.event(Event::Managed { nexus, id, result });
            }
            Output::Ended { nexus } => self.late.retain(|late| late.0 != nexus),
        }
    }

    fn answer_late(&mut self) {
        if let Some((nexus, task, command)) = self.late.pop_front() {
            self.answer(nexus, task, &command);
        }
    }

    fn answer(&mut self, nexus: NexusId, task: TaskId, command: &Command) {
        let len = command.room_in.min(ANSWER_MAX) as usize;
        let is_good = command.cdb[2] & 1 == 0;
        let response = Response {
            status: if is_good { Status::Good } else { Status::CheckCondition },
            sense: if is_good { Vec::new() } else { vec![0x70; 18] },
            data_in: vec![Piece::Data(Data::from(Buf::zeroed(len)))],
            took_out: u32::try_from(command.data_out.len()).unwrap_or(u32::MAX),
        };
        self.event(Event::Response { nexus, task, response });
    }
}
