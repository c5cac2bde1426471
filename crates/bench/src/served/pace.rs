//! A load that does not wait for its server: so many requests in a second, whether those before
//! are answered or not.
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use sim::Rng;

use super::drive::{Driven, Steps};
use super::session::{Patience, Session};
use super::waiting::SILENCE_MAX;
use crate::load::{Load, Until};

/// Room for requests that are late, as a multiple of those that are due at once. If it is used up,
/// the next ones wait for room; that is counted as their latency too.
pub const LATE: usize = 4;

/// When requests are due: some at once, and the next ones after a while.
struct Schedule {
    start: Instant,
    time: Duration,
    every: Duration,
    at_once: usize,
    due: Instant,
    left: usize,
}

impl Schedule {
    fn new(at_once: usize, rate: u32, time: Duration) -> Result<Schedule> {
        let every = Duration::from_secs(1) * u32::try_from(at_once)? / rate;
        let start = Instant::now();
        Ok(Schedule { start, time, every, at_once, due: start, left: at_once })
    }

    /// Nothing is due any more.
    fn is_over(&self) -> bool {
        self.due - self.start >= self.time
    }

    /// When the request was due that is begun now, if one is.
    fn take(&mut self, now: Instant) -> Option<Instant> {
        let due = Some(self.due).filter(|due| *due <= now && !self.is_over())?;
        self.left -= 1;
        if self.left == 0 {
            (self.due, self.left) = (self.due + self.every, self.at_once);
        }
        Some(due)
    }
}

/// Begins `load.depth` requests at once, so often that there are `rate` of them in a second.
/// Latency counts from when a request was due. The session has [`LATE`] times as many lanes.
pub fn pace(
    session: &mut Session,
    load: Load,
    span: u64,
    rate: u32,
    time: Duration,
    rng: &mut Rng,
) -> Result<Driven> {
    let mut steps = Steps::new(load, span, Until::Time(time), rng);
    let lanes = load.depth * LATE;
    let mut free: Vec<usize> = (0..lanes).collect();
    let mut schedule = Schedule::new(load.depth, rate, time)?;
    let mut due_of = vec![schedule.start; lanes];
    let (mut driven, mut done) = (Driven::default(), Vec::new());
    while !schedule.is_over() || free.len() < lanes {
        let now = Instant::now();
        while let Some(&lane) = free.last() {
            let Some(due) = schedule.take(now) else { break };
            free.pop();
            due_of[lane] = due;
            steps.next().into_iter().for_each(|step| session.begin(lane, step));
        }
        session.send()?;
        let wait = match schedule.is_over() || free.is_empty() {
            true => SILENCE_MAX,
            false => Timespec::try_from(schedule.due.saturating_duration_since(Instant::now()))?,
        };
        let came = poll(&mut [PollFd::new(&*session, PollFlags::IN)], Some(&wait));
        ensure!(came != Ok(0) || wait != SILENCE_MAX, "no answer within {} s", wait.tv_sec);
        done.clear();
        session.receive(Patience::Look, &mut done)?;
        let now = Instant::now();
        for &lane in &done {
            driven.note(load, now - due_of[lane]);
            free.push(lane);
        }
    }
    driven.elapsed = schedule.start.elapsed();
    Ok(driven)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_late_is_still_due_when_it_was() {
        let mut schedule = Schedule::new(2, 100, Duration::from_millis(60)).unwrap();
        let start = schedule.start;
        let late = start + Duration::from_millis(50);
        let taken: Vec<Instant> = std::iter::from_fn(|| schedule.take(late)).collect();
        let millis: Vec<u128> = taken.iter().map(|due| (*due - start).as_millis()).collect();
        assert_eq!(millis, [0, 0, 20, 20, 40, 40]);
        assert!(schedule.is_over() && schedule.take(late).is_none());
    }
}
