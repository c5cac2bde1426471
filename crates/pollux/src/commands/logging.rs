//! Where daemons write what happens to them: standard error, one line for each event.
use std::io;

use tracing_subscriber::EnvFilter;

/// `POLLUX_LOG` chooses what is shown, in the words of the filter: `info`, `node=debug`.
pub fn start() {
    let filter = EnvFilter::try_from_env("POLLUX_LOG").unwrap_or_else(|_| EnvFilter::new("info"));
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(io::stderr).init();
}
