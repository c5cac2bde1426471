//! What a pool has, by name.
use std::path::{Path, PathBuf};

use anyhow::{Result, anyhow, bail, ensure};
use engine::{
    Inspection, NAME_MAX, OpError, SnapshotId, SnapshotInfo, Subject, VolumeId, VolumeInfo,
};

use super::{about, open_to_read};
use crate::render;

/// Volumes and snapshots of a pool as it lies there.
pub struct Contents {
    pub path: PathBuf,
    pub found: Inspection,
}

impl Contents {
    pub fn of(path: &Path) -> Result<Contents> {
        let found = engine::inspect(open_to_read(path)?).map_err(|error| about(path, error))?;
        Ok(Contents { path: path.to_owned(), found })
    }

    /// Those that exist for users: an import's hidden volume has the name of the one it is for.
    pub fn volumes(&self) -> impl Iterator<Item = &VolumeInfo> {
        self.found.volumes.iter().filter(|volume| volume.staging.is_none())
    }

    pub fn volume(&self, name: &str) -> Result<&VolumeInfo> {
        self.volumes().find(|volume| volume.name == name).ok_or_else(|| {
            let path = self.path.display();
            anyhow!("{path}: there is no volume {name:?}; `pollux disk volumes {path}` lists them")
        })
    }

    pub fn volume_of(&self, id: VolumeId) -> Option<&VolumeInfo> {
        self.volumes().find(|volume| volume.id == id)
    }

    /// The unfinished import into a volume.
    pub fn import_into(&self, id: VolumeId) -> Option<&VolumeInfo> {
        let is_for = |volume: &&VolumeInfo| volume.staging.is_some_and(|staging| staging.of == id);
        self.found.volumes.iter().find(is_for)
    }

    /// A volume whose content may be changed.
    pub fn at_rest(&self, name: &str) -> Result<&VolumeInfo> {
        let volume = self.volume(name)?;
        ensure!(self.import_into(volume.id).is_none(), self.unfinished(name));
        Ok(volume)
    }

    fn unfinished(&self, name: &str) -> anyhow::Error {
        let path = self.path.display();
        anyhow!(
            "{path}: an import into {name:?} is unfinished: go on with the same delta, or drop it \
             with `pollux disk import {path} {name} --abandon`"
        )
    }

    /// A snapshot that exists, by its id.
    pub fn snapshot_of(&self, id: SnapshotId) -> Option<&SnapshotInfo> {
        self.found.snapshots.iter().find(|snapshot| snapshot.id == id)
    }

    /// Those of a volume that are not deleted, internal ones included.
    pub fn snapshots_of(&self, id: VolumeId) -> impl Iterator<Item = &SnapshotInfo> {
        let shown = move |s: &&SnapshotInfo| s.volume == id && !s.hidden;
        self.found.snapshots.iter().filter(shown)
    }

    /// `VOLUME@SNAPSHOT`; `@SNAPSHOT` where the volume is gone; or the snapshot's uid.
    pub fn snapshot(&self, text: &str) -> Result<&SnapshotInfo> {
        let shown = || self.found.snapshots.iter().filter(|snapshot| !snapshot.hidden);
        let named = |snapshot: &&SnapshotInfo| {
            self.title(snapshot) == text || render::uuid(&snapshot.uid) == text
        };
        let mut matching = shown().filter(named);
        let path = self.path.display();
        match (matching.next(), matching.next()) {
            (Some(found), None) => Ok(found),
            (Some(_), Some(_)) => bail!(
                "{path}: there are several snapshots {text:?}: name the one by its uid, which \
                 `pollux disk snapshot list {path} --all` shows"
            ),
            (None, _) if !text.contains('@') => bail!(
                "{path}: {text:?} names no snapshot: write VOLUME@SNAPSHOT, or @SNAPSHOT if the \
                 volume is gone"
            ),
            (None, _) => bail!(
                "{path}: there is no snapshot {text:?}; `pollux disk snapshot list {path}` lists \
                 them"
            ),
        }
    }

    /// `VOLUME@SNAPSHOT`.
    pub fn title(&self, snapshot: &SnapshotInfo) -> String {
        let volume = self.volume_of(snapshot.volume).map_or("", |volume| volume.name.as_str());
        format!("{volume}@{}", snapshot.name)
    }

    /// Volumes that began as this snapshot, by name; `None` where one is gone, and only a snapshot
    /// of it is left.
    pub fn clones(&self, of: &SnapshotInfo) -> Vec<Option<String>> {
        let volumes = self.volumes().filter(|v| v.parent == Some(of.id)).map(|v| v.id);
        let snapshots = &self.found.snapshots;
        let snapshots = snapshots.iter().filter(|s| s.parent == Some(of.id)).map(|s| s.volume);
        let mut clones: Vec<VolumeId> =
            volumes.chain(snapshots).filter(|id| *id != of.volume).collect();
        clones.sort();
        clones.dedup();
        clones.into_iter().map(|id| self.volume_of(id).map(|volume| volume.name.clone())).collect()
    }

    /// A volume or snapshot by name, or by number if it is gone.
    pub fn name_of(&self, of: Subject) -> String {
        let name = match of {
            Subject::Volume(id) => self.volume_of(id).map(|volume| volume.name.clone()),
            Subject::Snapshot(id) => self.snapshot_of(id).map(|snapshot| self.title(snapshot)),
        };
        name.unwrap_or_else(|| of.to_string())
    }

    /// The engine knows numbers; people know names.
    pub fn explain(&self, error: OpError) -> anyhow::Error {
        let volume = |id| format!("{:?}", self.name_of(Subject::Volume(id)));
        let snapshot = |id| self.name_of(Subject::Snapshot(id));
        let path = self.path.display();
        match error {
            OpError::Damaged { of, offset } => anyhow!(
                "{path}: the stored copy of {offset} of {} is damaged: its checksum does not match",
                self.name_of(of)
            ),
            OpError::MapDamaged { of, problem } => anyhow!(
                "{path}: a map page of {} is damaged in both places: {problem}",
                self.name_of(of)
            ),
            OpError::Attached { volume: id } => {
                anyhow!("{path}: volume {} is marked as in use; detach it first", volume(id))
            }
            OpError::Staging { volume: id } => match self.volume_of(id) {
                Some(volume) => self.unfinished(&volume.name),
                None => about(&self.path, OpError::Staging { volume: id }),
            },
            OpError::BaseMoved { snapshot: base, volume: id } => anyhow!(
                "{path}: volume {} has changed since {}; roll it back, or take a new snapshot",
                volume(id),
                snapshot(base)
            ),
            OpError::ForeignSnapshot { snapshot: id, volume: of } => anyhow!(
                "{path}: snapshot {} is not of volume {}; clone it, or name one of its own",
                snapshot(id),
                volume(of)
            ),
            OpError::BaseIsNewer { base, snapshot: id } => anyhow!(
                "{path}: {} is newer than {}: a difference goes from the older to the newer",
                snapshot(base),
                snapshot(id)
            ),
            other => about(&self.path, other),
        }
    }
}

/// Whether a new snapshot may have this name. An `@` would make `VOLUME@SNAPSHOT` ambiguous.
pub fn check_snapshot_name(name: &str) -> Result<()> {
    let fine = (1..=NAME_MAX).contains(&name.len()) && !name.contains(char::is_control);
    ensure!(
        fine && !name.contains('@'),
        "{name:?} cannot name a snapshot: it needs 1 to {NAME_MAX} bytes without control \
         characters and without @"
    );
    Ok(())
}
