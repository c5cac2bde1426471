//! Runs real `pollux` processes for tests and benches. Not shipped.
//!
//! A [`site::Rig`] is a catalog and nodes on this machine that can be killed and started again, a
//! [`load::Load`] writes what it can check, and [`links`] takes the wire between two nodes away. A
//! [`plugin::Plugin`] has volumes of the site mounted on this machine, where [`files::FileLoad`] writes.
#![forbid(unsafe_code)]

pub mod api;
pub mod csi;
pub mod disk;
pub mod files;
pub mod links;
pub mod load;
pub mod nbd;
pub mod operator;
pub mod plugin;
pub mod pools;
pub mod process;
pub mod random;
pub mod remains;
pub mod site;
