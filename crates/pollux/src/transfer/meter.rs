//! How far a transfer is, for somebody who waits.
use std::io::{self, IsTerminal};

use block::ByteLen;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

const KNOWN: &str = "{msg} {wide_bar} {bytes}/{total_bytes}, {bytes_per_sec}, {eta} left";
const UNKNOWN: &str = "{msg} {spinner} {bytes}, {bytes_per_sec}, for {elapsed}";

/// Shown on standard error if that is a terminal, and gone when the transfer is over.
pub struct Meter(ProgressBar);

impl Meter {
    /// Whether there is somebody to show it to: finding out how much there is to do may cost time.
    pub fn is_seen(quiet: bool) -> bool {
        !quiet && io::stderr().is_terminal()
    }

    pub fn new(quiet: bool, what: &'static str, total: Option<ByteLen>) -> Meter {
        if !Meter::is_seen(quiet) {
            return Meter(ProgressBar::hidden());
        }
        let target = ProgressDrawTarget::stderr();
        let bar = ProgressBar::with_draw_target(total.map(|total| total.0), target);
        let template = if total.is_some() { KNOWN } else { UNKNOWN };
        let style = ProgressStyle::with_template(template).expect("the templates above are right");
        bar.set_style(style);
        bar.set_message(what);
        Meter(bar)
    }

    pub fn reached(&self, bytes: u64) {
        self.0.set_position(bytes);
    }
}

impl Drop for Meter {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
