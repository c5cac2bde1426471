//! Random work on a real engine over a false disk, beside a model that is too simple to be wrong.
mod change;
mod changed;
mod content;
mod driver;
mod history;
mod mix;
mod state;
mod verify;

pub use change::{Change, Entry, Status};
pub use content::Content;
pub use driver::{Driver, Outcome, Paths, open_options};
pub use history::{History, SECTOR, View, content};
pub use mix::Mix;
pub use state::{SnapshotState, State, VolumeState};
pub use verify::{Expected, Recovery};
