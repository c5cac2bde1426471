//! What is known of one volume's content: a register per sector that was ever written.
//!
//! A *generation* lasts from one loss of unflushed writes, as clients were told of it, to the
//! next. Within one nothing that was acknowledged may vanish. At its end only what was flushed
//! counts, and each sector holds one of the values that were left possible.
use std::collections::{BTreeMap, BTreeSet};

use replication::words::SnapshotUid;

use super::register::{Facts, Fate, Makes, Register, Write, WriteIndex};
use super::snapshots::Snapshots;
use super::stamp::{self, Place, SECTOR, Value};
use super::violation::{Seen, Unexplained, Violation};
use crate::quorum::in_memory;
use crate::quorum::sparse::{PAGE, Sparse};

/// Sectors, one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    pub first: u64,
    pub count: u64,
}

impl Extent {
    pub fn end(self) -> u64 {
        self.first + self.count
    }
}

/// Sectors of the longest write: what is longer is a zeroing.
const WIDE: u64 = 256;

#[derive(Debug, Default)]
struct Ledger {
    writes: Vec<Write>,
    snapshots: Snapshots,
    /// The latest sending of a flush that was acknowledged.
    flushed: u64,
}

impl Facts for Ledger {
    fn write(&self, index: WriteIndex) -> &Write {
        &self.writes[index]
    }

    fn snapshot(&self, snapshot: usize, sector: u64) -> &[Value] {
        self.snapshots.values(snapshot, sector)
    }

    fn flushed(&self) -> u64 {
        self.flushed
    }
}

#[derive(Debug)]
pub struct Volume {
    number: usize,
    /// The volume that it was cloned from: what was written there says so.
    origin: Option<usize>,
    registers: BTreeMap<u64, Register>,
    ledger: Ledger,
    /// Rollbacks that may still take effect: also sectors that are written later are theirs.
    rollbacks: Vec<WriteIndex>,
    /// Zeroings of more sectors than are worth a register each: of sectors that are written later
    /// they are older writes, or beside them.
    wide: Vec<(Extent, WriteIndex)>,
    /// Lower numbers are of an older generation.
    oldest: Value,
}

impl Volume {
    pub fn new(number: usize) -> Volume {
        Volume {
            number,
            origin: None,
            registers: BTreeMap::new(),
            ledger: Ledger::default(),
            rollbacks: Vec::new(),
            wide: Vec::new(),
            oldest: Value(1),
        }
    }

    /// A clone of a volume, with the content that it begins with. `next`: the number of the first write
    /// from now on.
    pub fn cloned(number: usize, origin: usize, bytes: &Sparse, next: Value) -> Volume {
        let mut volume = Volume { origin: Some(origin), oldest: next, ..Volume::new(number) };
        let values: Vec<(u64, Option<Value>)> = volume.values_of(bytes).collect();
        for (sector, value) in values {
            if let Some(value) = value.filter(|value| *value != Value::ZEROS) {
                volume.registers.insert(sector, Register::new(sector, vec![value]));
            }
        }
        volume
    }

    /// A write or a zeroing is sent. `durable`: its acknowledgement says that it is.
    pub fn begin(&mut self, now: u64, extent: Extent, value: Value, durable: bool) -> WriteIndex {
        let index = self.push(Write {
            began: now,
            fate: Fate::Open { until: u64::MAX },
            makes: Makes::Value(value),
            durable,
        });
        if extent.count > WIDE {
            self.wide.push((extent, index));
            let registers = self.registers.range_mut(extent.first..extent.end());
            registers.for_each(|(_, register)| register.begin(index));
            return index;
        }
        for sector in extent.first..extent.end() {
            let (rollbacks, wide) = (&self.rollbacks, &self.wide);
            let register = self.registers.entry(sector).or_insert_with(|| {
                let mut register = Register::new(sector, Vec::new());
                rollbacks.iter().for_each(|rollback| register.begin(*rollback));
                let covers = |extent: &Extent| extent.first <= sector && sector < extent.end();
                let over = wide.iter().filter(|(extent, _)| covers(extent));
                over.for_each(|(_, write)| register.begin(*write));
                register
            });
            register.begin(index);
        }
        index
    }

    fn push(&mut self, write: Write) -> WriteIndex {
        self.ledger.writes.push(write);
        self.ledger.writes.len() - 1
    }

    pub fn ack(&mut self, now: u64, write: WriteIndex) {
        self.ledger.writes[write].fate = Fate::Acked { at: now };
    }

    /// The error says that nothing was done, nor will be.
    pub fn refuse(
        &mut self,
        write: WriteIndex,
        extent: Extent,
        seen: Seen,
    ) -> Result<(), Violation> {
        self.ledger.writes[write].fate = Fate::Refused;
        let mut registers = self.registers.range(extent.first..extent.end());
        let read = registers.find(|(_, register)| register.was_read(write));
        let Some((&sector, _)) = read else { return Ok(()) };
        let Makes::Value(value) = self.ledger.writes[write].makes else { return Ok(()) };
        Err(self.content(seen, sector, Unexplained::Refused(value)))
    }

    /// A write without an answer took effect before `now`, or it never will.
    pub fn decide(&mut self, now: u64, write: WriteIndex) {
        if let Fate::Open { until } = &mut self.ledger.writes[write].fate {
            *until = now.min(*until);
        }
    }

    /// What took effect before `sent` is durable.
    pub fn flushed(&mut self, sent: u64) {
        self.ledger.flushed = self.ledger.flushed.max(sent);
    }

    pub(super) fn content(&self, seen: Seen, sector: u64, why: Unexplained) -> Violation {
        let why = match why {
            Unexplained::NeverWritten(value) if value != Value::ZEROS && value < self.oldest => {
                Unexplained::OlderThanFlushed(value)
            }
            why => why,
        };
        Violation::Content { seen, place: Place { volume: self.number, sector }, why }
    }

    pub(super) fn values<'a>(
        &'a self,
        first: u64,
        bytes: &'a [u8],
    ) -> impl Iterator<Item = (u64, Option<Value>)> + 'a {
        let sectors = bytes.chunks_exact(SECTOR).zip(first..);
        sectors.map(|(bytes, sector)| {
            let of = |volume: usize| stamp::value_of(Place { volume, sector }, bytes);
            (sector, of(self.number).or_else(|| self.origin.and_then(of)))
        })
    }

    /// What a whole content has: where something is, and wherever something was ever written.
    pub(super) fn values_of<'a>(
        &'a self,
        content: &'a Sparse,
    ) -> impl Iterator<Item = (u64, Option<Value>)> + 'a {
        let sector_len = SECTOR as u64;
        let pages = content.pages().filter(|(at, _)| *at < content.size());
        let there = pages.flat_map(move |(at, bytes)| {
            self.values(at / sector_len, &bytes[..in_memory(PAGE.min(content.size() - at))])
        });
        let is_there = move |sector: u64| content.has_page(sector * sector_len);
        let known = self.registers.range(..content.size() / sector_len).map(|(sector, _)| *sector);
        let zeros = known.filter(move |sector| !is_there(*sector));
        there.chain(zeros.map(|sector| (sector, Some(Value::ZEROS))))
    }

    /// A read from sector `first` on returned these bytes.
    pub fn read(
        &mut self,
        seen: Seen,
        first: u64,
        bytes: &[u8],
        start: u64,
        end: u64,
    ) -> Result<(), Violation> {
        let values: Vec<_> = self.values(first, bytes).collect();
        for (sector, value) in values {
            let judged = match (value, self.registers.get_mut(&sector)) {
                (None, _) => Err(Unexplained::NoValue),
                (Some(value), Some(register)) => register.read(&self.ledger, value, start, end),
                (Some(Value::ZEROS), None) => Ok(()),
                (Some(value), None) => Err(Unexplained::NeverWritten(value)),
            };
            judged.map_err(|why| self.content(seen, sector, why))?;
        }
        Ok(())
    }

    /// There was said to be no data between `start` and `end`: it read as zeros at some moment.
    pub fn hole(
        &mut self,
        seen: Seen,
        extent: Extent,
        start: u64,
        end: u64,
    ) -> Result<(), Violation> {
        let mut found = None;
        for (&sector, register) in self.registers.range_mut(extent.first..extent.end()) {
            if let Err(why) = register.read(&self.ledger, Value::ZEROS, start, end) {
                found = Some((sector, why));
                break;
            }
        }
        found.map_or(Ok(()), |(sector, why)| Err(self.content(seen, sector, why)))
    }

    /// What a replica holds in the end, when nothing is under way. `settled`: clients worked
    /// until then, so that no loss can have gone unnoticed.
    pub fn check_final(&self, now: u64, bytes: &Sparse, settled: bool) -> Result<(), Violation> {
        for (sector, value) in self.values_of(bytes) {
            let judged = match (value, self.registers.get(&sector)) {
                (None, _) => Err(Unexplained::NoValue),
                (Some(value), Some(register)) => {
                    let judged = register.explained(&self.ledger, value, now, now).map(drop);
                    let lost = || register.survivors(&self.ledger).contains(&value);
                    if !settled && judged.is_err() && lost() { Ok(()) } else { judged }
                }
                (Some(Value::ZEROS), None) => Ok(()),
                (Some(value), None) => Err(Unexplained::NeverWritten(value)),
            };
            judged.map_err(|why| self.content(Seen::Final, sector, why))?;
        }
        Ok(())
    }

    pub fn snapshot_asked(&mut self, now: u64, uid: SnapshotUid) {
        self.ledger.snapshots.ask(now, uid);
    }

    pub fn snapshot_done(&mut self, now: u64, uid: SnapshotUid) {
        let Some((index, asked)) = self.ledger.snapshots.open(uid) else { return };
        let held = self.between(asked, now);
        self.ledger.snapshots.add(index, held);
        self.ledger.snapshots.close(index, now);
    }

    fn between(&self, start: u64, end: u64) -> Vec<(u64, Vec<Value>)> {
        let registers = self.registers.iter();
        registers.map(|(sector, r)| (*sector, r.between(&self.ledger, start, end))).collect()
    }

    /// A rollback may take effect from now on.
    pub fn rollback_asked(&mut self, now: u64, uid: SnapshotUid) {
        let Some(index) = self.ledger.snapshots.find(uid) else { return };
        let rollback = self.push(Write {
            began: now,
            fate: Fate::Open { until: u64::MAX },
            makes: Makes::Snapshot(index),
            durable: true,
        });
        self.rollbacks.push(rollback);
        self.registers.values_mut().for_each(|register| register.begin(rollback));
    }

    /// All rollbacks to this snapshot that were asked for are done: one of them answered.
    pub fn rollback_done(&mut self, now: u64, uid: SnapshotUid) {
        let Some(index) = self.ledger.snapshots.find(uid) else { return };
        let writes = &mut self.ledger.writes;
        self.rollbacks.retain(|rollback| {
            let write = &mut writes[*rollback];
            let done = write.makes == Makes::Snapshot(index);
            if done {
                write.fate = Fate::Acked { at: now };
            }
            !done
        });
    }

    /// Sectors that were ever written.
    pub fn touched(&self) -> impl Iterator<Item = u64> + '_ {
        self.registers.keys().copied()
    }

    /// Writes that were not flushed may have been lost. Nothing is under way, and everything
    /// that was is decided. `worked`: the last time at which nothing was lost. `next`: the number
    /// of the first write from now on.
    pub fn lose(&mut self, now: u64, worked: u64, next: Value) {
        self.doubt_snapshots(now, worked);
        let registers = self.registers.iter();
        let survivors: Vec<(u64, Vec<Value>)> =
            registers.map(|(sector, r)| (*sector, r.survivors(&self.ledger))).collect();
        let ledger = &mut self.ledger;
        let rollbacks = self.rollbacks.drain(..).map(|rollback| ledger.writes[rollback]);
        ledger.writes = rollbacks.collect();
        ledger.flushed = 0;
        // What was under way is decided: of sectors without a register nothing is left but zeros.
        self.wide.clear();
        self.rollbacks = (0..ledger.writes.len()).collect();
        self.registers.clear();
        for (sector, values) in survivors {
            let mut register = Register::new(sector, values);
            self.rollbacks.iter().for_each(|rollback| register.begin(*rollback));
            self.registers.insert(sector, register);
        }
        self.oldest = next;
    }

    /// An operator chose a copy at the moment `at`: each sector holds what that has, whatever was
    /// acknowledged. Only rollbacks may have come behind it, since no client could write. `next`: the
    /// number of the first write from now on.
    pub fn go_on_with(&mut self, now: u64, at: u64, has: &BTreeMap<u64, Value>, next: Value) {
        let late = |write: &&Write| match (write.makes, write.fate) {
            (Makes::Value(_), _) | (_, Fate::Refused) => false,
            (_, Fate::Open { .. }) => true,
            (_, Fate::Acked { at: done }) => done >= at,
        };
        let ledger = &mut self.ledger;
        ledger.writes = ledger.writes.iter().filter(late).copied().collect();
        ledger.flushed = 0;
        let is_open = |index: &WriteIndex| matches!(ledger.writes[*index].fate, Fate::Open { .. });
        self.rollbacks = (0..ledger.writes.len()).filter(is_open).collect();
        let sectors: BTreeSet<u64> = self.registers.keys().chain(has.keys()).copied().collect();
        self.registers.clear();
        self.wide.clear();
        for sector in sectors {
            let values = has.get(&sector).copied().into_iter().collect();
            let mut register = Register::new(sector, values);
            (0..self.ledger.writes.len()).for_each(|rollback| register.begin(rollback));
            self.registers.insert(sector, register);
        }
        self.oldest = next;
        let doubtful = self.ledger.snapshots.since(at);
        for _ in 0..doubtful.len() {
            for &(index, asked, done) in &doubtful {
                let held = self.between(asked, done.unwrap_or(now));
                self.ledger.snapshots.add(index, held);
            }
        }
    }

    /// A snapshot may have been made when writes were lost and nobody had noticed yet.
    fn doubt_snapshots(&mut self, now: u64, worked: u64) {
        let doubtful = self.ledger.snapshots.since(worked);
        // What one may hold depends on others, where there was a rollback to them: the longest
        // such chain has all of them.
        let mut news = true;
        for _ in 0..doubtful.len() {
            // Nothing more comes of what did not change.
            if !std::mem::take(&mut news) {
                break;
            }
            for &(index, asked, done) in &doubtful {
                let end = done.unwrap_or(now);
                let mut held = self.between(asked, end);
                for (sector, register) in &self.registers {
                    held.push((*sector, register.survivors_between(&self.ledger, asked, end)));
                }
                news |= self.ledger.snapshots.add(index, held);
            }
        }
    }

    pub fn check_snapshot(&self, uid: SnapshotUid, bytes: &Sparse) -> Result<(), Violation> {
        let snapshots = &self.ledger.snapshots;
        let index = snapshots.find(uid).ok_or(Violation::UnknownSnapshot(uid))?;
        for (sector, value) in self.values_of(bytes) {
            let why = match value {
                None => Unexplained::NoValue,
                Some(value) if snapshots.values(index, sector).contains(&value) => continue,
                Some(found) => match snapshots.values(index, sector).last() {
                    Some(&newer) if newer != Value::ZEROS => Unexplained::Stale { found, newer },
                    _ => Unexplained::NeverWritten(found),
                },
            };
            return Err(self.content(Seen::Snapshot(uid), sector, why));
        }
        Ok(())
    }
}
