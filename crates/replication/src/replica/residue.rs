//! The sizes of what a replica holds: see [`Residue`].
use block::Position;

use crate::replica::Replica;
use crate::replica::internal::Kind;
use crate::residue::Residue;

impl Replica {
    /// Every queue, map and list of the machine. Looks at sizes only.
    pub fn residue(&self) -> Vec<Residue> {
        let state = &self.state;
        let bases = self.internal.iter().filter(|entry| Kind::Base.has(entry)).count();
        vec![
            Residue::none("plans", self.plans.len()),
            Residue::none("operations of the store", self.asked.len()),
            Residue::none("operations to be asked again", self.again.len()),
            Residue::none("entries to be applied", self.apply.len()),
            Residue::none("fetches", self.fetches.len()),
            Residue::none("imports", usize::from(state.import.is_some())),
            Residue::none("staged contents", usize::from(self.staged.is_some())),
            Residue::none("bases of imports", bases),
            Residue::none("snapshots to be made", usize::from(state.pending.is_some())),
            Residue::none("deletions to be done", state.shared.doomed.len()),
        ]
    }

    /// Where it is frozen for a round.
    pub fn frozen_at(&self) -> impl Iterator<Item = Position> {
        self.internal.iter().filter(|it| Kind::Round.has(it)).map(|it| it.position)
    }
}
