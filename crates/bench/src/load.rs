//! The load: a closed loop that keeps a number of IOs outstanding, the same for both sides.
use std::time::Duration;

use anyhow::Result;
use sim::Rng;

use crate::cost::{Round, Stopwatch};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    Read,
    Write,
    /// Each write is followed by a flush, and is done when that is.
    WriteFlush,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    Random,
    Sequential,
}

#[derive(Clone, Copy, Debug)]
pub struct Load {
    pub direction: Direction,
    pub order: Order,
    /// Bytes of one IO.
    pub len: usize,
    /// IOs outstanding.
    pub depth: usize,
}

/// When a round is over.
#[derive(Clone, Copy, Debug)]
pub enum Until {
    Time(Duration),
    /// Everything was touched once, from the start.
    End,
    /// So many IOs were done.
    Ios(u64),
}

#[derive(Clone, Copy, Debug)]
pub enum Step {
    Read { offset: u64, len: usize },
    Write { offset: u64, len: usize },
    Flush,
}

/// One of the two that are compared. A lane has one step under way at a time.
pub trait Side {
    /// Bytes that the load is spread over.
    fn span(&self) -> u64;

    fn begin(&mut self, lane: usize, step: Step);

    /// Hands over what was begun, and waits until something is finished.
    fn turn(&mut self) -> Result<()>;

    /// A lane whose step is over.
    fn finished(&mut self) -> Result<Option<usize>>;
}

struct Offsets<'a> {
    rng: &'a mut Rng,
    order: Order,
    count: u64,
    next: u64,
    len: u64,
}

impl Offsets<'_> {
    fn next(&mut self) -> u64 {
        let at = match self.order {
            Order::Random => self.rng.below(self.count),
            Order::Sequential => self.next,
        };
        self.next = (self.next + 1) % self.count;
        at * self.len
    }
}

/// Runs a load. What was begun when the time is over is finished, and counted.
pub fn run(side: &mut impl Side, load: Load, until: Until, rng: &mut Rng) -> Result<Round> {
    let count = side.span() / load.len as u64;
    let last = match until {
        Until::Time(_) => u64::MAX,
        Until::End => count,
        Until::Ios(ios) => ios,
    };
    let mut offsets = Offsets {
        next: match until {
            Until::Time(_) | Until::Ios(_) => rng.below(count),
            Until::End => 0,
        },
        rng,
        order: load.order,
        count,
        len: load.len as u64,
    };
    let mut flushing = vec![false; load.depth];
    let (mut begun, mut done) = (0, 0);
    let mut begin = |side: &mut _, lane| {
        begun += 1;
        let (offset, len) = (offsets.next(), load.len);
        let step = match load.direction {
            Direction::Read => Step::Read { offset, len },
            Direction::Write | Direction::WriteFlush => Step::Write { offset, len },
        };
        Side::begin(side, lane, step);
        begun
    };
    let watch = Stopwatch::start();
    let mut outstanding = 0;
    let mut over = false;
    for lane in 0..load.depth.min(usize::try_from(count.min(last)).unwrap_or(usize::MAX)) {
        begin(side, lane);
        outstanding += 1;
    }
    let mut started = outstanding as u64;
    while outstanding > 0 {
        side.turn()?;
        if let Until::Time(time) = until {
            over = watch.elapsed() >= time;
        }
        while let Some(lane) = side.finished()? {
            if load.direction == Direction::WriteFlush {
                flushing[lane] = !flushing[lane];
                if flushing[lane] {
                    side.begin(lane, Step::Flush);
                    continue;
                }
            }
            done += 1;
            if over || started == last {
                outstanding -= 1;
            } else {
                started = begin(side, lane);
            }
        }
    }
    Ok(watch.stop(done, done * load.len as u64))
}
