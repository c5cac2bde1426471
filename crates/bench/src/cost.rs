//! What a stretch of work cost: time on the wall, and time of the processors.
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};
use serde::Serialize;

/// One round of a closed loop.
#[derive(Clone, Copy, Debug)]
pub struct Round {
    pub ios: u64,
    pub bytes: u64,
    pub elapsed: Duration,
    pub cpu: Duration,
}

impl Round {
    pub fn per_second(&self) -> f64 {
        self.ios as f64 / self.elapsed.as_secs_f64()
    }

    pub fn megabytes_per_second(&self) -> f64 {
        self.bytes as f64 / 1e6 / self.elapsed.as_secs_f64()
    }

    pub fn cpu_seconds_per_million(&self) -> f64 {
        self.cpu.as_secs_f64() * 1e6 / self.ios as f64
    }
}

pub struct Stopwatch {
    began: Instant,
    cpu: Duration,
}

impl Stopwatch {
    pub fn start() -> Stopwatch {
        Stopwatch { began: Instant::now(), cpu: processor_time() }
    }

    pub fn elapsed(&self) -> Duration {
        self.began.elapsed()
    }

    pub fn stop(&self, ios: u64, bytes: u64) -> Round {
        let (elapsed, now) = (self.began.elapsed(), processor_time());
        Round { ios, bytes, elapsed, cpu: now.saturating_sub(self.cpu) }
    }
}

/// All threads of this process, the kernel's workers for its rings among them.
fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    Duration::new(seconds, u32::try_from(time.tv_nsec).unwrap_or(0))
}

/// The middle of some numbers, and what they lie between.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Spread {
    pub median: f64,
    pub min: f64,
    pub max: f64,
}

impl Spread {
    pub fn of(numbers: impl IntoIterator<Item = f64>) -> Spread {
        let mut sorted: Vec<f64> = numbers.into_iter().collect();
        sorted.sort_by(f64::total_cmp);
        let middle = sorted.len() / 2;
        let (Some(&min), Some(&max)) = (sorted.first(), sorted.last()) else {
            return Spread { median: f64::NAN, min: f64::NAN, max: f64::NAN };
        };
        let median = match sorted.len() % 2 {
            0 => f64::midpoint(sorted[middle - 1], sorted[middle]),
            _ => sorted[middle],
        };
        Spread { median, min, max }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_the_middle_or_between_the_two_middles() {
        let odd = Spread::of([3.0, 1.0, 2.0]);
        assert_eq!((odd.median, odd.min, odd.max), (2.0, 1.0, 3.0));
        assert_eq!(Spread::of([4.0, 1.0, 2.0, 3.0]).median, 2.5);
    }
}
