//! The load on served volumes, the same for every server: a closed loop over any number of
//! sessions. One thread drives all of them, since the servers need the processors too.
use std::time::{Duration, Instant};

use anyhow::Result;
use sim::Rng;

use super::session::Session;
use super::waiting::Waiting;
use crate::latency::Latencies;
use crate::load::{Direction, Load, Order, Step, Until};

/// What came of a load.
#[derive(Default)]
pub struct Driven {
    pub ios: u64,
    pub bytes: u64,
    pub elapsed: Duration,
    pub latencies: Latencies,
}

impl Driven {
    pub fn note(&mut self, load: Load, took: Duration) {
        self.ios += 1;
        self.bytes += load.len as u64;
        self.latencies.note(took);
    }
}

/// What is asked next.
pub struct Steps<'a> {
    load: Load,
    rng: &'a mut Rng,
    count: u64,
    next: u64,
    /// How many may still be begun.
    left: u64,
}

impl<'a> Steps<'a> {
    pub fn new(load: Load, span: u64, until: Until, rng: &'a mut Rng) -> Steps<'a> {
        let count = span / load.len as u64;
        let (next, left) = match until {
            Until::Time(_) => (rng.below(count), u64::MAX),
            Until::Ios(ios) => (rng.below(count), ios),
            Until::End => (0, count),
        };
        Steps { load, rng, count, next, left }
    }
}

impl Iterator for Steps<'_> {
    type Item = Step;

    fn next(&mut self) -> Option<Step> {
        self.left = self.left.checked_sub(1)?;
        let block = match self.load.order {
            Order::Random => self.rng.below(self.count),
            Order::Sequential => self.next,
        };
        self.next = (self.next + 1) % self.count;
        let (offset, len) = (block * self.load.len as u64, self.load.len);
        Some(match self.load.direction {
            Direction::Read => Step::Read { offset, len },
            Direction::Write | Direction::WriteFlush => Step::Write { offset, len },
        })
    }
}

#[derive(Clone, Copy)]
struct Lane {
    began: Instant,
    /// Its write is done, and its flush is under way.
    flushing: bool,
}

/// A load that runs.
struct Loop<'a> {
    load: Load,
    steps: Steps<'a>,
    /// Of the first session, then of the next.
    lanes: Vec<Lane>,
    outstanding: u64,
    driven: Driven,
}

impl Loop<'_> {
    /// Begins something on a lane, if there is anything left.
    fn begin(&mut self, session: &mut Session, lane: usize) {
        if let Some(step) = self.steps.next() {
            session.begin(lane, step);
            self.outstanding += 1;
        }
    }

    /// A lane of the session at this place has an answer. What follows is begun unless it is over.
    fn answered(
        &mut self,
        at: usize,
        session: &mut Session,
        number: usize,
        now: Instant,
        over: bool,
    ) {
        let lane = &mut self.lanes[at * self.load.depth + number];
        if self.load.direction == Direction::WriteFlush {
            lane.flushing = !lane.flushing;
            if lane.flushing {
                return session.begin(number, Step::Flush);
            }
        }
        self.driven.note(self.load, now - lane.began);
        lane.began = now;
        self.outstanding -= 1;
        if !over {
            self.begin(session, number);
        }
    }
}

/// Keeps `load.depth` requests under way on every session. What was begun when the time is over is
/// finished, and counted.
pub fn drive(
    sessions: &mut [Session],
    load: Load,
    span: u64,
    until: Until,
    rng: &mut Rng,
) -> Result<Driven> {
    let mut waiting = Waiting::on(sessions)?;
    let start = Instant::now();
    let lanes = vec![Lane { began: start, flushing: false }; sessions.len() * load.depth];
    let steps = Steps::new(load, span, until, rng);
    let mut run = Loop { load, steps, lanes, outstanding: 0, driven: Driven::default() };
    for session in sessions.iter_mut() {
        (0..load.depth).for_each(|lane| run.begin(session, lane));
        session.send()?;
    }
    let (mut chosen, mut done) = (Vec::new(), Vec::new());
    while run.outstanding > 0 {
        let patience = waiting.wait(&mut chosen)?;
        for &at in &chosen {
            let session = &mut sessions[at];
            done.clear();
            session.receive(patience, &mut done)?;
            let now = Instant::now();
            let over = matches!(until, Until::Time(time) if now - start >= time);
            for &lane in &done {
                run.answered(at, session, lane, now, over);
            }
            session.send()?;
        }
    }
    run.driven.elapsed = start.elapsed();
    Ok(run.driven)
}
