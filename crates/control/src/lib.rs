//! The control plane of a site. For now its catalog; it knows no Kubernetes.
#![forbid(unsafe_code)]

pub mod catalog;
pub mod direct;
