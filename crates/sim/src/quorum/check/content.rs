//! What a volume has at a position: all entries of its history, one after the other.
use std::collections::BTreeMap;

use block::{Position, Seq, Term};
use replication::entry::Change;
use replication::words::SnapshotUid;

use super::Observed;
use crate::quorum::clients::{Violation, VolumeNo};
use crate::quorum::sparse::Sparse;

/// The content, and that of the snapshots which were taken on the way and not deleted.
pub struct Model {
    pub bytes: Sparse,
    pub snapshots: BTreeMap<SnapshotUid, Sparse>,
}

impl Observed {
    /// Builds the content at a position from what was seen on the wire. `None`: the beginning of
    /// its history is not known.
    pub fn model(
        &self,
        volume: VolumeNo,
        at: Position,
        size: u64,
    ) -> Result<Option<Model>, Violation> {
        let Some(terms) = self.terms(volume, at) else { return Ok(None) };
        let mut model = Model { bytes: Sparse::new(size), snapshots: BTreeMap::new() };
        for (term, range) in terms {
            for seq in range {
                let entries = &self.volumes[volume.0].entries;
                let Some(change) = entries.get(&(term, Seq(seq))) else {
                    return Err(format!("Q4: {}.{seq} is held and was never sent", term.0));
                };
                model.apply(change);
            }
        }
        Ok(Some(model))
    }

    /// The reigns of a history with the seqs of each, from the first.
    pub(super) fn terms(
        &self,
        volume: VolumeNo,
        at: Position,
    ) -> Option<Vec<(Term, std::ops::RangeInclusive<u64>)>> {
        let volume = &self.volumes[volume.0];
        let mut terms = Vec::new();
        let (mut term, mut last) = (at.term, at.seq.0);
        while last > 0 {
            let first =
                volume.entries.range((term, Seq(0))..).next().filter(|((t, _), _)| *t == term)?;
            let first = first.0.1.0;
            terms.push((term, first..=last));
            match volume.before.get(&term)? {
                Some(earlier) => (term, last) = (earlier.term, first - 1),
                None => break,
            }
        }
        terms.reverse();
        Some(terms)
    }
}

impl Model {
    fn apply(&mut self, change: &Change) {
        match change {
            Change::Write { offset, data, .. } => {
                self.bytes.write(offset.0, data);
            }
            Change::Zero { offset, len, .. } => {
                self.bytes.zero(offset.0, len.0);
            }
            Change::Snapshot(spec) => {
                self.snapshots.insert(spec.uid, self.bytes.clone());
            }
            Change::DeleteSnapshot(uid) => {
                self.snapshots.remove(uid);
            }
            Change::Rollback { to } => {
                if let Some(then) = self.snapshots.get(to) {
                    let size = self.bytes.size();
                    self.bytes.clone_from(then);
                    self.bytes.resize(size);
                }
            }
            Change::Resize { size } => {
                self.bytes.resize(size.0.max(self.bytes.size()));
            }
            _ => {}
        }
    }
}
