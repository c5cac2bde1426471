//! A disk that keeps back some of its IOs for a while, as a slow device would.
#![allow(dead_code, reason = "each test that includes this uses a part of it")]

use std::time::Duration;

use block::{ByteOffset, Completion, Disk, Geometry, Io, IoId, Wait};
use sim::CrashDisk;

/// What is kept back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hold {
    Nothing,
    Reads,
    /// Writes that begin here.
    WritesAt(ByteOffset),
}

pub struct Slow {
    pub disk: CrashDisk,
    pub hold: Hold,
    pub held: Vec<(IoId, Io)>,
}

impl Slow {
    pub fn new(disk: CrashDisk) -> Slow {
        Slow { disk, hold: Hold::Nothing, held: Vec::new() }
    }

    /// What was kept back goes on its way, and nothing more is kept back.
    pub fn release(&mut self) {
        self.hold = Hold::Nothing;
        let held = std::mem::take(&mut self.held);
        held.into_iter().for_each(|(id, io)| self.disk.submit(id, io));
    }

    fn holds(&self, io: &Io) -> bool {
        match (self.hold, io) {
            (Hold::Reads, Io::Read { .. }) => true,
            (Hold::WritesAt(place), Io::Write { at, .. }) => place == *at,
            _ => false,
        }
    }
}

impl Disk for Slow {
    fn geometry(&self) -> Geometry {
        self.disk.geometry()
    }
    fn submit(&mut self, id: IoId, io: Io) {
        match self.holds(&io) {
            true => self.held.push((id, io)),
            false => self.disk.submit(id, io),
        }
    }
    fn kick(&mut self) {
        self.disk.kick();
    }
    fn complete(&mut self) -> Option<Completion> {
        self.disk.complete()
    }
}

impl Wait for Slow {
    fn wait(&mut self, at_most: Option<Duration>) {
        self.disk.wait(at_most);
    }
}
