//! The embedded catalog: one process that owns one file, and serves it.
//!
//! What is promised is in `docs/catalog.md`. The life of a swap: `service.rs` (is it well formed) ->
//! `writer.rs` (waits for others, so that one sync of the disk serves all) -> `file/` (one transaction,
//! judged one by one by `judge.rs`) -> answered, and told to everybody who watches (`watch.rs`).
mod check;
mod file;
pub(crate) mod judge;
pub(crate) mod limits;
mod refusals;
pub(crate) mod restore;
mod serve;
mod service;
mod watch;
mod writer;

/// Whether an object may be called so.
pub fn is_name(text: &str) -> bool {
    check::name("name", text).is_ok()
}

pub use file::{FileError, OpenError};
pub use refusals::Refusals;
pub use serve::{Options, ServeError, run, serve};
