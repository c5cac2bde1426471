//! The log of a process: one line for each event, on standard error.
//!
//! Writing to the log never ends the process and never makes the caller wait: lines go through a bounded
//! queue to a thread of their own. A line that does not fit, or that cannot be written (a full disk, a
//! closed or unread pipe), is dropped and counted.
#![forbid(unsafe_code)]

mod queue;

use std::backtrace::{Backtrace, BacktraceStatus};
use std::fs::File;
use std::io::{self, IsTerminal, Write};
use std::os::fd::AsFd;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tracing_subscriber::EnvFilter;

use queue::Queue;

/// How long the end of a process waits for its last lines.
const LAST_LINES: Duration = Duration::from_secs(1);

static QUEUE: OnceLock<Arc<Queue>> = OnceLock::new();

/// Starts the log of a daemon. `POLLUX_LOG` chooses what is shown, in the words of the filter: `info`,
/// `node=debug`.
pub fn start() {
    let filter = EnvFilter::try_from_env("POLLUX_LOG").unwrap_or_else(|_| EnvFilter::new("info"));
    // Colours are for terminals; in a file they would be in the way of words.
    let colours = io::stderr().is_terminal();
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(colours)
        // Its own complaints go to standard error by a macro that panics when that fails.
        .log_internal_errors(false)
        .with_writer(|| Line)
        .init();
    std::panic::set_hook(Box::new(|panic| {
        let backtrace = Backtrace::capture();
        let text = match backtrace.status() {
            BacktraceStatus::Captured => format!("{panic}\n{backtrace}"),
            _ => panic.to_string(),
        };
        last_line(&text);
    }));
}

/// A line without time and level.
pub fn line(text: &str) {
    queue().push(format!("{text}\n").as_bytes());
}

/// The last line of a process. Older lines are dropped for it if there is no room; waits a moment until
/// everything is written.
pub fn last_line(text: &str) {
    queue().push_over_others(format!("{text}\n").as_bytes());
    flush();
}

/// Waits a moment until everything is written. A process that ends calls it.
pub fn flush() {
    if let Some(queue) = QUEUE.get() {
        queue.flush(LAST_LINES);
    }
}

/// Lines that were lost since the process started.
pub fn lines_dropped() -> u64 {
    QUEUE.get().map_or(0, |queue| queue.dropped())
}

fn queue() -> &'static Queue {
    QUEUE.get_or_init(|| {
        // A descriptor of its own: the standard library's handle has a lock, which would be held for as
        // long as a write blocks.
        match io::stderr().as_fd().try_clone_to_owned() {
            Ok(stderr) => Queue::to(File::from(stderr)),
            Err(_) => Queue::nowhere(),
        }
    })
}

/// Takes what the subscriber writes: one call for each event.
struct Line;

impl Write for Line {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        queue().push(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
