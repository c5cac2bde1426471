//! Old bytes for operations that cover a granule in part.
use block::{ByteLen, ByteOffset, Disk};

use super::Goal;
use crate::pool::queue::{Edge, Kind, Turn};
use crate::pool::{Pool, Subject};
use crate::units::Granule;

impl<D: Disk> Pool<D> {
    /// Starts reading the old bytes that an operation needs, unless one before it changes them.
    pub(in crate::pool) fn read_edges(&mut self, number: u64) {
        let Some(op) = self.queue.get(number) else {
            return;
        };
        let Kind::Change(change) = &op.kind else {
            return;
        };
        let volume = change.volume;
        let wanted: Vec<Granule> = change
            .edges
            .iter()
            .filter_map(|edge| match edge {
                Edge::Wanted(granule) => Some(*granule),
                _ => None,
            })
            .collect();
        for granule in wanted {
            if self.queue.changes_before(number, volume, granule) {
                continue;
            }
            self.set_edge(number, granule, Edge::Reading(granule));
            let len = self.volumes[&volume].granule();
            let goal = Goal::Edge { number, granule };
            let (of, at) = (Subject::Volume(volume), ByteOffset(granule.0 * len));
            self.start_read(goal, of, at, ByteLen(len), len);
            self.counters.merged_writes += 1;
        }
    }

    pub(super) fn set_edge(&mut self, number: u64, granule: Granule, to: Edge) {
        if let Some(op) = self.queue.get(number)
            && let Kind::Change(change) = &mut op.kind
            && let Some(edge) = change.edges.iter_mut().find(|e| e.granule() == Some(granule))
        {
            *edge = to;
        }
    }

    /// Whether the operation in front has its old bytes. One whose old bytes are damaged is
    /// answered here, and changes nothing.
    pub(in crate::pool) fn edges_ready(&mut self, number: u64) -> Turn {
        self.read_edges(number);
        let Some(op) = self.queue.front() else { return Turn::Wait };
        let Kind::Change(change) = &mut op.kind else { return Turn::Ready };
        let failed = change.edges.iter().find_map(|edge| match edge {
            Edge::Failed(error) => Some(error.clone()),
            _ => None,
        });
        if let Some(error) = failed {
            self.refuse_front(error);
            return Turn::Answered;
        }
        let ready = change.edges.iter().all(|edge| matches!(edge, Edge::Ready(..)));
        if ready { Turn::Ready } else { Turn::Wait }
    }
}
