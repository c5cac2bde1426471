//! IO by calls that return when it is done: for threads that have nothing else to do.
use std::fs::File;

use block::{Completion, Io};
use rustix::fs::FallocateFlags;

use crate::flight::{Flight, Next, Outcome};
use crate::ioctl;
use crate::target::Kind;

pub(crate) fn perform(
    file: &File,
    kind: Kind,
    sector_len: usize,
    mut flight: Flight,
) -> Completion {
    loop {
        let outcome = attempt(file, kind, &mut flight);
        if let Next::End(result) = flight.advance(outcome, sector_len) {
            return flight.end(result);
        }
    }
}

/// Asks the system once for what is left of an IO.
fn attempt(file: &File, kind: Kind, flight: &mut Flight) -> Outcome {
    let done = flight.done;
    let outcome = match &mut flight.io {
        Io::Read { at, buf } => rustix::io::pread(file, &mut buf[done..], at.0 + done as u64),
        Io::Write { at, data } => rustix::io::pwrite(file, &data[done..], at.0 + done as u64),
        Io::Flush => rustix::fs::fdatasync(file).map(|()| 0),
        Io::Trim { at, len } => match kind {
            Kind::File => {
                let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                rustix::fs::fallocate(file, hole, at.0, len.0).map(|()| 0)
            }
            Kind::Device => ioctl::discard(file, *at, *len).map(|()| 0),
        },
        Io::Allocate { at, len } => {
            rustix::fs::fallocate(file, FallocateFlags::KEEP_SIZE, at.0, len.0).map(|()| 0)
        }
    };
    outcome.map_err(rustix::io::Errno::raw_os_error)
}
