//! The ordered load over a group of volumes, and what a cut of it must show.
//!
//! A writer writes 1 to volume 0, waits for the answer, writes 1 to volume 1, and so on, then 2.
//! Where a write has no clear answer it begins the next round: the volume's next counter is
//! written only after a new login, which decides the older one. Another client reads the counter
//! of volume 0, and then writes what it read to each of the others. So in every cut that is true
//! to the order of things, counters do not grow from volume to volume, and no echo is above the
//! counter of volume 0.
use std::collections::BTreeMap;

use super::stamp::{self, Place, SECTOR, Value};
use super::violation::Violation;
use crate::quorum::sparse::Sparse;

/// The counter's sector in each volume, and the echo's: in different granules.
pub const COUNTER: u64 = 3;
pub const ECHO: u64 = 35;

/// Whether the load waits for an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Turn {
    /// To be written, or read, on this volume.
    At(usize),
    Waiting(usize),
}

#[derive(Debug)]
pub struct Group {
    volumes: usize,
    round: u64,
    writer: Turn,
    /// Volume 0 is read, the others are written.
    echo: Turn,
    /// What the echo carries.
    carried: u64,
    /// The number that each value of counters and echoes stands for.
    numbers: BTreeMap<Value, u64>,
}

impl Group {
    pub fn new(volumes: usize) -> Group {
        Group {
            volumes,
            round: 1,
            writer: Turn::At(0),
            echo: Turn::At(0),
            carried: 0,
            numbers: BTreeMap::new(),
        }
    }

    /// Whether the writer may write on this volume now. If so, it waits from now on, and the write
    /// of this value stands for its round.
    pub fn write(&mut self, volume: usize, value: Value) -> bool {
        let turn = self.writer == Turn::At(volume);
        if turn {
            self.writer = Turn::Waiting(volume);
            self.numbers.insert(value, self.round);
        }
        turn
    }

    pub fn written(&mut self, volume: usize, acked: bool) {
        if self.writer != Turn::Waiting(volume) {
            return;
        }
        let next = if acked { (volume + 1) % self.volumes } else { 0 };
        self.round += u64::from(next == 0);
        self.writer = Turn::At(next);
    }

    /// Whether the echo may go on at this volume; for others than the first with this value.
    pub fn carry(&mut self, volume: usize, value: Value) -> bool {
        let turn = self.echo == Turn::At(volume);
        if turn {
            self.echo = Turn::Waiting(volume);
            if volume > 0 {
                self.numbers.insert(value, self.carried);
            }
        }
        turn
    }

    /// The counter of volume 0 was read.
    pub fn counter_read(&mut self, bytes: &[u8]) {
        let place = Place { volume: 0, sector: COUNTER };
        if let Some(value) = stamp::value_of(place, bytes) {
            self.carried = self.number(value);
        }
    }

    pub fn carried(&mut self, volume: usize, acked: bool) {
        if self.echo == Turn::Waiting(volume) {
            self.echo = Turn::At(if acked { (volume + 1) % self.volumes } else { 0 });
        }
    }

    fn number(&self, value: Value) -> u64 {
        self.numbers.get(&value).copied().unwrap_or(0)
    }

    fn number_at(&self, volume: usize, sector: u64, content: &Sparse) -> u64 {
        let bytes = content.read(sector * SECTOR as u64, SECTOR as u64);
        stamp::value_of(Place { volume, sector }, &bytes).map_or(0, |value| self.number(value))
    }

    /// Looks at a cut, with the volumes in ascending order.
    pub fn check(&self, cut: &[(usize, &Sparse)]) -> Result<(), Violation> {
        let counter = |at: usize| (cut[at].0, self.number_at(cut[at].0, COUNTER, cut[at].1));
        for later in 1..cut.len() {
            let (earlier, later) = (counter(later - 1), counter(later));
            if earlier.1 < later.1 {
                return Err(Violation::Disordered { earlier, later });
            }
        }
        let Some((0, _)) = cut.first() else { return Ok(()) };
        let source = counter(0).1;
        for (volume, content) in &cut[1..] {
            let echo = self.number_at(*volume, ECHO, content);
            if echo > source {
                return Err(Violation::EchoAhead { source, echo });
            }
        }
        Ok(())
    }
}
