//! The words that every other crate shares, and the doors to the world.
//!
//! This crate knows no runtime, no file and no socket. `engine`, `replication` and `frontend` see
//! the world only through the traits that are defined here, which is what lets the simulator run
//! the real code against a false world.
#![forbid(unsafe_code)]

mod buf;
mod disk;
mod position;
mod units;

pub use buf::{Buf, BufPool, Data, Lent, PAGE_LEN};
pub use disk::{
    Completion, Disk, DiskError, DiskErrorKind, Done, Geometry, Io, IoId, IoMode, SectorSize, Wait,
};
pub use position::{Position, Seq, Term};
pub use units::{ByteLen, ByteOffset, LOGICAL_SECTOR};
