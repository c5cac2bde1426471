//! The unit as a whole, over a volume in memory.
mod attentions;
mod commands;
mod copies;
mod errors;
mod hostile;
mod management;
mod model;
mod order;
mod reports;
mod reserve;
mod rig;
mod volume;
