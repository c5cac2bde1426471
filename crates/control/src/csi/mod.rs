//! The driver for orchestrators: CSI over the API of a site.
//!
//! It decides nothing about volumes. A call is checked ([`fields`], [`secrets`], [`capability`],
//! [`topology`], [`capacity`], and the table of parameters), made into one or two calls of the API, and its
//! answer told ([`answers`], [`status`]). It keeps no state: two of them can run, and either can be killed.
//! No request is logged, and no secret is in an error.
mod answers;
mod capability;
mod capacity;
mod controller;
mod fields;
#[cfg(test)]
mod fixture;
mod group;
mod identity;
mod metadata;
mod node;
mod paging;
mod secrets;
mod serve;
mod site;
mod socket;
pub(crate) mod status;
mod topology;

pub use answers::context;
pub use identity::DRIVER;
pub use node::{Host, Machine, Mounted, NodeService, SiteWhereabouts, whereabouts};
pub use serve::{Options, Part, ServeError, run, serve};
pub use site::{Site, TokenError};
pub use socket::SocketError;
pub use topology::{PlaceError, place};
