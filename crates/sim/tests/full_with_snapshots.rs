//! A full pool with snapshots and clones: whatever gives space back still works, in any order.
mod rot;
mod seeds;

use std::collections::BTreeMap;

use block::{ByteLen, ByteOffset, Data, Position, SectorSize};
use engine::check::{Depth, check};
use engine::{
    CloneSpec, Op, OpError, Pool, Reply, SnapshotId, SnapshotSpec, SnapshotsOfDeleted, VolumeId,
    Zeroing,
};
use rot::{create, fresh};
use sim::workload::Paths;
use sim::{CrashDisk, Rng};

const SIZE: u64 = 1 << 30;

struct Scene {
    pool: Pool<CrashDisk>,
    rng: Rng,
    seqs: BTreeMap<VolumeId, u64>,
    snapshots: Vec<(SnapshotId, VolumeId)>,
    names: u64,
    /// The highest seq of any volume: a clone goes on above it.
    highest: u64,
    paths: Paths,
}

impl Scene {
    fn position(&mut self, volume: VolumeId) -> Position {
        let seq = self.seqs.get_mut(&volume).expect("a volume that is there");
        *seq += 1;
        self.highest = self.highest.max(*seq);
        Position::new(1, *seq)
    }

    fn volume(&mut self) -> VolumeId {
        let at = self.rng.index(self.seqs.len());
        *self.seqs.keys().nth(at).expect("within the number")
    }

    fn name(&mut self) -> String {
        self.names += 1;
        format!("name {}", self.names)
    }

    /// What takes space may be refused, and then nothing of it is there.
    fn is_refused(&mut self, answer: &Result<Reply, OpError>, what: &'static str) -> bool {
        match answer {
            Ok(_) => false,
            Err(OpError::NoSpace { .. }) => {
                self.paths.add(what, 1);
                true
            }
            Err(error) => panic!("a full pool answers {error}"),
        }
    }

    fn take(&mut self) {
        let volume = self.volume();
        match self.rng.below(12) {
            0 => {
                let (position, name) = (self.position(volume), self.name());
                let spec = SnapshotSpec { name, uid: [1; 16], internal: false, created: 0 };
                let answer = self.pool.run(Op::Snapshot { volume, position: Some(position), spec });
                if !self.is_refused(&answer, "snapshot refused")
                    && let Ok(Reply::Snapshotted(id)) = answer
                {
                    self.snapshots.push((id, volume));
                }
            }
            1 if !self.snapshots.is_empty() => {
                let (snapshot, _) = *self.rng.pick(&self.snapshots);
                let spec = CloneSpec { name: self.name(), uid: [2; 16], size: None };
                let answer = self.pool.run(Op::Clone { snapshot, spec });
                if !self.is_refused(&answer, "clone refused")
                    && let Ok(Reply::Created(id)) = answer
                {
                    self.seqs.insert(id, self.highest);
                }
            }
            _ => {
                let len = *self.rng.pick(&[4096, 16384, 131_072]);
                // Mostly the same places, so that snapshots hold what is written over.
                let offset = ByteOffset(self.rng.below(24) * 131_072);
                let mut bytes = vec![0; len];
                self.rng.fill(&mut bytes);
                let (position, data) = (self.position(volume), Data::copy_of(&bytes));
                let answer = self.pool.run(Op::Write { volume, position, offset, data });
                self.is_refused(&answer, "write refused");
            }
        }
    }

    /// What gives space back is never refused.
    fn give(&mut self) {
        let done = |answer: Result<Reply, OpError>, what: &str| {
            answer.unwrap_or_else(|error| panic!("{what} on a full pool: {error}"));
        };
        match self.rng.below(5) {
            0 | 1 if !self.snapshots.is_empty() => {
                let at = self.rng.index(self.snapshots.len());
                let (snapshot, _) = self.snapshots.swap_remove(at);
                done(self.pool.run(Op::DeleteSnapshot { snapshot }), "deleting a snapshot");
                self.paths.add("snapshot deleted", 1);
            }
            2 if self.seqs.len() > 1 => {
                let volume = self.volume();
                let snapshots =
                    *self.rng.pick(&[SnapshotsOfDeleted::Keep, SnapshotsOfDeleted::Delete]);
                done(self.pool.run(Op::Delete { volume, snapshots }), "deleting a volume");
                if snapshots == SnapshotsOfDeleted::Delete {
                    self.snapshots.retain(|(_, of)| *of != volume);
                }
                self.seqs.remove(&volume);
                self.paths.add("volume deleted", 1);
            }
            3 => {
                let mine = |(_, of): &&(SnapshotId, VolumeId)| self.seqs.contains_key(of);
                let Some((to, volume)) = self.snapshots.iter().find(mine).copied() else { return };
                let position = self.position(volume);
                let op = Op::Rollback { volume, position, to, force: false };
                done(self.pool.run(op), "a rollback");
                self.paths.add("rollback", 1);
            }
            _ => {
                let volume = self.volume();
                let (position, len) = (self.position(volume), 1 + self.rng.below(SIZE / 512));
                let offset = self.rng.below((SIZE / 512 - len).max(1)) * 512;
                let (offset, len) = (ByteOffset(offset), ByteLen(len * 512));
                let how = Zeroing::Discard;
                done(self.pool.run(Op::Zero { volume, position, offset, len, how }), "a discard");
                self.paths.add("discard", 1);
            }
        }
    }

    fn settle(&mut self) {
        loop {
            self.pool.checkpoint().expect("a healthy disk");
            if self.pool.info().reclaimable.0 == 0 {
                return;
            }
        }
    }
}

fn one(seed: u64) -> Paths {
    let mut rng = Rng::new(seed);
    let sector = *rng.pick(&[SectorSize::B512, SectorSize::B4096]);
    let mut pool = fresh(7 << 20, sector);
    pool.checkpoint().expect("a healthy disk");
    let start = pool.info().free;
    let mut scene = Scene {
        seqs: BTreeMap::new(),
        snapshots: Vec::new(),
        names: 0,
        highest: 0,
        paths: Paths::default(),
        rng,
        pool,
    };
    for name in ["a", "b"] {
        let block_size = *scene.rng.pick(&[512, 4096, 65536]);
        let id = create(&mut scene.pool, name, SIZE, block_size);
        scene.seqs.insert(id, 0);
    }
    for _ in 0..6 {
        let refused = |scene: &Scene| scene.paths.counts.get("write refused").copied().unwrap_or(0);
        let before = refused(&scene);
        while refused(&scene) < before + 4 {
            scene.take();
        }
        for _ in 0..1 + scene.rng.below(12) {
            scene.give();
        }
    }
    // Everything goes, in any order.
    while !scene.seqs.is_empty() || !scene.snapshots.is_empty() {
        if !scene.seqs.is_empty() && scene.rng.chance(1, 2) {
            let (volume, snapshots) = (scene.volume(), SnapshotsOfDeleted::Keep);
            scene.pool.run(Op::Delete { volume, snapshots }).expect("a full pool can delete");
            scene.seqs.remove(&volume);
        } else if !scene.snapshots.is_empty() {
            let at = scene.rng.index(scene.snapshots.len());
            let (snapshot, _) = scene.snapshots.swap_remove(at);
            scene.pool.run(Op::DeleteSnapshot { snapshot }).expect("a full pool can delete");
        }
    }
    scene.settle();
    let info = scene.pool.info();
    assert_eq!(info.free, start, "all space came back; {:?}", scene.pool.snapshots());
    let mut disk = scene.pool.close().expect("a healthy pool closes");
    let report = check(&mut disk, Depth::Data).expect("a closed pool");
    assert!(report.is_clean(), "{:?}", report.problems);
    scene.paths
}

/// Protects from a pool that fills up for good, and from space that is lost with a snapshot, a
/// clone or a branch that goes.
#[test]
fn deletes_always_work_and_all_space_comes_back() {
    let paths = seeds::run(seeds::range(150), one);
    println!("{:#?}", paths.counts);
    let least = [
        ("write refused", 3_000),
        ("snapshot refused", 15),
        ("snapshot deleted", 500),
        ("volume deleted", 100),
        ("rollback", 300),
        ("discard", 500),
    ];
    seeds::require(&paths, 150, &least);
}

/// Protects from discards that use up the reserve: where a snapshot has what they discard they
/// free nothing, and take map pages for good. They may be refused then; deleting may not.
#[test]
fn discards_below_a_snapshot_leave_enough_to_delete_it() {
    for sector in [SectorSize::B512, SectorSize::B4096] {
        let mut pool = fresh(7 << 20, sector);
        let kept = create(&mut pool, "kept", SIZE, 4096);
        let filler = create(&mut pool, "filler", SIZE, 4096);
        pool.checkpoint().expect("a healthy disk");
        let start = pool.info().free;
        let (mut seq, mut refused) = (0, 0);
        let mut next = || {
            seq += 1;
            Position::new(1, seq)
        };
        let write = |pool: &mut Pool<CrashDisk>, volume, position, at: u64, len: usize| {
            let (offset, data) = (ByteOffset(at), Data::copy_of(&vec![5; len]));
            pool.run(Op::Write { volume, position, offset, data })
        };
        // A block in each of many leaves.
        for leaf in 0..220 {
            write(&mut pool, kept, next(), leaf * (512 << 10), 4096).expect("there is space");
        }
        let spec = SnapshotSpec { name: "s".into(), uid: [1; 16], internal: false, created: 0 };
        let position = next();
        let answer = pool.run(Op::Snapshot { volume: kept, position: Some(position), spec });
        let Ok(Reply::Snapshotted(snapshot)) = answer else { panic!("a snapshot: {answer:?}") };
        let mut at = 0;
        while write(&mut pool, filler, next(), at, 65536).is_ok() {
            at += 65536;
        }
        while write(&mut pool, filler, next(), at, 4096).is_ok() {
            at += 4096;
        }
        for leaf in 0..220 {
            // Some whole, some only in part: those need a new block beside the old one.
            let len = ByteLen(if leaf % 2 == 0 { 4096 } else { 512 });
            let (volume, position, offset) = (kept, next(), ByteOffset(leaf * (512 << 10)));
            match pool.run(Op::Zero { volume, position, offset, len, how: Zeroing::Discard }) {
                Ok(_) => {}
                Err(OpError::NoSpace { .. }) => refused += 1,
                Err(error) => panic!("a full pool answers {error}"),
            }
        }
        assert!(refused > 0, "the reserve is smaller than what all of them would take");
        pool.run(Op::DeleteSnapshot { snapshot }).expect("a full pool can delete a snapshot");
        for volume in [kept, filler] {
            let snapshots = SnapshotsOfDeleted::Refuse;
            pool.run(Op::Delete { volume, snapshots }).expect("a full pool can delete a volume");
        }
        while pool.info().reclaimable.0 > 0 {
            pool.checkpoint().expect("a healthy disk");
        }
        assert!(pool.info().free >= start, "all space came back");
        println!("{sector:?}: {refused} of 220 discards refused");
    }
}
