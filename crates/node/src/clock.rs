//! The clock that leases run on: it never jumps back, and goes on while the machine sleeps (P5).
use std::fmt;
use std::sync::Arc;

use replication::words::Moment;
use rustix::time::{ClockId, clock_gettime};

/// Where a shard gets the time from. Tests stop it at a moment of their choice.
#[derive(Clone)]
pub struct Clock(Arc<dyn Fn() -> Moment + Send + Sync>);

impl Clock {
    pub fn new(now: impl Fn() -> Moment + Send + Sync + 'static) -> Clock {
        Clock(Arc::new(now))
    }

    pub fn now(&self) -> Moment {
        (self.0)()
    }
}

impl Default for Clock {
    fn default() -> Clock {
        Clock::new(now)
    }
}

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Clock")
    }
}

pub fn now() -> Moment {
    let time = clock_gettime(ClockId::Boottime);
    let seconds = u64::try_from(time.tv_sec).expect("the machine did not start in the future");
    let micros = u64::try_from(time.tv_nsec / 1000).expect("nanoseconds of a second");
    Moment(seconds * 1_000_000 + micros)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_goes_forward() {
        let first = now();
        std::thread::sleep(std::time::Duration::from_millis(2));
        assert!(now().since(first).0 >= 2000);
    }
}
