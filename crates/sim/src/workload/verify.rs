//! After a power cut or a kill: is what came back a part of the history that is long enough?
use std::collections::BTreeMap;

use block::{ByteLen, ByteOffset, Position};
use engine::{Op, OpenOptions, Pool, Reply, SnapshotId, Subject, VolumeId};

use super::change::Status;
use super::history::{History, SECTOR, content};
use super::state::{State, UNANSWERED, VolumeState};
use crate::CrashDisk;

/// What must have survived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recovery {
    /// Power was cut: everything that an acknowledged flush covers.
    PowerCut,
    /// The process was killed: everything that was acknowledged.
    Kill,
}

/// What a volume is known by before its id is. A volume has one import at the most.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Name {
    Plain(String),
    ImportOf(VolumeId),
}

/// What of a volume tells how far its history came.
#[derive(Clone, Debug)]
struct Line {
    id: VolumeId,
    size: u64,
    attached: bool,
    /// Of an import, its own affair.
    state: Vec<u8>,
    /// Of an import, how far it is; of any other volume, where in its sequence.
    place: Result<Position, u64>,
}

/// Enough to tell how long a part of the history came back: two parts with the same outline hold
/// the same, but for operations that undid each other without a trace.
#[derive(Clone, Debug, Default)]
struct Outline {
    volumes: BTreeMap<Name, Line>,
    /// Those that a user sees, by their identities. Several may have the same position.
    snapshots: BTreeMap<(VolumeId, Position, [u8; 16]), SnapshotId>,
}

impl Outline {
    fn of(state: &State) -> Outline {
        let line = |(id, volume): (&VolumeId, &VolumeState)| {
            let (name, place) = match volume.staging {
                Some(staging) => (Name::ImportOf(staging.of), Err(staging.progress)),
                None => (Name::Plain(volume.name.clone()), Ok(volume.position)),
            };
            let attached = volume.attached && volume.staging.is_none();
            let state = if place.is_ok() { volume.state.clone() } else { Vec::new() };
            (name, Line { id: *id, size: volume.size, attached, state, place })
        };
        let snapshots =
            state.visible().map(|(id, found)| ((found.volume, found.position(), found.uid), id));
        Outline {
            volumes: state.volumes.iter().map(line).collect(),
            snapshots: snapshots.collect(),
        }
    }

    fn found(pool: &Pool<CrashDisk>) -> Outline {
        let volumes = pool.volumes().into_iter().map(|info| {
            let (name, place) = match info.staging {
                Some(staging) => (Name::ImportOf(staging.of), Err(staging.progress)),
                None => (Name::Plain(info.name), Ok(info.held)),
            };
            let attached = info.attached && info.staging.is_none();
            let state = if place.is_ok() { info.state } else { Vec::new() };
            (name, Line { id: info.id, size: info.size.0, attached, state, place })
        });
        let visible = pool.snapshots().into_iter().filter(|info| !info.hidden);
        let snapshots = visible.map(|info| ((info.volume, info.position, info.uid), info.id));
        Outline { volumes: volumes.collect(), snapshots: snapshots.collect() }
    }

    /// Whether a pool that was found is this. An id that the pool never got to tell may be any.
    fn fits(&self, found: &Outline) -> bool {
        let same_volume = |(ours, theirs): ((&Name, &Line), (&Name, &Line))| {
            ours.0 == theirs.0
                && (ours.1.id == theirs.1.id || ours.1.id.0 >= UNANSWERED)
                && ours.1.size == theirs.1.size
                && ours.1.attached == theirs.1.attached
                && ours.1.state == theirs.1.state
                && ours.1.place == theirs.1.place
        };
        let same_snapshot = |(ours, theirs): ((&_, &SnapshotId), (&_, &SnapshotId))| {
            let (at, their_at): (&(VolumeId, Position, [u8; 16]), _) = (ours.0, theirs.0);
            at == their_at && (ours.1 == theirs.1 || ours.1.0 >= UNANSWERED)
        };
        self.volumes.len() == found.volumes.len()
            && self.snapshots.len() == found.snapshots.len()
            && self.volumes.iter().zip(&found.volumes).all(same_volume)
            && self.snapshots.iter().zip(&found.snapshots).all(same_snapshot)
    }
}

/// A history at the moment of a crash, prepared for being compared with many pools.
pub struct Expected<'a> {
    history: &'a History,
    outlines: Vec<Outline>,
    /// States that were needed already, by the length of their history.
    states: BTreeMap<usize, State>,
}

impl<'a> Expected<'a> {
    pub fn new(history: &'a History) -> Expected<'a> {
        let mut state = State::default();
        let mut outlines = vec![Outline::default()];
        for index in 0..history.entries.len() {
            history.apply(&mut state, index);
            outlines.push(Outline::of(&state));
        }
        Expected { history, outlines, states: BTreeMap::new() }
    }

    /// Opens a pool after a crash and verifies it. Returns it with the number of operations that
    /// it holds, or what is wrong.
    pub fn verify(
        &mut self,
        disk: CrashDisk,
        recovery: Recovery,
        options: OpenOptions,
    ) -> Result<(Pool<CrashDisk>, usize), String> {
        let mut pool =
            Pool::open(disk, options).map_err(|error| format!("does not open: {error}"))?;
        let found = Outline::found(&pool);
        let count = self.prefix_of(&found)?;
        let least = match recovery {
            Recovery::PowerCut => self.history.flushed,
            Recovery::Kill => self.history.acked_prefix(),
        };
        // Operations that were refused leave no trace.
        let mut missing = (count..least).map(|at| &self.history.entries[at]);
        if missing.any(|entry| entry.status != Status::Refused) {
            return Err(format!("only {count} of {least} operations survived"));
        }
        self.compare(&mut pool, &found, count)?;
        Ok((pool, count))
    }

    /// The longest part of the history that has the pool's volumes and snapshots.
    fn prefix_of(&self, found: &Outline) -> Result<usize, String> {
        self.outlines
            .iter()
            .rposition(|outline| outline.fits(found))
            .ok_or_else(|| format!("{found:?} is no part of the history"))
    }

    fn compare(
        &mut self,
        pool: &mut Pool<CrashDisk>,
        found: &Outline,
        count: usize,
    ) -> Result<(), String> {
        let (history, ours) = (self.history, &self.outlines[count]);
        let state = self.states.entry(count).or_insert_with(|| {
            let mut state = history.state_after(count);
            let volumes = ours.volumes.values().zip(found.volumes.values());
            let volumes: Vec<_> = volumes.map(|(ours, theirs)| (ours.id, theirs.id)).collect();
            let snapshots = ours.snapshots.values().zip(found.snapshots.values());
            let snapshots: Vec<_> = snapshots.map(|(ours, theirs)| (*ours, *theirs)).collect();
            state.rename(&volumes, &snapshots);
            state
        });
        compare_listing(pool, state).map_err(|what| format!("after operation {count}: {what}"))?;
        for (id, volume) in &state.volumes {
            compare_content(pool, volume, Subject::Volume(*id))?;
        }
        for (id, snapshot) in state.visible() {
            compare_content(pool, &snapshot.frozen, Subject::Snapshot(id))?;
        }
        Ok(())
    }
}

/// Compares everything that a pool says of its volumes and snapshots without reading them.
pub fn compare_listing(pool: &Pool<CrashDisk>, state: &State) -> Result<(), String> {
    let volumes = pool.volumes();
    for info in &volumes {
        let model = state.volumes.get(&info.id).ok_or_else(|| format!("{info:?} is not known"))?;
        let shape = info.size.0 == model.size && info.block_size.bytes() == model.block_size;
        // What an import is called, and where it stands, is the engine's own affair.
        let itself = info.name == model.name
            && info.uid == model.uid
            && info.state == model.state
            && info.attached == model.attached
            && info.held == model.position;
        if !shape || info.staging != model.staging || !(itself || info.staging.is_some()) {
            let model = VolumeState { content: Default::default(), ..model.clone() };
            return Err(format!("{info:?} should be {model:?}"));
        }
    }
    let listed = pool.snapshots();
    for info in &listed {
        let model = state.snapshots.get(&info.id);
        let model = model.ok_or_else(|| format!("{info:?} is not known"))?;
        let same = info.volume == model.volume
            && info.name == model.name
            && info.uid == model.uid
            && info.internal == model.internal
            && info.created == model.created
            && info.position == model.position()
            && info.state == model.frozen.state
            && info.size.0 == model.frozen.size
            && info.block_size.bytes() == model.frozen.block_size;
        if info.hidden != model.hidden || !(same || info.hidden) {
            return Err(format!("{info:?} should be {:?} of {}", model.name, model.volume));
        }
    }
    let visible = listed.iter().filter(|info| !info.hidden).count();
    if volumes.len() != state.volumes.len() || visible != state.visible().count() {
        return Err(format!("something is missing in {volumes:?} or {listed:?}"));
    }
    Ok(())
}

fn compare_content(
    pool: &mut Pool<CrashDisk>,
    model: &VolumeState,
    subject: Subject,
) -> Result<(), String> {
    let mut expected = [0; 512];
    for (sector, count) in model.content.touched_ranges(model.size / SECTOR) {
        let (offset, len) = (ByteOffset(sector * SECTOR), ByteLen(count * SECTOR));
        let op = match subject {
            Subject::Volume(volume) => Op::Read { volume, offset, len },
            Subject::Snapshot(snapshot) => Op::ReadSnapshot { snapshot, offset, len },
        };
        let bytes = match pool.run(op) {
            Ok(Reply::Read(bytes)) => bytes,
            other => return Err(format!("a read of {subject:?} ended as {other:?}")),
        };
        for (at, part) in (sector..).zip(bytes.chunks_exact(512)) {
            let number = model.content.value(at);
            content(at, number, &mut expected);
            if part != expected {
                return Err(format!("{subject:?} sector {at} is not of operation {number}"));
            }
        }
        pool.recycle(bytes);
    }
    Ok(())
}
