//! Frames as messages. Any bytes may come: nothing here panics, and nothing sets more memory aside
//! than what arrived could fill.
//!
//! Data is compared with its checksum where it is read: that of a repair, of a read's answer and of
//! the pieces of a round. Not those of a write: they were made where the bytes entered, and the replica
//! compares them itself, right before it stores them.
use block::{ByteLen, ByteOffset, Data, Position, Seq};

use super::frame::{Opened, division, kind};
use super::{
    AskId, Fetched, ForReplica, ForTarget, Hello, Leaving, OpenedRound, Piece, ReadFailure,
    Refusal, RoundFailure, RoundPoint, ToReplica, ToTarget, Wanted, Welcome,
};
use crate::cost::Costs;
use crate::encoding::{Malformed, Reader};
use crate::entry::{Change, Checksum, Entry, Zeroing};
use crate::membership::Membership;
use crate::replica::ROUNDS_MAX;
use crate::state::{
    ImportMark, POINTS_MAX, Promise, RESERVATIONS_MAX, SNAPSHOTS_FIT, SharedState, SnapshotEntry,
    SnapshotSpec, Stages,
};
use crate::store::{ChangedRange, Content, Extent};
use crate::sums::Sums;
use crate::words::{Boot, Incarnation, Moment, SnapshotUid, VolumeUid};

fn wrong<T>(what: &'static str) -> Result<T, Malformed> {
    Err(Malformed::Field { what })
}

/// The message of one whole frame.
pub fn decode_to_replica(frame: &[u8]) -> Result<ForReplica, Malformed> {
    let (front, data) = divide(frame)?;
    decode_parts_to_replica(front, data)
}

/// The message of one whole frame.
pub fn decode_to_target(frame: &[u8]) -> Result<ForTarget, Malformed> {
    let (front, data) = divide(frame)?;
    decode_parts_to_target(front, data)
}

/// The message of a frame that was received in two parts, see [`super::division`]. Its blocks are
/// views into `data`: nothing is copied.
pub fn decode_parts_to_replica(front: &[u8], data: Data) -> Result<ForReplica, Malformed> {
    let mut frame = Opened::open(front, data)?;
    let body = to_replica(&mut frame)?;
    frame.end()?;
    Ok(ForReplica { term: frame.term, body })
}

/// Like [`decode_parts_to_replica`].
pub fn decode_parts_to_target(front: &[u8], data: Data) -> Result<ForTarget, Malformed> {
    let mut frame = Opened::open(front, data)?;
    let body = to_target(&mut frame)?;
    frame.end()?;
    Ok(ForTarget { term: frame.term, body })
}

/// One buffer for all data: as much as arrived, and blocks are where direct IO wants them.
fn divide(frame: &[u8]) -> Result<(&[u8], Data), Malformed> {
    let head = frame.first_chunk().ok_or(Malformed::Field { what: "head of a frame" })?;
    let divided = division(head)?;
    if frame.len() != divided.front + divided.data {
        return wrong("a frame is not as long as it says");
    }
    let (front, data) = frame.split_at(divided.front);
    Ok((front, Data::copy_of(data)))
}

fn to_replica(frame: &mut Opened) -> Result<ToReplica, Malformed> {
    let meta = &mut frame.meta;
    Ok(match frame.kind {
        kind::HELLO => ToReplica::Hello(Hello {
            promise: Promise::read(meta)?,
            membership: Membership::read(meta)?,
        }),
        kind::ENTRIES => ToReplica::Entries(list(frame, 9, "entries", read_entry)?),
        kind::RENEW => {
            ToReplica::Renew { sent: Moment(meta.u64("moment of a renewal")?), settled: seq(meta)? }
        }
        kind::READ => ToReplica::Read {
            id: ask(meta)?,
            of: read_point(meta)?,
            offset: meta.offset("offset of a read")?,
            len: meta.len("length of a read")?,
        },
        kind::REPAIR => ToReplica::Repair {
            id: ask(meta)?,
            of: read_point(meta)?,
            offset: meta.offset("offset of a repair")?,
            data: read_summed(frame)?,
        },
        kind::EXTENTS => ToReplica::Extents {
            id: ask(meta)?,
            offset: meta.offset("offset of extents")?,
            len: meta.len("length of extents")?,
        },
        kind::RECOVERED => ToReplica::Recovered,
        kind::OPEN_ROUND => ToReplica::OpenRound { id: ask(meta)?, point: read_point(meta)? },
        kind::FETCH => {
            let id = ask(meta)?;
            let (from, to) = (meta.offset("start of a fetch")?, meta.offset("end of a fetch")?);
            let round = meta.position("round of a fetch")?;
            ToReplica::Fetch { id, round, wanted: read_wanted(meta)?, from, to }
        }
        kind::CLOSE_ROUND => ToReplica::CloseRound { round: meta.position("a round")? },
        kind::BEGIN_IMPORT => ToReplica::BeginImport {
            mark: ImportMark::read(meta)?,
            size: meta.len("size of an import")?,
        },
        kind::OWN_CHANGES => ToReplica::OwnChanges {
            id: ask(meta)?,
            since: seq(meta)?,
            from: meta.offset("start of own changes")?,
        },
        kind::IMPORT => {
            let progress = meta.offset("progress of an import")?;
            ToReplica::Import { pieces: read_pieces(frame)?, progress }
        }
        kind::COMMIT_IMPORT => ToReplica::CommitImport {
            shared: Box::new(SharedState::read(meta)?),
            snapshot: meta.option("snapshot of an import", SnapshotSpec::read)?,
            snapshots: read_snapshots(frame)?,
        },
        kind::ABANDON_IMPORT => ToReplica::AbandonImport,
        _ => return wrong("no message to a replica has this kind"),
    })
}

fn to_target(frame: &mut Opened) -> Result<ToTarget, Malformed> {
    let meta = &mut frame.meta;
    Ok(match frame.kind {
        kind::WELCOME => ToTarget::Welcome(Box::new(read_welcome(frame)?)),
        kind::REFUSED => ToTarget::Refused(match meta.u8("a refusal")? {
            0 => Refusal::Promised(Promise::read(meta)?),
            1 => Refusal::OlderMembership { seen: meta.u64("membership version")? },
            _ => return wrong("a refusal of another kind"),
        }),
        kind::ACK => ToTarget::Ack {
            boot: Boot(meta.u64("boot of an ack")?),
            held: seq(meta)?,
            durable: seq(meta)?,
            headroom: meta.len("headroom")?,
        },
        kind::RENEWED => ToTarget::Renewed { sent: Moment(meta.u64("moment of a renewal")?) },
        kind::LEFT => ToTarget::Left { at: seq(meta)?, reason: read_leaving(frame)? },
        kind::READ_DONE => {
            let id = ask(meta)?;
            let result = match meta.u8("result of a read")? {
                0 => Ok(read_summed(frame)?),
                failure => Err(read_read_failure(frame, failure)?),
            };
            ToTarget::ReadDone { id, result }
        }
        kind::EXTENTS_DONE => {
            let id = ask(meta)?;
            let result = match meta.u8("result of a read")? {
                0 => Ok(list(frame, 9, "extents", read_extent)?),
                failure => Err(read_read_failure(frame, failure)?),
            };
            ToTarget::ExtentsDone { id, result }
        }
        kind::REPAIRED => {
            ToTarget::Repaired { id: ask(meta)?, ok: meta.bool("result of a repair")? }
        }
        kind::ROUND_OPENED => {
            let id = ask(meta)?;
            let opened = match meta.u8("result of a round")? {
                0 => Ok(Box::new(read_opened(frame)?)),
                failure => Err(read_failure(frame, failure)?),
            };
            ToTarget::RoundOpened { id, opened }
        }
        kind::FETCHED => {
            let id = ask(meta)?;
            let result = match meta.u8("result of a fetch")? {
                0 => {
                    let through = meta.offset("end of a fetch")?;
                    Ok(Fetched { pieces: read_pieces(frame)?, through })
                }
                failure => Err(read_failure(frame, failure)?),
            };
            ToTarget::Fetched { id, result }
        }
        kind::IMPORT_BEGUN => ToTarget::ImportBegun { kept: read_kept(meta)? },
        kind::OWN_CHANGED => {
            let id = ask(meta)?;
            let next = meta.option("end of own changes", |meta| meta.offset("own changes"))?;
            ToTarget::OwnChanged { id, ranges: list(frame, 25, "ranges", read_range)?, next }
        }
        kind::IMPORTED => ToTarget::Imported { progress: meta.offset("progress")? },
        kind::COMMITTED => ToTarget::Committed { position: meta.position("a commit")? },
        kind::IMPORT_FAILED => {
            let failure = meta.u8("failure of an import")?;
            ToTarget::ImportFailed { reason: read_failure(frame, failure)? }
        }
        _ => return wrong("no message to a target has this kind"),
    })
}

fn ask(meta: &mut Reader) -> Result<AskId, Malformed> {
    meta.u64("number of a question").map(AskId)
}

fn seq(meta: &mut Reader) -> Result<Seq, Malformed> {
    meta.u64("a seq").map(Seq)
}

/// A list whose elements take at least `least` bytes of metadata each.
fn list<T>(
    frame: &mut Opened,
    least: usize,
    what: &'static str,
    mut read: impl FnMut(&mut Opened) -> Result<T, Malformed>,
) -> Result<Vec<T>, Malformed> {
    let count = frame.count(what)?;
    if count.checked_mul(least).is_none_or(|bytes| bytes > frame.meta.left()) {
        return wrong(what);
    }
    (0..count).map(|_| read(frame)).collect()
}

fn read_entry(frame: &mut Opened) -> Result<Entry, Malformed> {
    let meta = &mut frame.meta;
    let seq = seq(meta)?;
    let change = match meta.u8("kind of an entry")? {
        kind::WRITE => {
            let offset = meta.offset("offset of a write")?;
            let bits = meta.u8("granule of a write")?;
            if !Sums::BITS.contains(&bits) {
                return wrong("granule of a write");
            }
            let data = frame.data("data of a write")?;
            let (meta, what) = (&mut frame.meta, "checksums of a write");
            let count = Sums::count(bits, offset, data.len());
            let sums = match count {
                1 => Sums::told(bits, &[meta.u64(what)?]),
                _ => Sums::told(bits, &meta.list(count, 8, what, |meta| meta.u64(what))?),
            };
            Change::Write { offset, data, sums }
        }
        kind::ZEROES => read_zero(meta, Zeroing::Zeroes)?,
        kind::DISCARD => read_zero(meta, Zeroing::Discard)?,
        kind::RELEASE => read_zero(meta, Zeroing::Release)?,
        kind::FLUSH => Change::Flush,
        kind::BARRIER => Change::Barrier { stages: Stages::read(meta)? },
        kind::CLOSE => Change::Close,
        kind::SNAPSHOT => Change::Snapshot(SnapshotSpec::read(meta)?),
        kind::DELETE_SNAPSHOT => Change::DeleteSnapshot(snapshot(meta)?),
        kind::ROLLBACK => Change::Rollback { to: snapshot(meta)? },
        kind::MARK_CLONE => Change::MarkClone { snapshot: snapshot(meta)?, clone: volume(meta)? },
        kind::UNMARK_CLONE => Change::UnmarkClone { clone: volume(meta)? },
        kind::RESIZE => Change::Resize { size: meta.len("a new size")? },
        kind::RESERVATIONS => {
            let len = meta.length(2, RESERVATIONS_MAX, "length of reservations")?;
            Change::Reservations(meta.bytes(len, "reservations")?.to_vec())
        }
        kind::POINTS => {
            let len = meta.length(1, POINTS_MAX, "length of mirror points")?;
            Change::Points(meta.bytes(len, "mirror points")?.to_vec())
        }
        kind::STAGES => Change::Stages(Stages::read(meta)?),
        kind::MEMBERSHIP => Change::Membership(Membership::read(meta)?),
        _ => return wrong("an entry of another kind"),
    };
    Ok(Entry { seq, change })
}

fn read_zero(meta: &mut Reader, how: Zeroing) -> Result<Change, Malformed> {
    let (offset, len) = (meta.offset("offset of zeros")?, meta.len("length of zeros")?);
    Ok(Change::Zero { offset, len, how })
}

fn snapshot(meta: &mut Reader) -> Result<SnapshotUid, Malformed> {
    meta.array("uid of a snapshot").map(SnapshotUid)
}

fn volume(meta: &mut Reader) -> Result<VolumeUid, Malformed> {
    meta.array("uid of a volume").map(VolumeUid)
}

fn read_summed(frame: &mut Opened) -> Result<Data, Malformed> {
    let told = Checksum(frame.meta.u64("checksum of data")?);
    let data = frame.data("data")?;
    if Checksum::of(&data) == told { Ok(data) } else { wrong("data does not match its checksum") }
}

fn read_point(meta: &mut Reader) -> Result<RoundPoint, Malformed> {
    Ok(match meta.u8("point of a round")? {
        0 => RoundPoint::Now,
        1 => RoundPoint::Snapshot(snapshot(meta)?),
        2 => RoundPoint::Kept(meta.position("point of a round")?),
        _ => return wrong("point of a round of another kind"),
    })
}

fn read_wanted(meta: &mut Reader) -> Result<Wanted, Malformed> {
    Ok(match meta.u8("what is fetched")? {
        0 => Wanted::Everything,
        1 => Wanted::Changed(seq(meta)?),
        _ => return wrong("what is fetched is of another kind"),
    })
}

fn read_pieces(frame: &mut Opened) -> Result<Vec<Piece>, Malformed> {
    list(frame, 25, "pieces", |frame| {
        let offset = frame.meta.offset("offset of a piece")?;
        let changed = seq(&mut frame.meta)?;
        let content = match frame.meta.u8("content of a piece")? {
            0 => Content::Zeros(frame.meta.len("length of zeros")?),
            1 => Content::Bytes(read_summed(frame)?),
            _ => return wrong("content of a piece of another kind"),
        };
        Ok(Piece { offset, changed, content })
    })
}

fn read_range(frame: &mut Opened) -> Result<ChangedRange, Malformed> {
    let meta = &mut frame.meta;
    let offset: ByteOffset = meta.offset("offset of a range")?;
    let len: ByteLen = meta.len("length of a range")?;
    let changed = seq(meta)?;
    Ok(ChangedRange { offset, len, is_data: meta.bool("whether a range has data")?, changed })
}

fn read_snapshots(frame: &mut Opened) -> Result<Vec<SnapshotEntry>, Malformed> {
    let read = |frame: &mut Opened| SnapshotEntry::read(&mut frame.meta);
    let snapshots = list(frame, SnapshotEntry::LEAST, "snapshots", read)?;
    // More would not fit the message in which they are passed on.
    match snapshots.len() > SNAPSHOTS_FIT {
        true => wrong("more snapshots than a volume can have"),
        false => Ok(snapshots),
    }
}

fn read_rounds(frame: &mut Opened) -> Result<Vec<Position>, Malformed> {
    let rounds = list(frame, 16, "rounds", |frame| frame.meta.position("a round"))?;
    // The bound of every replica that there is, not the lower one of a test.
    match rounds.len() > ROUNDS_MAX {
        true => wrong("more rounds than a replica keeps"),
        false => Ok(rounds),
    }
}

fn read_welcome(frame: &mut Opened) -> Result<Welcome, Malformed> {
    let meta = &mut frame.meta;
    let incarnation = Incarnation(meta.u64("incarnation")?);
    let boot = Boot(meta.u64("boot")?);
    let position = meta.position("position of a replica")?;
    let shared = SharedState::read(meta)?;
    let (dirty, regressed) = (meta.bool("dirty mark")?, meta.bool("regressed mark")?);
    let snapshots = read_snapshots(frame)?;
    let rounds = read_rounds(frame)?;
    let meta = &mut frame.meta;
    let import = read_kept(meta)?;
    let headroom = meta.len("headroom")?;
    let granule = meta.len("granule")?;
    let block_size = meta.len("block size")?;
    let costs = Costs {
        granule,
        per_granule: meta.len("cost per granule")?,
        per_write: meta.len("cost per write")?,
        is_clone: meta.bool("whether a copy began as a clone")?,
    };
    Ok(Welcome {
        incarnation,
        boot,
        position,
        shared,
        dirty,
        regressed,
        snapshots,
        rounds,
        import,
        headroom,
        block_size,
        costs,
    })
}

fn read_opened(frame: &mut Opened) -> Result<OpenedRound, Malformed> {
    let meta = &mut frame.meta;
    let position = meta.position("position of a round")?;
    let shared = SharedState::read(meta)?;
    let size = meta.len("size of a round")?;
    let snapshot = meta.option("snapshot of a round", SnapshotSpec::read)?;
    Ok(OpenedRound { position, shared, size, snapshot, snapshots: read_snapshots(frame)? })
}

fn read_leaving(frame: &mut Opened) -> Result<Leaving, Malformed> {
    Ok(match frame.meta.u8("why a replica left")? {
        0 => Leaving::NoSpace,
        1 => Leaving::Damaged { offset: frame.meta.offset("damaged offset")? },
        2 => Leaving::Failed { reason: frame.reason()? },
        _ => return wrong("why a replica left is of another kind"),
    })
}

fn read_extent(frame: &mut Opened) -> Result<Extent, Malformed> {
    let len = frame.meta.len("length of an extent")?;
    Ok(Extent { len, has_data: frame.meta.bool("whether an extent has data")? })
}

fn read_read_failure(frame: &mut Opened, failure: u8) -> Result<ReadFailure, Malformed> {
    Ok(match failure {
        1 => ReadFailure::Damaged { offset: frame.meta.offset("damaged offset")? },
        2 => ReadFailure::Failed,
        3 => ReadFailure::Busy,
        _ => return wrong("result of a read of another kind"),
    })
}

fn read_failure(frame: &mut Opened, failure: u8) -> Result<RoundFailure, Malformed> {
    Ok(match failure {
        1 => RoundFailure::NoSpace,
        2 => RoundFailure::Damaged { offset: frame.meta.offset("damaged offset")? },
        3 => RoundFailure::Gone,
        4 => RoundFailure::Failed { reason: frame.reason()? },
        _ => return wrong("failure of another kind"),
    })
}

fn read_kept(from: &mut Reader) -> Result<Option<(ImportMark, ByteOffset)>, Malformed> {
    from.option("what is staged of an import", |from| {
        Ok((ImportMark::read(from)?, from.offset("progress of an import")?))
    })
}
