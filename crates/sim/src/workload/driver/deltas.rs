//! Volumes that follow another one, from snapshot to snapshot, by what changed in between.
use block::{ByteLen, Position, Seq};
use engine::{Op, Since, SnapshotId, SnapshotsOfDeleted, Stamps, VolumeId};

use super::super::change::Change;
use super::super::changed::Query;
use super::super::history::SECTOR;
use super::super::state::SnapshotState;
use super::imports::Owner;
use super::{Driver, Front, Outcome};

/// A volume that holds what another one held at a snapshot.
pub(super) struct Mirror {
    source: VolumeId,
    /// What it holds; nothing at first.
    at: Option<SnapshotId>,
    volume: VolumeId,
    front: Front,
    /// Its own snapshot of what it holds.
    base: Option<SnapshotId>,
    /// Whether it goes on in its source's sequence, or has one of its own.
    stamps: Stamps,
    /// From this seq on it knows as much as its source. A full copy does not tell of holes, nor
    /// a comparison of snapshots of what came and went between them.
    knows_from: u64,
}

impl Driver {
    pub(super) fn mirror(&mut self) {
        if self.settle() == Outcome::Stopped {
            return;
        }
        let few = self.mirrors.len() + self.imports.len() < 3;
        if self.mirrors.is_empty() || (few && self.rng.chance(1, 4)) {
            self.begin_mirror();
        } else {
            let at = self.rng.index(self.mirrors.len());
            let mirror = self.mirrors.swap_remove(at);
            self.follow(mirror);
        }
        // Left to itself, an import takes long: what is not interrupted is finished at once.
        if self.rng.chance(2, 3) {
            self.finish_import();
        }
    }

    /// What a mirror can follow: its stamps must be those of its own volume.
    fn is_source((_, snapshot): &(SnapshotId, &SnapshotState)) -> bool {
        !snapshot.frozen.foreign_stamps
    }

    /// A full copy of a snapshot into a fresh volume.
    fn begin_mirror(&mut self) {
        let sources = self.history.settled().visible().filter(Driver::is_source);
        let sources: Vec<SnapshotId> = sources.map(|(id, _)| id).collect();
        if sources.is_empty() {
            return;
        }
        let id = *self.rng.pick(&sources);
        let from = self.history.settled().snapshots[&id].clone();
        // To go on in the source's sequence, its own first snapshot and its adoption need places
        // before that of the source's snapshot.
        let keep = from.seq() >= 3 && self.rng.chance(1, 2);
        let made = self.create_of(from.frozen.size, from.frozen.block_size);
        let Some((volume, front)) = made else { return };
        let mirror = Mirror {
            source: from.volume,
            at: None,
            volume,
            front,
            base: None,
            stamps: if keep { Stamps::Keep } else { Stamps::Renew },
            knows_from: 0,
        };
        self.follow_to(mirror, id);
    }

    /// From the snapshot that a mirror holds to a newer one.
    fn follow(&mut self, mirror: Mirror) {
        let state = self.history.settled();
        let seq = mirror.at.map_or(0, |at| state.snapshots[&at].seq());
        let line = state.visible_of(mirror.source).into_iter();
        // It may have grown for an import that was abandoned.
        let fits = |found: &SnapshotState| found.frozen.size >= mirror.front.size * SECTOR;
        let newer = line.filter(Driver::is_source);
        let newer = newer.filter(|(_, found)| found.seq() > seq && fits(found));
        let newer: Vec<SnapshotId> = newer.map(|(id, _)| id).collect();
        // It may have become a copy of another itself since.
        let own = state.volumes.get(&mirror.source).is_some_and(|found| !found.foreign_stamps);
        if !newer.is_empty() {
            let to = *self.rng.pick(&newer);
            self.follow_to(mirror, to);
        } else if own && self.volumes.contains_key(&mirror.source) {
            let position = self.position(mirror.source);
            match self.snapshot_alone(mirror.source, Some(position)) {
                Some(to) => self.follow_to(mirror, to),
                None => self.mirrors.push(mirror),
            }
        } else {
            self.release(mirror);
        }
    }

    fn follow_to(&mut self, mut mirror: Mirror, to: SnapshotId) {
        let target = self.history.settled().snapshots[&to].clone();
        let query = self.query_for(&mirror, to, &target);
        let knows_all = matches!(query.since, Since::Seq(_));
        let size = target.frozen.size;
        let grows = size > mirror.front.size * SECTOR;
        let kept = mirror.base.filter(|base| self.is_live(*base));
        let own_sequence = mirror.stamps == Stamps::Renew;
        let kept = kept.filter(|_| !own_sequence || self.rng.chance(2, 3));
        let places = u64::from(grows) + u64::from(kept.is_none()) + 1;
        let has_places = self.history.newest(mirror.volume).seq.0 + places < target.seq();
        // The place of a newer base would be above stamps that are still to come.
        let has_base = kept.is_some() || mirror.at.is_none();
        if !(own_sequence || has_places && has_base) {
            return self.release(mirror);
        }
        if grows && !self.grow_mirror(&mut mirror, size) {
            return self.release(mirror);
        }
        let base = kept.or_else(|| {
            let position = self.own_place(&mirror);
            self.snapshot_alone(mirror.volume, Some(position))
        });
        let (Some(base), Some(ranges)) = (base, self.ranges(query)) else {
            return self.release(mirror);
        };
        let mut parts = Driver::parts_of(&ranges, size, target.frozen.granule());
        if mirror.stamps == Stamps::Renew {
            // Numbers of another sequence mean nothing here.
            parts.iter_mut().for_each(|part| part.changed = Seq(0));
        }
        mirror.base = Some(base);
        if !knows_all {
            mirror.knows_from = target.seq();
        }
        self.begin_import(mirror.volume, base, parts, Owner::Mirror(mirror, to));
    }

    fn query_for(&mut self, mirror: &Mirror, to: SnapshotId, target: &SnapshotState) -> Query {
        let Some(at) = mirror.at else { return Query::allocated(to, target) };
        let held = self.history.settled().snapshots[&at].clone();
        let since = match self.is_live(at) && self.rng.chance(1, 2) {
            true => Since::Snapshot(at),
            false => Since::Seq(Seq(held.seq())),
        };
        Query::since(to, target, since, held.content())
    }

    /// The next place of an operation that its source knows nothing of.
    fn own_place(&mut self, mirror: &Mirror) -> Position {
        match mirror.stamps {
            Stamps::Renew => self.position(mirror.volume),
            Stamps::Keep => {
                let newest = self.history.newest(mirror.volume);
                Position::new(newest.term.0.max(1), newest.seq.0 + 1)
            }
        }
    }

    fn grow_mirror(&mut self, mirror: &mut Mirror, size: u64) -> bool {
        let (volume, position) = (mirror.volume, self.own_place(mirror));
        let op = Op::Grow { volume, position: Some(position), size: ByteLen(size) };
        let done = self.change_alone(op, Change::Grow { volume, size }, Some(position));
        if done.is_some() {
            mirror.front.size = size / SECTOR;
            self.paths.add("mirror grown", 1);
        }
        done.is_some()
    }

    /// The place of the source's snapshot, which the mirror's own will have as well.
    pub(super) fn place_of_adoption(
        &mut self,
        mirror: &Mirror,
        to: SnapshotId,
    ) -> (Position, Stamps) {
        let place = self.history.settled().snapshots[&to].position();
        let position = match mirror.stamps {
            Stamps::Renew => self.position(mirror.volume),
            Stamps::Keep => place,
        };
        (position, mirror.stamps)
    }

    /// An import is complete: the mirror must be what the snapshot is, byte for byte.
    pub(super) fn arrived(&mut self, mut mirror: Mirror, to: SnapshotId) {
        let state = self.history.settled();
        let (target, now) = (&state.snapshots[&to], &state.volumes[&mirror.volume]);
        let differing = now.content.differing(target.content());
        assert!(
            differing.is_empty(),
            "volume {} is not as snapshot {to} of {} in {differing:?}",
            mirror.volume,
            mirror.source
        );
        for (first, count) in now.content.clone().touched_ranges(mirror.front.size) {
            self.read_range(mirror.volume, first, count);
            if self.asked.len() >= 16 && self.settle() == Outcome::Stopped {
                return;
            }
        }
        self.paths.add(
            match (mirror.at, mirror.stamps) {
                (None, _) => "full copy compared",
                (_, Stamps::Renew) => "delta compared, stamps renewed",
                (_, Stamps::Keep) => "delta compared, stamps kept",
            },
            1,
        );
        let position = match mirror.stamps {
            Stamps::Renew => Some(self.position(mirror.volume)),
            Stamps::Keep => None,
        };
        let Some(base) = self.snapshot_alone(mirror.volume, position) else {
            return self.release(mirror);
        };
        if mirror.stamps == Stamps::Keep {
            self.compare_kept(&mirror, base);
        }
        mirror.at = Some(to);
        mirror.base = Some(base);
        self.mirrors.push(mirror);
    }

    /// A volume with kept stamps answers for its source's sequence, as its source does.
    fn compare_kept(&mut self, mirror: &Mirror, base: SnapshotId) {
        let snapshot = self.history.settled().snapshots[&base].clone();
        let first = mirror.knows_from.min(snapshot.seq());
        let held = mirror.at.map(|at| self.history.settled().snapshots[&at].seq());
        for seq in [Some(self.rng.range(first..snapshot.seq() + 1)), held].into_iter().flatten() {
            let old = self.history.content_at(mirror.source, seq).expect("it was there already");
            self.ranges(Query::since(base, &snapshot, Since::Seq(Seq(seq)), &old));
        }
        let before = mirror.base.filter(|before| mirror.at.is_some() && self.is_live(*before));
        if let Some(before) = before {
            let old = self.history.settled().snapshots[&before].content().clone();
            self.ranges(Query::since(base, &snapshot, Since::Snapshot(before), &old));
        }
        self.paths.add("kept stamps compared", 1);
    }

    /// It follows no more: an ordinary volume from now on, or none if there are many.
    fn release(&mut self, mirror: Mirror) {
        let volume = mirror.volume;
        if self.volumes.len() < self.mix.volumes_max + 3 {
            self.volumes.insert(volume, mirror.front);
            return;
        }
        let snapshots = SnapshotsOfDeleted::Delete;
        let change = Change::Delete { volume, snapshots };
        self.ask_change(Op::Delete { volume, snapshots }, change, None);
    }
}
