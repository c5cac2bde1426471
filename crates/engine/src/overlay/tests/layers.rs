//! Layers: what a snapshot sealed stays as it was, whatever comes above it.
use super::*;

/// What an overlay knows of each granule: the name of a block, or a hole.
type Model = BTreeMap<u64, Option<u64>>;

fn name_of(update: Update) -> Option<u64> {
    match update {
        Update::Block { block, .. } => Some(block.place.0),
        Update::Hole { .. } => None,
    }
}

fn write(overlay: &mut Overlay, at: u64, names: &[u64], displaced: &mut Displaced) {
    let blocks: Vec<BlockRecord> = names.iter().map(|name| block(*name)).collect();
    overlay.insert_blocks(map(2), Granule(at), &blocks, stamp(names[0]), displaced);
}

fn names(displaced: &Displaced) -> Vec<u64> {
    displaced.iter().map(|block| block.place.0).collect()
}

/// Protects from a snapshot that sees later writes, or a volume that does not see earlier ones.
#[test]
fn a_snapshot_has_what_was_there_and_the_volume_has_what_came_since() {
    let mut rng = Lcg(11);
    for _ in 0..100 {
        let (mut overlay, mut displaced) = (Overlay::default(), Displaced::new());
        let mut now = Model::new();
        let mut sealed: Vec<(SnapshotId, Model)> = Vec::new();
        let mut in_layer: BTreeSet<u64> = BTreeSet::new();
        for step in 1..80 {
            let (first, count) = (rng.below(300), 1 + rng.below(40));
            match rng.below(8) {
                0 => {
                    let id = SnapshotId(step);
                    overlay.seal(V, id);
                    sealed.push((id, now.clone()));
                    in_layer.clear();
                }
                1..=3 => {
                    overlay.insert_hole(map(2), Granule(first), count, stamp(step), &mut displaced);
                    now.extend((first..first + count).map(|granule| (granule, None)));
                }
                _ => {
                    let new: Vec<u64> = (0..count).map(|at| step * 64 + at).collect();
                    write(&mut overlay, first, &new, &mut displaced);
                    in_layer.extend(&new);
                    now.extend((first..).zip(new.into_iter().map(Some)));
                }
            }
            for gone in names(&std::mem::take(&mut displaced)) {
                assert!(in_layer.remove(&gone), "a snapshot has block {gone}");
            }
        }
        for granule in 0..400 {
            let found = overlay.get(V, Granule(granule)).map(name_of);
            assert_eq!(found, now.get(&granule).copied(), "granule {granule}");
            for (id, then) in &sealed {
                let found = overlay.get_in(V, *id, Granule(granule)).unwrap().map(name_of);
                assert_eq!(found, then.get(&granule).copied(), "granule {granule} of {id}");
            }
        }
        let layers: Vec<_> = (0..).map_while(|at| overlay.layer(V, at)).collect();
        assert_eq!(layers.len(), overlay.layers_max());
        let ids: Vec<Option<SnapshotId>> = layers.iter().map(|(id, _)| *id).collect();
        let expected = sealed.iter().map(|(id, _)| Some(*id)).chain([None]);
        assert_eq!(ids, expected.collect::<Vec<_>>(), "oldest first, and what is not sealed");
        let entries: usize = layers.iter().map(|(_, layer)| layer.from(0).count()).sum();
        assert_eq!(entries, overlay.entries());
    }
}

/// Protects from a snapshot of the last checkpoint that is looked for here and taken for empty.
#[test]
fn a_snapshot_that_sealed_nothing_here_is_not_known() {
    let mut overlay = Overlay::default();
    assert_eq!(overlay.get_in(V, SnapshotId(7), Granule(0)), Err(NoSuchLayer));
    write(&mut overlay, 3, &[9], &mut Displaced::new());
    assert_eq!(overlay.get_in(V, SnapshotId(7), Granule(3)), Err(NoSuchLayer));
    overlay.seal(V, SnapshotId(7));
    assert_eq!(overlay.get_in(V, SnapshotId(8), Granule(3)), Err(NoSuchLayer));
    assert_eq!(overlay.get_in(VolumeId(2), SnapshotId(7), Granule(3)), Err(NoSuchLayer));
    assert_eq!(overlay.get_in(V, SnapshotId(7), Granule(4)), Ok(None), "the map knows");
    let found = overlay.get_in(V, SnapshotId(7), Granule(3));
    assert_eq!(found.map(|update| update.map(name_of)), Ok(Some(Some(9))));
}

/// Protects from a snapshot of a volume without updates that no checkpoint would ever settle.
#[test]
fn a_snapshot_seals_a_layer_also_where_nothing_was_written() {
    let mut overlay = Overlay::default();
    overlay.seal(V, SnapshotId(7));
    overlay.seal(V, SnapshotId(8));
    assert!(!overlay.is_empty() && overlay.has(V));
    assert_eq!(overlay.volumes().collect::<Vec<_>>(), [V]);
    let ids: Vec<_> = (0..).map_while(|at| overlay.layer(V, at)).map(|(id, _)| id).collect();
    assert_eq!(ids, [Some(SnapshotId(7)), Some(SnapshotId(8)), None]);
    assert_eq!((overlay.entries(), overlay.nodes(), overlay.layers_max()), (0, 0, 3));
    assert_eq!(overlay.get(V, Granule(0)), None);
    assert!(overlay.layer(VolumeId(2), 0).is_none());
}

/// Protects from snapshots that lose their blocks together with the volume that they are of.
#[test]
fn removing_a_volume_keeps_what_its_snapshots_sealed() {
    let (mut overlay, mut displaced) = (Overlay::default(), Displaced::new());
    write(&mut overlay, 3, &[9], &mut displaced);
    overlay.seal(V, SnapshotId(7));
    write(&mut overlay, 3, &[10, 11], &mut displaced);
    overlay.seal(V, SnapshotId(8));
    write(&mut overlay, 4, &[12, 13], &mut displaced);
    overlay.insert_hole(map(2), Granule(90), 9, stamp(14), &mut displaced);
    let nodes = overlay.nodes();
    assert_eq!((names(&displaced), overlay.entries()), (vec![], 6));

    overlay.remove(V, &mut displaced);
    assert_eq!(names(&displaced), [12, 13], "what came since the newest snapshot");
    assert_eq!(overlay.entries(), 3);
    assert!(overlay.nodes() < nodes && overlay.has(V), "there is less to merge");
    let found = |id, granule| overlay.get_in(V, id, Granule(granule)).unwrap().map(name_of);
    assert_eq!([3, 4].map(|at| found(SnapshotId(7), at)), [Some(Some(9)), None]);
    assert_eq!([3, 4].map(|at| found(SnapshotId(8), at)), [Some(Some(10)), Some(Some(11))]);

    displaced.clear();
    overlay.remove(V, &mut displaced);
    assert_eq!((displaced.len(), overlay.entries()), (0, 3), "once is enough");
}

/// Protects from a volume that is emptied together with another one.
#[test]
fn volumes_do_not_see_one_another() {
    let (mut overlay, mut displaced) = (Overlay::default(), Displaced::new());
    write(&mut overlay, 3, &[9], &mut displaced);
    let other = Map { volume: VolumeId(2), height: 1 };
    overlay.insert_blocks(other, Granule(3), &[block(20)], stamp(1), &mut displaced);
    overlay.seal(VolumeId(2), SnapshotId(7));
    assert_eq!(overlay.get(V, Granule(3)).map(name_of), Some(Some(9)));
    assert_eq!((overlay.volumes().count(), overlay.layers_max()), (2, 2));
    overlay.remove(V, &mut displaced);
    assert_eq!((names(&displaced), overlay.has(V)), (vec![9], false));
    assert_eq!(overlay.get(VolumeId(2), Granule(3)).map(name_of), Some(Some(20)));
}
