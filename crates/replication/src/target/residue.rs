//! The sizes of what a reign holds: see [`Residue`].
use crate::replica::ROUNDS_MAX;
use crate::residue::Residue;
use crate::target::Target;

impl Target {
    /// Every queue, map and list of the machine. Looks at sizes only.
    pub fn residue(&self) -> Vec<Residue> {
        let reads: usize = self.peers.values().map(|peer| peer.reads).sum();
        let members = self.steps.membership.everybody().len() + self.object.desired.len();
        let mut all = vec![
            Residue::none("reads under way", self.reads.len()),
            Residue::none("reads that peers were asked", reads),
            Residue::none("repairs", self.repairs.len()),
            Residue::none("commands", self.commands.len()),
            Residue::none("holds", usize::from(self.holds.is_in_force())),
            Residue::none("deletions to be told", self.shared.doomed.len()),
            Residue::none("steps of an operator", self.steps.of_operators()),
            // What is behind the last flush, and that flush.
            Residue::up_to(1, "entries for replay", self.sequence.len()),
            Residue::up_to(members, "peers", self.peers.len()),
            Residue::up_to(ROUNDS_MAX * members, "frozen sources", self.rounds.kept.len()),
        ];
        all.extend(self.front.residue());
        all
    }
}
