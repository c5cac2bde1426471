//! iSCSI, target side (RFC 7143).
//!
//! A [`Portal`] holds all connections and sessions of a shard. It gets bytes and answers, and gives
//! bytes and commands; it knows no socket and no clock. A session has one connection, and error
//! recovery is at level 0: what goes wrong on the wire ends the session, and the initiator logs in
//! anew.
//!
//! No initiator can make it panic or take memory beyond [`Limits`]. What is to be sent is not
//! counted here: an owner that cannot get rid of it should stop receiving, too.
mod budget;
mod chap;
mod command;
mod conn;
mod data_in;
mod digest;
mod drive;
mod errors;
mod events;
mod limits;
mod line;
mod login;
mod manage;
mod negotiate;
mod pdu;
mod portal;
mod receive;
mod session;
mod task;
mod text;
mod text_request;
mod window;

#[cfg(test)]
mod tests;

pub use chap::Random;
#[doc(hidden)]
pub use drive::drive;
pub use errors::{CloseReason, LoginError, ProtocolError, TextError};
pub use events::{
    Access, Chap, ConnNo, Event, Found, ManageId, Output, Secret, SessionNo, TargetRecord,
};
pub use limits::Limits;
pub use portal::Portal;
