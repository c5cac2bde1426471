//! Hostile bytes, for a bounded time. No decoder may panic, whatever it is given; and opening,
//! checking, reading and closing a pool whose bytes were changed ends with an answer: no panic,
//! no loop without end, no memory without bound.
//!
//! Most changes repair the checksum, so that what lies behind it is reached as well: a checksum
//! protects from accidents, not from whoever can write to the device.
//!
//! `POLLUX_FUZZ_SECONDS` is the time of each test, 2 unless told. Every input has a seed of its
//! own; `POLLUX_FUZZ_SEED` makes one the first, so the seed that a failure names is tried at once.
#![forbid(unsafe_code)]

#[path = "fuzz_decoders/change.rs"]
mod change;
#[path = "fuzz_decoders/deltas.rs"]
mod deltas;
#[path = "fuzz_decoders/disk.rs"]
mod disk;
#[path = "fuzz_decoders/pools.rs"]
mod pools;
#[path = "fuzz_decoders/running.rs"]
mod running;

use block::{ByteLen, ByteOffset, Data, Position, Seq};
use engine::check::{self, Depth};
use engine::{
    BlockSize, Compression, Limits, Op, OpenOptions, Pool, Reply, Runs, Since, SnapshotSpec,
    Subject, VolumeInfo, VolumeSpec, Zeroing,
};

use change::{Sums, change, change_pool, repair};
use disk::{MemDisk, PAGE};
use pools::images;
use running::{fuzz, note, resident_peak_mib};

/// Resident memory of the whole process. Images and one pool at a time need a twentieth of it.
const RESIDENT_MAX_MIB: u64 = 256;

/// Protects from a decoder that trusts a length which it did not compare with anything.
#[test]
fn no_decoder_panics_on_random_bytes() {
    fuzz("random bytes", |rng| {
        let len = match rng.below(4) {
            0 => PAGE,
            1 => rng.index(4 * PAGE + 1),
            _ => rng.index(200),
        };
        note(format!("{len} random bytes"));
        let mut bytes = vec![0; len];
        rng.fill(&mut bytes);
        engine::decode_any(&bytes);
    });
}

/// Protects from a decoder that trusts what stands behind a good magic number or checksum.
#[test]
fn no_decoder_panics_on_a_valid_structure_that_was_changed() {
    let images = images();
    fuzz("changed structures", |rng| {
        let image = &images[rng.index(images.len())];
        let structure = &image.structures[rng.index(image.structures.len())];
        let mut bytes = image.disk.bytes(structure);
        let changes: Vec<String> =
            (0..=rng.below(3)).map(|_| change(rng, &mut bytes, image)).collect();
        note(format!("{structure:?}: {}", changes.join(", ")));
        engine::decode_any(&bytes);
        repair(&mut bytes);
        engine::decode_any(&bytes);
        // A slot's records stand behind its header, and are decoded from there.
        engine::decode_any(&bytes[64..]);
    });
}

/// Protects from a delta whose fields are believed because their checksum is right.
#[test]
fn no_decoder_panics_on_a_forged_delta() {
    fuzz("forged deltas", |rng| {
        let (bytes, changes) = deltas::forged(rng);
        note(changes);
        engine::decode_any(&bytes);
    });
}

/// Protects from damage that is found, and then believed nevertheless.
#[test]
fn a_pool_with_damaged_bytes_opens_or_says_why_not() {
    open_and_check("damaged pools", Sums::Left);
}

/// Protects from a pool that brings its process down when its device says what no pool says.
#[test]
fn a_pool_with_forged_bytes_opens_or_says_why_not() {
    open_and_check("forged pools", Sums::MostlyRepaired);
    let peak = resident_peak_mib();
    assert!(peak <= RESIDENT_MAX_MIB, "{peak} MiB of memory were in use");
}

fn open_and_check(what: &str, sums: Sums) {
    let images = images();
    fuzz(what, |rng| {
        let image = &images[rng.index(images.len())];
        let mut disk = image.disk.clone();
        note(change_pool(rng, image, &mut disk, sums));
        if rng.chance() {
            let _ = check::check(&mut disk, Depth::Data);
        } else if let Ok(pool) = Pool::open(disk, OpenOptions::with(Limits::tiny())) {
            use_and_close(pool);
        }
    });
}

/// Changes everything that a pool says it has: what is refused says so, and the rest is merged.
fn change_volumes(pool: &mut Pool<MemDisk>) {
    let spec = VolumeSpec {
        name: "another".into(),
        size: ByteLen(1 << 20),
        block_size: BlockSize::DEFAULT,
        compression: Compression::Off,
        uid: [3; 16],
    };
    let _ = pool.run(Op::Create { spec });
    for VolumeInfo { id: volume, size, held, .. } in pool.volumes() {
        let at = |more: u64| Position { seq: Seq(held.seq.0.saturating_add(more)), ..held };
        let ends = [0, size.0.saturating_sub(4096) / 512 * 512];
        for (offset, more) in ends.map(ByteOffset).into_iter().zip(1..) {
            let data = Data::copy_of(&[7; 4096]);
            let _ = pool.run(Op::Write { volume, position: at(more), offset, data });
        }
        let spec = SnapshotSpec { name: "now".into(), uid: [4; 16], internal: true, created: 1 };
        let cut = pool.run(Op::Snapshot { volume, position: Some(at(3)), spec });
        let (offset, len, how) = (ByteOffset(512), ByteLen(64 << 10), Zeroing::Discard);
        let _ = pool.run(Op::Zero { volume, position: at(4), offset, len, how });
        let _ = pool.run(Op::SetState { volume, position: Some(at(5)), state: vec![1; 9] });
        let size = ByteLen(size.0.saturating_add(1 << 20));
        let _ = pool.run(Op::Grow { volume, position: Some(at(6)), size });
        let _ = pool.run(Op::Credit { volume, bytes: ByteLen(1 << 20) });
        if let Ok(Reply::Snapshotted(to)) = cut {
            let _ = pool.run(Op::Rollback { volume, position: at(7), to, force: true });
        }
    }
    let _ = pool.checkpoint();
}

/// What an owner does with a pool that opened.
fn use_and_close(mut pool: Pool<MemDisk>) {
    for volume in pool.volumes() {
        let len = ByteLen(volume.size.0.min(64 << 10) / 512 * 512);
        for at in [0, (volume.size.0 - len.0) / 512 * 512] {
            let offset = ByteOffset(at);
            let _ = pool.run(Op::Read { volume: volume.id, offset, len });
        }
        let _ = pool.run(Op::Usage { of: Subject::Volume(volume.id) });
    }
    let snapshots = pool.snapshots();
    for snapshot in &snapshots {
        let (id, offset, len) = (snapshot.id, ByteOffset(0), ByteLen(4096));
        let _ = pool.run(Op::ReadSnapshot { snapshot: id, offset, len });
        let _ = pool.run(Op::Usage { of: Subject::Snapshot(id) });
        for since in [Since::Start, Since::Seq(Seq(1)), Since::Snapshot(snapshots[0].id)] {
            let _ = pool.run(Op::Changed {
                snapshot: id,
                since,
                from: offset,
                to: None,
                max: 3,
                runs: Runs::Joined,
            });
        }
    }
    change_volumes(&mut pool);
    if let Some(snapshot) = snapshots.last() {
        let _ = pool.run(Op::DeleteSnapshot { snapshot: snapshot.id });
    }
    let _ = pool.run(Op::Flush);
    let _ = pool.close();
}
