//! What happened, line by line, for those who replay one seed.
use super::clients::Time;

#[derive(Clone, Copy, Debug, Default)]
pub struct Trace {
    pub on: bool,
}

impl Trace {
    pub fn say(self, now: Time, line: impl FnOnce() -> String) {
        if self.on {
            println!("{:>6}.{:03} {}", now.0 / 1000, now.0 % 1000, line());
        }
    }
}
