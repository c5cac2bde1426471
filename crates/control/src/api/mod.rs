//! The API of a site: what it speaks, who may, and its two ends.
mod client;
mod error;
mod extract;
mod metrics;
mod openapi;
mod routes;
mod serve;
pub mod types;

pub use client::{Client, Endpoint};
pub use error::{ApiError, Code};
pub use openapi::document;
pub use serve::{router, serve};
