//! Random messages: every variant, with everything that can be in it.
use block::{ByteLen, ByteOffset, Data, Seq, Term};
use replication::cost::Costs;
use replication::entry::{Change, Checksum, Entry, Zeroing};
use replication::message::{
    AskId, Fetched, ForReplica, ForTarget, Hello, Leaving, OpenedRound, Piece, ReadFailure,
    Refusal, RoundFailure, RoundPoint, ToReplica, ToTarget, Wanted, Welcome,
};
use replication::replica::ROUNDS_MAX;
use replication::state::{POINTS_MAX, RESERVATIONS_MAX};
use replication::store::{ChangedRange, Content, Extent};
use replication::words::{Boot, Incarnation, Moment, SnapshotUid, VolumeUid};

use super::Rng;

/// How many kinds there are; asking for each makes sure that none is left out.
pub const TO_REPLICA: u64 = 15;
pub const TO_TARGET: u64 = 19;
const CHANGES: u64 = 16;

impl Rng {
    fn offset(&mut self) -> ByteOffset {
        ByteOffset(self.any())
    }

    fn len(&mut self) -> ByteLen {
        ByteLen(self.any())
    }

    fn ask(&mut self) -> AskId {
        AskId(self.any())
    }

    fn block(&mut self) -> Data {
        let len = [0, 512, 4096, self.index(3000)][self.index(4)];
        Data::copy_of(&self.bytes(len))
    }

    fn any_seq(&mut self) -> Seq {
        Seq(self.any())
    }

    fn change(&mut self, kind: u64) -> Change {
        match kind {
            0 => {
                let granule = ByteLen(512 << self.below(12));
                Change::write(granule, self.offset(), self.block())
            }
            1 => Change::Zero { offset: self.offset(), len: self.len(), how: Zeroing::Zeroes },
            2 => Change::Zero { offset: self.offset(), len: self.len(), how: Zeroing::Discard },
            3 => Change::Flush,
            4 => Change::Barrier { stages: self.stages() },
            5 => Change::Close,
            6 => Change::Snapshot(self.spec()),
            7 => Change::DeleteSnapshot(SnapshotUid(self.uid())),
            8 => Change::Rollback { to: SnapshotUid(self.uid()) },
            9 => Change::MarkClone {
                snapshot: SnapshotUid(self.uid()),
                clone: VolumeUid(self.uid()),
            },
            10 => Change::UnmarkClone { clone: VolumeUid(self.uid()) },
            11 => Change::Resize { size: self.len() },
            12 => Change::Reservations(self.list(RESERVATIONS_MAX, |rng| rng.bytes(1)[0])),
            13 => Change::Points(self.list(POINTS_MAX, |rng| rng.bytes(1)[0])),
            14 => Change::Stages(self.stages()),
            _ => Change::Membership(self.membership()),
        }
    }

    pub fn entry(&mut self) -> Entry {
        let kind = self.below(CHANGES);
        Entry { seq: self.any_seq(), change: self.change(kind) }
    }

    fn piece(&mut self) -> Piece {
        let content = match self.chance() {
            true => Content::Bytes(self.block()),
            false => Content::Zeros(self.len()),
        };
        Piece { offset: self.offset(), changed: self.any_seq(), content }
    }

    fn point(&mut self) -> RoundPoint {
        match self.below(3) {
            0 => RoundPoint::Now,
            1 => RoundPoint::Snapshot(SnapshotUid(self.uid())),
            _ => RoundPoint::Kept(self.position()),
        }
    }

    fn wanted(&mut self) -> Wanted {
        match self.below(3) {
            0 => Wanted::Everything,
            _ => Wanted::Changed(self.any_seq()),
        }
    }

    fn failure(&mut self) -> RoundFailure {
        match self.below(4) {
            0 => RoundFailure::NoSpace,
            1 => RoundFailure::Damaged { offset: self.offset() },
            2 => RoundFailure::Gone,
            _ => RoundFailure::Failed { reason: self.name() },
        }
    }

    /// The message of a kind, one of [`TO_REPLICA`].
    pub fn for_replica(&mut self, kind: u64) -> ForReplica {
        let id = self.ask();
        let body = match kind {
            0 => {
                let (promise, membership) = (self.promise(), self.membership());
                ToReplica::Hello(Hello { promise, membership })
            }
            1 => ToReplica::Entries(self.list(20, Rng::entry)),
            2 => ToReplica::Renew { sent: Moment(self.any()), settled: self.any_seq() },
            3 => ToReplica::Read { id, of: self.point(), offset: self.offset(), len: self.len() },
            4 => ToReplica::Repair {
                id,
                of: self.point(),
                offset: self.offset(),
                data: self.block(),
            },
            5 => ToReplica::Recovered,
            6 => ToReplica::OpenRound { id, point: self.point() },
            7 => ToReplica::Fetch {
                id,
                round: self.position(),
                wanted: self.wanted(),
                from: self.offset(),
                to: self.offset(),
            },
            8 => ToReplica::CloseRound { round: self.position() },
            9 => ToReplica::BeginImport { mark: self.mark(), size: self.len() },
            10 => ToReplica::OwnChanges { id, since: self.any_seq(), from: self.offset() },
            11 => ToReplica::Import { pieces: self.list(9, Rng::piece), progress: self.offset() },
            12 => ToReplica::CommitImport {
                shared: Box::new(self.shared()),
                snapshot: self.option(Rng::spec),
                snapshots: self.list(5, Rng::snapshot),
            },
            13 => ToReplica::AbandonImport,
            _ => ToReplica::Extents { id, offset: self.offset(), len: self.len() },
        };
        ForReplica { term: Term(self.any()), body }
    }

    pub fn welcome(&mut self) -> Welcome {
        Welcome {
            incarnation: Incarnation(self.any()),
            boot: Boot(self.any()),
            position: self.position(),
            shared: self.shared(),
            dirty: self.chance(),
            regressed: self.chance(),
            snapshots: self.list(5, Rng::snapshot),
            rounds: self.list(ROUNDS_MAX, Rng::position),
            import: self.option(|rng| (rng.mark(), rng.offset())),
            headroom: self.len(),
            block_size: self.len(),
            costs: Costs {
                granule: self.len(),
                per_write: self.len(),
                per_granule: self.len(),
                is_clone: self.chance(),
            },
        }
    }

    fn opened(&mut self) -> OpenedRound {
        OpenedRound {
            position: self.position(),
            shared: self.shared(),
            size: self.len(),
            snapshot: self.option(Rng::spec),
            snapshots: self.list(5, Rng::snapshot),
        }
    }

    fn extent(&mut self) -> Extent {
        Extent { len: self.len(), has_data: self.chance() }
    }

    fn read_failure(&mut self) -> ReadFailure {
        match self.below(3) {
            0 => ReadFailure::Damaged { offset: self.offset() },
            1 => ReadFailure::Failed,
            _ => ReadFailure::Busy,
        }
    }

    fn range(&mut self) -> ChangedRange {
        ChangedRange {
            offset: self.offset(),
            len: self.len(),
            is_data: self.chance(),
            changed: self.any_seq(),
        }
    }

    /// The message of a kind, one of [`TO_TARGET`].
    pub fn for_target(&mut self, kind: u64) -> ForTarget {
        let id = self.ask();
        let progress = self.offset();
        let body = match kind {
            0 => ToTarget::Welcome(Box::new(self.welcome())),
            1 => ToTarget::Refused(Refusal::Promised(self.promise())),
            2 => ToTarget::Refused(Refusal::OlderMembership { seen: self.any() }),
            3 => ToTarget::Ack {
                boot: Boot(self.any()),
                held: self.any_seq(),
                durable: self.any_seq(),
                headroom: self.len(),
            },
            4 => ToTarget::Renewed { sent: Moment(self.any()) },
            5 => {
                let reason = match self.below(3) {
                    0 => Leaving::NoSpace,
                    1 => Leaving::Damaged { offset: self.offset() },
                    _ => Leaving::Failed { reason: self.name() },
                };
                ToTarget::Left { at: self.any_seq(), reason }
            }
            6 => ToTarget::ReadDone { id, result: Ok(self.block()) },
            7 => ToTarget::ReadDone { id, result: Err(self.read_failure()) },
            8 => ToTarget::Repaired { id, ok: self.chance() },
            9 => ToTarget::RoundOpened { id, opened: Ok(Box::new(self.opened())) },
            10 => ToTarget::RoundOpened { id, opened: Err(self.failure()) },
            11 => {
                let (pieces, through) = (self.list(9, Rng::piece), self.offset());
                ToTarget::Fetched { id, result: Ok(Fetched { pieces, through }) }
            }
            12 => ToTarget::Fetched { id, result: Err(self.failure()) },
            13 => ToTarget::ImportBegun { kept: self.option(|rng| (rng.mark(), rng.offset())) },
            14 => {
                let (ranges, next) = (self.list(20, Rng::range), self.option(Rng::offset));
                ToTarget::OwnChanged { id, ranges, next }
            }
            15 if self.chance() => ToTarget::Imported { progress },
            15 => ToTarget::Committed { position: self.position() },
            16 => ToTarget::ImportFailed { reason: self.failure() },
            17 => ToTarget::ExtentsDone { id, result: Ok(self.list(20, Rng::extent)) },
            _ => ToTarget::ExtentsDone { id, result: Err(self.read_failure()) },
        };
        ForTarget { term: Term(self.any()), body }
    }

    /// A frame of any kind, to either side.
    pub fn frame(&mut self) -> Vec<u8> {
        match self.chance() {
            true => {
                let kind = self.below(TO_REPLICA);
                replication::message::encode_to_replica(&self.for_replica(kind)).to_bytes()
            }
            false => {
                let kind = self.below(TO_TARGET);
                replication::message::encode_to_target(&self.for_target(kind)).to_bytes()
            }
        }
    }

    /// Changes a bit or a number, and says what.
    pub fn damage(&mut self, bytes: &mut [u8]) -> String {
        let at = self.index(bytes.len());
        if self.chance() {
            let bit = self.below(8);
            bytes[at] ^= 1 << bit;
            return format!("bit {bit} of byte {at} flipped");
        }
        let width = [1, 2, 4, 7, 8][self.index(5)].min(bytes.len() - at);
        let value = self.any().to_le_bytes();
        bytes[at..at + width].copy_from_slice(&value[..width]);
        format!("{width} bytes at {at} set to {:x?}", &value[..width])
    }
}

/// Makes a changed frame match its checksum again: otherwise all hostile bytes would end there.
pub fn reseal(frame: &mut [u8]) {
    let Some(meta_len) = frame.get(20..24) else { return };
    let meta_len = meta_len.iter().rev().fold(0, |len, byte| len << 8 | usize::from(*byte));
    let end = 32usize.saturating_add(meta_len);
    if frame.len() >= end {
        let covered = [&frame[..8], &frame[16..end]].concat();
        frame[8..16].copy_from_slice(&Checksum::of(&covered).0.to_le_bytes());
    }
}
