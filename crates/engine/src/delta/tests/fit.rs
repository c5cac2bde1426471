//! Which delta may be imported into which volume.
use super::*;

fn snapshots() -> Vec<SnapshotRef> {
    let snapshot = |uid, name: &str, seq| SnapshotRef {
        uid: [uid; 16],
        name: name.into(),
        position: Position::new(3, seq),
    };
    vec![snapshot(9, "first", 20), snapshot(1, "old", 50)]
}

/// The volume that `header()` is a delta for.
fn destination(snapshots: &[SnapshotRef]) -> Destination<'_> {
    Destination {
        uid: [0xa5; 16],
        size: ByteLen(1 << 20),
        block_size: BlockSize::new(4096).unwrap(),
        position: Position::new(3, 50),
        content: Content::Snapshot([1; 16]),
        snapshots,
        interrupted: None,
    }
}

fn on(base: Base) -> Header {
    Header { base, ..header() }
}

#[test]
fn a_delta_fits_a_volume_that_is_at_its_base() {
    let snapshots = snapshots();
    let at_old = destination(&snapshots);
    assert_eq!(header().fits(&at_old), Ok(()));
    assert_eq!(on(Base::Seq(Seq(50))).fits(&at_old), Ok(()));
    let empty = Destination { content: Content::Empty, ..destination(&[]) };
    assert_eq!(on(Base::Empty).fits(&empty), Ok(()));
    let grown = Header { size: ByteLen(2 << 20), ..header() };
    assert_eq!(grown.fits(&at_old), Ok(()), "the importer grows the volume");
    let marked = Destination { position: Position::new(4, 77), ..at_old };
    assert_eq!(header().fits(&marked), Ok(()), "marks change no content");
}

/// Protects from a delta that is applied to something else than what it was made from.
#[test]
fn a_delta_for_another_volume_is_refused() {
    let snapshots = snapshots();
    let to = destination(&snapshots);
    let (stream, destination) = ([7; 16], to.uid);
    let found = Header { volume: stream, ..header() }.fits(&to);
    assert_eq!(found, Err(FitError::WrongVolume { stream, destination }));
    let message = found.unwrap_err().to_string();
    assert!(message.contains("07070707") && message.contains("a5a5a5a5"), "{message}");
    // The same granule, and yet another volume.
    let small = Header { block_size: BlockSize::new(512).unwrap(), ..header() };
    let (stream, destination) = (512, 4096);
    assert_eq!(small.fits(&to), Err(FitError::BlockSize { stream, destination }));
    let (stream, destination) = (ByteLen(1 << 19), to.size);
    let shrunk = Header { size: stream, ..header() };
    assert_eq!(shrunk.fits(&to), Err(FitError::Smaller { stream, destination }));
}

#[test]
fn a_delta_whose_base_is_missing_is_refused_and_names_it() {
    let snapshots = snapshots();
    let at = Position::new(3, 50);
    let found = header().fits(&destination(&snapshots[..1])).unwrap_err();
    assert_eq!(found, FitError::BaseMissing { base: header().base, at });
    assert!(found.to_string().contains("snapshot \"old\" at 3.50"), "{found}");
    let base = Base::Seq(Seq(51));
    let found = on(base.clone()).fits(&destination(&snapshots));
    assert_eq!(found, Err(FitError::BaseMissing { base, at }));
}

/// Protects from a delta over what was written since.
#[test]
fn a_destination_that_moved_beyond_the_base_is_refused() {
    let snapshots = snapshots();
    let at = Position::new(3, 50);
    for content in [Content::Changed, Content::Empty, Content::Snapshot([9; 16])] {
        let to = Destination { content, ..destination(&snapshots) };
        assert_eq!(header().fits(&to), Err(FitError::Moved { base: header().base, at }));
    }
    for content in [Content::Changed, Content::Snapshot([1; 16])] {
        let to = Destination { content, ..destination(&snapshots) };
        let found = on(Base::Empty).fits(&to);
        assert_eq!(found, Err(FitError::Moved { base: Base::Empty, at }));
    }
    let base = Base::Seq(Seq(49));
    let found = on(base.clone()).fits(&destination(&snapshots));
    assert_eq!(found, Err(FitError::Moved { base, at }));
}

/// Protects from a base of the same uid in another history; a mirror's has another position.
#[test]
fn a_base_at_another_position_fits_only_in_a_foreign_sequence() {
    let mut snapshots = snapshots();
    let position = Position::new(2, 4000);
    snapshots[1].position = position;
    let to = destination(&snapshots);
    let base = header().base;
    assert_eq!(header().fits(&to), Err(FitError::BaseDiffers { base, found: position }));
    let mirrored = Header { own_sequence: false, ..header() };
    assert_eq!(mirrored.fits(&to), Ok(()));
}

/// Protects from an import that moves everything and then finds the name taken.
#[test]
fn a_snapshot_that_is_there_already_is_told_before_the_import() {
    let mut snapshots = snapshots();
    snapshots[0].name = "new".into();
    let name = || "new".to_owned();
    let found = header().fits(&destination(&snapshots));
    assert_eq!(found, Err(FitError::NameTaken { name: name() }));
    snapshots[0].uid = [2; 16];
    let found = header().fits(&destination(&snapshots));
    assert_eq!(found, Err(FitError::AlreadyThere { name: name() }));
    snapshots[0] = SnapshotRef { uid: [9; 16], name: String::new(), ..snapshots[0].clone() };
    let mut unnamed = header();
    unnamed.snapshot.name = String::new();
    assert_eq!(unnamed.fits(&destination(&snapshots)), Ok(()), "no name is no clash");
}

/// Protects from a gap between two parts of an import, and from parts of two.
#[test]
fn a_delta_continues_the_import_where_it_stopped() {
    let snapshots = snapshots();
    let progress = ByteOffset(65536);
    let stopped = Interrupted { base: header().base, snapshot: [2; 16], progress };
    let fits = |resume_from: u64, interrupted| {
        let header = Header { resume_from: ByteOffset(resume_from), ..header() };
        header.fits(&Destination { interrupted, ..destination(&snapshots) })
    };
    let not = |stream, import| {
        let (stream, import) = (ByteOffset(stream), ByteOffset(import));
        Err(FitError::NotContinuing { stream, import })
    };
    assert_eq!(fits(65536, Some(&stopped)), Ok(()));
    assert_eq!(fits(0, Some(&stopped)), Ok(()), "a whole one begins anew");
    assert_eq!(fits(131_072, Some(&stopped)), not(131_072, 65536));
    assert_eq!(fits(4096, Some(&stopped)), not(4096, 65536));
    assert_eq!(fits(65536, None), not(65536, 0));
    let message = fits(131_072, Some(&stopped)).unwrap_err().to_string();
    assert!(message.contains("continues at byte 131072, but the import is at byte 65536"));
    let base = Base::Seq(Seq(50));
    let others = [
        Interrupted { snapshot: [3; 16], ..stopped.clone() },
        Interrupted { base: base.clone(), ..stopped.clone() },
    ];
    for other in &others {
        let unfinished = FitError::Unfinished { base: other.base.clone(), progress };
        for resume_from in [0, 65536] {
            assert_eq!(fits(resume_from, Some(other)), Err(unfinished.clone()));
        }
    }
}
