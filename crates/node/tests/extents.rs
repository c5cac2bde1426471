//! How snapshots differ, as nodes tell it, against their bytes.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on says so by its line")]
mod nbd;
mod site;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use block::{ByteLen, ByteOffset, Position};
use engine::{Op, Pool, Reply, SnapshotId};
use node::shard::{Extent, ExtentsAsk, Refusal};
use node::store::{Missing, Point};
use replication::client::Command;
use replication::words::{NodeId, SnapshotUid, VolumeUid};

use nbd::Nbd;
use site::Site;

const MIB: u64 = 1 << 20;
const GRANULE: u64 = 4096;
/// Granules of one page of the map.
const LEAF: usize = 128;

fn dir(name: &str) -> PathBuf {
    let dir = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = std::fs::remove_dir_all(&dir);
    std::fs::create_dir_all(&dir).unwrap();
    dir
}

/// Numbers that are the same in every run.
struct Dice(u64);

impl Dice {
    fn below(&mut self, end: u64) -> u64 {
        // Xorshift: any spread will do.
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end
    }
}

/// What each granule is: the number of the last write, or 0 for a hole.
type Ids = Vec<u64>;

struct Taken {
    point: Point,
    ids: Ids,
}

struct World {
    site: Site,
    volume: VolumeUid,
    dice: Dice,
    nbd: Nbd,
    ids: Ids,
    writes: u64,
    taken: Vec<Taken>,
}

impl World {
    fn new(name: &str, size: u64, on: &[u64], seed: u64) -> World {
        let mut site = Site::new(&dir(name));
        on.iter().for_each(|id| site.start(*id, 256 * MIB));
        let volume = site.create("db", size, on);
        site.serve(volume, 1);
        site.wait_healthy(1);
        let nbd = Nbd::open(site.nodes[&NodeId(1)].nbd, "db");
        let ids = vec![0; usize::try_from(size / GRANULE).unwrap()];
        let (dice, taken) = (Dice(seed), Vec::new());
        World { site, volume, dice, nbd, ids, writes: 0, taken }
    }

    /// Some granules in a row, mostly few.
    fn range(&mut self) -> (usize, usize) {
        let all = self.ids.len() as u64;
        let most = if self.dice.below(8) == 0 { 300 } else { 12 };
        let (first, count) = (self.dice.below(all), 1 + self.dice.below(most));
        let end = (first + count).min(all);
        (usize::try_from(first).unwrap(), usize::try_from(end).unwrap())
    }

    fn write(&mut self, first: usize, end: usize) {
        self.writes += 1;
        let fill = u8::try_from(self.writes % 255 + 1).unwrap();
        let at = first as u64 * GRANULE;
        // Half of a granule at times: the rest of it stays, and is written anew.
        let len = match self.dice.below(4) {
            0 => 512,
            _ => (end - first) as u64 * GRANULE,
        };
        self.nbd.write(at, &vec![fill; usize::try_from(len).unwrap()]);
        let end = if len == 512 { first + 1 } else { end };
        self.ids[first..end].fill(self.writes);
    }

    fn hole(&mut self, first: usize, end: usize) {
        let (at, len) = (first as u64 * GRANULE, (end - first) as u64 * GRANULE);
        match self.dice.below(2) {
            0 => self.nbd.trim(at, len),
            _ => self.nbd.zero(at, len),
        }
        self.ids[first..end].fill(0);
    }

    fn snapshot(&mut self) {
        let uid = [u8::try_from(self.taken.len() + 1).unwrap(); 16];
        let at = self.site.snapshot(self.volume, 1, uid);
        let point = Point { snapshot: SnapshotUid(uid), at };
        self.taken.push(Taken { point, ids: self.ids.clone() });
    }

    fn roll_back(&mut self, to: usize) {
        let Taken { point, ids } = &self.taken[to];
        self.site.command(self.volume, 1, Command::Rollback { to: point.snapshot });
        // The size stays.
        let len = self.ids.len();
        self.ids.clone_from(ids);
        self.ids.resize(len, 0);
    }

    fn grow(&mut self, by: u64) {
        let granules = self.ids.len() + usize::try_from(by / GRANULE).unwrap();
        let size = ByteLen(granules as u64 * GRANULE);
        self.site.command(self.volume, 1, Command::Resize { size });
        self.ids.resize(granules, 0);
        // Whoever comes now knows the new size.
        self.nbd = Nbd::open(self.site.nodes[&NodeId(1)].nbd, "db");
    }

    fn some_changes(&mut self, count: u64) {
        for _ in 0..count {
            let (first, end) = self.range();
            match self.dice.below(10) {
                0..=6 => self.write(first, end),
                _ => self.hole(first, end),
            }
        }
    }

    fn ask(&self, of: usize, base: Option<usize>) -> ExtentsAsk {
        let point = |at: usize| self.taken[at].point;
        ExtentsAsk {
            volume: self.volume,
            snapshot: point(of),
            base: base.map(point),
            from: ByteOffset(0),
            limit: 1000,
        }
    }

    /// Everything, in parts of so many.
    fn all(&self, on: u64, ask: ExtentsAsk, limit: usize) -> Vec<Extent> {
        let (mut all, mut from) = (Vec::<Extent>::new(), ByteOffset(0));
        loop {
            let part = self.site.extents(on, ExtentsAsk { from, limit, ..ask }).unwrap();
            assert!(part.found.len() <= limit);
            for extent in part.found {
                let end = extent.offset.0 + extent.len.0;
                assert!(extent.offset >= from && extent.len.0 > 0 && end <= part.size.0);
                match all.last_mut() {
                    // Only from one part to the next: within one they are joined.
                    Some(last) if last.offset.0 + last.len.0 == extent.offset.0 => {
                        assert_eq!(extent.offset, from, "two that touch in one part");
                        last.len.0 += extent.len.0;
                    }
                    Some(last) => {
                        assert!(last.offset.0 + last.len.0 < extent.offset.0);
                        all.push(extent);
                    }
                    None => all.push(extent),
                }
            }
            match part.next {
                None => return all,
                Some(next) => assert!(next > from, "it gets on"),
            }
            from = part.next.unwrap();
        }
    }

    /// Until a replica has all snapshots: a quorum is enough for those who take them.
    fn wait_for(&self, on: u64) {
        let begun = Instant::now();
        for at in 0..self.taken.len() {
            while self.site.extents(on, self.ask(at, None)).is_err() {
                assert!(begun.elapsed() < Duration::from_secs(60), "node {on} has not {at}");
                std::thread::sleep(Duration::from_millis(20));
            }
        }
    }
}

fn granules(extents: &[Extent]) -> BTreeSet<usize> {
    let all = extents.iter().flat_map(|extent| {
        let first = extent.offset.0 / GRANULE;
        first..(extent.offset.0 + extent.len.0).div_ceil(GRANULE)
    });
    all.map(|granule| usize::try_from(granule).unwrap()).collect()
}

/// Whether a granule may be named though it is the same: a page of the base against a hole of the
/// snapshot counts as a whole.
fn may_be_named(base: &Ids, new: &Ids, granule: usize) -> bool {
    let id = |ids: &Ids| ids.get(granule).copied().unwrap_or(0);
    if id(base) != id(new) {
        return true;
    }
    let leaf = granule / LEAF * LEAF;
    let page = base.get(leaf..(leaf + LEAF).min(base.len())).unwrap_or_default();
    id(new) == 0 && page.iter().any(|id| *id != 0)
}

/// The bytes of all snapshots that a pool has of the volume.
fn contents(world: &World, on: u64) -> Vec<Vec<u8>> {
    let disk = disk::open(world.site.pool(on), &disk::OpenOptions::default()).unwrap();
    let mut pool = Pool::open(disk, engine::OpenOptions::default()).unwrap();
    let found = pool.snapshots();
    let of = |taken: &Taken| {
        let uid = taken.point.snapshot.0;
        let it = found.iter().find(|it| it.uid == uid && !it.hidden).unwrap();
        assert_eq!(it.position, taken.point.at);
        (it.id, taken.ids.len() as u64 * GRANULE)
    };
    let all: Vec<(SnapshotId, u64)> = world.taken.iter().map(of).collect();
    all.into_iter().map(|(id, size)| bytes(&mut pool, id, size)).collect()
}

fn bytes(pool: &mut Pool<disk::FileDisk>, snapshot: SnapshotId, size: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    while (bytes.len() as u64) < size {
        let offset = ByteOffset(bytes.len() as u64);
        let len = ByteLen((size - offset.0).min(MIB));
        let Ok(Reply::Read(data)) = pool.run(Op::ReadSnapshot { snapshot, offset, len }) else {
            panic!("a snapshot cannot be read")
        };
        bytes.extend_from_slice(&data);
    }
    bytes
}

/// What was told by a node, to be compared with bytes when it has ended.
struct Told {
    of: usize,
    base: Option<usize>,
    named: BTreeSet<usize>,
}

fn ask_everything(world: &World, on: u64) -> Vec<Told> {
    world.wait_for(on);
    let mut all = Vec::new();
    for of in 0..world.taken.len() {
        for base in (0..of).map(Some).chain([None]) {
            let ask = world.ask(of, base);
            let whole = world.all(on, ask, 1000);
            assert_eq!(world.all(on, ask, 3), whole, "three at a time");
            if base.is_none_or(|base| base + 1 == of) {
                assert_eq!(world.all(on, ask, 1), whole, "one at a time");
            }
            all.push(Told { of, base, named: granules(&whole) });
        }
    }
    all
}

/// Every difference is named.
fn check_bytes(contents: &[Vec<u8>], told: &[Told]) {
    let size = usize::try_from(GRANULE).unwrap();
    let zeros = vec![0; size];
    for Told { of, base, named } in told {
        let new = contents[*of].chunks(size);
        for (granule, bytes) in new.enumerate() {
            let old = base.and_then(|base| contents[base].chunks(size).nth(granule));
            if bytes != old.unwrap_or(&zeros) {
                assert!(named.contains(&granule), "{granule} of {of} since {base:?}");
            }
        }
    }
}

/// Nothing is named that nobody wrote.
fn check_ids(world: &World, told: &[Told]) {
    for Told { of, base, named } in told {
        let new = &world.taken[*of].ids;
        match base {
            None => {
                let allocated = |at: &usize| new[*at] != 0;
                let allocated: BTreeSet<usize> = (0..new.len()).filter(allocated).collect();
                assert_eq!(*named, allocated, "{of}");
            }
            Some(base) => {
                let old = &world.taken[*base].ids;
                let strange: Vec<_> =
                    named.iter().filter(|at| !may_be_named(old, new, **at)).collect();
                assert!(strange.is_empty(), "{strange:?} of {of} since {base}");
            }
        }
    }
}

/// Protects from a backup that misses a block, and from one that is as large as the volume: writes,
/// discards, rollbacks past the base and growth lie between the snapshots.
#[test]
fn what_is_told_covers_what_differs() {
    for seed in [11, 12] {
        let mut world = World::new(&format!("extents-{seed}"), 12 * MIB, &[1, 2, 3], seed);
        world.some_changes(60);
        world.snapshot();
        for round in 0..8 {
            let count = 10 + world.dice.below(30);
            world.some_changes(count);
            world.snapshot();
            match round {
                2 | 5 => {
                    let to = usize::try_from(world.dice.below(world.taken.len() as u64)).unwrap();
                    world.roll_back(to);
                    world.snapshot();
                }
                3 => world.grow(8 * MIB),
                // It comes back behind the others, and takes what it missed in rounds.
                4 => world.site.stop(3),
                6 => {
                    world.site.start(3, 256 * MIB);
                    world.site.wait_healthy(1);
                }
                _ => {}
            }
        }
        let told: Vec<Vec<Told>> = (1..=3).map(|on| ask_everything(&world, on)).collect();
        (1..=3).for_each(|id| world.site.stop(id));
        for (on, told) in (1..=3).zip(&told) {
            check_bytes(&contents(&world, on), told);
            // What came in rounds may lie elsewhere, though it is the same.
            if on < 3 {
                check_ids(&world, told);
            }
        }
    }
}

/// Protects from a base that is higher than the map of the snapshot: a rollback took the volume back to
/// when it was smaller, or empty, and what lay behind is a hole now.
#[test]
fn a_rollback_to_a_smaller_volume_is_a_change() {
    for is_empty in [true, false] {
        let name = if is_empty { "extents-empty" } else { "extents-small" };
        let mut world = World::new(name, 32 * MIB, &[1], 9);
        if !is_empty {
            world.nbd.write(0, &[1; 4096]);
        }
        world.snapshot();
        world.grow(128 * MIB);
        world.nbd.write(120 * MIB, &[2; 4096]);
        world.snapshot();
        world.roll_back(0);
        world.snapshot();
        let at = usize::try_from(120 * MIB / GRANULE).unwrap();
        for (of, base, differs) in [(1, 0, true), (2, 1, true), (2, 0, false)] {
            let named = granules(&world.all(1, world.ask(of, Some(base)), 100));
            assert_eq!(named.contains(&at), differs, "{of} since {base}, empty: {is_empty}");
            // Where there is no page at all, all of it is taken to have changed.
            assert!(is_empty || !named.contains(&0), "{of} since {base}");
        }
        let allocated = granules(&world.all(1, world.ask(2, None), 100));
        assert_eq!(allocated.len(), usize::from(!is_empty));
        world.site.stop(1);
    }
}

/// Protects from an answer of another history, and from one that is silently empty.
#[test]
fn what_is_not_there_is_not_told() {
    let mut world = World::new("extents-missing", 4 * MIB, &[1], 5);
    world.write(0, 3);
    world.snapshot();
    world.hole(1, 2);
    world.snapshot();
    let delta = world.ask(1, Some(0));
    let extent = |first: u64, count: u64| Extent {
        offset: ByteOffset(first * GRANULE),
        len: ByteLen(count * GRANULE),
    };
    assert_eq!(world.all(1, delta, 10), [extent(1, 1)], "what became a hole has changed");

    let elsewhere = Position::new(delta.snapshot.at.term.0, delta.snapshot.at.seq.0 + 1);
    let moved = Point { at: elsewhere, ..delta.snapshot };
    let unknown = Point { snapshot: SnapshotUid([99; 16]), ..delta.snapshot };
    let refused = |ask| match world.site.extents(1, ask) {
        Err(Refusal::Missing(missing)) => missing,
        other => panic!("it was answered: {other:?}"),
    };
    assert!(matches!(
        refused(ExtentsAsk { snapshot: moved, ..delta }),
        Missing::Elsewhere { which: "snapshot", .. }
    ));
    assert!(matches!(
        refused(ExtentsAsk { base: Some(moved), ..delta }),
        Missing::Elsewhere { which: "base", .. } | Missing::Unknown { which: "base" }
    ));
    let missing = refused(ExtentsAsk { base: Some(unknown), ..delta });
    assert_eq!(missing, Missing::Unknown { which: "base" });
    let nobodys = ExtentsAsk { volume: VolumeUid([9; 16]), ..delta };
    assert!(matches!(world.site.extents(1, nobodys), Err(Refusal::NoReplica)));
    let behind = ExtentsAsk { from: ByteOffset(1 << 40), ..delta };
    let part = world.site.extents(1, behind).unwrap();
    assert!(part.found.is_empty() && part.next.is_none() && part.size == ByteLen(4 * MIB));
    let deleted = Command::DeleteSnapshot(delta.base.unwrap().snapshot);
    world.site.command(world.volume, 1, deleted);
    // A replica deletes it when a quorum has it durably that it is to go.
    let begun = Instant::now();
    while world.site.extents(1, delta).is_ok() {
        assert!(begun.elapsed() < Duration::from_secs(30), "it is still there");
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(refused(delta), Missing::Unknown { which: "base" });
    world.site.stop(1);
}

/// Protects from a question about a large volume that stops everything else: each answer is bounded, and
/// one that found nothing says where to go on. And from questions that wait for one another.
#[test]
fn an_answer_costs_no_more_than_it_may() {
    const LEAVES: u64 = 4500;
    let leaf = LEAF as u64 * GRANULE;
    let mut world = World::new("extents-large", LEAVES * leaf, &[1], 3);
    let data = vec![7; usize::try_from(GRANULE).unwrap()];
    (0..LEAVES).for_each(|at| world.nbd.write(at * leaf, &data));
    world.snapshot();
    (0..LEAVES).for_each(|at| world.nbd.write(at * leaf + GRANULE, &data));
    world.snapshot();
    // Every page is another one behind it, and every block is the same.
    (0..LEAVES).for_each(|at| world.nbd.trim(at * leaf + GRANULE, GRANULE));
    world.snapshot();

    let delta = world.ask(1, Some(0));
    let part = world.site.extents(1, ExtentsAsk { limit: 4096, ..delta }).unwrap();
    assert!(part.next.is_some() && part.found.len() < 4096, "{} extents", part.found.len());
    assert_eq!(world.all(1, delta, 4096).len() as u64, LEAVES);
    let nothing = world.ask(2, Some(0));
    let part = world.site.extents(1, nothing).unwrap();
    assert!(part.found.is_empty() && part.next.is_some(), "{part:?}");
    assert_eq!(world.all(1, nothing, 1000), []);

    // Several at once, while others write.
    let world = &world;
    std::thread::scope(|scope| {
        let asking: Vec<_> = (0..6)
            .map(|at| scope.spawn(move || world.all(1, world.ask(1 + at % 2, Some(0)), 700).len()))
            .collect();
        let mut nbd = Nbd::open(world.site.nodes[&NodeId(1)].nbd, "db");
        let mut writes = 0;
        while !asking.iter().all(|it| it.is_finished()) {
            nbd.write(0, &data);
            writes += 1;
        }
        assert!(writes > 10, "{writes} writes beside them");
        let told: Vec<usize> = asking.into_iter().map(|it| it.join().unwrap()).collect();
        let all = usize::try_from(LEAVES).unwrap();
        assert_eq!(told, [all, 0, all, 0, all, 0]);
    });
}
