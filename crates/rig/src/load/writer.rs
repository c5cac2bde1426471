//! One thread of a load, with its own connection and its own blocks.
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow, bail};

use super::block::{self, Found};
use super::ledger::Entry;
use super::{Plan, Shared};
use crate::nbd::{ENOSPC, Nbd, NbdError};
use crate::random::Random;

/// Nothing that the product promises takes longer.
const GIVE_UP: Duration = Duration::from_secs(150);
const AGAIN: Duration = Duration::from_millis(100);

pub struct Writer {
    pub shared: Arc<Shared>,
    pub number: u64,
    pub random: Random,
    /// Of the blocks `number`, `number + writers` and so on.
    pub entries: Vec<Entry>,
    nbd: Option<Nbd>,
    bytes: Vec<u8>,
    done: Instant,
}

impl Writer {
    pub fn new(shared: Arc<Shared>, number: u64, entries: Vec<Entry>) -> Writer {
        let plan = &shared.plan;
        let random = Random::new(plan.seed ^ (number + 1).rotate_left(48));
        let bytes = vec![0; plan.block];
        Writer { shared, number, random, entries, nbd: None, bytes, done: Instant::now() }
    }

    fn plan(&self) -> &Plan {
        &self.shared.plan
    }

    pub fn run(mut self) -> (Vec<Entry>, Result<()>) {
        self.done = Instant::now();
        let result = loop {
            if self.shared.stop.load(Ordering::SeqCst) {
                break Ok(());
            }
            if let Err(error) = self.once() {
                break Err(error);
            }
            thread::sleep(self.plan().rest);
        };
        self.shared.failed.fetch_or(result.is_err(), Ordering::SeqCst);
        (self.entries, result)
    }

    /// One request, or one attempt to have a connection.
    fn once(&mut self) -> Result<()> {
        match self.step() {
            Ok(()) => {
                self.done = Instant::now();
                return Ok(());
            }
            Err(Trouble::Wrong(error)) => return Err(error),
            Err(Trouble::Nbd(NbdError::Errno(ENOSPC))) => {
                self.shared.no_space.fetch_add(1, Ordering::Relaxed);
                self.done = Instant::now();
            }
            Err(Trouble::Nbd(error)) => {
                if let NbdError::Errno(errno) = error {
                    self.shared.errors.lock().expect("no panics").push(errno);
                }
                self.nbd = None;
                if self.done.elapsed() > GIVE_UP {
                    bail!("nothing was answered for {GIVE_UP:?}; at last: {error}");
                }
            }
        }
        thread::sleep(AGAIN);
        Ok(())
    }

    fn connected(&mut self) -> Result<&mut Nbd, Trouble> {
        if self.nbd.is_none() {
            let shared = self.shared.clone();
            let Some(at) = (shared.finder)() else {
                return Err(NbdError::Strange("nobody serves").into());
            };
            // Only another holder of the grant makes it hopeless to wait.
            let patience = move || (shared.finder)().is_none_or(|now| now == at);
            let plan = &self.shared.plan;
            self.nbd = Some(Nbd::connect(at, &plan.volume, Box::new(patience))?);
        }
        self.nbd.as_mut().ok_or_else(|| NbdError::Strange("not connected").into())
    }

    fn step(&mut self) -> Result<(), Trouble> {
        let at = self.random.below(self.entries.len() as u64);
        let dice = self.random.below(100);
        self.connected()?;
        match dice {
            0..75 => self.write(at, dice < 10)?,
            75..90 => self.look(at)?,
            90..93 => self.zero(at)?,
            93..96 => self.trim(at)?,
            _ => self.connected()?.flush()?,
        }
        Ok(())
    }

    fn place(&self, at: u64) -> (usize, u64, u64) {
        let block = self.plan().first + at * self.plan().writers + self.number;
        let index = usize::try_from(at).expect("entries are in memory");
        (index, block, block * self.plan().block as u64)
    }

    fn write(&mut self, at: u64, fua: bool) -> Result<(), Trouble> {
        let (index, number, offset) = self.place(at);
        let version = self.entries[index].writing();
        block::write(self.shared.tag, number, version, &mut self.bytes);
        let nbd = self.nbd.as_mut().ok_or(NbdError::Strange("not connected"))?;
        nbd.write(offset, &self.bytes, fua)?;
        self.entries[index].acknowledged();
        self.shared.acknowledged();
        Ok(())
    }

    fn zero(&mut self, at: u64) -> Result<(), Trouble> {
        let (index, _, offset) = self.place(at);
        let len = self.bytes.len();
        self.entries[index].zeroing();
        self.connected()?.zeroes(offset, len)?;
        self.entries[index].acknowledged();
        self.shared.acknowledged();
        Ok(())
    }

    fn trim(&mut self, at: u64) -> Result<(), Trouble> {
        let (index, _, offset) = self.place(at);
        let len = self.bytes.len();
        self.entries[index].trimming();
        self.connected()?.trim(offset, len)?;
        self.shared.acknowledged();
        Ok(())
    }

    /// Reads a block, and holds it against the ledger.
    fn look(&mut self, at: u64) -> Result<(), Trouble> {
        let (index, number, offset) = self.place(at);
        let nbd = self.nbd.as_mut().ok_or(NbdError::Strange("not connected"))?;
        nbd.read(offset, &mut self.bytes)?;
        let found: Found = block::read(self.shared.tag, number, &self.bytes);
        self.entries[index]
            .saw(found)
            .map_err(|wrong| Trouble::Wrong(anyhow!("block {number} of the volume: {wrong}")))
    }

    /// Every block once, however often the connection is lost.
    pub fn look_at_all(mut self) -> (Vec<Entry>, Result<()>) {
        self.done = Instant::now();
        for at in 0..self.entries.len() as u64 {
            loop {
                match self.connected().map(|_| ()).and_then(|()| self.look(at)) {
                    Ok(()) => break self.done = Instant::now(),
                    Err(Trouble::Wrong(error)) => return (self.entries, Err(error)),
                    Err(Trouble::Nbd(error)) if self.done.elapsed() > GIVE_UP => {
                        return (self.entries, Err(error.into()));
                    }
                    Err(Trouble::Nbd(_)) => self.nbd = None,
                }
                thread::sleep(AGAIN);
            }
        }
        (self.entries, Ok(()))
    }
}

/// What ends a step: the way to the volume, or the volume.
enum Trouble {
    Nbd(NbdError),
    Wrong(anyhow::Error),
}

impl From<NbdError> for Trouble {
    fn from(error: NbdError) -> Trouble {
        Trouble::Nbd(error)
    }
}
