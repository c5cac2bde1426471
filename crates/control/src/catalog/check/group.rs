//! Groups, and snapshots of them.
use proto::v1::{VolumeGroup, VolumeGroupSnapshot, VolumeRef};

use crate::catalog::check::{Checked, ensure, len, name, pairs, reference, title, uid};
use crate::catalog::limits::GROUP_MAX;

pub fn check(key: &str, group: &VolumeGroup) -> Checked {
    uid("group.uid", &group.uid)?;
    ensure(group.name == key, "group.name", || format!("the key says {key}"))?;
    title("group.title", &group.title)?;
    let members: Vec<Option<&VolumeRef>> = group.members.iter().map(Some).collect();
    volumes("group.members", &members)?;
    pairs("group.parameters", &group.parameters)
}

pub fn step(old: &VolumeGroup, new: &VolumeGroup) -> Checked {
    ensure(old.uid == new.uid, "group.uid", || "it stays the same".into())?;
    ensure(old.title == new.title, "group.title", || "it stays the same".into())
}

pub fn check_snapshot(key: &str, snapshot: &VolumeGroupSnapshot) -> Checked {
    uid("group_snapshot.uid", &snapshot.uid)?;
    ensure(snapshot.name == key, "group_snapshot.name", || format!("the key says {key}"))?;
    title("group_snapshot.title", &snapshot.title)?;
    if !snapshot.group.is_empty() {
        name("group_snapshot.group", &snapshot.group)?;
    }
    let members: Vec<Option<&VolumeRef>> =
        snapshot.cuts.iter().map(|cut| cut.volume.as_ref()).collect();
    ensure(!members.is_empty(), "group_snapshot.cuts", || "it is of no volume".into())?;
    volumes("group_snapshot.cuts", &members)?;
    for (at, cut) in snapshot.cuts.iter().enumerate() {
        let field = |what: &str| format!("group_snapshot.cuts[{at}].{what}");
        name(&field("snapshot_name"), &cut.snapshot_name)?;
        uid(&field("snapshot"), &cut.snapshot)?;
        let is_made = cut.at.is_some_and(|at| at.seq > 0) && cut.size > 0;
        ensure(is_made || !snapshot.ready, &field("at"), || {
            "what is ready has been cut everywhere".into()
        })?;
    }
    pairs("group_snapshot.parameters", &snapshot.parameters)
}

pub fn step_snapshot(old: &VolumeGroupSnapshot, new: &VolumeGroupSnapshot) -> Checked {
    let fixed = |same: bool, field: &str| ensure(same, field, || "it stays the same".into());
    fixed(old.uid == new.uid, "group_snapshot.uid")?;
    fixed(old.title == new.title, "group_snapshot.title")?;
    fixed(old.group == new.group, "group_snapshot.group")?;
    let of = |snapshot: &VolumeGroupSnapshot| -> Vec<_> {
        let cuts = snapshot.cuts.iter();
        cuts.map(|cut| (cut.volume.clone(), cut.snapshot.clone())).collect()
    };
    fixed(of(old) == of(new), "group_snapshot.cuts")?;
    fixed(!old.ready || old.cuts == new.cuts, "group_snapshot.cuts")?;
    ensure(new.ready || !old.ready, "group_snapshot.ready", || "it stays ready".into())?;
    ensure(new.deleting || !old.deleting, "group_snapshot.deleting", || {
        "what is on its way out does not come back".into()
    })
}

fn volumes(field: &str, volumes: &[Option<&VolumeRef>]) -> Checked {
    len(field, "volumes", volumes.len(), GROUP_MAX)?;
    for (at, volume) in volumes.iter().enumerate() {
        let field = format!("{field}[{at}]");
        reference(&field, *volume)?;
        ensure(!volumes[..at].contains(volume), &field, || "it is there twice".into())?;
    }
    Ok(())
}
