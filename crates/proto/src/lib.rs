//! Our own `.proto` definitions, what is generated of them, and the client of the catalog.
//!
//! Everybody who speaks to a catalog or a node stands on this crate, so it knows none of our others.
//! The definitions are in `proto/pollux/v1`; their comments are the contract. Those of the container storage
//! interface are in `proto/csi/v1`, in our words and with the public names and numbers.
#![forbid(unsafe_code)]

pub mod catalog_client;
pub mod copy;
pub mod deletion;
mod secrets;

/// What is generated of `proto/pollux/v1`.
#[allow(clippy::all, clippy::cast_possible_truncation, clippy::unwrap_used)]
pub mod v1 {
    tonic::include_proto!("pollux.v1");
}

/// What is generated of `proto/csi/v1`.
#[allow(clippy::all, clippy::cast_possible_truncation, clippy::unwrap_used)]
pub mod csi {
    tonic::include_proto!("csi.v1");
}
