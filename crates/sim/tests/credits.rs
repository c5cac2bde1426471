//! Credits: space that was promised to a volume is there when it writes, whatever others do.
mod hand;

use block::{ByteLen, ByteOffset, Data, Position, SectorSize, Seq};
use engine::check::{Depth, check};
use engine::{
    BlockSize, CreateOptions, Op, OpError, Pool, Reply, SnapshotId, SnapshotSpec,
    SnapshotsOfDeleted, Staged, VolumeId, VolumeInfo, VolumeSpec, Zeroing, write_cost, zero_cost,
};
use hand::{GRANULE, Hand};
use sim::workload::open_options;
use sim::{CrashDisk, Delivery, Rng};

const MIB: u64 = 1 << 20;

fn info(hand: &Hand, volume: VolumeId) -> VolumeInfo {
    let listed = hand.pool.volumes();
    listed.into_iter().find(|info| info.id == volume).expect("the volume is there")
}

fn credit(hand: &mut Hand, volume: VolumeId, bytes: u64) -> Result<Reply, OpError> {
    hand.pool.run(Op::Credit { volume, bytes: ByteLen(bytes) })
}

fn bytes(len: u64, tag: u8) -> Data {
    Data::copy_of(&vec![tag; usize::try_from(len).expect("a write is small")])
}

fn write_at(hand: &mut Hand, volume: VolumeId, offset: u64, len: u64) -> Result<Reply, OpError> {
    let (position, offset) = (hand.place(volume), ByteOffset(offset));
    hand.pool.run(Op::Write { volume, position, offset, data: bytes(len, 7) })
}

fn take_point(hand: &mut Hand, volume: VolumeId, name: &str) -> Result<SnapshotId, OpError> {
    let spec = SnapshotSpec { name: name.into(), uid: [2; 16], internal: true, created: 0 };
    match hand.pool.run(Op::Snapshot { volume, position: None, spec })? {
        Reply::Snapshotted(snapshot) => Ok(snapshot),
        other => panic!("a snapshot ended as {other:?}"),
    }
}

fn refused_for_space<T: std::fmt::Debug>(answer: &Result<T, OpError>) -> bool {
    matches!(answer, Err(OpError::NoSpace { .. }))
}

/// Writes everything that fits, in ever smaller pieces.
fn fill(hand: &mut Hand, volume: VolumeId, rng: &mut Rng) {
    let size = info(hand, volume).size.0;
    for len in [256 << 10, 16 << 10, 4096] {
        for _ in 0..100_000 {
            let offset = rng.below((size - len) / 4096) * 4096;
            match write_at(hand, volume, offset, len) {
                Ok(_) => {}
                Err(OpError::NoSpace { .. }) => break,
                Err(error) => panic!("{error}"),
            }
        }
    }
}

fn volume_of(hand: &mut Hand, name: &str, size: u64, block: u64, compression: &str) -> VolumeId {
    let spec = VolumeSpec {
        name: name.into(),
        size: ByteLen(size),
        block_size: BlockSize::new(block).expect("a legal block size"),
        compression: compression.parse().expect("a known name"),
        uid: [1; 16],
    };
    match hand.run(Op::Create { spec }) {
        Reply::Created(volume) => volume,
        other => panic!("create ended as {other:?}"),
    }
}

struct Story {
    hand: Hand,
    rng: Rng,
    credited: VolumeId,
    other: VolumeId,
    block: BlockSize,
    /// What is left by the reckoning of somebody who only knows `write_cost`.
    left: u64,
    snapshots: u64,
}

impl Story {
    fn new(seed: u64) -> Story {
        let mut rng = Rng::new(seed);
        let sector = *rng.pick(&[SectorSize::B512, SectorSize::B4096]);
        let size = ByteLen(*rng.pick(&[16, 24, 40]) * MIB);
        let mut disk = CrashDisk::new(size, SectorSize::B512, seed)
            .with_physical_sector(sector)
            .with_delivery(Delivery::Random);
        engine::create(&mut disk, &CreateOptions::default()).expect("a fresh disk");
        let mut hand = Hand::on(Pool::open(disk, open_options()).expect("a fresh pool"));
        let block = *rng.pick(&[512, 4096, 4096]);
        let size = *rng.pick(&[4 * MIB, 1 << 30, 1 << 42]);
        let others = (0..rng.below(3)).map(|at| format!("idle-{at}"));
        others.for_each(|name| {
            volume_of(&mut hand, &name, MIB, 4096, "off");
        });
        let credited = volume_of(&mut hand, "credited", size, block, "off");
        let other = volume_of(&mut hand, "other", 1 << 34, 4096, "off");
        let block = BlockSize::new(block).expect("a legal block size");
        let mut story = Story { hand, rng, credited, other, block, left: 0, snapshots: 0 };
        // Something to write over, some of it in a snapshot.
        for _ in 0..story.rng.below(40) {
            let (offset, len) = story.place();
            write_at(&mut story.hand, credited, offset, len).expect("there is room");
        }
        if story.rng.chance(1, 2) {
            story.snapshot();
        }
        story
    }

    /// Anywhere, mostly where something may be already; also parts of granules.
    fn place(&mut self) -> (u64, u64) {
        let size = info(&self.hand, self.credited).size.0;
        let most = *self.rng.pick(&[8, 16, 64, 2048]);
        let len = 512 * (1 + self.rng.below(most));
        let near = match self.rng.below(3) {
            0 => 0,
            1 => size / 2,
            _ => self.rng.below(size),
        };
        let offset = (near + self.rng.below(4 * MIB)) / 512 * 512;
        (offset.min(size - len), len)
    }

    fn snapshot(&mut self) {
        self.snapshots += 1;
        let before = info(&self.hand, self.credited).credit;
        let name = format!("point-{}", self.snapshots);
        let taken = take_point(&mut self.hand, self.credited, &name);
        assert!(taken.is_ok() || refused_for_space(&taken), "{taken:?}");
        assert_eq!(info(&self.hand, self.credited).credit, before, "a snapshot uses no credit");
    }

    /// What others, and the pool itself, do in between.
    fn disturb(&mut self) {
        let (credited, other) = (self.credited, self.other);
        match self.rng.below(24) {
            0 => {
                let before = info(&self.hand, credited).credit;
                let hand = std::mem::replace(&mut self.hand, Hand::new(8 * MIB));
                self.hand = hand.killed(self.rng.below(1 << 40));
                assert_eq!(info(&self.hand, credited).credit, before, "a kill changes nothing");
            }
            1 => drop(self.hand.pool.checkpoint()),
            2 => self.snapshot(),
            3..6 => fill(&mut self.hand, other, &mut self.rng),
            6 => drop(take_point(&mut self.hand, other, &format!("p{}", self.left))),
            7 => {
                for volume in [credited, other] {
                    let position = self.hand.place(volume);
                    self.hand.run(Op::Mark { volume, position });
                }
            }
            8 => {
                let state = vec![1; 2000];
                self.hand.run(Op::SetState { volume: other, position: None, state });
            }
            _ => {}
        }
    }

    /// Writes until nothing is left by its own reckoning; returns how often.
    fn spend(&mut self) -> u64 {
        let credited = self.credited;
        for writes in 0.. {
            self.disturb();
            let (offset, len) = self.place();
            let cost = write_cost(self.block, ByteOffset(offset), ByteLen(len)).0;
            if cost > self.left {
                return writes;
            }
            self.left -= cost;
            let before = info(&self.hand, credited).credit.0;
            if let Err(error) = write_at(&mut self.hand, credited, offset, len) {
                panic!("write {writes}, of {len} at {offset}, {} left: {error}", self.left);
            }
            let after = info(&self.hand, credited).credit.0;
            assert!(after < before && before - after <= cost, "{before} - {cost}: {after}");
            assert!(after >= self.left, "the pool has {after}, its client counts {}", self.left);
        }
        unreachable!("it is used up");
    }
}

/// Protects from a promise that is not kept: what was spent from a credit beforehand finds no
/// space, since somebody else took it, or since it takes more than was reckoned.
#[test]
fn what_a_credit_covers_always_finds_space() {
    let (mut writes, mut refused) = (0, 0);
    for seed in 0..60 {
        let mut story = Story::new(seed);
        let (credited, other) = (story.credited, story.other);
        story.left = (2 + story.rng.below(3)) * MIB + 512 * story.rng.below(100);
        while refused_for_space(&credit(&mut story.hand, credited, story.left)) {
            story.left /= 2;
        }
        assert_eq!(info(&story.hand, credited).credit.0.div_ceil(4096), story.left.div_ceil(4096));
        fill(&mut story.hand, other, &mut story.rng);
        writes += story.spend();
        // More than once: what is left is set anew, as far as there is room.
        story.left = info(&story.hand, credited).credit.0;
        writes += story.spend();
        fill(&mut story.hand, other, &mut story.rng);
        credit(&mut story.hand, credited, 0).expect("less is always possible");
        fill(&mut story.hand, other, &mut story.rng);
        refused += u64::from(refused_for_space(&write_at(&mut story.hand, credited, 0, 65536)));
        story.hand.pool.checkpoint().expect("a healthy disk");
        let mut disk = story.hand.pool.close().expect("a healthy pool closes");
        let report = check(&mut disk, Depth::Structure).expect("a closed pool");
        assert!(report.is_clean(), "seed {seed}: {:?}", report.problems);
    }
    println!("{writes} writes on credit; {refused} pools were full without one");
    assert!(writes > 400, "{writes} writes on credit");
    assert!(refused > 50, "without its credit a volume finds no space: {refused}");
}

/// Protects from two credits of which one is spent by the other's volume.
#[test]
fn credits_of_several_volumes_are_apart() {
    let mut hand = Hand::new(24 * MIB);
    let mut rng = Rng::new(3);
    let volumes = [0, 1, 2].map(|at| {
        let name = format!("volume-of-{at}");
        volume_of(&mut hand, &name, 1 << 30, 4096, "off")
    });
    for volume in volumes {
        credit(&mut hand, volume, 2 * MIB).expect("there is room");
    }
    // The first takes all that it can, its own credit included.
    fill(&mut hand, volumes[0], &mut rng);
    let credits = volumes.map(|volume| info(&hand, volume).credit.0);
    assert!(credits[0] < 300 << 10, "{credits:?}");
    assert_eq!(credits[1..], [2 * MIB, 2 * MIB], "others are not touched");
    let hand = &mut hand.killed(1);
    for volume in &volumes[1..] {
        let mut left = 2 * MIB;
        loop {
            let offset = rng.below(1 << 18) * GRANULE;
            let cost = write_cost(BlockSize::DEFAULT, ByteOffset(offset), ByteLen(GRANULE)).0;
            let Some(rest) = left.checked_sub(cost) else { break };
            left = rest;
            write_at(hand, *volume, offset, GRANULE).expect("it was promised");
        }
    }
}

/// Protects from credits that imports, internal snapshots, clones and new volumes live on.
#[test]
fn nothing_but_the_volumes_own_stream_uses_a_credit_up() {
    let mut hand = Hand::new(16 * MIB);
    let mut rng = Rng::new(5);
    let volume = volume_of(&mut hand, "credited", 1 << 30, 4096, "off");
    let other = volume_of(&mut hand, "other", 1 << 34, 4096, "off");
    write_at(&mut hand, volume, 0, 4096).expect("there is room");
    let base = take_point(&mut hand, volume, "base").expect("there is room");
    let Reply::Created(staging) = hand.run(Op::Stage { volume, base }) else { panic!("no import") };
    let on_staging = hand.refused(Op::Credit { volume: staging, bytes: ByteLen(MIB) });
    assert!(matches!(on_staging, OpError::Staging { .. }), "{on_staging}");
    credit(&mut hand, volume, 2 * MIB).expect("there is room");
    fill(&mut hand, other, &mut rng);
    let part = |offset: u64| Op::StageData {
        staging,
        changed: Seq(0),
        offset: ByteOffset(offset),
        content: Staged::Bytes(bytes(1 << 16, 9)),
        progress: 1,
    };
    let mut refusals = 0;
    for at in 0..8 {
        refusals += u64::from(refused_for_space(&hand.pool.run(part(at << 24))));
    }
    hand.delete(staging, SnapshotsOfDeleted::Refuse);
    hand.settle();
    fill(&mut hand, other, &mut rng);
    for at in 0..40 {
        let taken = take_point(&mut hand, volume, &format!("point-{at}"));
        refusals += u64::from(refused_for_space(&taken));
        let name = format!("fresh-{at}");
        let spec = VolumeSpec { name, size: ByteLen(MIB), ..VolumeSpec::default() };
        refusals += u64::from(refused_for_space(&hand.pool.run(Op::Create { spec })));
        let position = hand.place(volume);
        hand.run(Op::Mark { volume, position });
        assert_eq!(info(&hand, volume).credit.0, 2 * MIB, "{at}");
    }
    assert!(refusals > 60, "they leave the credit alone: {refusals}");
    write_at(&mut hand, volume, 1 << 25, 4096).expect("it was promised");
    assert!(info(&hand, volume).credit.0 < 2 * MIB);
}

/// Protects from a promise of what is not there, and from one that cannot be taken back.
#[test]
fn a_credit_is_given_only_if_there_is_so_much() {
    let mut hand = Hand::new(16 * MIB);
    let mut rng = Rng::new(6);
    let volume = volume_of(&mut hand, "credited", 1 << 30, 4096, "off");
    let other = volume_of(&mut hand, "other", 1 << 34, 4096, "off");
    for bytes in [u64::MAX, 1 << 40, 15 * MIB] {
        assert!(refused_for_space(&credit(&mut hand, volume, bytes)), "{bytes}");
    }
    let free = hand.pool.info().free.0 - hand.pool.info().reserve.0;
    credit(&mut hand, volume, free / 2).expect("there is room");
    assert!(refused_for_space(&credit(&mut hand, other, free / 2)), "not beside the first");
    credit(&mut hand, volume, free / 2 + 65536).expect("its own is not in its way");
    credit(&mut hand, other, free / 4).expect("beside the first");
    assert!(refused_for_space(&credit(&mut hand, other, free / 2)), "more is not there");
    assert_eq!(info(&hand, other).credit.0, (free / 4).next_multiple_of(512));
    fill(&mut hand, other, &mut rng);
    for less in [free / 2, MIB, 4096] {
        credit(&mut hand, volume, less).expect("less is always possible");
    }
    assert_eq!(info(&hand, volume).credit.0, 4096);
    // A volume that goes takes its credit with it.
    credit(&mut hand, volume, 3 * MIB).expect("there is room again");
    hand.delete(volume, SnapshotsOfDeleted::Delete);
    let written = hand.places[&other];
    fill(&mut hand, other, &mut rng);
    assert!(hand.places[&other] > written + 8, "what was promised to it is free");
    let hand = hand.checked();
    assert!(hand.pool.volumes().iter().all(|info| info.id != volume));
}

/// Protects from a promise that is broken by another volume: discards of what a snapshot has take
/// space for good, though only from the first layer of the reserve.
#[test]
fn discards_below_a_snapshot_are_refused_before_they_take_what_was_promised_to_others() {
    let mut hand = Hand::new(16 * MIB);
    let mut rng = Rng::new(7);
    let first = volume_of(&mut hand, "first", 1 << 30, 4096, "off");
    let last = volume_of(&mut hand, "last", 1 << 30, 4096, "off");
    let holey = volume_of(&mut hand, "holey", 1 << 30, 4096, "off");
    let other = volume_of(&mut hand, "other", 1 << 34, 4096, "off");
    // Two granules in each leaf, so that the leaf stays when one of them goes.
    let leaves: Vec<u64> = (0..300).map(|leaf| leaf * 128 * GRANULE).collect();
    for offset in &leaves {
        write_at(&mut hand, holey, *offset, 8192).expect("there is room");
    }
    take_point(&mut hand, holey, "kept").expect("there is room");
    for volume in [first, last] {
        credit(&mut hand, volume, 2 * MIB).expect("there is room");
    }
    fill(&mut hand, other, &mut rng);
    let mut refused = 0;
    for offset in leaves {
        let (position, offset, how) = (hand.place(holey), ByteOffset(offset), Zeroing::Discard);
        let op = Op::Zero { volume: holey, position, offset, len: ByteLen(4096), how };
        refused += u64::from(refused_for_space(&hand.pool.run(op)));
    }
    assert!(refused > 0, "not all of them fit the reserve");
    let credits = |hand: &Hand| [first, last].map(|volume| info(hand, volume).credit.0);
    let mut hand = hand.killed(1).checked();
    assert_eq!(credits(&hand), [2 * MIB, 2 * MIB], "opening finds what was promised");
    spend_all(&mut hand, first, 2 * MIB, &mut rng);
    spend_all(&mut hand, last, 2 * MIB, &mut rng);
}

/// Protects from an entry of a stream that all pools refuse: whatever takes space for good is paid
/// for, also what was meant to free some.
#[test]
fn discards_zeros_rollbacks_and_growth_below_a_snapshot_are_covered_by_a_credit() {
    let mut done = [0; 4];
    for seed in 0..40 {
        let mut story = Story::new(seed);
        let (credited, other) = (story.credited, story.other);
        let spec = SnapshotSpec { name: "s".into(), uid: [3; 16], internal: false, created: 0 };
        let position = Some(story.hand.place(credited));
        let Reply::Snapshotted(snapshot) =
            story.hand.run(Op::Snapshot { volume: credited, position, spec })
        else {
            panic!("no snapshot")
        };
        story.left = 4 * MIB;
        while refused_for_space(&credit(&mut story.hand, credited, story.left)) {
            story.left /= 2;
        }
        fill(&mut story.hand, other, &mut story.rng);
        loop {
            story.disturb();
            let kind = story.rng.index(4);
            let (offset, len) = story.place();
            let (volume, size) = (credited, info(&story.hand, credited).size.0);
            let cost = match kind {
                0 => zero_cost(story.block, ByteOffset(offset), ByteLen(len)).0,
                1 => write_cost(story.block, ByteOffset(offset), ByteLen(len)).0,
                _ => zero_cost(story.block, ByteOffset(0), ByteLen(0)).0,
            };
            let Some(left) = story.left.checked_sub(cost) else { break };
            story.left = left;
            let position = story.hand.place(credited);
            let zeros = Data::copy_of(&vec![0; usize::try_from(len).expect("small")]);
            let (offset, how) = (ByteOffset(offset), Zeroing::Discard);
            let op = match kind {
                0 => Op::Zero { volume, position, offset, len: ByteLen(len), how },
                1 => Op::Write { volume, position, offset, data: zeros },
                2 => Op::Rollback { volume, position, to: snapshot, force: true },
                _ if size > 1 << 45 => Op::Mark { volume, position },
                _ => Op::Grow { volume, position: Some(position), size: ByteLen(size * 2) },
            };
            let what = format!("{op:?}");
            if let Err(error) = story.hand.pool.run(op) {
                panic!("seed {seed}: {what}, {} left: {error}", story.left);
            }
            done[kind] += 1;
            let has = info(&story.hand, credited).credit.0;
            assert!(has >= story.left, "{what}: {has} is less than {}", story.left);
        }
        story.hand.pool.checkpoint().expect("a healthy disk");
        let mut disk = story.hand.pool.close().expect("a healthy pool closes");
        let report = check(&mut disk, Depth::Structure).expect("a closed pool");
        assert!(report.is_clean(), "seed {seed}: {:?}", report.problems);
    }
    println!("{done:?} discards, writes of zeros, rollbacks and growths on credit");
    assert!(done.iter().all(|count| *count > 20), "{done:?}");
}

/// Writes single granules at random places until nothing is left by `write_cost`.
fn spend_all(hand: &mut Hand, volume: VolumeId, mut left: u64, rng: &mut Rng) {
    let cost = write_cost(BlockSize::DEFAULT, ByteOffset(0), ByteLen(GRANULE)).0;
    while left >= cost {
        left -= cost;
        let offset = rng.below(1 << 18) * GRANULE;
        write_at(hand, volume, offset, GRANULE).expect("it was promised");
    }
}

/// Protects from a promise that is broken for what only waits to be written: records of many
/// volumes are set aside, and a checkpoint gives that back.
#[test]
fn records_that_wait_do_not_stand_in_the_way_of_a_credit() {
    let mut hand = Hand::new(16 * MIB);
    let mut rng = Rng::new(8);
    let volume = volume_of(&mut hand, "credited", 1 << 30, 4096, "off");
    let other = volume_of(&mut hand, "other", 1 << 34, 4096, "off");
    let idle: Vec<VolumeId> =
        (0..50).map(|at| volume_of(&mut hand, &format!("idle-{at}"), MIB, 4096, "off")).collect();
    credit(&mut hand, volume, 2 * MIB).expect("there is room");
    fill(&mut hand, other, &mut rng);
    for volume in idle {
        hand.run(Op::Mark { volume, position: Position::new(1, 1) });
    }
    spend_all(&mut hand, volume, 2 * MIB, &mut rng);
}

/// Protects from a promise that is broken as soon as others draw on the reserve.
#[test]
fn what_others_take_from_the_reserve_is_not_missing_in_a_credit() {
    let mut hand = Hand::new(16 * MIB);
    let mut rng = Rng::new(9);
    let volume = volume_of(&mut hand, "credited", 1 << 30, 4096, "off");
    let other = volume_of(&mut hand, "other", 1 << 34, 4096, "off");
    let holey = volume_of(&mut hand, "holey", 1 << 30, 4096, "off");
    let bystander = volume_of(&mut hand, "bystander", 1 << 30, 4096, "off");
    // As many as fit the first layer of the reserve.
    let leaves: Vec<u64> = (0..40).map(|leaf| leaf * 128 * GRANULE).collect();
    for offset in &leaves {
        write_at(&mut hand, holey, *offset, 8192).expect("there is room");
    }
    take_point(&mut hand, holey, "kept").expect("there is room");
    // Just one write, so that its own credit does not make up for what is missing.
    let one = write_cost(BlockSize::DEFAULT, ByteOffset(0), ByteLen(GRANULE)).0;
    credit(&mut hand, volume, one).expect("there is room");
    credit(&mut hand, bystander, 2 * MIB).expect("there is room");
    fill(&mut hand, other, &mut rng);
    // The snapshot has them: nothing is freed, and every leaf is written anew.
    for offset in leaves {
        let (position, offset, how) = (hand.place(holey), ByteOffset(offset), Zeroing::Discard);
        hand.run(Op::Zero { volume: holey, position, offset, len: ByteLen(4096), how });
    }
    hand.settle();
    spend_all(&mut hand, volume, one, &mut rng);
    assert!(info(&hand, volume).credit.0 < one, "it took something");
}

/// Protects from a position that is used up by a credit, and from a cost that grows with nothing.
#[test]
fn a_credit_takes_no_place_and_costs_are_monotonous() {
    let mut hand = Hand::new(16 * MIB);
    let volume = hand.create(64);
    hand.write(volume, 1, 1);
    credit(&mut hand, volume, MIB).expect("there is room");
    assert_eq!(info(&hand, volume).held, Position::new(1, 1));
    let unknown = hand.refused(Op::Credit { volume: VolumeId(999), bytes: ByteLen(1) });
    assert!(matches!(unknown, OpError::UnknownVolume { .. }), "{unknown}");
    let cost = |block: u64, offset: u64, len: u64| {
        let block = BlockSize::new(block).expect("a legal block size");
        write_cost(block, ByteOffset(offset), ByteLen(len)).0
    };
    let mut last = 0;
    for len in (512..=MIB).step_by(512) {
        let now = cost(4096, 512, len);
        assert!(now >= last && now > len, "{len}");
        last = now;
    }
    assert!(cost(4096, 0, 4096) < 400 << 10, "{}", cost(4096, 0, 4096));
    assert!(cost(131072, 131072 - 512, 1024) >= 2 * 131072, "both blocks are stored anew");
    assert!(cost(512, u64::MAX - 511, 512) > 4096, "no overflow at the end of all");
}

/// Protects from a credit that is used up by what was not paid for: a snapshot that was deleted has
/// its pages until it is dropped, and discards rewrite them meanwhile. The volume's client counts
/// such discards as free, and relies on its credit for the next write.
#[test]
fn discards_that_were_not_paid_for_leave_the_credit_of_their_volume() {
    let mut hand = Hand::new(40 * MIB);
    let mut rng = Rng::new(11);
    let volume = volume_of(&mut hand, "credited", 1 << 30, 4096, "off");
    let other = volume_of(&mut hand, "other", 1 << 34, 4096, "off");
    let leaves: Vec<u64> = (0..300).map(|leaf| leaf * 128 * GRANULE).collect();
    for offset in &leaves {
        write_at(&mut hand, volume, *offset, 8192).expect("there is room");
    }
    let snapshot = take_point(&mut hand, volume, "short-lived").expect("there is room");
    credit(&mut hand, volume, 2 * MIB).expect("there is room");
    hand.run(Op::DeleteSnapshot { snapshot });
    for offset in leaves {
        let (position, offset, how) = (hand.place(volume), ByteOffset(offset), Zeroing::Release);
        hand.run(Op::Zero { volume, position, offset, len: ByteLen(4096), how });
        assert_eq!(info(&hand, volume).credit.0, 2 * MIB, "at {offset}");
    }
    fill(&mut hand, other, &mut rng);
    spend_all(&mut hand, volume, 2 * MIB, &mut rng);
}
