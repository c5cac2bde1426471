//! The disk that iSCSI carries commands to.
//!
//! One [`unit`] per volume that is served, shared by all its sessions. It takes whole commands, with
//! all their data, and gives whole responses.
mod attention;
mod bytes;
mod capacity;
mod cdb;
mod claims;
mod compare;
mod copy;
mod decode;
mod disk;
mod drive;
mod elsewhere;
mod inquiry;
mod jobs;
mod manage;
mod mode;
mod opcodes;
mod or_write;
mod order;
mod perform;
mod provisioning;
mod reservations;
mod rw;
mod same;
mod sense;
mod tasks;
pub mod unit;
mod unmap;
mod verify;
mod vpd;
pub mod words;

#[cfg(test)]
mod tests;

#[doc(hidden)]
pub use drive::drive;
pub use inquiry::Identity;
pub use reservations::BadReservations;
pub use unit::{Event, Output, Unit};
