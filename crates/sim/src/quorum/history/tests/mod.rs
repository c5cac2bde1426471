//! Each kind of violation is found, and nothing that is right is called one.
mod by_hand;
mod losses_by_hand;
mod random;
mod server;
mod world;
