//! The clock of a node: another zero than any other, a little too fast or too slow, and it stops for
//! moments.
use replication::constants::{DRIFT_PERCENT, LEASE};
use replication::words::Moment;

use crate::Rng;
use crate::quorum::clients::Time;

const MILLION: u64 = 1_000_000;

/// A clock runs this many parts in a million too fast or too slow, at the most: two of them are less
/// than one part in a hundred apart.
const DRIFT_PPM: u64 = 4_900;

/// Between the beginnings of two stops of a clock, at the least: longer than any clock takes for a
/// lease and the drift that is allowed for.
const STOPS_APART: u64 = LEASE.0 + LEASE.0 / 10;
const STOPS_APART_MAX: u64 = 5 * STOPS_APART;

#[derive(Clone, Copy, Debug)]
pub(super) struct Clock {
    offset: u64,
    /// Parts in a million of real time, while it runs.
    rate: u64,
    /// It stops once in so many microseconds, the first time at `first`, each time for `stop`.
    every: u64,
    first: u64,
    stop: u64,
    /// A clock that does not count the sleep of its process: how long that slept, and the last sleep.
    slept: u64,
    asleep: (Time, Time),
}

impl Clock {
    pub fn draw(rng: &mut Rng) -> Clock {
        let rate = MILLION - DRIFT_PPM + rng.below(2 * DRIFT_PPM + 1);
        let offset = rng.below(1 << 40);
        let mut of_stops = Rng::new(offset);
        let every = of_stops.range(STOPS_APART..STOPS_APART_MAX);
        Clock {
            offset,
            rate,
            every,
            first: of_stops.below(every),
            stop: of_stops.below(stop_max(rate) + 1),
            slept: 0,
            asleep: (Time(0), Time(0)),
        }
    }

    pub fn at(&self, now: Time) -> Moment {
        let awake = now.0 - self.slept - self.asleep_at(now);
        let runs = awake - self.stopped(awake);
        Moment(self.offset + runs * self.rate / MILLION)
    }

    /// For how long it had stood still at this moment.
    fn stopped(&self, at: u64) -> u64 {
        let Some(since) = at.checked_sub(self.first) else { return 0 };
        since / self.every * self.stop + (since % self.every).min(self.stop)
    }

    /// Its process sleeps, and the clock does not go on meanwhile: no clock that a target may use.
    #[cfg(feature = "faults")]
    pub fn sleep(&mut self, from: Time, until: Time) {
        self.slept += self.asleep_at(from);
        self.asleep = (from, until);
    }

    fn asleep_at(&self, now: Time) -> u64 {
        let (from, until) = self.asleep;
        now.min(until).0.saturating_sub(from.0)
    }
}

/// How long a clock of this rate may stop, once in `STOPS_APART`.
///
/// What is promised: while the clock of one node counts a lease and the drift bound, L x (1 + d), the
/// clock of any other counts at least L. The first takes at least L x (1 + d) / (1 + f) of real time
/// for it, with f the most by which a clock is too fast; its own stops only make that longer. In
/// that time the other counts rate x L x (1 + d) / (1 + f), less what it stood still. So it may stand
/// still for what is more than L. The time is at most L x (1 + d) / (1 - f) and a stop, which is
/// below `STOPS_APART`: it has no more than one stop's worth in it. Time beyond L x (1 + d) / (1 + f)
/// without another stop only adds to what the other counts.
fn stop_max(rate: u64) -> u64 {
    let real = LEASE.0 * (100 + DRIFT_PERCENT) / 100 * MILLION / (MILLION + DRIFT_PPM);
    let too_much = (real * rate / MILLION).saturating_sub(LEASE.0);
    // It would have counted `rate` of the time that it stands still.
    (too_much * MILLION / rate).saturating_sub(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Protects from worlds whose clocks break the promise that the lease is built on, or use
    /// nothing of it.
    #[test]
    fn any_two_clocks_stay_within_the_drift_bound() {
        let clocks: Vec<Clock> = (0..60).map(|seed| Clock::draw(&mut Rng::new(seed))).collect();
        let waits = LEASE.0 * (100 + DRIFT_PERCENT) / 100;
        let mut least = u64::MAX;
        for waiting in &clocks {
            for step in 0..400 {
                let from = Time(step * 50_000);
                // The first moment at which this clock has counted the whole wait.
                let begun = waiting.at(from).0;
                let (mut early, mut late) = (from.0, from.0 + 2 * waits);
                while early < late {
                    let middle = (early + late) / 2;
                    match waiting.at(Time(middle)).0 - begun >= waits {
                        true => late = middle,
                        false => early = middle + 1,
                    }
                }
                for other in &clocks {
                    least = least.min(other.at(Time(late)).0 - other.at(from).0);
                }
            }
        }
        assert!(least >= LEASE.0, "a lease of {least} us outlives the wait of its successor");
        assert!(least < LEASE.0 + LEASE.0 / 1000, "clocks are {least} us apart at the worst");
    }
}
