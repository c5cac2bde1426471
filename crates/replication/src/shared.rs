//! What an entry does to the small state. The same on the target and on every replica: it follows
//! from the entry and the state before it, and from nothing else.
use block::Position;

use crate::bounds::bounds;
use crate::constants::VOLUME_MAX;
use crate::entry::Change;
use crate::history::Reign;
use crate::state::{
    CLONES_MAX, Doomed, POINTS_MAX, RESERVATIONS_MAX, SharedState, SnapshotEntry, SnapshotSpec,
};

impl SharedState {
    /// The state behind an entry. `Err`: no target that keeps the bounds makes it.
    pub fn follow(&mut self, position: Position, change: &Change) -> Result<(), &'static str> {
        let Position { term, seq } = position;
        match change {
            Change::Barrier { stages } => {
                let last = self.reigns.list().last();
                if last.is_some_and(|last| last.term >= term || last.first >= seq) {
                    return Err("a barrier of a reign that has begun already");
                }
                self.reigns.push(Reign { term, first: seq });
                self.stages = *stages;
            }
            Change::Close => self.closed = seq,
            Change::DeleteSnapshot(snapshot) => {
                let fits = self.doomed.len() < bounds().doomed;
                bounded(fits, "too many snapshots wait to be deleted")?;
                self.doomed.push(Doomed { snapshot: *snapshot, at: seq });
            }
            Change::MarkClone { snapshot, clone } => {
                self.clones.retain(|(_, marked)| marked != clone);
                bounded(self.clones.len() < CLONES_MAX, "too many clones")?;
                self.clones.push((*snapshot, *clone));
            }
            Change::UnmarkClone { clone } => self.clones.retain(|(_, marked)| marked != clone),
            Change::Resize { size } => {
                bounded(size.0 <= VOLUME_MAX, "larger than a volume can be")?;
                self.size = self.size.max(*size);
            }
            Change::Reservations(bytes) => {
                bounded(bytes.len() <= RESERVATIONS_MAX, "too many reservations")?;
                self.reservations.clone_from(bytes);
            }
            Change::Points(bytes) => {
                bounded(bytes.len() <= POINTS_MAX, "too many mirror points")?;
                self.points.clone_from(bytes);
            }
            Change::Stages(stages) => self.stages = *stages,
            Change::Membership(membership) => self.membership = membership.clone(),
            Change::Write { .. }
            | Change::Zero { .. }
            | Change::Flush
            | Change::Snapshot(_)
            | Change::Rollback { .. } => {}
        }
        Ok(())
    }
}

impl Change {
    /// Whether it is a part of the small state: then that is kept together with its position.
    pub fn is_state(&self) -> bool {
        !matches!(
            self,
            Change::Write { .. }
                | Change::Zero { .. }
                | Change::Flush
                | Change::Snapshot(_)
                | Change::Rollback { .. }
        )
    }
}

impl SnapshotSpec {
    pub fn at(&self, position: Position) -> SnapshotEntry {
        let SnapshotSpec { uid, name, created } = self.clone();
        SnapshotEntry { uid, name, created, position }
    }
}

impl SnapshotEntry {
    pub fn spec(&self) -> SnapshotSpec {
        let SnapshotEntry { uid, name, created, .. } = self.clone();
        SnapshotSpec { uid, name, created }
    }
}

fn bounded(holds: bool, otherwise: &'static str) -> Result<(), &'static str> {
    if holds { Ok(()) } else { Err(otherwise) }
}
