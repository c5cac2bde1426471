//! A server of one volume that is right because it is simple, unless it is told to be wrong.
use std::collections::{BTreeMap, VecDeque};

use block::{ByteLen, Data};
use replication::client::{Answer, Extent, IoError, LoginError, Request};
use replication::words::{ClientId, ConnectionNumber, StageNumber};

use crate::Rng;

/// A way to be wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quirk {
    StaleReads,
    LosesWrites,
    AcksBeforeApplying,
    /// Requests of older connections are applied after the new login.
    KeepsOldRequests,
    /// What was flushed is lost with the rest.
    ForgetsFlushed,
    /// Writes are lost, and nobody is told.
    LosesSilently,
    /// Old stages go on after a loss.
    LetsOldStagesIn,
    /// Somebody is told of a loss though power was never cut.
    RaisesFalseHold,
    AppliesRefused,
    /// The second half of a sector is left as it was.
    TearsSectors,
    /// What was read is undone later.
    TakesBack,
    /// Volumes of a group are cut one after the other.
    CutsLoosely,
    /// A snapshot has what was written after its answer.
    SnapshotsLate,
    RollsBackHalf,
}

#[derive(Clone, Debug)]
struct Change {
    at: usize,
    bytes: Vec<u8>,
}

#[derive(Debug)]
pub struct Server {
    pub content: Vec<u8>,
    durable: Vec<u8>,
    /// Since `durable`.
    log: Vec<Change>,
    /// Older contents, for a server that reads from them.
    older: VecDeque<Vec<u8>>,
    newest: BTreeMap<ClientId, ConnectionNumber>,
    lowest: u64,
    last: u64,
    plain_refused: bool,
    quirk: Option<Quirk>,
    pub rng: Rng,
}

impl Server {
    pub fn new(size: usize, quirk: Option<Quirk>, rng: Rng) -> Server {
        Server {
            content: vec![0; size],
            durable: vec![0; size],
            log: Vec::new(),
            older: VecDeque::new(),
            newest: BTreeMap::new(),
            lowest: 0,
            last: 0,
            plain_refused: false,
            quirk,
            rng,
        }
    }

    pub fn is(&self, quirk: Quirk) -> bool {
        self.quirk == Some(quirk)
    }

    pub fn new_stage(&mut self) -> StageNumber {
        self.last += 1;
        StageNumber(self.last)
    }

    pub fn take_note(&mut self) {
        self.plain_refused = false;
    }

    pub fn login(
        &mut self,
        client: ClientId,
        number: ConnectionNumber,
        stage: Option<StageNumber>,
    ) -> Result<(), LoginError> {
        let old = stage.map_or(self.plain_refused, |stage| stage.0 < self.lowest);
        if old && !(self.is(Quirk::LetsOldStagesIn) && client.0.is_multiple_of(2)) {
            return Err(LoginError::UnflushedWritesLost);
        }
        if self.newest.get(&client).is_some_and(|newest| *newest >= number) {
            return Err(LoginError::OlderConnection);
        }
        self.newest.insert(client, number);
        Ok(())
    }

    pub fn is_newest(&self, client: ClientId, number: ConnectionNumber) -> bool {
        self.newest.get(&client) == Some(&number)
    }

    fn put(&mut self, at: usize, bytes: &[u8]) {
        if self.is(Quirk::StaleReads) {
            self.older.push_back(self.content.clone());
            if self.older.len() > 5 {
                self.older.pop_front();
            }
        }
        let torn = self.is(Quirk::TearsSectors) && self.rng.chance(1, 50);
        let bytes = if torn { &bytes[..bytes.len() - 256] } else { bytes };
        self.content[at..at + bytes.len()].copy_from_slice(bytes);
        self.log.push(Change { at, bytes: bytes.to_vec() });
    }

    pub fn apply(&mut self, request: &Request) -> Result<Answer, IoError> {
        let lost = self.is(Quirk::LosesWrites) && self.rng.chance(1, 50);
        let fua = match request {
            Request::Read { offset, len } => return Ok(self.read(offset.0, len.0)),
            Request::Extents { offset, len } => return Ok(self.extents(offset.0, len.0)),
            Request::Write { offset, data, fua } => {
                if !lost {
                    self.put(place(offset.0), data);
                }
                *fua
            }
            Request::Zero { offset, len, fua, .. } => {
                if !lost {
                    self.put(place(offset.0), &vec![0; place(len.0)]);
                }
                *fua
            }
            Request::Flush => true,
            Request::Reservations(_) => false,
        };
        if fua {
            self.flush();
        }
        Ok(Answer::Done)
    }

    /// Undoes a change, for a server that takes back.
    pub fn before(&self, request: &Request) -> Option<(usize, Vec<u8>)> {
        let Request::Write { offset, data, .. } = request else { return None };
        let at = place(offset.0);
        Some((at, self.content[at..at + data.len()].to_vec()))
    }

    pub fn take_back(&mut self, at: usize, bytes: &[u8]) {
        self.put(at, bytes);
    }

    fn read(&mut self, offset: u64, len: u64) -> Answer {
        let range = place(offset)..place(offset + len);
        let stale = self.is(Quirk::StaleReads) && self.rng.chance(1, 10);
        let content = self.older.front().filter(|_| stale).unwrap_or(&self.content);
        Answer::Read(Data::copy_of(&content[range]))
    }

    /// Sector by sector, and not always to the end.
    fn extents(&mut self, offset: u64, len: u64) -> Answer {
        let Answer::Read(data) = self.read(offset, len) else { unreachable!("a read has data") };
        let sectors = 1 + self.rng.index(data.len() / 512);
        let mut extents: Vec<Extent> = Vec::new();
        for sector in data.chunks_exact(512).take(sectors) {
            let has_data = sector.iter().any(|byte| *byte != 0);
            match extents.last_mut() {
                Some(last) if last.has_data == has_data => last.len.0 += 512,
                _ => extents.push(Extent { len: ByteLen(512), has_data }),
            }
        }
        Answer::Extents(extents)
    }

    fn flush(&mut self) {
        if !self.is(Quirk::ForgetsFlushed) {
            self.durable.clone_from(&self.content);
            self.log.clear();
        }
    }

    /// Some of what is not flushed is lost: what is left is a beginning of it.
    pub fn lose_power(&mut self) {
        let kept = self.rng.index(self.log.len() + 1);
        self.content.clone_from(&self.durable);
        for change in &self.log[..kept] {
            self.content[change.at..change.at + change.bytes.len()].copy_from_slice(&change.bytes);
        }
        self.durable.clone_from(&self.content);
        self.log.clear();
        self.newest.clear();
        if !self.is(Quirk::LosesSilently) {
            self.hold();
        }
    }

    pub fn hold(&mut self) {
        self.lowest = self.last + 1;
        self.plain_refused = true;
    }

    pub fn roll_back(&mut self, content: &[u8]) {
        let end = if self.is(Quirk::RollsBackHalf) { content.len() / 2 } else { content.len() };
        self.content[..end].copy_from_slice(&content[..end]);
        self.durable.clone_from(&self.content);
        self.log.clear();
    }
}

fn place(at: u64) -> usize {
    usize::try_from(at).unwrap()
}
