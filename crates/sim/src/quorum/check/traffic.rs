//! What catching up costs: bytes that rounds bring, beside the distinct granules that changed.
use std::collections::{BTreeMap, BTreeSet};

use block::{Position, Seq};
use replication::constants::REQUEST_MAX;
use replication::entry::Change;
use replication::message::{ToReplica, ToTarget};
use replication::store::Content;
use replication::words::ReplicaId;

use super::Observed;
use crate::quorum::clients::VolumeNo;

/// One replica on its way from the first round to the stream.
struct CatchUp {
    since: Seq,
    bytes: u64,
    /// Granules of its own tail, which are brought too. `None`: a part of it is longer than any write, so most of it
    /// are holes that cost nothing.
    own: Option<u64>,
    end: Option<Position>,
    /// The round ends at a user's snapshot. Its content is brought for itself: what changes behind
    /// it once more is needed twice.
    at_snapshot: bool,
}

impl CatchUp {
    fn since(since: Seq) -> CatchUp {
        CatchUp { since, bytes: 0, own: Some(0), end: None, at_snapshot: false }
    }
}

#[derive(Default)]
pub struct Traffic {
    under_way: BTreeMap<ReplicaId, CatchUp>,
}

/// What a finished catch-up brought, and what had changed.
pub struct Brought {
    pub bytes: u64,
    pub changed: u64,
}

impl Traffic {
    /// A copy was created anew or is gone: what it got counts no more.
    pub fn forget(&mut self, replica: ReplicaId) {
        self.under_way.remove(&replica);
    }

    /// A message to a replica. Says that it joins the stream, behind a catch-up that ends here.
    pub fn sent(&mut self, replica: ReplicaId, body: &ToReplica) -> Option<Position> {
        match body {
            ToReplica::BeginImport { mark, .. } => {
                let fresh = CatchUp::since(mark.since);
                self.under_way.entry(replica).or_insert(fresh);
                None
            }
            ToReplica::Import { pieces, .. } => {
                let bytes = pieces.iter().map(|piece| match &piece.content {
                    Content::Bytes(data) => data.len() as u64,
                    Content::Zeros(_) => 0,
                });
                if let Some(catch_up) = self.under_way.get_mut(&replica) {
                    catch_up.bytes += bytes.sum::<u64>();
                }
                None
            }
            ToReplica::CommitImport { snapshot, .. } => {
                self.under_way.get_mut(&replica)?.at_snapshot = snapshot.is_some();
                None
            }
            ToReplica::Entries(_) => self.under_way.get(&replica)?.end,
            _ => None,
        }
    }

    /// A message of a replica. Says that it is at a user's snapshot.
    pub fn heard(&mut self, replica: ReplicaId, body: &ToTarget, granule: u64) -> Option<Position> {
        let catch_up = self.under_way.get_mut(&replica)?;
        match body {
            ToTarget::OwnChanged { ranges, .. } => {
                let lens = ranges.iter().map(|range| {
                    let is_written = range.len.0 <= REQUEST_MAX;
                    is_written.then(|| range.len.0.div_ceil(granule))
                });
                let told: Option<u64> = lens.sum();
                catch_up.own = catch_up.own.zip(told).map(|(own, told)| own + told);
            }
            ToTarget::Committed { position } => {
                catch_up.end = Some(*position);
                return catch_up.end.filter(|_| catch_up.at_snapshot);
            }
            _ => {}
        }
        None
    }

    /// Goes on behind a user's snapshot.
    pub fn go_on(&mut self, replica: ReplicaId, from: Position) {
        let end = Some(from);
        self.under_way.insert(replica, CatchUp { end, ..CatchUp::since(from.seq) });
    }
}

impl Observed {
    /// The catch-up that ended, compared with what changed. `None`: a rollback is in between, whose
    /// changes are not known here, or the history is not.
    pub fn brought(
        &self,
        traffic: &mut Traffic,
        volume: VolumeNo,
        replica: ReplicaId,
        end: Position,
        granule: u64,
    ) -> Option<Brought> {
        let CatchUp { since, bytes, own, .. } = traffic.under_way.remove(&replica)?;
        let mut granules = BTreeSet::new();
        for (term, range) in self.terms(volume, end)? {
            for seq in range.filter(|seq| *seq > since.0) {
                let change = self.volumes[volume.0].entries.get(&(term, Seq(seq)))?;
                match change {
                    Change::Rollback { .. } => return None,
                    Change::Write { offset, data, .. } => {
                        let last = (offset.0 + data.len() as u64 - 1) / granule;
                        granules.extend(offset.0 / granule..=last);
                    }
                    // Granules that become zero as a whole are not sent.
                    Change::Zero { offset, len, .. } => {
                        granules.extend([offset.0 / granule, (offset.0 + len.0 - 1) / granule]);
                    }
                    _ => {}
                }
            }
        }
        Some(Brought { bytes, changed: (granules.len() as u64 + own?) * granule })
    }
}
