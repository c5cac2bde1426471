//! Snapshots that people know of.
use proto::v1::VolumeSnapshot;

use crate::catalog::check::{Checked, ensure, name, pairs, reference, title, uid};

pub fn check(key: &str, snapshot: &VolumeSnapshot) -> Checked {
    uid("snapshot.uid", &snapshot.uid)?;
    ensure(snapshot.name == key, "snapshot.name", || format!("the key says {key}"))?;
    title("snapshot.title", &snapshot.title)?;
    reference("snapshot.volume", snapshot.volume.as_ref())?;
    if !snapshot.group_snapshot.is_empty() {
        name("snapshot.group_snapshot", &snapshot.group_snapshot)?;
        uid("snapshot.group_snapshot_uid", &snapshot.group_snapshot_uid)?;
    }
    let is_made = snapshot.at.is_some_and(|at| at.seq > 0);
    ensure(snapshot.at.is_none() || is_made, "snapshot.at", || {
        "no snapshot is at the beginning".into()
    })?;
    ensure(!is_made || snapshot.size > 0, "snapshot.size", || {
        "one that is made has the size of its volume".into()
    })?;
    pairs("snapshot.parameters", &snapshot.parameters)
}

pub fn step(old: &VolumeSnapshot, new: &VolumeSnapshot) -> Checked {
    let fixed = |same: bool, field: &str| ensure(same, field, || "it stays the same".into());
    fixed(old.uid == new.uid, "snapshot.uid")?;
    fixed(old.volume == new.volume, "snapshot.volume")?;
    fixed(old.title == new.title, "snapshot.title")?;
    fixed(old.group_snapshot_uid == new.group_snapshot_uid, "snapshot.group_snapshot_uid")?;
    fixed(old.at.is_none() || old.at == new.at && old.size == new.size, "snapshot.at")?;
    ensure(new.deleting || !old.deleting, "snapshot.deleting", || {
        "what is on its way out does not come back".into()
    })
}
