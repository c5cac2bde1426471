//! Holds the marker of planted faults, so that the check of the release build can be shown to
//! find it.
#![forbid(unsafe_code)]

fn main() {
    println!("{} {:?}", engine::FAULT_MARKER, engine::Fault::NoIdleDurable);
}
