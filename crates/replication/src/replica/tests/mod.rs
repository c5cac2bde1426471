//! The machine against a small store in memory, which answers when and in which order a test says.
mod entries;
mod hellos;
mod imports;
mod marks;
mod random;
mod rig;
mod sources;
mod store;
