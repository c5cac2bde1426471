//! What disturbed a round: the host that gave the machine's time to others, and other processes
//! of the machine. Rounds with much of either say little.
use std::fs;
use std::time::Duration;

use anyhow::Result;
use rustix::time::{ClockId, clock_gettime};
use serde::Serialize;

/// Percent of the time of all processors.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Noise {
    pub stolen: f64,
    pub others: f64,
}

impl Noise {
    /// Of some rounds, the worst.
    pub fn max(of: impl Iterator<Item = Noise>) -> Noise {
        of.fold(Noise::default(), |most, one| Noise {
            stolen: most.stolen.max(one.stolen),
            others: most.others.max(one.others),
        })
    }

    pub fn begin() -> Result<Listening> {
        Ok(Listening { ticks: Ticks::now()?, own: own_time() })
    }

    pub fn shown(&self) -> String {
        format!("{:.0} {:.0}", self.stolen, self.others)
    }
}

pub struct Listening {
    ticks: Ticks,
    own: Duration,
}

impl Listening {
    /// `servers` is the time that the measured processes took meanwhile.
    pub fn end(&self, servers: Duration) -> Result<Noise> {
        let now = Ticks::now()?;
        let second = rustix::param::clock_ticks_per_second() as f64;
        let since =
            |of: fn(&Ticks) -> u64| of(&now).saturating_sub(of(&self.ticks)) as f64 / second;
        let all = since(|ticks| ticks.all).max(f64::EPSILON);
        let ours = servers + own_time().saturating_sub(self.own);
        let others = since(|ticks| ticks.busy) - ours.as_secs_f64();
        Ok(Noise {
            stolen: since(|ticks| ticks.stolen) * 100.0 / all,
            others: others.max(0.0) * 100.0 / all,
        })
    }
}

fn own_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    Duration::new(seconds, u32::try_from(time.tv_nsec).unwrap_or(0))
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Ticks {
    all: u64,
    busy: u64,
    stolen: u64,
}

impl Ticks {
    fn now() -> Result<Ticks> {
        Ok(Ticks::parse(&fs::read_to_string("/proc/stat")?))
    }

    fn parse(text: &str) -> Ticks {
        let line = text.lines().next().and_then(|line| line.strip_prefix("cpu "));
        let numbers: Vec<u64> =
            line.into_iter().flat_map(str::split_whitespace).flat_map(str::parse).collect();
        // After these come guests, which are counted in the others already.
        let [user, nice, system, idle, iowait, irq, soft, stolen] =
            [0, 1, 2, 3, 4, 5, 6, 7].map(|at| numbers.get(at).copied().unwrap_or(0));
        // Interrupts are the network's, so they belong to whom is measured; they are not counted
        // as his time everywhere, and therefore not as anybody's.
        let busy = user + nice + system;
        Ticks { all: busy + idle + iowait + irq + soft + stolen, busy, stolen }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_told_apart() {
        let ticks = Ticks::parse("cpu  1 2 3 10 20 100 200 4 5 6\ncpu0 9");
        assert_eq!(ticks, Ticks { all: 340, busy: 6, stolen: 4 });
        assert_eq!(Ticks::parse(""), Ticks::default());
    }

    #[test]
    fn the_worst_of_each() {
        let one = Noise { stolen: 1.0, others: 9.0 };
        let two = Noise { stolen: 5.0, others: 2.0 };
        let most = Noise::max([one, two].into_iter());
        assert_eq!((most.stolen, most.others), (5.0, 9.0));
    }
}
