//! Answers of the pool: what was done, and whether what was read is right.
use std::sync::Arc;

use engine::{OpError, Reply, RequestId, Since, SnapshotId};

use super::super::change::{Change, Status};
use super::super::changed::Query;
use super::super::content::Content;
use super::super::history::{SECTOR, View, content};
use super::Driver;
use super::extents::Range;

/// What an answer is to.
pub(super) enum Asked {
    Change(usize),
    /// A flush, and how many operations were submitted before it.
    Flush(usize),
    Read(View),
    ReadSnapshot(Frozen),
    Changed(Query),
    Extents(Range, View),
    FrozenExtents(Range, Frozen),
}

/// A read of a snapshot: there is one right answer.
pub(super) struct Frozen {
    pub snapshot: SnapshotId,
    pub first: u64,
    pub content: Arc<Content>,
}

impl Driver {
    pub(super) fn take_replies(&mut self) {
        while let Some((id, result)) = self.pool().reply() {
            let Some(asked) = self.asked.remove(&id) else {
                // Asked alone, and no longer waited for when the disk stopped.
                assert_eq!(id, RequestId(0), "an answer to a question");
                continue;
            };
            match asked {
                Asked::Change(index) => self.changed(index, result),
                Asked::Flush(before) => {
                    result.expect("a flush on a healthy disk succeeds");
                    self.history.flushed = self.history.flushed.max(before);
                }
                Asked::Read(view) => self.compare(&view, result),
                Asked::ReadSnapshot(frozen) => self.compare_frozen(&frozen, result),
                Asked::Changed(query) => self.compare_changes(query, result),
                Asked::Extents(range, view) => self.compare_extents(range, &view, result),
                Asked::FrozenExtents(range, frozen) => {
                    self.compare_frozen_extents(range, &frozen, result);
                }
            }
        }
    }

    fn size_was_refused(&self, index: usize) -> bool {
        let id = self.history.entries[index].change.volume();
        self.history.entries[..index].iter().any(|entry| {
            entry.status == Status::Refused
                && matches!(entry.change, Change::Grow { volume, .. } if volume == id)
        })
    }

    fn changed(&mut self, index: usize, result: Result<Reply, OpError>) {
        let status = match result {
            Ok(reply) => {
                match reply {
                    Reply::Created(id) => self.history.volume_given(index, id),
                    Reply::Snapshotted(id) => self.history.snapshot_given(index, id),
                    _ => {}
                }
                Status::Acked
            }
            Err(OpError::NoSpace { .. }) => {
                self.paths.add("no space", 1);
                Status::Refused
            }
            Err(OpError::Busy) => Status::Refused,
            // It relied on a size that was then refused.
            Err(OpError::BeyondEnd { .. }) if self.size_was_refused(index) => Status::Refused,
            Err(error) => panic!(
                "operation {index} failed on a healthy disk: {error}: {:?}",
                self.history.entries[index]
            ),
        };
        self.history.entries[index].status = status;
        match status {
            Status::Acked => self.note_done(index),
            Status::Refused => self.note_refused(index),
            Status::Pending => {}
        }
    }

    fn note_done(&mut self, index: usize) {
        let path = match &self.history.entries[index].change {
            Change::Write { .. } => "write",
            Change::Snapshot { .. } => "snapshot",
            Change::DeleteSnapshot { .. } => "snapshot deleted",
            Change::Clone { .. } => "clone",
            Change::Rollback { .. } => "rollback",
            Change::Attach { .. } => "attach",
            Change::Stage { .. } => "import begun",
            Change::StageData { .. } => "part of an import",
            Change::Adopt { .. } => "import finished",
            _ => return,
        };
        self.paths.add(path, 1);
    }

    /// What was noted when it was submitted is not so after all.
    fn note_refused(&mut self, index: usize) {
        match self.history.entries[index].change {
            Change::Grow { volume, .. } => {
                self.paths.add("grow refused", 1);
                let size = self.history.size_of(volume) / SECTOR;
                self.volumes.entry(volume).and_modify(|front| front.size = size);
            }
            Change::Attach { volume, .. } => {
                let attached = self.history.is_attached(volume);
                self.volumes.entry(volume).and_modify(|front| front.attached = attached);
            }
            Change::Delete { .. } | Change::DeleteSnapshot { .. } => {
                self.paths.add("deletion refused", 1);
            }
            _ => {}
        }
    }

    fn compare(&mut self, view: &View, result: Result<Reply, OpError>) {
        let bytes = match result {
            Ok(Reply::Read(bytes)) => bytes,
            // Deleted under the read.
            Err(OpError::UnknownVolume { .. }) => return,
            Err(OpError::Busy) => return,
            other => panic!("a read on a healthy disk ended as {other:?}"),
        };
        self.paths.add("read", 1);
        let mut expected = [0; 512];
        let volume = view.volume;
        for (sector, part) in view.sectors().zip(bytes.chunks_exact(512)) {
            let allowed = self.history.allowed(view, sector);
            let fits = allowed.iter().any(|number| {
                content(sector, *number, &mut expected);
                expected == part
            });
            assert!(
                fits,
                "volume {volume} sector {sector} shows {:?}, not one of {allowed:?}; it was \
                 touched by {:#?}",
                self.history.recognise(sector, part),
                self.history.touching(volume, sector)
            );
        }
        self.pool().recycle(bytes);
    }

    fn compare_frozen(&mut self, frozen: &Frozen, result: Result<Reply, OpError>) {
        match result {
            Ok(Reply::Read(bytes)) => {
                self.compare_snapshot(frozen, &bytes);
                self.pool().recycle(bytes);
            }
            Err(error) => self.explain(&[frozen.snapshot], error),
            other => panic!("a read of a snapshot ended as {other:?}"),
        }
    }

    pub(super) fn compare_snapshot(&mut self, frozen: &Frozen, bytes: &[u8]) {
        self.paths.add("snapshot read", 1);
        let mut expected = [0; 512];
        for (sector, part) in (frozen.first..).zip(bytes.chunks_exact(512)) {
            let number = frozen.content.value(sector);
            content(sector, number, &mut expected);
            assert!(
                expected == part,
                "snapshot {} sector {sector} shows {:?}, not {number}",
                frozen.snapshot,
                self.history.recognise(sector, part)
            );
        }
    }

    fn compare_changes(&mut self, query: Query, result: Result<Reply, OpError>) {
        match result {
            Ok(Reply::Changed(page)) => {
                self.paths.add("changed query", 1);
                let next = query.check(&page).unwrap_or_else(|problem| panic!("{problem}"));
                if let Some(next) = next {
                    self.paths.add("changed query of several pages", 1);
                    self.ask(next.op(), Asked::Changed(next));
                }
            }
            Err(error) => match query.since {
                Since::Snapshot(older) => self.explain(&[query.snapshot, older], error),
                Since::Start | Since::Seq(_) => self.explain(&[query.snapshot], error),
            },
            other => panic!("a question for changes ended as {other:?}"),
        }
    }

    /// A snapshot may be deleted under a question; there is no other reason not to answer it.
    pub(super) fn explain(&mut self, snapshots: &[SnapshotId], error: OpError) {
        let live = self.history.live_snapshots();
        match error {
            OpError::Busy => {}
            OpError::UnknownSnapshot { .. } if snapshots.iter().any(|id| !live.contains(id)) => {}
            other => panic!("a question about {snapshots:?} ended as {other}"),
        }
    }

    pub(super) fn is_live(&mut self, snapshot: SnapshotId) -> bool {
        self.history.live_snapshots().contains(&snapshot)
    }
}
