//! The proof that nothing is lost: a load whose every sector tells where it comes from, and a
//! ledger that knows what each sector may hold after a crash.
//!
//! Everything here is used twice: by `pollux demo` for people, by `tests/kill.rs` for the promise.
mod content;
mod ledger;
mod load;
mod pool;
mod scratch;
mod script;
mod step;
mod victim;
mod wire;
mod writer;

pub use content::{SECTOR, Stamp};
pub use ledger::{Ledger, Promise, Verified};
pub use load::Load;
pub use pool::{VOLUMES, format, limits, open};
pub use scratch::{Scratch, entropy};
pub use script::Script;
pub use step::{Event, Step, StepKind};
pub use victim::Victim;
pub use writer::{Orders, write_until_killed};
