//! The API of a site: what it speaks, who may, and its two ends.
mod client;
mod error;
pub mod types;

pub use client::{Client, Endpoint};
pub use error::{ApiError, Code};
