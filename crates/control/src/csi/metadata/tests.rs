use tonic::Code;

use super::*;
use crate::csi::fixture::{LATER, OTHER, snapshot};

fn page(extents: &[(u64, u64)], next: Option<u64>) -> Extents {
    let extents = extents.iter().map(|&(offset, len)| Extent { offset, len }).collect();
    Extents { extents, size: 1000, next }
}

#[test]
fn offsets_are_within_the_volume() {
    for (offset, fits) in [(0, true), (999, true), (1000, true), (1001, false), (-1, false)] {
        match Walk::new(offset, 1000) {
            Ok(_) => assert!(fits, "{offset}"),
            Err(status) => assert!(!fits && status.code() == Code::OutOfRange, "{status}"),
        }
    }
}

#[test]
fn blocks_go_forward_through_all_pages() {
    let mut walk = Walk::new(50, 1000).unwrap();
    let (blocks, more) = walk.take(page(&[(0, 40), (40, 20), (100, 100)], Some(200))).unwrap();
    assert!(more && walk.from == 200);
    let told: Vec<(i64, i64)> = blocks.iter().map(|it| (it.byte_offset, it.size_bytes)).collect();
    assert_eq!(told, [(40, 20), (100, 100)], "what ends before the offset is left out");
    let (blocks, more) = walk.take(page(&[], Some(700))).unwrap();
    assert!(blocks.is_empty() && more);
    let (blocks, more) = walk.take(page(&[(700, 300)], None)).unwrap();
    assert!(blocks.len() == 1 && !more);
}

/// Protects from a backup that misses what the site told in a wrong order, and from asking for ever.
#[test]
fn a_site_that_contradicts_itself_ends_the_stream() {
    for wrong in [
        page(&[(100, 100), (50, 10)], None),
        page(&[(100, 100), (150, 100)], None),
        page(&[(100, 0)], None),
        page(&[(900, 101)], None),
        page(&[(u64::MAX, 2)], None),
        page(&[], Some(10)),
        page(&[], Some(9)),
    ] {
        let mut walk = Walk::new(10, 1000).unwrap();
        assert_eq!(walk.take(wrong).unwrap_err().code(), Code::Internal);
    }
    let mut walk = Walk::new(0, 1000).unwrap();
    walk.take(page(&[(0, 100)], Some(100))).unwrap();
    let again = walk.take(page(&[(99, 10)], None));
    assert_eq!(again.unwrap_err().code(), Code::Internal);
}

#[test]
fn a_delta_leads_from_an_older_snapshot_of_the_same_volume() {
    let base = snapshot();
    let later = Snapshot { uid: LATER.into(), created_ms: base.created_ms + 1, ..snapshot() };
    assert!(follows(&base, &later).is_ok());
    let same_time = Snapshot { created_ms: base.created_ms, ..later.clone() };
    assert!(follows(&base, &same_time).is_ok());
    let elsewhere = Snapshot { volume_uid: OTHER.into(), ..later.clone() };
    for (base, target) in [(&later, &base), (&base, &base), (&base, &elsewhere)] {
        assert_eq!(follows(base, target).unwrap_err().code(), Code::InvalidArgument);
    }
    let waiting = Snapshot { ready: false, ..snapshot() };
    assert_eq!(ready(&waiting).unwrap_err().code(), Code::Aborted);
}

#[test]
fn messages_have_as_many_blocks_as_were_asked_for() {
    assert_eq!(block_count(0).unwrap(), BLOCKS_MAX);
    assert_eq!(block_count(7).unwrap(), 7);
    assert_eq!(block_count(i32::MAX).unwrap(), BLOCKS_MAX);
    assert_eq!(block_count(-1).unwrap_err().code(), Code::InvalidArgument);
}
