//! What a pool was asked and what it answered, and so what it must hold after a crash.
//!
//! A volume's operations are one sequence, and a crash cuts that sequence at one place. So after
//! reopening, a volume must stand at a position that is no lower than what was promised and no
//! higher than what was asked, and each of its sectors must be exactly what the operations up to
//! that position make of it. This implies that every unpromised sector is old or new.
use std::collections::BTreeMap;
use std::ops::AddAssign;

use anyhow::{Context, Result, bail, ensure};
use block::{ByteLen, ByteOffset, Position, Wait};
use engine::{Op, Pool, Reply, VolumeId, VolumeInfo};

use super::content::{Found, Place, SECTOR, Stamp, fill};
use super::step::{Event, Step};

/// Sectors that are read at once.
const READ: usize = 512;

/// What a crash must not take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Promise {
    /// A killed process: whatever was acknowledged.
    Held,
    /// A power cut: whatever was submitted before a flush that was answered.
    Durable,
}

#[derive(Clone)]
pub struct Ledger {
    promise: Promise,
    books: BTreeMap<VolumeId, Book>,
    /// Flushes that were not answered, with where each volume stood when they were asked for.
    flushes: BTreeMap<u64, Vec<(VolumeId, Position)>>,
}

/// One volume.
#[derive(Clone)]
struct Book {
    /// Every sector, as of `at`: read once, it must not change back.
    settled: Vec<Stamp>,
    at: Position,
    /// Since then.
    issued: Vec<Step>,
    /// What a crash must leave at the least.
    floor: Position,
}

/// What was found to be right.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Verified {
    pub sectors: u64,
    /// Operations that were promised; none of them is missing.
    pub promised: u64,
    /// Operations that were not promised, and are there.
    pub unpromised_kept: u64,
    /// Operations that were not promised, and are gone.
    pub unpromised_gone: u64,
}

impl Ledger {
    /// For volumes that nobody has written to.
    pub fn new(volumes: &[VolumeInfo], promise: Promise) -> Ledger {
        let book = |volume: &VolumeInfo| {
            let sectors = usize::try_from(volume.size.0).expect("a small volume") / SECTOR;
            let settled = vec![Stamp::Zeros; sectors];
            let (at, floor) = (volume.held, volume.held);
            (volume.id, Book { settled, at, issued: Vec::new(), floor })
        };
        let books = volumes.iter().map(book).collect();
        Ledger { promise, books, flushes: BTreeMap::new() }
    }

    /// Takes note of what happened.
    pub fn follow(&mut self, events: &[Event]) -> Result<()> {
        for event in events {
            match *event {
                Event::Issued(step) => self.book(step.volume)?.issue(step)?,
                Event::Acked { volume, position } => {
                    let held = self.promise == Promise::Held;
                    let book = self.book(volume)?;
                    ensure!(position <= book.last(), "{position} was answered but never asked");
                    if held {
                        book.raise(position);
                    }
                }
                Event::FlushIssued { number } => {
                    let covered = self.books.iter().map(|(id, book)| (*id, book.last())).collect();
                    self.flushes.insert(number, covered);
                }
                Event::Flushed { number } => {
                    let covered = self.flushes.remove(&number);
                    for (volume, position) in covered.context("a flush that nobody asked for")? {
                        self.book(volume)?.raise(position);
                    }
                }
            }
        }
        Ok(())
    }

    fn book(&mut self, volume: VolumeId) -> Result<&mut Book> {
        self.books.get_mut(&volume).with_context(|| format!("volume {volume} is not in the ledger"))
    }

    /// Reads every sector of every volume. What is found is settled: later it must be the same.
    pub fn verify<D: Wait>(&mut self, pool: &mut Pool<D>) -> Result<Verified> {
        let mut verified = Verified::default();
        let volumes = pool.volumes();
        for (id, book) in &mut self.books {
            let volume = volumes.iter().find(|volume| volume.id == *id);
            let volume = volume.with_context(|| format!("LOST: volume {id} is not there"))?;
            verified += book.verify(pool, volume).with_context(|| format!("volume {id}"))?;
        }
        self.flushes.clear();
        Ok(verified)
    }
}

impl Book {
    /// The position that the next step follows.
    fn last(&self) -> Position {
        self.issued.last().map_or(self.at, |step| step.position)
    }

    fn issue(&mut self, step: Step) -> Result<()> {
        let last = self.last();
        let (position, volume) = (step.position, step.volume);
        ensure!(
            position.seq.0 == last.seq.0 + 1 && position > last,
            "volume {volume} changed back: it stood at {last}, the writer went on with {position}"
        );
        self.issued.push(step);
        Ok(())
    }

    fn raise(&mut self, position: Position) {
        self.floor = self.floor.max(position);
    }

    fn verify<D: Wait>(&mut self, pool: &mut Pool<D>, volume: &VolumeInfo) -> Result<Verified> {
        self.judge_position(volume.held)?;
        let mut verified = Verified { sectors: self.settled.len() as u64, ..Verified::default() };
        for step in std::mem::take(&mut self.issued) {
            match step.position {
                position if position <= self.floor => verified.promised += 1,
                position if position <= volume.held => verified.unpromised_kept += 1,
                _ => verified.unpromised_gone += 1,
            }
            if step.position <= volume.held {
                self.apply(&step);
            }
        }
        (self.at, self.floor) = (volume.held, volume.held);
        self.compare(pool, volume.id)?;
        Ok(verified)
    }

    fn judge_position(&self, held: Position) -> Result<()> {
        let (floor, last) = (self.floor, self.last());
        ensure!(held >= floor, "LOST: it stands at {held}, {floor} was promised");
        let issued = self.issued.iter().map(|step| step.position);
        let known = issued.chain([self.at]).any(|position| position == held);
        ensure!(known, "it stands at {held}, which nobody asked for: the last was {last}");
        Ok(())
    }

    fn apply(&mut self, step: &Step) {
        let place = |sector| usize::try_from(sector).expect("a sector of a small volume");
        self.settled[place(step.first)..place(step.end())].fill(step.stamp());
    }

    fn compare<D: Wait>(&self, pool: &mut Pool<D>, volume: VolumeId) -> Result<()> {
        let mut expected = [0; SECTOR];
        let mut sector = 0u64;
        for stamps in self.settled.chunks(READ) {
            let offset = ByteOffset(sector * SECTOR as u64);
            let len = ByteLen((stamps.len() * SECTOR) as u64);
            let found = match pool.run(Op::Read { volume, offset, len }) {
                Ok(Reply::Read(found)) => found,
                Ok(other) => bail!("a read was answered by {other:?}"),
                Err(error) => bail!("LOST: {offset} cannot be read: {error}"),
            };
            for (stamp, bytes) in stamps.iter().zip(found.chunks_exact(SECTOR)) {
                let place = Place { volume, sector };
                fill(&mut expected, place, *stamp);
                if expected[..] != *bytes {
                    let (found, at) = (Found::in_sector(bytes, place), self.at);
                    bail!("LOST: at {at} sector {sector} must hold {stamp}, but holds {found}");
                }
                sector += 1;
            }
        }
        Ok(())
    }
}

impl AddAssign for Verified {
    fn add_assign(&mut self, other: Verified) {
        self.sectors += other.sectors;
        self.promised += other.promised;
        self.unpromised_kept += other.unpromised_kept;
        self.unpromised_gone += other.unpromised_gone;
    }
}

#[cfg(test)]
mod tests;
