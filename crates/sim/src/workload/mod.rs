//! Random work on a real engine over a false disk, beside a model that is too simple to be wrong.
mod driver;
mod history;
mod mix;
mod verify;

pub use driver::{Driver, Outcome, Paths, open_options};
pub use history::{Change, History, SECTOR, State, Status, View, VolumeState, content};
pub use mix::Mix;
pub use verify::{Expected, Recovery};
