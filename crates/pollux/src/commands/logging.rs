//! Where daemons write what happens to them: standard error, one line for each event.
use std::io::{self, IsTerminal};

use tracing_subscriber::EnvFilter;

/// `POLLUX_LOG` chooses what is shown, in the words of the filter: `info`, `node=debug`.
pub fn start() {
    let filter = EnvFilter::try_from_env("POLLUX_LOG").unwrap_or_else(|_| EnvFilter::new("info"));
    // Colours are for terminals; in a file they would be in the way of words.
    let colours = io::stderr().is_terminal();
    let lines = tracing_subscriber::fmt().with_env_filter(filter).with_ansi(colours);
    lines.with_writer(io::stderr).init();
}
