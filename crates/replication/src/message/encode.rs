//! Messages as frames. `docs/wire.md` has the tables.
use block::{ByteOffset, Data};

use super::frame::{Encoded, Frame, kind};
use super::{
    Fetched, ForReplica, ForTarget, Leaving, OpenedRound, Piece, ReadFailure, Refusal,
    RoundFailure, RoundPoint, ToReplica, ToTarget, Wanted, Welcome,
};
use crate::cost::Costs;
use crate::encoding::Writer;
use crate::entry::{Change, Checksum, Entry, Zeroing};
use crate::state::{ImportMark, POINTS_MAX, RESERVATIONS_MAX, SnapshotEntry};
use crate::store::{ChangedRange, Content, Extent};

/// One frame. What is in it must fit [`super::FRAME_MAX`]; entries that keep to
/// [`super::BATCH_MAX`] do.
pub fn encode_to_replica(message: &ForReplica) -> Encoded {
    let frame = &mut Frame::default();
    let kind = match &message.body {
        ToReplica::Hello(hello) => {
            hello.promise.write(&mut frame.meta);
            hello.membership.write(&mut frame.meta);
            kind::HELLO
        }
        ToReplica::Entries(entries) => {
            frame.count(entries.len());
            entries.iter().for_each(|entry| write_entry(frame, entry));
            kind::ENTRIES
        }
        ToReplica::Renew { sent, settled } => {
            frame.numbers(&[sent.0, settled.0]);
            kind::RENEW
        }
        ToReplica::Read { id, of, offset, len } => {
            frame.numbers(&[id.0]);
            write_point(&mut frame.meta, of);
            frame.numbers(&[offset.0, len.0]);
            kind::READ
        }
        ToReplica::Repair { id, of, offset, data } => {
            frame.numbers(&[id.0]);
            write_point(&mut frame.meta, of);
            frame.numbers(&[offset.0]);
            write_summed(frame, data);
            kind::REPAIR
        }
        ToReplica::Extents { id, offset, len } => {
            frame.numbers(&[id.0, offset.0, len.0]);
            kind::EXTENTS
        }
        ToReplica::Recovered => kind::RECOVERED,
        ToReplica::OpenRound { id, point } => {
            frame.numbers(&[id.0]);
            write_point(&mut frame.meta, point);
            kind::OPEN_ROUND
        }
        ToReplica::Fetch { id, round, wanted, from, to } => {
            frame.numbers(&[id.0, from.0, to.0]);
            frame.meta.position(*round);
            write_wanted(&mut frame.meta, *wanted);
            kind::FETCH
        }
        ToReplica::CloseRound { round } => {
            frame.meta.position(*round);
            kind::CLOSE_ROUND
        }
        ToReplica::BeginImport { mark, size } => {
            mark.write(&mut frame.meta);
            frame.numbers(&[size.0]);
            kind::BEGIN_IMPORT
        }
        ToReplica::OwnChanges { id, since, from } => {
            frame.numbers(&[id.0, since.0, from.0]);
            kind::OWN_CHANGES
        }
        ToReplica::Import { pieces, progress } => {
            frame.numbers(&[progress.0]);
            write_pieces(frame, pieces);
            kind::IMPORT
        }
        ToReplica::CommitImport { shared, snapshot, snapshots } => {
            shared.write(&mut frame.meta);
            frame.meta.option(snapshot.as_ref(), |to, spec| spec.write(to));
            write_snapshots(frame, snapshots);
            kind::COMMIT_IMPORT
        }
        ToReplica::AbandonImport => kind::ABANDON_IMPORT,
    };
    std::mem::take(frame).finish(kind, message.term)
}

/// One frame. What is in it must fit [`super::FRAME_MAX`].
pub fn encode_to_target(message: &ForTarget) -> Encoded {
    let frame = &mut Frame::default();
    let kind = match &message.body {
        ToTarget::Welcome(welcome) => {
            write_welcome(frame, welcome);
            kind::WELCOME
        }
        ToTarget::Refused(refusal) => {
            match refusal {
                Refusal::Promised(promise) => {
                    frame.meta.u8(0);
                    promise.write(&mut frame.meta);
                }
                Refusal::OlderMembership { seen } => {
                    frame.meta.u8(1);
                    frame.numbers(&[*seen]);
                }
            }
            kind::REFUSED
        }
        ToTarget::Ack { boot, held, durable, headroom } => {
            frame.numbers(&[boot.0, held.0, durable.0, headroom.0]);
            kind::ACK
        }
        ToTarget::Renewed { sent } => {
            frame.numbers(&[sent.0]);
            kind::RENEWED
        }
        ToTarget::Left { at, reason } => {
            frame.numbers(&[at.0]);
            write_leaving(frame, reason);
            kind::LEFT
        }
        ToTarget::ReadDone { id, result } => {
            frame.numbers(&[id.0]);
            match result {
                Ok(data) => {
                    frame.meta.u8(0);
                    write_summed(frame, data);
                }
                Err(failure) => write_read_failure(frame, failure),
            }
            kind::READ_DONE
        }
        ToTarget::ExtentsDone { id, result } => {
            frame.numbers(&[id.0]);
            match result {
                Ok(extents) => {
                    frame.meta.u8(0);
                    frame.count(extents.len());
                    for Extent { len, has_data } in extents {
                        frame.numbers(&[len.0]);
                        frame.meta.u8(u8::from(*has_data));
                    }
                }
                Err(failure) => write_read_failure(frame, failure),
            }
            kind::EXTENTS_DONE
        }
        ToTarget::Repaired { id, ok } => {
            frame.numbers(&[id.0]);
            frame.meta.u8(u8::from(*ok));
            kind::REPAIRED
        }
        ToTarget::RoundOpened { id, opened } => {
            frame.numbers(&[id.0]);
            match opened {
                Ok(opened) => {
                    frame.meta.u8(0);
                    write_opened(frame, opened);
                }
                Err(failure) => write_failure(frame, failure),
            }
            kind::ROUND_OPENED
        }
        ToTarget::Fetched { id, result } => {
            frame.numbers(&[id.0]);
            match result {
                Ok(Fetched { pieces, through }) => {
                    frame.meta.u8(0);
                    frame.numbers(&[through.0]);
                    write_pieces(frame, pieces);
                }
                Err(failure) => write_failure(frame, failure),
            }
            kind::FETCHED
        }
        ToTarget::ImportBegun { kept } => {
            write_kept(&mut frame.meta, kept.as_ref());
            kind::IMPORT_BEGUN
        }
        ToTarget::OwnChanged { id, ranges, next } => {
            frame.numbers(&[id.0]);
            frame.meta.option(next.as_ref(), |to, next| to.u64(next.0));
            frame.count(ranges.len());
            for ChangedRange { offset, len, is_data, changed } in ranges {
                frame.numbers(&[offset.0, len.0, changed.0]);
                frame.meta.u8(u8::from(*is_data));
            }
            kind::OWN_CHANGED
        }
        ToTarget::Imported { progress } => {
            frame.numbers(&[progress.0]);
            kind::IMPORTED
        }
        ToTarget::Committed { position } => {
            frame.meta.position(*position);
            kind::COMMITTED
        }
        ToTarget::ImportFailed { reason } => {
            write_failure(frame, reason);
            kind::IMPORT_FAILED
        }
    };
    std::mem::take(frame).finish(kind, message.term)
}

fn write_entry(frame: &mut Frame, entry: &Entry) {
    frame.numbers(&[entry.seq.0]);
    match &entry.change {
        Change::Write { offset, data, sums } => {
            frame.meta.u8(kind::WRITE);
            frame.numbers(&[offset.0]);
            frame.meta.u8(sums.bits());
            frame.data(data);
            frame.numbers(sums.list());
        }
        Change::Zero { offset, len, how } => {
            frame.meta.u8(match how {
                Zeroing::Zeroes => kind::ZEROES,
                Zeroing::Discard => kind::DISCARD,
                Zeroing::Release => kind::RELEASE,
            });
            frame.numbers(&[offset.0, len.0]);
        }
        Change::Flush => frame.meta.u8(kind::FLUSH),
        Change::Barrier { stages } => {
            frame.meta.u8(kind::BARRIER);
            stages.write(&mut frame.meta);
        }
        Change::Close => frame.meta.u8(kind::CLOSE),
        Change::Snapshot(spec) => {
            frame.meta.u8(kind::SNAPSHOT);
            spec.write(&mut frame.meta);
        }
        Change::DeleteSnapshot(uid) => {
            frame.meta.u8(kind::DELETE_SNAPSHOT);
            frame.meta.bytes(&uid.0);
        }
        Change::Rollback { to } => {
            frame.meta.u8(kind::ROLLBACK);
            frame.meta.bytes(&to.0);
        }
        Change::MarkClone { snapshot, clone } => {
            frame.meta.u8(kind::MARK_CLONE);
            frame.meta.bytes(&snapshot.0);
            frame.meta.bytes(&clone.0);
        }
        Change::UnmarkClone { clone } => {
            frame.meta.u8(kind::UNMARK_CLONE);
            frame.meta.bytes(&clone.0);
        }
        Change::Resize { size } => {
            frame.meta.u8(kind::RESIZE);
            frame.numbers(&[size.0]);
        }
        Change::Reservations(bytes) => {
            frame.meta.u8(kind::RESERVATIONS);
            frame.meta.length(2, bytes.len(), RESERVATIONS_MAX, "bytes of reservations");
            frame.meta.bytes(bytes);
        }
        Change::Points(bytes) => {
            frame.meta.u8(kind::POINTS);
            frame.meta.length(1, bytes.len(), POINTS_MAX, "bytes of mirror points");
            frame.meta.bytes(bytes);
        }
        Change::Stages(stages) => {
            frame.meta.u8(kind::STAGES);
            stages.write(&mut frame.meta);
        }
        Change::Membership(membership) => {
            frame.meta.u8(kind::MEMBERSHIP);
            membership.write(&mut frame.meta);
        }
    }
}

/// Bytes that no entry brought: they get a checksum for the way.
fn write_summed(frame: &mut Frame, data: &Data) {
    frame.numbers(&[Checksum::of(data).0]);
    frame.data(data);
}

fn write_point(to: &mut Writer, point: &RoundPoint) {
    match point {
        RoundPoint::Now => to.u8(0),
        RoundPoint::Snapshot(uid) => {
            to.u8(1);
            to.bytes(&uid.0);
        }
        RoundPoint::Kept(position) => {
            to.u8(2);
            to.position(*position);
        }
    }
}

fn write_wanted(to: &mut Writer, wanted: Wanted) {
    match wanted {
        Wanted::Everything => to.u8(0),
        Wanted::Changed(seq) => {
            to.u8(1);
            to.u64(seq.0);
        }
    }
}

fn write_pieces(frame: &mut Frame, pieces: &[Piece]) {
    frame.count(pieces.len());
    for Piece { offset, changed, content } in pieces {
        frame.numbers(&[offset.0, changed.0]);
        match content {
            Content::Zeros(len) => {
                frame.meta.u8(0);
                frame.numbers(&[len.0]);
            }
            Content::Bytes(data) => {
                frame.meta.u8(1);
                write_summed(frame, data);
            }
        }
    }
}

fn write_snapshots(frame: &mut Frame, snapshots: &[SnapshotEntry]) {
    frame.count(snapshots.len());
    snapshots.iter().for_each(|snapshot| snapshot.write(&mut frame.meta));
}

fn write_welcome(frame: &mut Frame, welcome: &Welcome) {
    // By name, so that a new field cannot be forgotten.
    let Welcome {
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
        costs: Costs { granule, per_write, per_granule, is_clone },
    } = welcome;
    frame.numbers(&[incarnation.0, boot.0]);
    frame.meta.position(*position);
    shared.write(&mut frame.meta);
    for mark in [dirty, regressed] {
        frame.meta.u8(u8::from(*mark));
    }
    write_snapshots(frame, snapshots);
    frame.count(rounds.len());
    rounds.iter().for_each(|round| frame.meta.position(*round));
    write_kept(&mut frame.meta, import.as_ref());
    frame.numbers(&[headroom.0, granule.0, block_size.0, per_granule.0, per_write.0]);
    frame.meta.u8(u8::from(*is_clone));
}

fn write_opened(frame: &mut Frame, opened: &OpenedRound) {
    let OpenedRound { position, shared, size, snapshot, snapshots } = opened;
    frame.meta.position(*position);
    shared.write(&mut frame.meta);
    frame.numbers(&[size.0]);
    frame.meta.option(snapshot.as_ref(), |to, spec| spec.write(to));
    write_snapshots(frame, snapshots);
}

fn write_leaving(frame: &mut Frame, reason: &Leaving) {
    match reason {
        Leaving::NoSpace => frame.meta.u8(0),
        Leaving::Damaged { offset } => {
            frame.meta.u8(1);
            frame.numbers(&[offset.0]);
        }
        Leaving::Failed { reason } => {
            frame.meta.u8(2);
            frame.reason(reason);
        }
    }
}

/// Never 0: that is success.
fn write_read_failure(frame: &mut Frame, failure: &ReadFailure) {
    match failure {
        ReadFailure::Damaged { offset } => {
            frame.meta.u8(1);
            frame.numbers(&[offset.0]);
        }
        ReadFailure::Failed => frame.meta.u8(2),
        ReadFailure::Busy => frame.meta.u8(3),
    }
}

/// Never 0: that is success, where there can be one.
fn write_failure(frame: &mut Frame, failure: &RoundFailure) {
    match failure {
        RoundFailure::NoSpace => frame.meta.u8(1),
        RoundFailure::Damaged { offset } => {
            frame.meta.u8(2);
            frame.numbers(&[offset.0]);
        }
        RoundFailure::Gone => frame.meta.u8(3),
        RoundFailure::Failed { reason } => {
            frame.meta.u8(4);
            frame.reason(reason);
        }
    }
}

fn write_kept(to: &mut Writer, kept: Option<&(ImportMark, ByteOffset)>) {
    to.option(kept, |to, (mark, progress)| {
        mark.write(to);
        to.u64(progress.0);
    });
}
