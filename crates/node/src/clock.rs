//! The clock that leases run on: it never jumps back, and goes on while the machine sleeps (P5).
use replication::words::Moment;
use rustix::time::{ClockId, clock_gettime};

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
