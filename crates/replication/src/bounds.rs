//! Bounds of lists that worlds of the simulator make smaller, so that they are reached there.
//!
//! What ships has the numbers of [`REIGNS_MAX`], [`DOOMED_MAX`] and [`ROUNDS_MAX`]: the feature `faults` is
//! on in tests only. A world runs on one thread, and all of its machines have the same bounds, as all
//! nodes of a site have.
#[cfg(feature = "faults")]
use std::cell::Cell;

use crate::history::REIGNS_MAX;
use crate::replica::ROUNDS_MAX;
use crate::state::DOOMED_MAX;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Reigns that a history remembers.
    pub reigns: usize,
    /// Snapshots that wait to be deleted.
    pub doomed: usize,
    /// Snapshots that a source keeps for rounds.
    pub rounds: usize,
}

pub const BOUNDS: Bounds = Bounds { reigns: REIGNS_MAX, doomed: DOOMED_MAX, rounds: ROUNDS_MAX };

#[cfg(feature = "faults")]
thread_local! {
    static LOWERED: Cell<Bounds> = const { Cell::new(BOUNDS) };
}

/// For all machines of this thread from now on. Bounds can be lowered only: stored states have room
/// for no more.
#[cfg(feature = "faults")]
pub fn lower(bounds: Bounds) {
    let fits = bounds.reigns <= BOUNDS.reigns
        && bounds.doomed <= BOUNDS.doomed
        && bounds.rounds <= BOUNDS.rounds;
    assert!(fits, "bounds are lowered, never raised: {bounds:?} above {BOUNDS:?}");
    LOWERED.set(bounds);
}

pub fn bounds() -> Bounds {
    #[cfg(feature = "faults")]
    return LOWERED.get();
    #[cfg(not(feature = "faults"))]
    BOUNDS
}
