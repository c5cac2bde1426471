//! A damaged copy is replaced by another replica's (P3). The store takes the bytes only if they
//! are what it stored, so a repair that comes late or from elsewhere does no harm.
use std::collections::BTreeMap;

use block::{ByteLen, ByteOffset, Data};

use crate::message::{AskId, ReadFailure, RoundPoint, ToReplica};
use crate::target::{Cx, Target};
use crate::words::ReplicaId;

/// Repairs under way at once; more are found again by the next read or scrub.
const REPAIRS_MAX: usize = 16;

#[derive(Debug)]
struct Repair {
    damaged: ReplicaId,
    /// What of it is damaged.
    of: RoundPoint,
    offset: ByteOffset,
    /// What is asked for.
    len: ByteLen,
    /// Whose copies are known to be bad.
    bad: Vec<ReplicaId>,
    /// Who is asked for a good one.
    reader: ReplicaId,
}

#[derive(Debug, Default)]
pub struct Repairs {
    /// Somebody was asked for a good copy.
    asking: BTreeMap<AskId, Repair>,
    /// Bytes are on their way to where the damage is; perhaps they are not the right ones.
    mending: BTreeMap<AskId, Repair>,
}

impl Repairs {
    pub fn is_asking(&self, ask: AskId) -> bool {
        self.asking.contains_key(&ask)
    }

    pub fn len(&self) -> usize {
        self.asking.len() + self.mending.len()
    }

    /// A replica is gone: what it was asked, or what was to be repaired there, is found again.
    pub fn forget(&mut self, gone: ReplicaId) {
        self.asking.retain(|_, repair| repair.reader != gone && repair.damaged != gone);
        self.mending.retain(|_, repair| repair.damaged != gone);
    }
}

impl Target {
    pub(super) fn repair(
        &mut self,
        damaged: ReplicaId,
        of: RoundPoint,
        offset: ByteOffset,
        cx: &mut Cx<'_>,
    ) {
        let Some(peer) = self.peers.get(&damaged) else { return };
        let granule = peer.granule();
        let offset = ByteOffset(offset.0 / granule * granule);
        let known = |repair: &Repair| repair.damaged == damaged && repair.offset == offset;
        let mut under_way = self.repairs.asking.values().chain(self.repairs.mending.values());
        let count = self.repairs.asking.len() + self.repairs.mending.len();
        if count < REPAIRS_MAX && !under_way.any(known) {
            let (bad, reader, len) = (vec![damaged], damaged, ByteLen(0));
            self.ask_for_copy(Repair { damaged, of, offset, len, bad, reader }, cx);
        }
    }

    fn ask_for_copy(&mut self, mut repair: Repair, cx: &mut Cx<'_>) {
        let Some(reader) = self.reader(&repair.bad).or_else(|| self.anybody(&repair.bad)) else {
            return;
        };
        let granule = self.peers[&repair.damaged].granule();
        let len = ByteLen(granule.min(self.shared.size.0.saturating_sub(repair.offset.0)));
        if len.0 == 0 {
            return;
        }
        let ask = self.ask_id();
        let offset = repair.offset;
        // A user's snapshot is the same everywhere. Where a round froze one replica, another has the
        // same bytes if nothing wrote there since; and if not, the store refuses them.
        let point = match &repair.of {
            RoundPoint::Snapshot(uid) => RoundPoint::Snapshot(*uid),
            RoundPoint::Now | RoundPoint::Kept(_) => RoundPoint::Now,
        };
        (repair.reader, repair.len) = (reader, len);
        self.repairs.asking.insert(ask, repair);
        self.ask_read(reader, ask, point, (offset, len), cx);
    }

    /// Also who is not in the stream may have the bytes: the store that gets them knows whether
    /// they are the right ones.
    fn anybody(&self, bad: &[ReplicaId]) -> Option<ReplicaId> {
        let mut others =
            self.peers.iter().filter(|(id, peer)| !bad.contains(id) && peer.open_link().is_some());
        others.next().map(|(id, _)| *id)
    }

    pub(super) fn good_copy(
        &mut self,
        ask: AskId,
        result: Result<Data, ReadFailure>,
        cx: &mut Cx<'_>,
    ) {
        let Some(mut repair) = self.repairs.asking.remove(&ask) else { return };
        // Anything else than what was asked for is no copy; nor would it fit the message.
        let whole = |data: &Data| data.len() as u64 == repair.len.0;
        let Some(data) = result.ok().filter(whole) else {
            repair.bad.push(repair.reader);
            return self.ask_for_copy(repair, cx);
        };
        let Some(peer) = self.peers.get(&repair.damaged).filter(|peer| peer.is_in_stream()) else {
            return;
        };
        let Some(link) = peer.link else { return };
        let (of, offset) = (repair.of.clone(), repair.offset);
        let body = ToReplica::Repair { id: ask, of, offset, data };
        cx.send(repair.damaged, link, self.term, body);
        self.repairs.mending.insert(ask, repair);
    }

    /// Bytes that were not what was stored came from a copy that has something else there, of before
    /// or of a tail: another one may have the right ones.
    pub(super) fn repaired(&mut self, ask: AskId, ok: bool, cx: &mut Cx<'_>) {
        let Some(mut repair) = self.repairs.mending.remove(&ask) else { return };
        if !ok {
            repair.bad.push(repair.reader);
            self.ask_for_copy(repair, cx);
        }
    }
}
