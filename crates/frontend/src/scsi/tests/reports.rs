//! What the unit tells about itself.
use super::rig::*;
use crate::ask::Ask;
use crate::scsi::words::Status;

#[test]
fn inquiry_is_cut_to_what_the_initiator_takes() {
    let mut rig = Rig::new(512);
    let all = rig.good(A, &[0x12, 0, 0, 1, 0, 0], &[]);
    assert_eq!(all.len(), 96);
    assert_eq!(all[..8], [0, 0, 6, 0x12, 91, 0x18, 0, 2]);
    assert_eq!(&all[8..36], b"POLLUX  VOLUME          1   ");
    assert_eq!(all[58..66], [0x00, 0xA0, 0x09, 0x60, 0x04, 0x60, 0x04, 0xC0]);
    for len in [0, 5, 36, 95] {
        assert_eq!(rig.good(A, &[0x12, 0, 0, 0, len, 0], &[]), all[..usize::from(len)]);
    }
}

#[test]
fn luns_are_reported_by_kind() {
    let mut rig = Rig::new(512);
    let mut luns = |select| rig.run(A, &[0xA0, 0, select, 0, 0, 0, 0, 0, 1, 0, 0, 0], &[]);
    assert_eq!(data_in(&luns(0)).len(), 16);
    assert_eq!(data_in(&luns(1)), [0; 8]);
    assert_eq!(data_in(&luns(2)).len(), 16);
    assert_eq!(codes(&luns(3)), (5, [0x24, 0]));
}

#[test]
fn capacity_knows_thin_disks() {
    let mut rig = Rig::new(512);
    assert_eq!(rig.good(A, &ten(0x25, 0, 0, 0), &[]), [0, 0, 7, 0xFF, 0, 0, 2, 0]);
    assert_eq!(rig.bad(A, &ten(0x25, 0, 1, 0), &[]), (5, [0x24, 0]));
    let long = rig.good(A, &sixteen(0x9E, 0x10, 0, 64), &[]);
    assert_eq!((long.len(), long[13], long[14]), (32, 3, 0xC0));
    assert_eq!(rig.good(A, &sixteen(0x9E, 0x10, 0, 13), &[]), long[..13]);
    assert_eq!(Rig::new(4096).good(A, &sixteen(0x9E, 0x10, 0, 32), &[])[13], 0);
}

#[test]
fn the_small_reports() {
    let mut rig = Rig::new(512);
    let maintenance = |first: u8, second: u8| vec![0xA3, first, second, 0, 0, 0, 0, 0, 1, 0, 0, 0];
    assert_eq!(rig.good(A, &maintenance(0x0D, 0), &[]), [0xDA, 0, 0, 0]);
    assert_eq!(rig.good(A, &maintenance(0x0D, 0x80), &[])[..4], [0xDA, 0, 0, 12]);
    let groups = rig.good(A, &maintenance(0x0A, 0), &[]);
    assert_eq!(groups, [0, 0, 0, 12, 0, 1, 0, 1, 0, 0, 0, 1, 0, 0, 0, 1]);
    let groups = rig.good(A, &maintenance(0x2A, 0), &[]);
    assert_eq!(groups[..8], [0, 0, 0, 16, 0x10, 0, 0, 0]);
    assert_eq!(rig.bad(A, &maintenance(0x4A, 0), &[]), (5, [0x24, 0]));
    assert_eq!(rig.good(A, &[0x37, 0, 0x1D, 0, 0, 0, 0, 0, 64, 0], &[]), [0, 0x1D, 0, 0]);
    let defects = rig.good(A, &[0xB7, 0x0D, 0, 0, 0, 0, 0, 0, 0, 64, 0, 0], &[]);
    assert_eq!(defects, [0, 0x0D, 0, 0, 0, 0, 0, 0]);
    assert_eq!(rig.good(A, &[0x4D, 0, 0x40, 0, 0, 0, 0, 0, 64, 0], &[]), [0, 0, 0, 1, 0]);
    let pages = rig.good(A, &[0x4D, 0, 0x40, 0xFF, 0, 0, 0, 0, 64, 0], &[]);
    assert_eq!(pages, [0x40, 0xFF, 0, 4, 0, 0, 0, 0xFF]);
    assert_eq!(rig.bad(A, &[0x4D, 0, 0x4C, 0, 0, 0, 0, 0, 64, 0], &[]), (5, [0x24, 0]));
}

#[test]
fn commands_with_nothing_to_do_are_good() {
    let mut rig = Rig::new(512);
    for bytes in [
        &[0x00, 0, 0, 0, 0, 0][..],
        &[0x1D, 4, 0, 0, 0, 0],
        &[0x1E, 0, 0, 0, 1, 0],
        &[0x1E, 0, 0, 0, 0, 0],
    ] {
        assert_eq!(rig.good(A, bytes, &[]), []);
    }
    assert_eq!(rig.bad(A, &[0x1D, 0x20, 0, 0, 0, 0], &[]), (5, [0x24, 0]));
    assert_eq!(rig.bad(A, &[0x1E, 0, 0, 0, 3, 0], &[]), (5, [0x24, 0]));
}

fn caching(wce: u8) -> Vec<u8> {
    let mut list = vec![0, 0, 0, 0, 0x08, 0x12, wce];
    list.resize(4 + 20, 0);
    list
}

#[test]
fn without_its_cache_the_disk_flushes_once_and_then_writes_through() {
    let mut rig = Rig::new(512);
    let select = |list: &[u8]| vec![0x15, 0x10, 0, 0, u8::try_from(list.len()).unwrap(), 0];
    rig.good(A, &select(&caching(4)), &caching(4));
    assert_eq!(rig.hear(B), Vec::<[u8; 2]>::new(), "nothing changed");
    let task = rig.send(A, &select(&caching(0)), &caching(0));
    let write_after = rig.send(B, &write(0, 1), &[1; 512]);
    assert!(matches!(rig.asks[..], [(_, Ask::Flush)]), "what is later waits");
    rig.settle();
    assert_eq!(rig.take(task).unwrap().status, Status::Good);
    assert_eq!(codes(&rig.take(write_after).unwrap()), (6, [0x2A, 1]));
    let list = [0, 22, 0, 16, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0];
    for (bytes, data) in [
        (write(0, 1), &[1; 512][..]),
        (vec![0x0A, 0, 0, 0, 1, 0], &[1; 512]),
        (sixteen(0x8B, 0, 0, 1), &[1; 512]),
        (compare(0), &[1; 1024]),
        (ten(0x41, 0, 0, 1), &[1; 512]),
        (ten(0x41, 8, 0, 1), &[0; 512]),
        (ten(0x42, 0, 0, 24), &list),
    ] {
        let before = rig.volume.through;
        rig.good(B, &bytes, data);
        assert_eq!(rig.volume.through, before + 1, "{bytes:02X?}");
    }
}

#[test]
fn a_cache_that_cannot_be_flushed_stays_on() {
    let mut rig = Rig::new(512);
    let task = rig.send(A, &[0x15, 0x10, 0, 0, 24, 0], &caching(0));
    rig.fail(0, crate::ask::AskError::UnflushedWritesLost);
    assert_eq!(codes(&rig.take(task).unwrap()), (4, [0x44, 0]));
    assert_eq!(rig.good(A, &[0x1A, 8, 8, 0, 255, 0], &[])[4 + 2], 4);
}
