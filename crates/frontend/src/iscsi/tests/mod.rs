//! The portal as initiators see it.
mod client;
mod commands;
mod digests;
mod discovery;
mod hostile;
mod life;
mod login;
mod manage;
mod memory;
mod reads;
mod rejects;
mod replace;
mod writes;
