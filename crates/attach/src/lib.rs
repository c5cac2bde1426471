//! A volume as a device, and as a file tree, of this machine.
//!
//! [`Host`] is what a plugin or a person uses: attach, stage, publish, and all of it back. It keeps nothing in
//! memory; after a crash the next one finds what there is in [`record`], in the kernel's table of mounts, and by
//! asking the process of each attachment ([`orders`]). That process ([`process`]) outlives the plugin: it has the
//! connection to the target ([`link`]), and the device ([`ways`]).
//!
//! The life of a write: file system -> block device -> `ways` (for FUSE: `fuse.rs`) -> `link` -> the target.
#![deny(unsafe_code)]

#[allow(unsafe_code, reason = "system calls that no library has for us")]
mod calls;
pub mod filesystem;
mod fuse;
pub mod host;
pub mod link;
mod loops;
mod mounts;
pub mod orders;
pub mod process;
pub mod record;
mod sync;
mod tools;
pub mod ways;

pub use host::{Host, HostError};
