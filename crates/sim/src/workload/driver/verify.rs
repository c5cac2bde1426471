//! Everything that is there, compared with the model.
use std::collections::BTreeSet;

use engine::{Op, OpError, Pool, Reply, SnapshotId, Subject, Usage};

use super::super::history::SECTOR;
use super::super::verify::compare_listing;
use super::{Driver, Outcome, open_options};
use crate::Delivery;

/// Checkpoints within which everything that was deleted has given its space back.
const CHECKPOINTS_MAX: usize = 10_000;

impl Driver {
    pub(super) fn reopen(&mut self) {
        if self.settle() == Outcome::Stopped {
            return;
        }
        self.verify_contents();
        self.note_interrupted();
        let pool = self.pool.take().expect("the pool is open");
        let disk = if self.rng.chance(1, 2) {
            self.paths.add("closed and opened", 1);
            let mut disk = pool.close().expect("a healthy pool closes");
            let report = engine::check::check(&mut disk, engine::check::Depth::Data)
                .expect("a closed pool can be checked");
            assert!(report.is_clean(), "a closed pool has problems: {:?}", report.problems);
            disk
        } else {
            self.paths.add("killed and opened", 1);
            pool.abandon().after_kill(self.rng.next_u64())
        };
        let disk = disk.with_delivery(Delivery::Random);
        self.pool = Some(Pool::open(disk, open_options()).expect("the pool opens again"));
        let replayed = self.pool().counters().replayed_slots;
        self.paths.add("slots replayed", replayed);
        // A kill loses nothing that was acknowledged; everything was.
        self.history.flushed = self.history.entries.len();
        if self.mix.snapshots && self.rng.chance(1, 2) {
            self.verify_all();
        } else {
            self.verify_contents();
        }
    }

    /// Compares all that was ever touched, and the space that it takes. Nothing may be under way.
    pub fn verify_all(&mut self) {
        self.verify_contents();
        if self.mix.snapshots && self.settle() == Outcome::Finished {
            self.verify_usage();
        }
    }

    /// Compares all that was ever touched, without a checkpoint of its own.
    fn verify_contents(&mut self) {
        if self.settle() == Outcome::Stopped {
            return;
        }
        let state = self.history.settled().clone();
        for (id, volume) in &state.volumes {
            for (first, count) in volume.content.touched_ranges(volume.size / SECTOR) {
                self.read_range(*id, first, count);
                if self.asked.len() >= 16 && self.settle() == Outcome::Stopped {
                    return;
                }
            }
        }
        for (id, snapshot) in state.visible() {
            for (first, count) in snapshot.content().touched_ranges(snapshot.frozen.size / SECTOR) {
                self.read_frozen(id, first, count);
                if self.asked.len() >= 16 && self.settle() == Outcome::Stopped {
                    return;
                }
            }
        }
        if self.settle() == Outcome::Stopped {
            return;
        }
        compare_listing(self.pool(), &state).unwrap_or_else(|problem| panic!("{problem}"));
    }

    /// Compares the space of everything. Figures are as of a checkpoint, after which nothing
    /// comes back any more.
    fn verify_usage(&mut self) {
        for round in 0.. {
            assert!(round < CHECKPOINTS_MAX, "space never stops coming back");
            self.pool().checkpoint().expect("a healthy disk");
            let info = self.pool().info();
            if info.pending.0 == 0 && info.reclaimable.0 == 0 {
                break;
            }
        }
        let listed = self.pool().snapshots();
        let kept: BTreeSet<SnapshotId> =
            listed.iter().filter(|info| info.hidden).map(|info| info.id).collect();
        self.note_kept(&kept);
        let state = self.history.settled().clone();
        let usage = state.usage(&kept);
        let is_raw = |subject| match subject {
            Subject::Volume(id) => state.volumes[&id].raw,
            Subject::Snapshot(id) => state.snapshots[&id].frozen.raw,
        };
        let visible = |subject: &Subject| match subject {
            Subject::Volume(_) => true,
            Subject::Snapshot(id) => !kept.contains(id),
        };
        for (&subject, &expected) in usage.iter().filter(|(subject, _)| visible(subject)) {
            let found = match self.call(Op::Usage { of: subject }) {
                Some(Ok(Reply::Usage(found))) => found,
                None | Some(Err(OpError::Busy)) => return,
                other => panic!("the usage of {subject:?} is {other:?}"),
            };
            let raw = is_raw(subject);
            let right = if raw { found == expected } else { is_plausible(found, expected) };
            assert!(right, "{subject:?} takes {found:?}, not {expected:?}; {kept:?} are kept");
            self.paths.add("usage compared", 1);
        }
        let volumes = self.pool().volumes().into_iter();
        let volumes = volumes.map(|info| (Subject::Volume(info.id), info.logical, info.stored));
        let settled = listed.into_iter().filter(|info| !info.hidden && info.settled);
        let snapshots = settled.map(|info| (Subject::Snapshot(info.id), info.logical, info.stored));
        for (subject, logical, stored) in volumes.chain(snapshots) {
            let expected = usage[&subject];
            let fits = if is_raw(subject) { stored == expected.stored } else { stored <= logical };
            assert!(
                logical == expected.logical && fits,
                "{subject:?} is listed with {logical} in {stored}, not {expected:?}"
            );
        }
    }

    /// Counts snapshots that wait for the volumes that were cloned from them.
    fn note_kept(&mut self, kept: &BTreeSet<SnapshotId>) {
        let state = self.history.settled();
        let origins: BTreeSet<SnapshotId> =
            state.volumes.values().filter_map(|volume| volume.origin).collect();
        let deferred = kept.intersection(&origins).count() as u64;
        self.paths.add("deferred delete", deferred);
    }
}

/// Compressed blocks take less, and how much less the model does not know.
fn is_plausible(found: Usage, expected: Usage) -> bool {
    found.logical == expected.logical
        && found.stored <= expected.stored
        && found.unique.0 + found.shared.0 == found.stored.0
        && (found.unique.0 == 0) == (expected.unique.0 == 0)
        && (found.shared.0 == 0) == (expected.shared.0 == 0)
}
