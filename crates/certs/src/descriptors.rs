//! Descriptors of a process that listens.
use std::io;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// As many descriptors as the system lets this process have: connections take one each, and the usual limit is meant for
/// programs with a few.
pub fn raise_descriptors() -> io::Result<()> {
    let now = getrlimit(Resource::Nofile);
    let wanted = Rlimit { current: now.maximum, maximum: now.maximum };
    Ok(setrlimit(Resource::Nofile, wanted)?)
}
