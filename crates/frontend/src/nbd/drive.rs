//! A connection driven by arbitrary bytes against a scripted volume, with checks of what must hold
//! whatever a client sends. For fuzzers: the same bytes do the same.
mod shape;

use std::sync::OnceLock;

use block::{Buf, ByteLen, ByteOffset, Data, LOGICAL_SECTOR};

use super::connection::{Connection, Opened, Output};
use super::hello::{Hello, Introduction};
use super::limits::{PAYLOAD_MAX, PAYLOAD_UNDER_WAY_MAX, REQUESTS_MAX, UNWANTED_MAX};
use crate::ask::{Answer, Ask, AskError, AskId, Buffers, Extent};
use crate::export::{Export, OpenError};

/// The volume's; large enough for a request to be too long for a payload.
const SIZE: u64 = 64 << 20;

/// The most that is brought at once.
const PART_MAX: usize = 4096;

/// Payloads of one connection: what is under way, one that has not come whole, and what came with
/// the last part or although nothing was wanted.
const TAKEN_MAX: u64 =
    PAYLOAD_UNDER_WAY_MAX + PAYLOAD_MAX as u64 + PART_MAX as u64 + UNWANTED_MAX as u64;

/// Drives a connection. The first byte chooses how the client behaves, the second how the stream is
/// cut and when which answer comes; the rest is what the client sends.
///
/// # Panics
/// If something does not hold that must.
pub fn drive(bytes: &[u8]) {
    let Some(([plan, seed], script)) = bytes.split_first_chunk() else {
        return;
    };
    let stream = shape::stream(*plan, script);
    let mut driver = Driver::new(plan & shape::READ_ONLY != 0, *seed);
    driver.bring(&stream);
    driver.finish();
}

struct Driver {
    connection: Connection,
    owner: Owner,
}

/// Everything around a connection.
struct Owner {
    out: Vec<Output>,
    read_only: bool,
    size: ByteLen,
    chance: u64,
    /// Answers only when nothing else is left to do, so that bounds are reached.
    is_slow: bool,
    asked: Vec<(AskId, Ask)>,
    lists: usize,
    opens: usize,
    is_closed: bool,
    /// Bytes of buffers that were taken and not written yet.
    taken: u64,
    /// Bytes that the client has not read.
    unsent: usize,
}

impl Driver {
    fn new(read_only: bool, seed: u8) -> Driver {
        let mut owner = Owner {
            out: Vec::new(),
            read_only,
            size: ByteLen(SIZE),
            chance: u64::from(seed) + 1,
            is_slow: seed % 2 == 1,
            asked: Vec::new(),
            lists: 0,
            opens: 0,
            is_closed: false,
            taken: 0,
            unsent: 0,
        };
        let mut out = Vec::new();
        let connection = Connection::new([seed; 32], &mut out);
        owner.out = out;
        let mut driver = Driver { connection, owner };
        driver.settle();
        driver
    }

    fn bring(&mut self, mut stream: &[u8]) {
        while !stream.is_empty() && !self.owner.is_closed {
            match self.owner.below(16) {
                0 if !self.owner.is_slow => self.answer(),
                1 => self.connection.resized(self.owner.resize()),
                // Late, so that most of the stream is served.
                2 if stream.len() < 64 => self.connection.shut_down(),
                _ if self.connection.wants_bytes() || self.owner.below(8) == 0 => {
                    self.bring_part(&mut stream);
                }
                _ if self.owner.is_asked() => self.answer(),
                _ => {
                    let waits = self.connection.can_go_on() || self.owner.unsent > 0;
                    assert!(waits, "held back, and nothing will ever change it");
                    self.go_on();
                }
            }
            self.settle();
        }
    }

    /// The client reads everything, and the connection has its turn.
    fn go_on(&mut self) {
        self.owner.unsent = 0;
        self.connection.unsent(0);
        let mut out = std::mem::take(&mut self.owner.out);
        self.connection.go_on(&mut self.owner, &mut out);
        self.owner.out = out;
    }

    fn bring_part(&mut self, stream: &mut &[u8]) {
        let most = stream.len().min(PART_MAX);
        let len = 1 + self.owner.below(most);
        let mut out = std::mem::take(&mut self.owner.out);
        if self.owner.below(2) == 0 && !self.connection.landing().is_empty() {
            let landing = self.connection.landing();
            let len = len.min(landing.len());
            landing[..len].copy_from_slice(&stream[..len]);
            *stream = &stream[len..];
            self.connection.landed(len, &mut self.owner, &mut out);
        } else {
            self.connection.receive(&stream[..len], &mut self.owner, &mut out);
            *stream = &stream[len..];
        }
        self.owner.out = out;
    }

    /// Answers one question, if there is one.
    fn answer(&mut self) {
        let owner = &mut self.owner;
        let mut out = std::mem::take(&mut owner.out);
        if owner.lists > 0 {
            owner.lists -= 1;
            // A list that goes on for a while.
            let next = Some(owner.below(4)).filter(|next| *next > 0);
            self.connection.listed(&["a".into(), "b".into()], next, &mut out);
        } else if owner.opens > 0 {
            owner.opens -= 1;
            let result = owner.open();
            self.connection.opened(result, &mut out);
        } else if !owner.asked.is_empty() {
            let index = owner.below(owner.asked.len());
            let (id, ask) = owner.asked.swap_remove(index);
            let result = owner.carry_out(&ask);
            self.connection.answered(id, result, &mut out);
        }
        self.owner.out = out;
        self.settle();
    }

    fn settle(&mut self) {
        self.owner.settle();
        assert_eq!(
            self.connection.under_way() == 0,
            self.owner.is_closed || self.owner.asked.is_empty()
        );
    }

    fn finish(&mut self) {
        while self.owner.is_asked() && !self.owner.is_closed {
            self.answer();
        }
        // Answers that come too late for a connection are nothing to it.
        while self.owner.is_asked() {
            self.answer();
            assert!(self.owner.is_closed, "a closed connection stays closed");
        }
    }
}

impl Owner {
    /// Looks at what came out.
    fn settle(&mut self) {
        for output in std::mem::take(&mut self.out) {
            assert!(!self.is_closed, "{output:?} after the end");
            match output {
                Output::Send(piece) => {
                    assert!(!piece.as_bytes().is_empty(), "nothing is sent");
                    self.unsent += piece.as_bytes().len();
                }
                Output::List { .. } => self.lists += 1,
                Output::Open { name, by, .. } => {
                    assert!(name.len() <= 4096 && !name.contains('\0'));
                    if let Some(by) = by {
                        check_introduction(&by, &name);
                    }
                    self.opens += 1;
                }
                Output::Ask { id, ask } => {
                    self.check(&ask);
                    assert!(self.asked.iter().all(|(other, _)| *other != id), "{id:?} twice");
                    self.asked.push((id, ask));
                }
                Output::Close { .. } => self.is_closed = true,
            }
        }
        assert!(self.lists + self.opens <= 1, "one question at a time in a negotiation");
        assert!(self.asked.len() <= REQUESTS_MAX);
        let payload: u64 = self.asked.iter().map(|(_, ask)| payload(ask)).sum();
        assert!(payload <= PAYLOAD_UNDER_WAY_MAX, "{payload} bytes are under way");
        assert!(self.taken <= TAKEN_MAX, "{} bytes are taken", self.taken);
    }

    fn check(&self, ask: &Ask) {
        let (offset, len) = match ask {
            Ask::Read { offset, len } => (*offset, len.0),
            Ask::Write { offset, data, .. } => (*offset, data.len() as u64),
            Ask::Zero { offset, len, .. } | Ask::Extents { offset, len } => (*offset, len.0),
            Ask::Flush => return,
            Ask::Reservations(_) => unreachable!("NBD has no reservations"),
        };
        assert!(len > 0 && offset.0.is_multiple_of(LOGICAL_SECTOR));
        assert!(len.is_multiple_of(LOGICAL_SECTOR));
        // The volume may have become smaller while it waited.
        assert!(offset.0.checked_add(len).is_some_and(|end| end <= SIZE), "{ask:?}");
        let writes = matches!(ask, Ask::Write { .. } | Ask::Zero { .. });
        assert!(!(writes && self.read_only), "{ask:?} of a read-only export");
    }

    fn open(&mut self) -> Result<Opened, OpenError> {
        if self.below(8) == 0 {
            return Err(OpenError::NotReady { reason: "it is a script".into() });
        }
        let target_mac = (self.below(2) == 0).then_some([9; 32]);
        let export = Export {
            name: "volume".into(),
            uid: [7; 16],
            size: self.size,
            block: ByteLen(4096),
            granule: ByteLen(4096),
            read_only: self.read_only,
        };
        Ok(Opened { export, target_mac })
    }

    fn carry_out(&mut self, ask: &Ask) -> Result<Answer, AskError> {
        if let Ask::Write { data, .. } = ask {
            // What a client sent too early was not put into our buffers.
            self.taken = self.taken.saturating_sub(data.len() as u64);
        }
        match self.below(16) {
            0 => return Err(AskError::Damaged { offset: ByteOffset(self.chance % SIZE) }),
            1 => return Err(AskError::NoQuorum { reason: "\u{fc}".repeat(3000) }),
            2 => return Err(AskError::Stopped),
            _ => {}
        }
        Ok(match ask {
            Ask::Read { len, .. } => {
                let len = usize::try_from(len.0).expect("it was checked when it was asked");
                Answer::Read(zeros().slice(0..len))
            }
            Ask::Extents { .. } => {
                let first = LOGICAL_SECTOR * (1 + self.chance % 64);
                Answer::Extents(vec![
                    Extent { len: ByteLen(first), has_data: true },
                    Extent { len: ByteLen(SIZE), has_data: false },
                ])
            }
            _ => Answer::Done,
        })
    }

    fn resize(&mut self) -> ByteLen {
        let sectors = SIZE / LOGICAL_SECTOR;
        self.size = ByteLen(LOGICAL_SECTOR * (sectors - self.chance % (sectors / 2)));
        self.size
    }

    fn is_asked(&self) -> bool {
        self.lists + self.opens + self.asked.len() > 0
    }

    /// A number that follows from the seed (xorshift).
    fn below(&mut self, bound: usize) -> usize {
        self.chance ^= self.chance << 13;
        self.chance ^= self.chance >> 7;
        self.chance ^= self.chance << 17;
        let bound = bound as u64;
        usize::try_from(self.chance % bound).expect("it is below a usize")
    }
}

/// As much as is ever read at once. Fresh memory for each answer would be most of a fuzzer's work.
fn zeros() -> &'static Data {
    static ZEROS: OnceLock<Data> = OnceLock::new();
    ZEROS.get_or_init(|| Buf::zeroed(PAYLOAD_MAX as usize).into_data())
}

impl Buffers for Owner {
    fn take(&mut self, len: usize) -> Buf {
        assert!(len <= PAYLOAD_MAX as usize, "a payload of {len} bytes");
        self.taken += len as u64;
        Buf::zeroed(len)
    }
}

fn check_introduction(by: &Introduction, name: &str) {
    let hello = &by.hello;
    assert!((1..=223).contains(&hello.initiator.len()) && !hello.initiator.contains('\0'));
    assert!(hello.number >= 1);
    assert_eq!(Hello::parse(&hello.text()).as_ref(), Ok(hello));
    assert!(by.proof.as_ref().is_none_or(|proof| proof.export == name));
}

fn payload(ask: &Ask) -> u64 {
    match ask {
        Ask::Read { len, .. } => len.0,
        Ask::Write { data, .. } => data.len() as u64,
        Ask::Zero { .. } | Ask::Flush | Ask::Extents { .. } | Ask::Reservations(_) => 0,
    }
}
