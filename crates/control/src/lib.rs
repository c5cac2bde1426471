//! The control plane of a site: its catalog, its controller, its API, and CSI over that. It knows no
//! Kubernetes.
#![forbid(unsafe_code)]

pub mod api;
pub mod catalog;
pub mod controller;
pub mod csi;
mod hex;
pub mod parameters;
pub mod recovery;
pub mod serve;
pub mod steps;
