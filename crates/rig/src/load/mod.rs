//! A load that can be checked: random writes, zeroes, trims, flushes and reads of one volume over
//! NBD, whose every block says what it is.
//!
//! Writers have disjoint blocks, so each knows alone what must be in them. A writer whose
//! connection is lost asks who serves now, and goes on there; what it does not know the outcome of
//! stays in doubt in its ledger.
pub mod block;
pub mod ledger;
mod writer;

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use ledger::Entry;
use writer::Writer;

/// Where the volume is served now, if anybody knows.
pub type Finder = Arc<dyn Fn() -> Option<SocketAddr> + Send + Sync>;

#[derive(Clone, Debug)]
pub struct Plan {
    pub volume: String,
    /// Bytes of a block of the load.
    pub block: usize,
    /// The blocks that are written: so many from the first on.
    pub first: u64,
    pub blocks: u64,
    pub writers: u64,
    pub seed: u64,
    /// Between two requests of a writer.
    pub rest: Duration,
}

pub struct Shared {
    plan: Plan,
    tag: u64,
    finder: Finder,
    stop: AtomicBool,
    failed: AtomicBool,
    begun: Instant,
    acks: AtomicU64,
    /// Microseconds since `begun`.
    last_ack: AtomicU64,
    longest: AtomicU64,
    no_space: AtomicU64,
    errors: Mutex<Vec<u32>>,
}

impl Shared {
    fn now(&self) -> u64 {
        u64::try_from(self.begun.elapsed().as_micros()).unwrap_or(u64::MAX)
    }

    fn acknowledged(&self) {
        let now = self.now();
        let before = self.last_ack.swap(now, Ordering::Relaxed);
        self.longest.fetch_max(now.saturating_sub(before), Ordering::Relaxed);
        self.acks.fetch_add(1, Ordering::Relaxed);
    }
}

/// What every block must hold, by writer.
pub type Ledger = Vec<Vec<Entry>>;

/// A load that runs.
pub struct Load {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<(Vec<Entry>, Result<()>)>>,
}

/// A load that rests, and what it knows.
#[derive(Clone)]
pub struct Rested {
    plan: Plan,
    /// What its blocks say they are of.
    tag: u64,
    finder: Finder,
    pub ledger: Ledger,
    pub report: Report,
}

#[derive(Clone, Debug, Default)]
pub struct Report {
    pub acks: u64,
    /// Between two acknowledgements of whatever writers.
    pub longest_pause: Duration,
    /// Requests that were refused for want of space.
    pub no_space: u64,
    /// Errors of other requests.
    pub errors: Vec<u32>,
}

impl Load {
    /// On blocks that were never written.
    pub fn start(plan: Plan, finder: Finder) -> Load {
        let of = |writer: u64| (plan.blocks + plan.writers - 1 - writer) / plan.writers;
        let ledger = (0..plan.writers).map(|writer| (0..of(writer)).map(|_| Entry::default()));
        let ledger = ledger.map(Iterator::collect).collect();
        let tag = block::tag(&plan.volume);
        Rested { plan, tag, finder, ledger, report: Report::default() }.go_on()
    }

    /// Whether a writer found something wrong, or nothing to go on with.
    pub fn has_failed(&self) -> bool {
        self.shared.failed.load(Ordering::SeqCst)
    }

    pub fn acks(&self) -> u64 {
        self.shared.acks.load(Ordering::Relaxed)
    }

    pub fn no_space(&self) -> u64 {
        self.shared.no_space.load(Ordering::Relaxed)
    }

    /// Until so many more requests were acknowledged.
    pub fn wait_acks(&self, more: u64, patience: Duration) -> Result<()> {
        let (begun, goal) = (Instant::now(), self.acks() + more);
        while self.acks() < goal {
            ensure!(!self.has_failed(), "the load failed");
            ensure!(begun.elapsed() < patience, "no {more} acknowledgements within {patience:?}");
            thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }

    /// Waits for the requests under way.
    pub fn rest(self) -> Result<Rested> {
        let shared = self.shared;
        shared.stop.store(true, Ordering::SeqCst);
        let mut ledger = Vec::new();
        let mut results = Vec::new();
        for thread in self.threads {
            let (entries, result) = thread.join().expect("writers do not panic");
            ledger.push(entries);
            results.push(result);
        }
        results.into_iter().collect::<Result<()>>()?;
        let report = Report {
            acks: shared.acks.load(Ordering::Relaxed),
            longest_pause: Duration::from_micros(shared.longest.load(Ordering::Relaxed)),
            no_space: shared.no_space.load(Ordering::Relaxed),
            errors: shared.errors.lock().expect("no panics").clone(),
        };
        let (plan, tag, finder) = (shared.plan.clone(), shared.tag, shared.finder.clone());
        Ok(Rested { plan, tag, finder, ledger, report })
    }
}

impl Rested {
    fn shared(&self) -> Arc<Shared> {
        Arc::new(Shared {
            tag: self.tag,
            plan: self.plan.clone(),
            finder: self.finder.clone(),
            stop: AtomicBool::new(false),
            failed: AtomicBool::new(false),
            begun: Instant::now(),
            acks: AtomicU64::new(0),
            last_ack: AtomicU64::new(0),
            longest: AtomicU64::new(0),
            no_space: AtomicU64::new(0),
            errors: Mutex::new(Vec::new()),
        })
    }

    pub fn go_on(mut self) -> Load {
        // The same dice again would write the same blocks again.
        self.plan.seed = self.plan.seed.wrapping_add(1);
        let shared = self.shared();
        let writer = |(number, entries)| {
            let writer = Writer::new(shared.clone(), number, entries);
            thread::spawn(move || writer.run())
        };
        let threads = (0..).zip(self.ledger).map(writer).collect();
        Load { shared, threads }
    }

    /// Reads every block, and holds it against the ledger.
    pub fn verify(&mut self) -> Result<()> {
        let shared = self.shared();
        let ledger = std::mem::take(&mut self.ledger);
        let looked: Vec<_> = thread::scope(|scope| {
            let look = |(number, entries)| {
                let writer = Writer::new(shared.clone(), number, entries);
                scope.spawn(move || writer.look_at_all())
            };
            let threads: Vec<_> = (0..).zip(ledger).map(look).collect();
            threads.into_iter().map(|it| it.join().expect("writers do not panic")).collect()
        });
        let (ledger, results): (Ledger, Vec<Result<()>>) = looked.into_iter().unzip();
        self.ledger = ledger;
        results.into_iter().collect()
    }

    /// The volume went back to where it was when this ledger was kept.
    pub fn back_to(&mut self, then: &Ledger) {
        for (entries, then) in self.ledger.iter_mut().zip(then) {
            entries.iter_mut().zip(then).for_each(|(entry, then)| entry.back_to(then));
        }
    }

    /// The same blocks in a clone, which was made of a snapshot of this moment.
    pub fn cloned(&self, volume: &str, finder: Finder) -> Rested {
        let plan = Plan { volume: volume.into(), ..self.plan.clone() };
        Rested { plan, finder, report: Report::default(), ..self.clone() }
    }

    /// Blocks whose last attempt nobody knows the outcome of.
    pub fn in_doubt(&self) -> usize {
        self.ledger.iter().flatten().filter(|entry| entry.is_in_doubt()).count()
    }
}
