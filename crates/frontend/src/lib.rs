//! Block protocols without sockets: bytes in, questions to a volume out, and back.
//!
//! Nothing here knows a socket, a clock or a volume. Whoever owns the connections feeds what arrived
//! to a machine, carries its questions ([`ask::Ask`]) to the volume, brings the answers back, and sends
//! what the machine gives it. `nbd` and `iscsi` are the protocols, `scsi` is the disk that iSCSI carries
//! commands to.
#![forbid(unsafe_code)]

pub mod ask;
pub mod export;
pub mod iscsi;
pub mod nbd;
pub mod piece;
pub mod scsi;
