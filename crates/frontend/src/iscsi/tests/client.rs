//! An initiator and an owner, both made by hand.
use std::collections::BTreeMap;
use std::time::Duration;

use block::{Buf, Data};

use crate::ask::Buffers;
use crate::iscsi::digest::crc;
use crate::iscsi::pdu::{HEADER_LEN, Header, NO_TAG, padding};
use crate::iscsi::{
    Access, CloseReason, ConnNo, Event, Found, Limits, ManageId, Output, Portal, SessionNo,
};
use crate::piece::Piece;
use crate::scsi::words::{Command, Managed, Management, NexusId, Response, Status, TaskId};

pub const INITIATOR: &str = "iqn.2024-01.example:client";
pub const TARGET: &str = "iqn.2024-01.example:disk";
pub const CONN: ConnNo = ConnNo(1);

pub const NOP_IN: u8 = 0x20;
pub const SCSI_RESPONSE: u8 = 0x21;
pub const MANAGE_RESPONSE: u8 = 0x22;
pub const LOGIN_RESPONSE: u8 = 0x23;
pub const TEXT_RESPONSE: u8 = 0x24;
pub const DATA_IN: u8 = 0x25;
pub const LOGOUT_RESPONSE: u8 = 0x26;
pub const R2T: u8 = 0x31;
pub const ASYNC: u8 = 0x32;
pub const REJECT: u8 = 0x3f;

/// A PDU, of either side.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pdu {
    pub header: Header,
    pub ahs: Vec<u8>,
    pub data: Vec<u8>,
}

impl Pdu {
    pub fn new(opcode: u8, flags: u8) -> Pdu {
        Pdu { header: Header::new(opcode, flags), ahs: Vec::new(), data: Vec::new() }
    }

    pub fn u32(mut self, at: usize, number: u32) -> Pdu {
        self.header.set_u32(at, number);
        self
    }

    pub fn byte(mut self, at: usize, byte: u8) -> Pdu {
        self.header.0[at] = byte;
        self
    }

    pub fn immediate(mut self) -> Pdu {
        self.header.0[0] |= 0x40;
        self
    }

    pub fn data(mut self, data: &[u8]) -> Pdu {
        self.data = data.to_vec();
        self
    }

    pub fn opcode(&self) -> u8 {
        self.header.opcode()
    }

    pub fn flags(&self) -> u8 {
        self.header.0[1]
    }

    pub fn number(&self, at: usize) -> u32 {
        self.header.u32_at(at)
    }

    pub fn text(&self) -> String {
        let text = String::from_utf8(self.data.clone()).expect("text");
        text.trim_end_matches('\0').replace('\0', " ")
    }

    /// As it goes over the wire, with digests of header and data.
    pub fn encode(&self, digests: (bool, bool)) -> Vec<u8> {
        let mut header = self.header;
        header.0[4] = u8::try_from(self.ahs.len() / 4).expect("short");
        header.set_segment_len(self.data.len());
        let mut bytes = [&header.0[..], &self.ahs].concat();
        if digests.0 {
            let digest = crc(&bytes);
            bytes.extend_from_slice(&digest);
        }
        let start = bytes.len();
        bytes.extend_from_slice(&self.data);
        bytes.resize(bytes.len() + padding(self.data.len()), 0);
        if digests.1 && !self.data.is_empty() {
            let digest = crc(&bytes[start..]);
            bytes.extend_from_slice(&digest);
        }
        bytes
    }
}

/// Takes PDUs from the front of a stream of the target. Whatever is cut stays.
pub fn decode(stream: &mut Vec<u8>, digests: (bool, bool)) -> Vec<Pdu> {
    let mut pdus = Vec::new();
    loop {
        let digest = if digests.0 { 4 } else { 0 };
        if stream.len() < HEADER_LEN + digest {
            return pdus;
        }
        let mut header = Header([0; HEADER_LEN]);
        header.set(0, &stream[..HEADER_LEN]);
        let len = header.segment_len();
        let start = HEADER_LEN + digest;
        let end = start + len + padding(len);
        let tail = if digests.1 && len > 0 { 4 } else { 0 };
        if stream.len() < end + tail {
            return pdus;
        }
        if digests.0 {
            assert_eq!(crc(&header.0), stream[HEADER_LEN..start], "digest of a header");
        }
        if tail > 0 {
            assert_eq!(crc(&stream[start..end]), stream[end..end + tail], "digest of data");
        }
        let data = stream[start..start + len].to_vec();
        pdus.push(Pdu { header, ahs: Vec::new(), data });
        stream.drain(..end + tail);
    }
}

/// Buffers whose bytes are something before they are written.
#[derive(Default)]
pub struct Memory {
    pub taken: Vec<usize>,
}

impl Buffers for Memory {
    fn take(&mut self, len: usize) -> Buf {
        self.taken.push(len);
        let mut buf = Buf::zeroed(len);
        buf.fill(0xee);
        buf
    }
}

pub struct World {
    pub portal: Portal,
    pub now: Duration,
    pub memory: Memory,
    /// What goes to each connection and was not looked at.
    pub sent: BTreeMap<ConnNo, Vec<u8>>,
    /// Whole data that was sent as it came.
    pub shared: usize,
    /// Everything but what is sent.
    pub asked: Vec<Output>,
    pub digests: (bool, bool),
    /// How bytes are given: whole, or in cuts of this length.
    pub cut: usize,
    /// Whether data is put where it stays.
    pub lands: bool,
}

pub fn counting() -> crate::iscsi::Random {
    let mut next = 0u8;
    Box::new(move |bytes| {
        for byte in bytes {
            next = next.wrapping_mul(5).wrapping_add(3);
            *byte = next;
        }
    })
}

impl World {
    pub fn new(limits: Limits) -> World {
        World {
            portal: Portal::new(limits, counting()),
            now: Duration::ZERO,
            memory: Memory::default(),
            sent: BTreeMap::new(),
            shared: 0,
            asked: Vec::new(),
            digests: (false, false),
            cut: usize::MAX,
            lands: false,
        }
    }

    /// With a session on connection 1, which has just begun with command 1.
    pub fn in_session(keys: &str) -> World {
        World::in_session_with(Limits::default(), keys)
    }

    pub fn in_session_with(limits: Limits, keys: &str) -> World {
        let mut world = World::new(limits);
        world.log_in(CONN, &login(0x87, keys));
        world
    }

    pub fn event(&mut self, event: Event<'_>) {
        let mut out = Vec::new();
        self.portal.step(self.now, event, &mut self.memory, &mut out);
        for output in out {
            match output {
                Output::Send { conn, piece } => {
                    self.shared += usize::from(matches!(piece, Piece::Data(_)));
                    self.sent.entry(conn).or_default().extend_from_slice(piece.as_bytes());
                }
                other => self.asked.push(other),
            }
        }
    }

    pub fn accept(&mut self, conn: ConnNo) {
        self.accept_from(conn, "192.0.2.9");
    }

    pub fn accept_from(&mut self, conn: ConnNo, peer: &str) {
        let (portal, peer) = ("192.0.2.1:3260".into(), peer.into());
        self.event(Event::Accepted { conn, portal, peer });
    }

    pub fn send_bytes(&mut self, conn: ConnNo, bytes: &[u8]) {
        let mut rest = bytes;
        while !rest.is_empty() {
            let landing = self.portal.landing(conn);
            if self.lands && !landing.is_empty() {
                let len = landing.len().min(rest.len()).min(self.cut);
                landing[..len].copy_from_slice(&rest[..len]);
                rest = &rest[len..];
                self.event(Event::Landed { conn, len });
                continue;
            }
            let (front, behind) = rest.split_at(rest.len().min(self.cut));
            rest = behind;
            self.event(Event::Received { conn, bytes: front });
        }
    }

    pub fn send(&mut self, pdu: &Pdu) {
        self.send_on(CONN, pdu);
    }

    pub fn send_on(&mut self, conn: ConnNo, pdu: &Pdu) {
        let bytes = pdu.encode(self.digests);
        self.send_bytes(conn, &bytes);
    }

    /// What was sent to a connection.
    pub fn pdus_on(&mut self, conn: ConnNo) -> Vec<Pdu> {
        let digests = self.digests;
        decode(self.sent.entry(conn).or_default(), digests)
    }

    pub fn pdus(&mut self) -> Vec<Pdu> {
        self.pdus_on(CONN)
    }

    /// The only PDU that was sent.
    pub fn pdu(&mut self) -> Pdu {
        self.pdu_on(CONN)
    }

    pub fn pdu_on(&mut self, conn: ConnNo) -> Pdu {
        let mut pdus = self.pdus_on(conn);
        assert_eq!(pdus.len(), 1, "{pdus:#?} {:?}", self.asked);
        pdus.remove(0)
    }

    /// The only thing that was asked for.
    pub fn asked(&mut self) -> Output {
        assert_eq!(self.asked.len(), 1, "{:#?}", self.asked);
        self.asked.remove(0)
    }

    pub fn nothing_asked(&self) {
        assert!(self.asked.is_empty(), "{:#?}", self.asked);
    }

    /// A command that was given to the unit.
    pub fn command(&mut self) -> (NexusId, TaskId, Command) {
        match self.asked() {
            Output::Command { nexus, task, command } => (nexus, task, command),
            other => panic!("{other:?}"),
        }
    }

    /// Why a connection was closed, if that is all that was asked.
    pub fn closed(&mut self, conn: ConnNo) -> Option<CloseReason> {
        self.asked.retain(|output| !matches!(output, Output::Ended { .. }));
        match self.asked() {
            Output::Close { conn: closed, reason } if closed == conn => reason,
            other => panic!("{other:?}"),
        }
    }

    /// Takes a connection through a login that needs no more than one request.
    pub fn log_in(&mut self, conn: ConnNo, request: &Pdu) {
        self.accept(conn);
        self.send_on(conn, request);
        let Output::Find { conn: asks, .. } = self.asked() else { panic!("it is looked for") };
        assert_eq!(asks, conn);
        self.found(conn, Access::default());
        let Some(Output::Login { session, .. }) = self.asked.pop() else { panic!("it logs in") };
        self.event(Event::LoggedIn { session, result: Ok(()) });
        let response = self.pdu_on(conn);
        assert_eq!((response.opcode(), response.number(36) >> 16), (LOGIN_RESPONSE, 0));
        let text = response.text();
        let crc = |key: &str| text.contains(&format!("{key}=CRC32C"));
        self.digests = (crc("HeaderDigest"), crc("DataDigest"));
    }

    pub fn found(&mut self, conn: ConnNo, access: Access) {
        self.event(Event::Found { conn, result: Ok(Found { access }) });
    }

    pub fn respond(&mut self, task: TaskId, response: Response) {
        self.event(Event::Response { nexus: NexusId(1), task, response });
    }

    pub fn good(&mut self, task: TaskId, took_out: u32) {
        self.respond(task, Response { took_out, ..good(vec![]) });
    }

    pub fn managed(&mut self, id: ManageId, result: Managed) {
        self.event(Event::Managed { nexus: NexusId(1), id, result });
    }

    /// The function that was given to the unit.
    pub fn manage(&mut self) -> (ManageId, u64, Management) {
        match self.asked() {
            Output::Manage { id, lun, function, .. } => (id, lun, function),
            other => panic!("{other:?}"),
        }
    }

    pub fn pass(&mut self, secs: u64) {
        self.now += Duration::from_secs(secs);
        self.event(Event::Tick);
    }

    pub fn logged_in(&mut self, session: SessionNo) {
        self.event(Event::LoggedIn { session, result: Ok(()) });
    }
}

pub fn good(data_in: Vec<Piece>) -> Response {
    Response { status: Status::Good, sense: Vec::new(), data_in, took_out: 0 }
}

pub fn piece(bytes: &[u8]) -> Piece {
    Piece::Data(Data::copy_of(bytes))
}

/// Bytes that tell where they were.
pub fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|at| u8::try_from((at * 7 + at / 256) % 251).expect("small")).collect()
}

/// Keys with spaces between them, as text.
pub fn text(keys: &str) -> Vec<u8> {
    keys.split_whitespace().flat_map(|pair| [pair.as_bytes(), b"\0"].concat()).collect()
}

/// A login request with these flags: transit 0x80, more 0x40, stages below.
pub fn login_raw(flags: u8, keys: &str) -> Pdu {
    Pdu::new(0x43, flags)
        .byte(8, 0x80)
        .byte(13, 7)
        .u32(16, 0x11)
        .u32(24, 1)
        .u32(28, 0)
        .data(&text(keys))
}

/// The first request of a normal session.
pub fn login(flags: u8, keys: &str) -> Pdu {
    login_raw(flags, &format!("InitiatorName={INITIATOR} TargetName={TARGET} {keys}"))
}

/// A command that moves nothing.
pub fn command(itt: u32, cmd_sn: u32) -> Pdu {
    Pdu::new(0x01, 0x81).u32(16, itt).u32(24, cmd_sn)
}

pub fn read(itt: u32, cmd_sn: u32, expected: u32) -> Pdu {
    Pdu::new(0x01, 0xc1).u32(16, itt).u32(20, expected).u32(24, cmd_sn).byte(32, 0x28)
}

/// A write behind which no data follows unasked.
pub fn write(itt: u32, cmd_sn: u32, expected: u32) -> Pdu {
    Pdu::new(0x01, 0xa1).u32(16, itt).u32(20, expected).u32(24, cmd_sn).byte(32, 0x2a)
}

/// Data for a write. The last PDU of a burst has 0x80.
pub fn data_out(flags: u8, itt: u32, ttt: u32, data_sn: u32, offset: u32, data: &[u8]) -> Pdu {
    let pdu = Pdu::new(0x05, flags).u32(16, itt).u32(20, ttt);
    pdu.u32(36, data_sn).u32(40, offset).data(data)
}

pub fn nop(itt: u32, cmd_sn: u32) -> Pdu {
    Pdu::new(0x00, 0x80).u32(16, itt).u32(20, NO_TAG).u32(24, cmd_sn)
}

pub fn text_request(flags: u8, itt: u32, ttt: u32, keys: &str) -> Pdu {
    Pdu::new(0x44, flags).u32(16, itt).u32(20, ttt).u32(24, 1).data(&text(keys))
}

pub fn logout(kind: u8, itt: u32) -> Pdu {
    Pdu::new(0x46, 0x80 | kind).u32(16, itt).u32(24, 1)
}

pub fn manage(function: u8, itt: u32, cmd_sn: u32) -> Pdu {
    Pdu::new(0x42, 0x80 | function).u32(16, itt).u32(20, NO_TAG).u32(24, cmd_sn)
}
