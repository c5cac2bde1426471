//! What is durable, and what a power cut or a kill may leave.
use std::collections::BTreeSet;

use super::*;

/// The first bytes of the first `n` sectors in every image that a power cut may leave.
fn outcomes(disk: &CrashDisk, tear: SectorSize, n: u64) -> Vec<Vec<u8>> {
    let images = disk.crash_images(tear, Budget::default(), &mut Rng::new(1));
    assert!(images.is_exhaustive());
    images.map(|image| firsts(&image, n)).collect()
}

#[test]
fn a_flush_covers_only_what_had_completed_when_it_was_submitted() {
    // Protects from an engine that flushes while the writes it means are still in flight.
    let mut disk = disk();
    start_write(&mut disk, 1, 0, SECTOR, 1);
    start_write(&mut disk, 2, SECTOR, SECTOR, 2);
    disk.complete_one(0).result.unwrap();
    disk.submit(IoId(3), Io::Flush);
    disk.complete_one(0).result.unwrap();
    start_write(&mut disk, 4, 2 * SECTOR, SECTOR, 3);
    assert_eq!(firsts(&disk.durable_image(), 3), [0, 0, 0]);
    assert!(matches!(disk.complete_one(0).result, Ok(Done::Flushed)));
    assert_eq!(firsts(&disk.durable_image(), 3), [1, 0, 0]);
    finish_all(&mut disk);
    assert_eq!(firsts(&disk.durable_image(), 3), [1, 0, 0]);
    flush(&mut disk).unwrap();
    assert_eq!(firsts(&disk.durable_image(), 3), [1, 2, 3]);
    assert!(disk.outstanding().is_empty());
}

#[test]
fn every_subset_of_a_few_sectors_is_tried_once() {
    // Protects from "exhaustive" runs which leave out the one subset that matters.
    let mut disk = disk();
    write(&mut disk, 0, 2 * SECTOR, 9);
    flush(&mut disk).unwrap();
    write(&mut disk, 0, SECTOR, 1);
    start_write(&mut disk, 1, SECTOR, 2 * SECTOR, 2);
    let tried = outcomes(&disk, SectorSize::B512, 4);
    let distinct: BTreeSet<_> = tried.iter().cloned().collect();
    let mut expected = BTreeSet::new();
    for a in [9, 1] {
        for b in [9, 2] {
            for c in [0, 2] {
                expected.insert(vec![a, b, c, 0]);
            }
        }
    }
    assert_eq!(tried.len(), 8);
    assert_eq!(distinct, expected);
}

#[test]
fn eight_sectors_are_exhausted_and_nine_are_sampled() {
    // Protects from reports that call a sample complete.
    let mut disk = disk();
    write(&mut disk, 0, 8 * SECTOR, 1);
    let tried: BTreeSet<_> = outcomes(&disk, SectorSize::B512, 8).into_iter().collect();
    assert_eq!(tried.len(), 256);
    write(&mut disk, 8 * SECTOR, SECTOR, 1);
    let images = disk.crash_images(SectorSize::B512, Budget::default(), &mut Rng::new(1));
    assert!(!images.is_exhaustive());
    assert_eq!(images.len(), 64);
    let tried: Vec<_> = images.map(|image| firsts(&image, 10)).collect();
    let first_eight = [1, 1, 1, 1, 1, 1, 1, 1, 0, 0];
    assert_eq!(tried.len(), 64);
    assert_eq!(tried[0], [0; 10], "nothing landed");
    assert_eq!(tried[1], [1, 1, 1, 1, 1, 1, 1, 1, 1, 0], "all landed");
    assert!(tried.iter().any(|t| t[..] == first_eight), "one whole write");
    assert!(tried.iter().collect::<BTreeSet<_>>().len() > 20);
}

#[test]
fn a_few_sectors_with_too_many_versions_are_sampled() {
    // Protects from a crash point that would take the rest of the day.
    let mut disk = disk();
    for byte in 1..=9 {
        write(&mut disk, 0, 4 * SECTOR, byte);
    }
    let images = disk.crash_images(SectorSize::B512, Budget::default(), &mut Rng::new(1));
    assert!(!images.is_exhaustive(), "ten to the fourth is more than 4096");
    let outstanding = disk.outstanding();
    assert_eq!(outstanding.sectors(SectorSize::B512)[0].writes.len(), 9);
}

#[test]
fn nothing_outstanding_leaves_one_image() {
    // Protects from a crash point that is skipped because there was nothing to choose.
    let mut disk = disk();
    write(&mut disk, 0, SECTOR, 1);
    flush(&mut disk).unwrap();
    assert_eq!(outcomes(&disk, SectorSize::B512, 2), [[1, 0]]);
}

#[test]
fn a_write_of_4_kib_tears_at_512_and_not_at_4096() {
    // Protects from a crash which never tears, and from one that tears what the device would not.
    let mut disk = CrashDisk::new(ByteLen(64 * KIB), SectorSize::B4096, 1);
    start_write(&mut disk, 1, 0, 4 * KIB, 1);
    let torn = outcomes(&disk, SectorSize::B512, 8);
    assert_eq!(torn.len(), 256);
    assert!(torn.contains(&vec![1, 0, 1, 0, 1, 0, 1, 0]));
    let whole = outcomes(&disk, SectorSize::B4096, 8);
    assert_eq!(whole, [vec![0; 8], vec![1; 8]]);
}

#[test]
fn small_writes_within_a_large_sector_are_its_states() {
    // Protects from tearing a physical sector of 4 KiB that was written in logical ones of 512.
    let mut disk = disk().with_physical_sector(SectorSize::B4096);
    write(&mut disk, 0, SECTOR, 1);
    write(&mut disk, SECTOR, SECTOR, 2);
    start_write(&mut disk, 1, 2 * SECTOR, SECTOR, 3);
    start_write(&mut disk, 2, 3 * SECTOR, SECTOR, 4);
    let tried = outcomes(&disk, SectorSize::B4096, 4);
    let expected =
        [[0, 0, 0, 0], [1, 0, 0, 0], [1, 2, 0, 0], [1, 2, 3, 0], [1, 2, 0, 4], [1, 2, 3, 4]];
    assert_eq!(tried, expected);
}

#[test]
fn any_version_of_a_sector_may_be_the_one_that_lasts() {
    // Protects from an engine that overwrites a sector and trusts that the newer one wins.
    let mut disk = disk();
    write(&mut disk, 0, SECTOR, 1);
    write(&mut disk, 0, SECTOR, 2);
    start_write(&mut disk, 1, 0, SECTOR, 3);
    assert_eq!(outcomes(&disk, SectorSize::B512, 1), [[0], [1], [2], [3]]);
    flush(&mut disk).unwrap();
    assert_eq!(outcomes(&disk, SectorSize::B512, 1), [[2], [3]]);
    finish_all(&mut disk);
    flush(&mut disk).unwrap();
    assert_eq!(outcomes(&disk, SectorSize::B512, 1), [[3]]);
}

#[test]
fn two_writes_may_land_in_the_other_order() {
    // Protects from an engine that takes the order of submission for an order of durability.
    let mut disk = disk();
    write(&mut disk, 0, SECTOR, 1);
    write(&mut disk, SECTOR, SECTOR, 2);
    assert!(outcomes(&disk, SectorSize::B512, 2).contains(&vec![0, 2]));
}

#[test]
fn a_flush_between_two_versions_keeps_the_later_one_outstanding() {
    // Protects from folding a write that the flush did not cover.
    let mut disk = disk();
    write(&mut disk, 0, 2 * SECTOR, 1);
    disk.submit(IoId(2), Io::Flush);
    start_write(&mut disk, 3, SECTOR, SECTOR, 2);
    disk.complete_one(1).result.unwrap();
    disk.complete_one(0).result.unwrap();
    assert_eq!(disk.peek(ByteOffset(SECTOR), 1), [2]);
    assert_eq!(outcomes(&disk, SectorSize::B512, 2), [[1, 1], [1, 2]]);
}

#[test]
fn a_kill_keeps_completed_writes_and_lets_those_in_flight_go_either_way() {
    // Protects from losing, at a kill, what only a power cut may lose.
    let mut disk = disk();
    write(&mut disk, 0, SECTOR, 1);
    start_write(&mut disk, 1, SECTOR, 2 * SECTOR, 2);
    queue_write(&mut disk, 2, 3 * SECTOR, SECTOR, 3);
    let mut rng = Rng::new(1);
    let seen: BTreeSet<_> = (0..50).map(|_| firsts(&disk.kill_image(&mut rng), 4)).collect();
    let expected = [[1, 0, 0, 0], [1, 0, 2, 0], [1, 2, 0, 0], [1, 2, 2, 0]];
    assert_eq!(seen, expected.map(Vec::from).into());
}

#[test]
fn a_power_cut_after_a_kill_may_still_lose_what_was_never_flushed() {
    // Protects from an engine that recovers from unflushed bytes and does not flush them itself.
    let mut disk = disk();
    write(&mut disk, 0, SECTOR, 1);
    let mut next = disk.after_kill(7);
    assert_eq!(next.peek(ByteOffset(0), 1), [1]);
    assert_eq!(outcomes(&next, SectorSize::B512, 1), [[0], [1]]);
    flush(&mut next).unwrap();
    assert_eq!(outcomes(&next, SectorSize::B512, 1), [[1]]);
    assert_eq!(outcomes(&disk, SectorSize::B512, 1), [[0], [1]], "the old one goes its own way");
}

#[test]
fn an_image_shares_every_page_that_it_does_not_change() {
    // Protects from copying a pool at each of a hundred thousand crashes.
    let mut disk = CrashDisk::new(ByteLen(16 << 20), SectorSize::B4096, 1);
    write(&mut disk, 0, 16 << 20, 1);
    flush(&mut disk).unwrap();
    let before = disk.durable_image();
    assert_eq!(disk.cache.visible().pages_apart_from(&before), 0);
    start_write(&mut disk, 1, 8 * KIB, 8 * KIB, 2);
    for image in disk.crash_images(SectorSize::B4096, Budget::default(), &mut Rng::new(1)) {
        assert!(image.pages_apart_from(&before) <= 2);
        let mut next = CrashDisk::from_image(image.clone(), 2);
        write(&mut next, 0, 4 * KIB, 3);
        assert_eq!(next.cache.visible().pages_apart_from(&image), 1);
        flush(&mut next).unwrap();
        let durable = next.durable_image();
        assert_eq!(next.cache.visible().pages_apart_from(&durable), 0);
    }
}

#[test]
fn a_vast_disk_costs_what_was_written_to_it() {
    // Protects from memory that grows with the size of a disk, or with the length of a trim.
    let size = 1 << 40;
    let mut disk = CrashDisk::new(ByteLen(size), SectorSize::B4096, 1);
    write(&mut disk, size - 4 * KIB, 4 * KIB, 1);
    write(&mut disk, 1 << 30, 4 * KIB, 2);
    let (at, len) = (ByteOffset(0), ByteLen(size));
    disk.submit(IoId(1), Io::Trim { at, len });
    disk.kick();
    finish_all(&mut disk);
    flush(&mut disk).unwrap();
    assert!(disk.outstanding().is_empty());
    let sectors: Vec<_> = disk.written_sectors().collect();
    assert_eq!(sectors, [ByteOffset(1 << 30), ByteOffset(size - 4 * KIB)]);
}

#[test]
fn a_trim_leaves_some_sectors_and_not_others() {
    // Protects from an engine that reads what it has trimmed, as zeros or as it was.
    let mut disk = CrashDisk::new(ByteLen(1 << 20), SectorSize::B4096, 1);
    write(&mut disk, 0, 1 << 20, 1);
    flush(&mut disk).unwrap();
    let (at, len) = (ByteOffset(0), ByteLen(512 * KIB));
    disk.submit(IoId(1), Io::Trim { at, len });
    disk.kick();
    finish_all(&mut disk);
    let seen = disk.peek(ByteOffset(0), 1 << 20);
    let like = |byte| move |s: &&[u8]| s.iter().all(|&b| b == byte);
    let (trimmed, kept) = seen.split_at(512 << 10);
    assert!(kept.iter().all(|&b| b == 1));
    let stayed = trimmed.chunks(4096).filter(like(1)).count();
    let zeros = trimmed.chunks(4096).filter(like(0)).count();
    assert!(stayed > 20 && zeros > 10 && stayed + zeros < 118, "{stayed} {zeros}");
    assert_eq!(read(&mut disk, 0, 1 << 20).unwrap(), seen, "it does not change by reading");
    assert_eq!(disk.durable_image().peek(ByteOffset(0), 1 << 20), vec![1; 1 << 20]);
    assert!(disk.outstanding().writes()[0].trim);
    flush(&mut disk).unwrap();
    assert_eq!(disk.durable_image().peek(ByteOffset(0), 1 << 20), seen);
}

#[test]
fn no_sector_is_older_than_its_last_flush_or_newer_than_its_last_write() {
    // Protects from a fault in the folding of versions that only a long mixture of IO brings out.
    for seed in 0..40 {
        let mut rng = Rng::new(seed);
        let mut disk = CrashDisk::new(ByteLen(64 * KIB), SectorSize::B512, seed);
        let mut model = Model::default();
        for byte in 1..=120 {
            model.step(&mut disk, byte, &mut rng);
            let tear = *rng.pick(&[SectorSize::B512, SectorSize::B4096]);
            let budget = Budget { samples: 8, combinations: 32, ..Budget::default() };
            for image in disk.crash_images(tear, budget, &mut rng) {
                model.check(&image);
            }
            model.check(&disk.kill_image(&mut rng));
        }
    }
}

/// A workload in which each sector has one write in flight at most, and in which the byte that is
/// written grows: so the versions of a sector are in the order of their bytes.
#[derive(Default)]
struct Model {
    in_flight: Vec<Step>,
    /// For each sector its bytes so far, and how many of them have completed.
    sectors: [(Vec<u8>, usize); 24],
    /// For each sector the oldest byte that may be on the medium.
    floors: [u8; 24],
}

enum Step {
    Write(std::ops::Range<usize>),
    /// The floors that its success will bring.
    Flush([u8; 24]),
}

impl Model {
    fn step(&mut self, disk: &mut CrashDisk, byte: u8, rng: &mut Rng) {
        let start = rng.index(20);
        let range = start..start + 1 + rng.index(4);
        let busy = self.in_flight.iter().any(|step| {
            matches!(step, Step::Write(other) if other.start < range.end && range.start < other.end)
        });
        match rng.below(4) {
            0 | 1 if !busy => {
                let (at, len) = (range.start as u64 * SECTOR, range.len() as u64 * SECTOR);
                start_write(disk, 0, at, len, byte);
                self.sectors[range.clone()].iter_mut().for_each(|s| s.0.push(byte));
                self.in_flight.push(Step::Write(range));
            }
            2 => {
                disk.submit(IoId(0), Io::Flush);
                disk.kick();
                let newest = |s: &(Vec<u8>, usize)| s.1.checked_sub(1).map_or(0, |i| s.0[i]);
                let floors = std::array::from_fn(|i| newest(&self.sectors[i]));
                self.in_flight.push(Step::Flush(floors));
            }
            _ if self.in_flight.is_empty() => {}
            _ => {
                let index = rng.index(self.in_flight.len());
                disk.complete_one(index).result.unwrap();
                match self.in_flight.remove(index) {
                    Step::Write(range) => self.sectors[range].iter_mut().for_each(|s| s.1 += 1),
                    Step::Flush(new) => {
                        let both = self.floors.iter_mut().zip(new);
                        both.for_each(|(floor, new)| *floor = new.max(*floor));
                    }
                }
            }
        }
    }

    fn check(&self, image: &Image) {
        for (i, seen) in firsts(image, 24).into_iter().enumerate() {
            let floor = self.floors[i];
            assert!(seen >= floor, "sector {i} holds {seen}, and {floor} was flushed");
            assert!(seen == 0 || self.sectors[i].0.contains(&seen));
        }
    }
}
