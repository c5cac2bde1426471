//! How an import knows itself again: by the name of the internal snapshot that it stands on.
//!
//! The snapshot freezes what the volume was when the import began. It is made first and goes last,
//! so whatever an import was doing when it was interrupted, its marker is there.
use engine::delta::{Base, Header};
use engine::{SnapshotInfo, VolumeId};

use crate::cli::Mode;
use crate::offline::Contents;
use crate::uid;

/// Which delta an import is of, and how it goes in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Of the snapshot that it leads to.
    pub snapshot: [u8; 16],
    /// Of the snapshot that it begins at; `None` is an empty volume.
    pub base: Option<[u8; 16]>,
    /// What was stamped for one mode is of no use for the other.
    pub mode: Mode,
}

impl Identity {
    /// `None` for a delta that begins at a seq: a marker would take the next one, and a volume that
    /// claims a seq which it does not have would miss the operation of that seq for good.
    pub fn of(header: &Header, mode: Mode) -> Option<Identity> {
        let base = match &header.base {
            Base::Empty => None,
            Base::Snapshot { uid, .. } => Some(*uid),
            Base::Seq(_) => return None,
        };
        Some(Identity { snapshot: header.snapshot.uid, base, mode })
    }

    pub fn name(&self) -> String {
        let base = self.base.map_or_else(|| "empty".to_owned(), |base| uid::hex(&base));
        let verb = match self.mode {
            Mode::CatchUp => "import",
            Mode::Mirror => "mirror",
        };
        format!("{verb} {} from {base}", uid::hex(&self.snapshot))
    }

    fn parse(name: &str) -> Option<Identity> {
        let (verb, rest) = name.split_once(' ')?;
        let mode = match verb {
            "import" => Mode::CatchUp,
            "mirror" => Mode::Mirror,
            _ => return None,
        };
        let (snapshot, base) = rest.split_once(" from ")?;
        let base = match base {
            "empty" => None,
            base => Some(uid::from_hex(base)?),
        };
        Some(Identity { snapshot: uid::from_hex(snapshot)?, base, mode })
    }

    /// What this snapshot is the marker of.
    pub fn marked_by(snapshot: &SnapshotInfo) -> Option<Identity> {
        let identity = Identity::parse(&snapshot.name)?;
        (snapshot.internal && !snapshot.hidden).then_some(identity)
    }
}

/// The markers of a volume: at most one is of use, others were left behind by a crash.
pub fn markers(
    contents: &Contents,
    volume: VolumeId,
) -> impl Iterator<Item = (&SnapshotInfo, Identity)> {
    let snapshots = contents.snapshots_of(volume);
    snapshots.filter_map(|snapshot| Some((snapshot, Identity::marked_by(snapshot)?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_import_knows_itself_by_its_name() {
        let snapshot = uid::fresh().unwrap();
        let bases = [None, Some(uid::fresh().unwrap())];
        for (base, mode) in bases.into_iter().zip([Mode::CatchUp, Mode::Mirror]) {
            let identity = Identity { snapshot, base, mode };
            assert_eq!(Identity::parse(&identity.name()), Some(identity));
            assert!(identity.name().len() < engine::NAME_MAX);
        }
        for name in ["", "import", "import x from empty", "monday"] {
            assert_eq!(Identity::parse(name), None);
        }
    }
}
