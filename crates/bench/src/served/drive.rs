//! The load on served volumes, the same for every server: closed loops over any number of
//! sessions, and a paced one. All sessions are driven by one thread, since the servers need the
//! processors too.
use std::collections::BTreeSet;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use rustix::buffer::spare_capacity;
use rustix::event::{PollFd, PollFlags, Timespec, epoll, poll};
use rustix::io::Errno;
use sim::Rng;

use super::session::{Patience, Session};
use crate::latency::Latencies;
use crate::load::{Direction, Load, Order, Step, Until};

/// Nobody may be silent for longer.
const SILENCE_MAX: Timespec = Timespec { tv_sec: 30, tv_nsec: 0 };

/// What came of a load.
#[derive(Default)]
pub struct Driven {
    pub ios: u64,
    pub bytes: u64,
    pub elapsed: Duration,
    pub latencies: Latencies,
}

#[derive(Clone, Copy)]
struct Lane {
    began: Instant,
    /// Its write is done, and its flush is under way.
    flushing: bool,
}

/// What is asked next.
struct Steps<'a> {
    load: Load,
    rng: &'a mut Rng,
    count: u64,
    next: u64,
    begun: u64,
}

impl<'a> Steps<'a> {
    fn new(load: Load, span: u64, until: Until, rng: &'a mut Rng) -> Steps<'a> {
        let count = span / load.len as u64;
        let next = match until {
            Until::Time(_) | Until::Ios(_) => rng.below(count),
            Until::End => 0,
        };
        Steps { load, rng, count, next, begun: 0 }
    }

    fn next(&mut self) -> Step {
        let block = match self.load.order {
            Order::Random => self.rng.below(self.count),
            Order::Sequential => self.next,
        };
        self.next = (self.next + 1) % self.count;
        self.begun += 1;
        let (offset, len) = (block * self.load.len as u64, self.load.len);
        match self.load.direction {
            Direction::Read => Step::Read { offset, len },
            Direction::Write | Direction::WriteFlush => Step::Write { offset, len },
        }
    }
}

/// Which sessions have something to say.
struct Watching {
    epoll: OwnedFd,
    ready: Vec<epoll::Event>,
}

impl Watching {
    fn of_all(sessions: &[Session]) -> Result<Watching> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        for (at, session) in sessions.iter().enumerate() {
            let data = epoll::EventData::new_u64(at as u64);
            epoll::add(&epoll, session, data, epoll::EventFlags::IN)?;
        }
        Ok(Watching { epoll, ready: Vec::with_capacity(sessions.len()) })
    }

    /// Waits for some of them, or for the time to pass.
    fn wait(&mut self, at_most: Timespec, chosen: &mut Vec<usize>) -> Result<()> {
        chosen.clear();
        self.ready.clear();
        match epoll::wait(&self.epoll, spare_capacity(&mut self.ready), Some(&at_most)) {
            Err(Errno::INTR) => return Ok(()),
            came => came?,
        };
        for event in &self.ready {
            chosen.push(usize::try_from(event.data.u64())?);
        }
        Ok(())
    }
}

/// How a closed loop waits for answers.
enum Waiting {
    /// On the only session: it is waited for as it is read.
    Alone,
    OnSeveral(Watching),
}

impl Waiting {
    fn on(sessions: &[Session]) -> Result<Waiting> {
        match sessions {
            [_] => Ok(Waiting::Alone),
            several => Ok(Waiting::OnSeveral(Watching::of_all(several)?)),
        }
    }

    fn wait(&mut self, chosen: &mut Vec<usize>) -> Result<Patience> {
        match self {
            Waiting::Alone => {
                chosen.clear();
                chosen.push(0);
                Ok(Patience::Wait)
            }
            Waiting::OnSeveral(watching) => {
                watching.wait(SILENCE_MAX, chosen)?;
                ensure!(!chosen.is_empty(), "no answer within {} s", SILENCE_MAX.tv_sec);
                Ok(Patience::Look)
            }
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
    let mut steps = Steps::new(load, span, until, rng);
    let last = match until {
        Until::Time(_) => u64::MAX,
        Until::End => steps.count,
        Until::Ios(ios) => ios,
    };
    let mut waiting = Waiting::on(sessions)?;
    let (mut chosen, mut done) = (Vec::new(), Vec::new());
    let mut driven = Driven::default();
    let start = Instant::now();
    let mut lanes = vec![Lane { began: start, flushing: false }; sessions.len() * load.depth];
    let mut outstanding = 0u64;
    for session in sessions.iter_mut() {
        for lane in 0..load.depth {
            if steps.begun < last {
                session.begin(lane, steps.next());
                outstanding += 1;
            }
        }
        session.send()?;
    }
    while outstanding > 0 {
        let patience = waiting.wait(&mut chosen)?;
        for &at in &chosen {
            let session = &mut sessions[at];
            done.clear();
            session.receive(patience, &mut done)?;
            let now = Instant::now();
            let over = matches!(until, Until::Time(time) if now - start >= time);
            for &number in &done {
                let lane = &mut lanes[at * load.depth + number];
                if load.direction == Direction::WriteFlush {
                    lane.flushing = !lane.flushing;
                    if lane.flushing {
                        session.begin(number, Step::Flush);
                        continue;
                    }
                }
                driven.latencies.note(now - lane.began);
                driven.ios += 1;
                lane.began = now;
                if over || steps.begun >= last {
                    outstanding -= 1;
                } else {
                    session.begin(number, steps.next());
                }
            }
            session.send()?;
        }
    }
    driven.elapsed = start.elapsed();
    driven.bytes = driven.ios * load.len as u64;
    Ok(driven)
}

/// Begins `load.depth` requests at once, so often that there are `rate` of them in a second,
/// whether those before are answered or not: what a server makes wait is counted from when it was
/// due. At most `WAITING` times the depth are under way.
pub fn pace(
    session: &mut Session,
    load: Load,
    span: u64,
    rate: u32,
    time: Duration,
    rng: &mut Rng,
) -> Result<Driven> {
    let mut steps = Steps::new(load, span, Until::Time(time), rng);
    let lanes = load.depth * WAITING;
    let mut free: BTreeSet<usize> = (0..lanes).collect();
    let every = Duration::from_secs(1) * u32::try_from(load.depth)? / rate;
    let start = Instant::now();
    let mut due_of = vec![start; lanes];
    let (mut due, mut left_of_due) = (start, load.depth);
    let mut done = Vec::new();
    let mut driven = Driven::default();
    loop {
        let now = Instant::now();
        while due <= now && due - start < time {
            let Some(lane) = free.pop_first() else { break };
            due_of[lane] = due;
            session.begin(lane, steps.next());
            left_of_due -= 1;
            if left_of_due == 0 {
                (due, left_of_due) = (due + every, load.depth);
            }
        }
        session.send()?;
        let over = due - start >= time;
        if over && free.len() == lanes {
            break;
        }
        let wait = match over || free.is_empty() {
            true => SILENCE_MAX,
            false => Timespec::try_from(due.saturating_duration_since(Instant::now()))?,
        };
        let came = poll(&mut [PollFd::new(&*session, PollFlags::IN)], Some(&wait));
        ensure!(came != Ok(0) || wait != SILENCE_MAX, "no answer within {} s", wait.tv_sec);
        done.clear();
        session.receive(Patience::Look, &mut done)?;
        let now = Instant::now();
        for &lane in &done {
            driven.latencies.note(now - due_of[lane]);
            driven.ios += 1;
            free.insert(lane);
        }
    }
    driven.elapsed = start.elapsed();
    driven.bytes = driven.ios * load.len as u64;
    Ok(driven)
}

/// Asks nothing for so long, and answers what servers ask.
pub fn hold(sessions: &mut [Session], time: Duration) -> Result<()> {
    let mut watching = Watching::of_all(sessions)?;
    let (end, mut chosen, mut done) = (Instant::now() + time, Vec::new(), Vec::new());
    loop {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(());
        }
        watching.wait(Timespec::try_from(left)?, &mut chosen)?;
        for &at in &chosen {
            sessions[at].receive(Patience::Look, &mut done)?;
            sessions[at].send()?;
        }
        ensure!(done.is_empty(), "answers to nothing");
    }
}

/// Room for requests that are late, as a multiple of those that are due at once.
pub const WAITING: usize = 4;
