//! The data-plane process: pools, replicas and targets of one node.
#![forbid(unsafe_code)]

pub mod store;
