//! A unit, its volume, and what is on its way between them.
use block::{ByteLen, Data};

use super::volume::{GRANULE, Memory, Volume};
use crate::ask::{Answer, Ask, AskError, AskId};
use crate::export::Export;
use crate::scsi::words::{
    Attribute, Command, InitiatorPort, Managed, Management, NexusId, Response, Rights, Status,
    TaskId,
};
use crate::scsi::{Event, Identity, Output, Unit};

pub(super) const A: NexusId = NexusId(1);
pub(super) const B: NexusId = NexusId(2);
pub(super) const C: NexusId = NexusId(3);

pub(super) const SIZE: usize = 1 << 20;
pub(super) const ROOM: usize = 1024;

pub(super) struct Rig {
    pub(super) unit: Unit,
    pub(super) volume: Volume,
    pub(super) block: usize,
    /// Questions without an answer, in the order in which they were asked.
    pub(super) asks: Vec<(AskId, Ask)>,
    pub(super) done: Vec<(NexusId, TaskId, Response)>,
    pub(super) managed: Vec<(NexusId, u64, Managed)>,
    next: u64,
}

pub(super) fn port(nexus: NexusId) -> InitiatorPort {
    let name = format!("iqn.2024-01.org.example:host{}", nexus.0);
    InitiatorPort { name, isid: [0x40, 0, 0, 1, 0, 0] }
}

pub(super) fn identity() -> Identity {
    Identity {
        vendor: "POLLUX".into(),
        product: "VOLUME".into(),
        revision: "1".into(),
        iqn: "iqn.2024-01.org.example:db".into(),
        portal_group: 1,
    }
}

pub(super) fn export(block: usize) -> Export {
    Export {
        name: "db".into(),
        uid: *b"0123456789abcdef",
        size: ByteLen(SIZE as u64),
        block: ByteLen(block as u64),
        granule: ByteLen(GRANULE as u64),
        read_only: false,
    }
}

/// A CDB from its first bytes.
pub(super) fn cdb(bytes: &[u8]) -> [u8; 16] {
    let mut cdb = [0; 16];
    cdb[..bytes.len()].copy_from_slice(bytes);
    cdb
}

impl Rig {
    /// With three initiators that have heard everything there is to hear.
    pub(super) fn new(block: usize) -> Rig {
        let mut rig = Rig::of(export(block), &[]);
        for nexus in [A, B, C] {
            rig.up(nexus);
            rig.hear(nexus);
        }
        rig
    }

    pub(super) fn of(export: Export, reservations: &[u8]) -> Rig {
        let block = usize::try_from(export.block.0).unwrap();
        Rig {
            unit: Unit::new(export, identity(), reservations, ROOM).unwrap(),
            volume: Volume::new(SIZE),
            block,
            asks: Vec::new(),
            done: Vec::new(),
            managed: Vec::new(),
            next: 0,
        }
    }

    pub(super) fn step(&mut self, event: Event) {
        let mut out = Vec::new();
        self.unit.step(event, &mut Memory, &mut out);
        for output in out {
            match output {
                Output::Ask { id, ask, .. } => {
                    assert!(self.asks.iter().all(|(other, _)| *other != id), "a name used twice");
                    self.asks.push((id, ask));
                }
                Output::Done { nexus, task, response } => self.done.push((nexus, task, response)),
                Output::Managed { nexus, id, result } => self.managed.push((nexus, id, result)),
            }
        }
    }

    pub(super) fn up(&mut self, nexus: NexusId) {
        self.up_with(nexus, Rights::Write);
    }

    pub(super) fn up_with(&mut self, nexus: NexusId, rights: Rights) {
        self.step(Event::NexusUp { nexus, port: port(nexus), rights });
    }

    /// Lets a nexus hear what is pending for it, as additional sense codes.
    pub(super) fn hear(&mut self, nexus: NexusId) -> Vec<[u8; 2]> {
        let mut heard = Vec::new();
        loop {
            let response = self.run(nexus, &[0x00], &[]);
            if response.status != Status::CheckCondition {
                return heard;
            }
            heard.push(codes(&response).1);
        }
    }

    pub(super) fn send_as(
        &mut self,
        nexus: NexusId,
        attribute: Attribute,
        bytes: &[u8],
        data_out: &[u8],
    ) -> TaskId {
        self.next += 1;
        let task = TaskId(self.next);
        let data_out = Data::copy_of(data_out);
        let command = Command { lun: 0, cdb: cdb(bytes), attribute, data_out, room_in: u32::MAX };
        self.step(Event::Command { nexus, task, command });
        task
    }

    pub(super) fn send(&mut self, nexus: NexusId, bytes: &[u8], data_out: &[u8]) -> TaskId {
        self.send_as(nexus, Attribute::Simple, bytes, data_out)
    }

    /// Lets the volume answer the question at a place in the line.
    pub(super) fn answer(&mut self, at: usize) {
        let (id, ask) = self.asks.remove(at);
        let result = self.volume.answer(&ask);
        self.step(Event::Answered { id, result });
    }

    pub(super) fn fail(&mut self, at: usize, error: AskError) {
        let (id, _) = self.asks.remove(at);
        self.step(Event::Answered { id, result: Err(error) });
    }

    pub(super) fn answer_with(&mut self, at: usize, answer: Answer) {
        let (id, _) = self.asks.remove(at);
        self.step(Event::Answered { id, result: Ok(answer) });
    }

    pub(super) fn settle(&mut self) {
        while !self.asks.is_empty() {
            self.answer(0);
        }
    }

    /// The response to a task, if it came.
    pub(super) fn take(&mut self, task: TaskId) -> Option<Response> {
        let at = self.done.iter().position(|(_, id, _)| *id == task)?;
        Some(self.done.remove(at).2)
    }

    /// Sends a command and lets the volume answer until it is done.
    pub(super) fn run(&mut self, nexus: NexusId, bytes: &[u8], data_out: &[u8]) -> Response {
        let task = self.send(nexus, bytes, data_out);
        self.settle();
        self.take(task).expect("a response")
    }

    pub(super) fn good(&mut self, nexus: NexusId, bytes: &[u8], data_out: &[u8]) -> Vec<u8> {
        let response = self.run(nexus, bytes, data_out);
        assert_eq!(response.status, Status::Good, "{bytes:02X?}: {:02X?}", response.sense);
        data_in(&response)
    }

    /// Sense key, code and qualifier of a command that fails.
    pub(super) fn bad(&mut self, nexus: NexusId, bytes: &[u8], data_out: &[u8]) -> (u8, [u8; 2]) {
        codes(&self.run(nexus, bytes, data_out))
    }

    pub(super) fn status(&mut self, nexus: NexusId, bytes: &[u8], data_out: &[u8]) -> Status {
        self.run(nexus, bytes, data_out).status
    }

    pub(super) fn manage(&mut self, nexus: NexusId, function: Management) -> u64 {
        self.next += 1;
        let id = self.next;
        self.step(Event::Manage { nexus, id, lun: 0, function });
        id
    }

    pub(super) fn managed(&mut self, id: u64) -> Option<Managed> {
        let at = self.managed.iter().position(|(_, other, _)| *other == id)?;
        Some(self.managed.remove(at).2)
    }

    pub(super) fn blocks(&self, first: usize, blocks: usize) -> &[u8] {
        &self.volume.bytes[first * self.block..(first + blocks) * self.block]
    }
}

pub(super) fn data_in(response: &Response) -> Vec<u8> {
    response.data_in.iter().flat_map(|piece| piece.as_bytes().to_vec()).collect()
}

/// Sense key, code and qualifier, from fixed format.
pub(super) fn codes(response: &Response) -> (u8, [u8; 2]) {
    assert_eq!(response.status, Status::CheckCondition);
    assert_eq!(response.sense[0] & 0x7E, 0x70);
    (response.sense[2] & 0xF, [response.sense[12], response.sense[13]])
}

/// A CDB of ten bytes that names blocks.
pub(super) fn ten(opcode: u8, flags: u8, first: u32, blocks: u16) -> Vec<u8> {
    let mut bytes = vec![opcode, flags];
    bytes.extend(first.to_be_bytes());
    bytes.push(0);
    bytes.extend(blocks.to_be_bytes());
    bytes.push(0);
    bytes
}

/// A CDB of sixteen bytes that names blocks.
pub(super) fn sixteen(opcode: u8, flags: u8, first: u64, blocks: u32) -> Vec<u8> {
    let mut bytes = vec![opcode, flags];
    bytes.extend(first.to_be_bytes());
    bytes.extend(blocks.to_be_bytes());
    bytes.extend([0, 0]);
    bytes
}

pub(super) fn read(first: u32, blocks: u16) -> Vec<u8> {
    ten(0x28, 0, first, blocks)
}

pub(super) fn write(first: u32, blocks: u16) -> Vec<u8> {
    ten(0x2A, 0, first, blocks)
}

pub(super) fn compare(first: u64) -> Vec<u8> {
    sixteen(0x89, 0, first, 1)
}
