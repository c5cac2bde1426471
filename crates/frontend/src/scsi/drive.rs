//! Hostile bytes as a script of events, for whoever throws them at the unit: whatever they are, the
//! unit asks only for what is on the disk, answers every command once, and comes to rest.
use std::collections::BTreeSet;

use block::{Buf, ByteLen, ByteOffset, Data, LOGICAL_SECTOR};

use crate::ask::{Answer, Ask, AskError, AskId, Buffers, Extent};
use crate::export::Export;
use crate::scsi::words::{Attribute, Command, InitiatorPort, Management, NexusId, Rights, TaskId};
use crate::scsi::{Event, Identity, Output, Unit};

const SIZE: u64 = 1 << 20;
const ROOM: usize = 512;

struct Memory;

impl Buffers for Memory {
    fn take(&mut self, len: usize) -> Buf {
        Buf::zeroed(len)
    }
}

/// What is left of the script; zeros when it is over.
struct Script<'a>(&'a [u8]);

impl<'a> Script<'a> {
    fn byte(&mut self) -> u8 {
        let [first, rest @ ..] = self.0 else { return 0 };
        self.0 = rest;
        *first
    }

    fn take(&mut self, len: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(len.min(self.0.len()));
        self.0 = rest;
        taken
    }
}

struct Driver {
    unit: Unit,
    /// The largest that the disk ever was: what is under way may still ask for that.
    size: u64,
    asks: Vec<(AskId, Ask)>,
    /// Sent, and neither answered nor aborted.
    open: BTreeSet<(NexusId, TaskId)>,
    next: u64,
}

#[doc(hidden)]
pub fn drive(bytes: &[u8]) {
    let mut script = Script(bytes);
    let first = script.byte();
    let export = Export {
        name: "db".into(),
        uid: [7; 16],
        size: ByteLen(SIZE),
        block: ByteLen(if first & 1 == 0 { 512 } else { 4096 }),
        granule: ByteLen(4096),
        read_only: first & 2 != 0,
    };
    let identity = Identity {
        vendor: "POLLUX".into(),
        product: "VOLUME".into(),
        revision: "1".into(),
        iqn: "iqn.2024-01.org.example:db".into(),
        portal_group: 1,
    };
    let kept: &[u8] = if first & 4 == 0 { &[] } else { script.take(64) };
    let Ok(unit) = Unit::new(export, identity, kept, ROOM) else { return };
    let (asks, open) = (Vec::new(), BTreeSet::new());
    let mut driver = Driver { unit, size: SIZE, asks, open, next: 0 };
    while !script.0.is_empty() {
        driver.act(&mut script);
    }
    while !driver.asks.is_empty() {
        driver.answer(0);
    }
    assert!(driver.unit.is_idle(), "nothing is asked any more, and something still runs");
    assert!(driver.open.is_empty(), "a command was never answered");
}

impl Driver {
    fn act(&mut self, script: &mut Script) {
        let kind = script.byte();
        let nexus = NexusId(u64::from(script.byte() % 3));
        let (detail, at) = (script.byte(), usize::from(kind >> 4));
        match kind & 0xF {
            0 => {
                let isid = [detail & 1; 6];
                let name = format!("iqn.2024-01.org.example:{}", nexus.0);
                let rights = if detail & 2 == 0 { Rights::Write } else { Rights::Read };
                let port = InitiatorPort { name, isid };
                self.step(Event::NexusUp { nexus, port, rights });
            }
            1 => {
                self.open.retain(|(of, _)| *of != nexus);
                self.step(Event::NexusLost { nexus });
            }
            2 => self.manage(nexus, detail, u64::from(kind >> 7)),
            3..=5 => self.answer(at),
            6 => self.fail(at, detail),
            7 => {
                let size = u64::from(detail) << 12;
                self.size = self.size.max(size);
                self.step(Event::Resized { size: ByteLen(size) });
            }
            _ => self.command(nexus, detail, script),
        }
    }

    fn command(&mut self, nexus: NexusId, flags: u8, script: &mut Script) {
        let mut cdb = [0; 16];
        let given = script.take(16);
        cdb[..given.len()].copy_from_slice(given);
        let attribute = match flags & 7 {
            0 => Attribute::Ordered,
            1 => Attribute::HeadOfQueue,
            2 => Attribute::Aca,
            3 => Attribute::Untagged,
            _ => Attribute::Simple,
        };
        let len = usize::from(script.byte());
        let data_out = match flags & 0x18 {
            0 => Data::copy_of(script.take(len)),
            0x08 => Buf::zeroed(len * 512).into_data(),
            _ => Buf::zeroed(2 * 4096).into_data(),
        };
        let lun = u64::from(flags >> 7) << 48;
        self.next += 1;
        let task = TaskId(self.next);
        self.open.insert((nexus, task));
        let command = Command { lun, cdb, attribute, data_out, room_in: 4096 };
        self.step(Event::Command { nexus, task, command });
    }

    fn manage(&mut self, nexus: NexusId, which: u8, lun: u64) {
        let task = TaskId(self.next.saturating_sub(u64::from(which >> 4)));
        let function = match which & 7 {
            0..=2 => Management::AbortTask { task },
            3 => Management::AbortTaskSet,
            4 => Management::ClearTaskSet,
            5 => Management::LogicalUnitReset,
            6 => Management::TargetWarmReset,
            _ => Management::ClearAca,
        };
        if lun == 0 || function == Management::TargetWarmReset {
            self.open.retain(|(of, id)| match function {
                Management::AbortTask { .. } => (*of, *id) != (nexus, task),
                Management::AbortTaskSet => *of != nexus,
                Management::ClearAca => true,
                _ => false,
            });
        }
        self.step(Event::Manage { nexus, id: 0, lun, function });
    }

    fn answer(&mut self, at: usize) {
        if at >= self.asks.len() {
            return;
        }
        let (id, ask) = self.asks.remove(at);
        let answer = match ask {
            Ask::Read { len, .. } => {
                let len = usize::try_from(len.0).expect("the disk is small");
                Answer::Read(Buf::zeroed(len).into_data())
            }
            Ask::Extents { len, .. } => Answer::Extents(vec![Extent { len, has_data: true }]),
            Ask::Write { .. } | Ask::Zero { .. } | Ask::Flush | Ask::Reservations(_) => {
                Answer::Done
            }
        };
        self.step(Event::Answered { id, result: Ok(answer) });
    }

    fn fail(&mut self, at: usize, how: u8) {
        if at >= self.asks.len() {
            return;
        }
        let (id, _) = self.asks.remove(at);
        let result = match how {
            0 => Ok(Answer::Done),
            1 => Ok(Answer::Extents(Vec::new())),
            2 => Err(AskError::Busy),
            3 => Err(AskError::Damaged { offset: ByteOffset(u64::from(how)) }),
            _ => Err(AskError::NoQuorum { reason: String::new() }),
        };
        self.step(Event::Answered { id, result });
    }

    fn step(&mut self, event: Event) {
        let mut out = Vec::new();
        self.unit.step(event, &mut Memory, &mut out);
        for output in out {
            match output {
                Output::Ask { id, ask, .. } => {
                    self.check(&ask);
                    assert!(self.asks.iter().all(|(other, _)| *other != id), "a name used twice");
                    self.asks.push((id, ask));
                }
                Output::Done { nexus, task, .. } => {
                    // With TAS, what was aborted is answered as well.
                    self.open.remove(&(nexus, task));
                }
                Output::Managed { .. } => {}
            }
        }
    }

    fn check(&self, ask: &Ask) {
        let (offset, len) = match ask {
            Ask::Read { offset, len }
            | Ask::Zero { offset, len, .. }
            | Ask::Extents { offset, len } => (offset.0, len.0),
            Ask::Write { offset, data, .. } => (offset.0, data.len() as u64),
            Ask::Flush => return,
            Ask::Reservations(bytes) => {
                assert!(bytes.len() <= ROOM, "more than the volume keeps");
                return;
            }
        };
        assert!(len > 0 && offset % LOGICAL_SECTOR == 0 && len % LOGICAL_SECTOR == 0);
        assert!(offset.checked_add(len).is_some_and(|end| end <= self.size), "beyond the disk");
    }
}
