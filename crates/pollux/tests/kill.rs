//! Protects from a pool that loses what it acknowledged when its process dies.
//!
//! A writer with many operations under way is killed at random moments, again and again on the
//! same pool, so that what one death left behind meets the next. After each, everything is read:
//! all that was acknowledged must be there, the rest whole or not at all, and what was read once
//! must not change back.
//!
//! `POLLUX_KILL_SEED` and `POLLUX_KILLS` choose another run or a longer one.
mod loop_device;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use block::ByteLen;
use disk::{Backend, Direct, FileDisk, OpenError, OpenOptions};
use engine::check::{Depth, check};
use pollux::patience;
use pollux::proof::{
    Event, Ledger, Orders, Promise, Scratch, Step, Verified, Victim, entropy, format, limits, open,
};
use sim::Rng;

use loop_device::{Loop, say};

const POOL: ByteLen = ByteLen(64 << 20);
const VOLUME: ByteLen = ByteLen(4 << 20);
const KILLS: u64 = 50;
const DEPTH: usize = 16;
const PATIENCE: Duration = Duration::from_secs(2);

#[test]
fn a_killed_writer_on_a_file_loses_nothing_with_io_uring() {
    on_a_file(Backend::Ring);
}

#[test]
fn a_killed_writer_on_a_file_loses_nothing_with_threads() {
    on_a_file(Backend::Threads);
}

#[test]
fn a_killed_writer_on_a_device_loses_nothing_with_io_uring() {
    on_a_device(Backend::Ring);
}

#[test]
fn a_killed_writer_on_a_device_loses_nothing_with_threads() {
    on_a_device(Backend::Threads);
}

/// Protects from a test that cannot fail: operations that a killed writer had under way are held
/// against the pool as if they had been acknowledged, and the judge must miss them.
#[test]
fn an_acknowledgement_that_comes_too_early_is_found() {
    let scratch = Scratch::new("kill").expect("a folder for the test");
    let mut trial = Trial::new(&blank_file(&scratch), Backend::Auto, 1).expect("a pool");
    for term in 1..=KILLS {
        let mut events = trial.life_and_death(term).expect("a writer that is killed");
        let early = events.clone().into_iter().filter_map(|event| match event {
            Event::Issued(Step { volume, position, .. }) => Some(Event::Acked { volume, position }),
            _ => None,
        });
        events.extend(early);
        trial.ledger.follow(&events).expect("a story that can be told");
        match trial.read_twice() {
            Ok(()) => {}
            Err(error) => return assert!(format!("{error:#}").contains("LOST"), "{error:#}"),
        }
    }
    panic!("{KILLS} writers were killed, and each time all that was under way came to its end");
}

fn on_a_file(backend: Backend) {
    let scratch = Scratch::new("kill").expect("a folder for the test");
    let path = blank_file(&scratch);
    kill_again_and_again("file", &path, backend);
}

fn on_a_device(backend: Backend) {
    let scratch = Scratch::new("kill").expect("a folder for the test");
    if let Some(device) = Loop::attach(&blank_file(&scratch)) {
        kill_again_and_again("loop device", device.path(), backend);
    }
}

fn blank_file(scratch: &Scratch) -> PathBuf {
    let path = scratch.file("pool.img");
    let made = std::fs::File::create_new(&path).and_then(|file| file.set_len(POOL.0));
    made.expect("a file for the test");
    path
}

fn number_from(variable: &str, otherwise: u64) -> u64 {
    match std::env::var(variable) {
        Ok(text) => text.parse().unwrap_or_else(|_| panic!("{variable}={text} is no number")),
        Err(_) => otherwise,
    }
}

fn kill_again_and_again(what: &str, path: &Path, backend: Backend) {
    let seed = number_from("POLLUX_KILL_SEED", 1);
    let kills = number_from("POLLUX_KILLS", KILLS);
    let begun = Instant::now();
    let mut trial = match Trial::new(path, backend, seed) {
        Ok(trial) => trial,
        Err(error) if matches!(error.downcast_ref(), Some(OpenError::NoRing { .. })) => {
            return say(&format!("SKIPPED: {error:#}"));
        }
        Err(error) => panic!("{error:#}"),
    };
    for term in 1..=kills {
        if let Err(error) = trial.kill_once(term) {
            panic!("{error:#} ({what}, {backend:?}, kill {term}, POLLUX_KILL_SEED={seed})");
        }
    }
    let (blocks, epochs) =
        trial.check().unwrap_or_else(|error| panic!("{error:#} ({what}, {backend:?})"));
    let Verified { sectors, promised, unpromised_kept, unpromised_gone } = trial.total;
    let (acked, flushes) = (trial.acked, trial.flushes);
    assert!(acked >= kills, "the writers did nothing, so nothing was shown");
    assert!(promised >= acked, "every acknowledged operation was looked for");
    say(&format!(
        "{what}, {backend:?}: {kills} kills, {acked} operations and {flushes} flushes \
         acknowledged, 0 lost; {} not acknowledged ({unpromised_kept} there, {unpromised_gone} \
         not); {sectors} sectors and {blocks} blocks compared; {epochs} checkpoints; {:.1} s, \
         POLLUX_KILL_SEED={seed}",
        unpromised_kept + unpromised_gone,
        begun.elapsed().as_secs_f64(),
    ));
}

/// One pool, and what its writers told.
struct Trial {
    path: PathBuf,
    backend: Backend,
    rng: Rng,
    ledger: Ledger,
    total: Verified,
    acked: u64,
    flushes: u64,
}

impl Trial {
    fn new(path: &Path, backend: Backend, seed: u64) -> Result<Trial> {
        let disk = open_disk(path, backend, false)?;
        let pool = format(disk, entropy()?, VOLUME, limits())?;
        let ledger = Ledger::new(&pool.volumes(), Promise::Held);
        pool.close()?;
        Ok(Trial {
            path: path.to_owned(),
            backend,
            rng: Rng::new(seed),
            ledger,
            total: Verified::default(),
            acked: 0,
            flushes: 0,
        })
    }

    fn kill_once(&mut self, term: u64) -> Result<()> {
        let events = self.life_and_death(term)?;
        for event in &events {
            self.acked += u64::from(matches!(event, Event::Acked { .. }));
            self.flushes += u64::from(matches!(event, Event::Flushed { .. }));
        }
        self.ledger.follow(&events)?;
        self.read_twice()
    }

    /// What one writer told until it was killed.
    fn life_and_death(&mut self, term: u64) -> Result<Vec<Event>> {
        // Through the page cache a killed process must not lose anything either.
        let direct = *self.rng.pick(&[Direct::Auto, Direct::Auto, Direct::Auto, Direct::Never]);
        let orders = Orders {
            path: self.path.clone(),
            backend: self.backend,
            direct,
            seed: self.rng.next_u64(),
            term,
            depth: DEPTH,
        };
        let moment = Duration::from_micros(self.rng.range(5_000..80_000));
        let program = Path::new(env!("CARGO_BIN_EXE_pollux"));
        Victim::spawn(program, &orders)?.kill_after(moment)
    }

    /// The second look finds what the first one found, whether or not the pool was closed.
    fn read_twice(&mut self) -> Result<()> {
        let disk = open_disk(&self.path, self.backend, false)?;
        let mut pool = open(disk, limits())?;
        self.total += self.ledger.verify(&mut pool)?;
        match self.rng.chance(1, 2) {
            true => drop(pool.close()?),
            false => drop(pool.abandon()),
        }
        let disk = open_disk(&self.path, self.backend, false)?;
        let mut pool = open(disk, limits())?;
        let again = self.ledger.verify(&mut pool).context("it changed back after it was read")?;
        ensure!(again.promised == 0, "nothing was written in between");
        drop(pool.abandon());
        Ok(())
    }

    /// The blocks that are stored, and the checkpoints that were made.
    fn check(&self) -> Result<(u64, u64)> {
        let report = check(&mut open_disk(&self.path, self.backend, true)?, Depth::Data)?;
        ensure!(report.is_clean(), "the check found: {}", report.problems.join("; "));
        let disk = open_disk(&self.path, self.backend, true)?;
        Ok((report.blocks, engine::inspect(disk)?.info.epoch.0))
    }
}

/// The lock of a killed writer lingers until its last IO is over.
fn open_disk(path: &Path, backend: Backend, read_only: bool) -> Result<FileDisk, OpenError> {
    let options = OpenOptions { backend, read_only, ..OpenOptions::default() };
    patience::open(path, &options, PATIENCE)
}
