//! Groups of volumes, and snapshots of several volumes at one moment.
use std::sync::Arc;

use futures_util::future::try_join_all;
use proto::catalog_client::Found;
use proto::v1;

use super::books::{Kept, Known};
use super::cut::Member;
use super::names::named;
use super::shape::check_proof;
use super::snapshots::new_uid;
use super::{Answer, Controller, now_ms};
use crate::api::types::{Done, Group, GroupSnapshot, Members, NewGroup, NewGroupSnapshot, Proof};
use crate::api::{ApiError, Code};
use crate::catalog::limits::GROUP_MAX;
use crate::hex;
use crate::steps::{faults, key, reference};

type Kind = v1::Kind;

impl Controller {
    pub async fn create_group(self: &Arc<Self>, asked: NewGroup) -> Answer<Group> {
        let named = named(&asked.name)?;
        let members = self.members(&asked.members)?;
        let this = Arc::clone(self);
        self.run(vec![(Kind::Group, named.name.clone())], async move {
            match this.fresh::<v1::VolumeGroup>(&named.name).await? {
                Some((_, found)) => {
                    let same = found.title == named.title
                        && is_same_set(&found.members, &members)
                        && found.parameters == asked.parameters;
                    if !same {
                        let message =
                            format!("there is a group `{}` already, with others", asked.name);
                        return Err(ApiError::new(Code::AlreadyExists, message));
                    }
                }
                None => {
                    let group = v1::VolumeGroup {
                        uid: new_uid(),
                        name: named.name.clone(),
                        title: named.title,
                        created_ms: now_ms(),
                        members,
                        parameters: asked.parameters,
                    };
                    let stored = this.swap(0, group).await?;
                    stored.ok_or_else(|| ApiError::busy("group", &named.name))?;
                }
            }
            this.group(&named.name)
        })
        .await
    }

    fn members(&self, ids: &[String]) -> Answer<Vec<v1::VolumeRef>> {
        let mut members: Vec<v1::VolumeRef> = Vec::new();
        for id in ids {
            let volume = reference(&*self.usable(id)?);
            if !members.contains(&volume) {
                members.push(volume);
            }
        }
        Ok(members)
    }

    pub async fn set_members(self: &Arc<Self>, id: &str, to: Members) -> Answer<Group> {
        let found = self.find::<v1::VolumeGroup>(id)?;
        let members = self.members(&to.members)?;
        let this = Arc::clone(self);
        self.run(vec![(Kind::Group, found.name.clone())], async move {
            this.edit::<v1::VolumeGroup>(&found.name, &found.uid, |group| {
                group.members.clone_from(&members);
                Ok(())
            })
            .await?;
            this.group(&found.name)
        })
        .await
    }

    /// The group that a new volume is to enter.
    pub(super) fn group_with_room(&self, id: &str) -> Answer<Known<v1::VolumeGroup>> {
        let none =
            || ApiError::invalid("group", format!("there is no group `{id}`: make it first"));
        let group = self.books.get::<v1::VolumeGroup>(id).ok_or_else(none)?;
        match group.members.len() < GROUP_MAX {
            true => Ok(group),
            false => Err(ApiError::invalid(
                "group",
                format!("`{id}` has {GROUP_MAX} volumes already, and a group has no more"),
            )),
        }
    }

    /// A new volume enters the group that it was asked for with.
    pub(super) async fn enter_group(
        &self,
        group: &v1::VolumeGroup,
        volume: &v1::Volume,
    ) -> Answer<()> {
        let member = reference(volume);
        self.edit::<v1::VolumeGroup>(&group.name, &group.uid, |group| {
            if !group.members.contains(&member) {
                group.members.push(member.clone());
            }
            Ok(())
        })
        .await?;
        Ok(())
    }

    /// Volumes that were deleted are in no group any more. Those that are only missing stay: an error then.
    pub(super) async fn drop_members(&self, group: &v1::VolumeGroup) -> Answer<()> {
        let (mut deleted, mut missing) = (Vec::new(), Ok(()));
        for member in group.members.iter().filter(|it| !self.exists(it)) {
            match self.was_deleted(member).await {
                Ok(()) => deleted.push(member.clone()),
                Err(error) => missing = Err(error),
            }
        }
        if !deleted.is_empty() {
            self.edit::<v1::VolumeGroup>(&group.name, &group.uid, |group| {
                group.members.retain(|it| !deleted.contains(it));
                Ok(())
            })
            .await?;
        }
        missing
    }

    /// An error unless the catalog has the mark that this very volume was deleted. That it is missing proves nothing: the
    /// catalog may have lost it, or objects of it may have been brought back before their volume.
    pub(super) async fn was_deleted(&self, volume: &v1::VolumeRef) -> Answer<()> {
        let name = &volume.name;
        let deleted_uids = match self.site.client().find(&key(name)).await? {
            Found::Object(object) | Found::Deleted(object) => object.deleted_uids,
            Found::Nothing => Vec::new(),
        };
        match deleted_uids.contains(&volume.uid) {
            true => Ok(()),
            false => Err(ApiError::new(
                Code::Unavailable,
                format!(
                    "its volume `{name}` is not in the catalog, and nothing says that it was deleted: bring it back with \
                     `pollux site restore` or `pollux site rebuild`, or delete what is left of it"
                ),
            )),
        }
    }

    pub(super) fn exists(&self, volume: &v1::VolumeRef) -> bool {
        self.books.get::<v1::Volume>(&volume.name).is_some_and(|it| it.uid == volume.uid)
    }

    /// A volume that goes is in no group any more.
    pub(super) async fn leave_groups(&self, volume: &v1::Volume) -> Answer<()> {
        let member = reference(volume);
        for group in self.books.all::<v1::VolumeGroup>() {
            if group.members.contains(&member) {
                self.edit::<v1::VolumeGroup>(&group.name, &group.uid, |group| {
                    group.members.retain(|it| *it != member);
                    Ok(())
                })
                .await?;
            }
        }
        Ok(())
    }

    /// Its volumes and snapshots stay.
    pub async fn delete_group(self: &Arc<Self>, id: &str) -> Answer<Done> {
        let Some(found) = self.books.get::<v1::VolumeGroup>(id) else { return Ok(Done {}) };
        let this = Arc::clone(self);
        self.run(vec![(Kind::Group, found.name.clone())], async move {
            while let Some((version, group)) = this.fresh::<v1::VolumeGroup>(&found.name).await? {
                let is_it = group.uid == found.uid;
                if !is_it || this.remove::<v1::VolumeGroup>(version, &found.name).await?.is_some() {
                    break;
                }
            }
            Ok(Done {})
        })
        .await
    }

    pub async fn create_group_snapshot(
        self: &Arc<Self>,
        asked: NewGroupSnapshot,
    ) -> Answer<GroupSnapshot> {
        let named = named(&asked.name)?;
        let (group, members) = self.to_cut(&asked)?;
        let mut things = vec![(Kind::GroupSnapshot, named.name.clone())];
        things.extend(members.iter().map(|it| (Kind::Volume, it.name.clone())));
        let this = Arc::clone(self);
        self.run(things, async move {
            let wanted = v1::VolumeGroupSnapshot {
                uid: new_uid(),
                name: named.name.clone(),
                title: named.title.clone(),
                created_ms: now_ms(),
                group,
                cuts: members.into_iter().map(|volume| cut_of(volume, &named.name)).collect(),
                parameters: asked.parameters,
                ..v1::VolumeGroupSnapshot::default()
            };
            let snapshot = this.intend_cut(wanted).await?;
            this.make_cut(&snapshot).await?;
            this.group_snapshot(&named.name)
        })
        .await
    }

    /// Of which group, and which volumes.
    fn to_cut(&self, asked: &NewGroupSnapshot) -> Answer<(String, Vec<v1::VolumeRef>)> {
        let (group, members) = match (&asked.group, asked.volumes.is_empty()) {
            (Some(id), true) => {
                let group = self.find::<v1::VolumeGroup>(id)?;
                (group.name.clone(), group.members.clone())
            }
            (None, false) => (String::new(), self.members(&asked.volumes)?),
            _ => return Err(ApiError::invalid("volumes", "name either a group or volumes")),
        };
        if members.is_empty() {
            return Err(ApiError::invalid("group", "it has no members"));
        }
        if members.len() > GROUP_MAX {
            let message =
                format!("{} were given, and a group has at most {GROUP_MAX}", members.len());
            return Err(ApiError::invalid("volumes", message));
        }
        for member in &members {
            check_proof(&*self.usable(&member.name)?, asked.credential.as_ref())?;
        }
        Ok((group, members))
    }

    /// The intent; or what is there of the same, if it is whole.
    async fn intend_cut(&self, wanted: v1::VolumeGroupSnapshot) -> Answer<v1::VolumeGroupSnapshot> {
        let name = wanted.name.clone();
        if let Some((_, found)) = self.fresh::<v1::VolumeGroupSnapshot>(&name).await? {
            if found.deleting {
                return Err(ApiError::busy(v1::VolumeGroupSnapshot::NOUN, &name));
            }
            let of = |it: &v1::VolumeGroupSnapshot| -> Vec<v1::VolumeRef> {
                it.cuts.iter().filter_map(|cut| cut.volume.clone()).collect()
            };
            let same = found.title == wanted.title
                && found.parameters == wanted.parameters
                && is_same_set(&of(&found), &of(&wanted));
            if !same {
                let message =
                    format!("there is a group snapshot `{name}` already, of something else");
                return Err(ApiError::new(Code::AlreadyExists, message));
            }
            if found.ready {
                return Ok(found);
            }
            // A part of a cut is worth nothing: it is made anew.
            self.undo_cut(&found).await?;
        }
        let stored = self.swap(0, wanted.clone()).await?;
        stored.map(|_| wanted).ok_or_else(|| ApiError::busy("group snapshot", &name))
    }

    async fn make_cut(&self, snapshot: &v1::VolumeGroupSnapshot) -> Answer<()> {
        if !snapshot.ready {
            self.site.fault(faults::CUT_INTENDED).await;
            if let Err(error) = self.cut_and_commit(snapshot).await {
                return Err(match self.undo_cut(snapshot).await {
                    Ok(()) => error,
                    Err(left) => {
                        ApiError { message: format!("{error}; it goes later: {left}"), ..error }
                    }
                });
            }
        }
        self.list_cut(&snapshot.name).await
    }

    async fn cut_and_commit(&self, snapshot: &v1::VolumeGroupSnapshot) -> Answer<()> {
        let member = |cut: &v1::GroupCut| Member {
            volume: cut.volume.clone().unwrap_or_default(),
            spec: v1::SnapshotSpec {
                uid: cut.snapshot.clone(),
                name: cut.snapshot_name.clone(),
                created_ms: snapshot.created_ms,
            },
        };
        let members: Vec<Member> = snapshot.cuts.iter().map(member).collect();
        let cut = self.cut(&members).await?;
        let sizes = members.iter().zip(&cut.at).map(|(member, at)| self.size_at(member, *at));
        let sizes = try_join_all(sizes).await?;
        self.edit::<v1::VolumeGroupSnapshot>(&snapshot.name, &snapshot.uid, |it| {
            for (of, (at, size)) in it.cuts.iter_mut().zip(cut.at.iter().zip(&sizes)) {
                (of.at, of.size) = (Some(*at), *size);
            }
            it.hold_us = cut.hold_us;
            it.ready = true;
            Ok(())
        })
        .await?;
        Ok(())
    }

    async fn size_at(&self, member: &Member, at: v1::Position) -> Answer<u64> {
        let found = self.site.known(&member.volume.name).await?;
        let snapshot = v1::Snapshot {
            uid: member.spec.uid.clone(),
            name: member.spec.name.clone(),
            position: Some(at),
            ..v1::Snapshot::default()
        };
        Ok(self.site.size_of(&found, &snapshot).await?)
    }

    /// Its parts as snapshots of their own, once it is whole.
    pub(super) async fn list_cut(&self, name: &str) -> Answer<()> {
        let found = self.fresh::<v1::VolumeGroupSnapshot>(name).await?;
        let Some((_, whole)) = found.filter(|(_, it)| it.ready && !it.deleting) else {
            return Ok(());
        };
        let there = |cut: &&v1::GroupCut| cut.volume.as_ref().is_some_and(|it| self.exists(it));
        for cut in whole.cuts.iter().filter(there) {
            let snapshot = v1::VolumeSnapshot {
                uid: cut.snapshot.clone(),
                name: cut.snapshot_name.clone(),
                volume: cut.volume.clone(),
                created_ms: whole.created_ms,
                at: cut.at,
                size: cut.size,
                group_snapshot: whole.name.clone(),
                group_snapshot_uid: whole.uid.clone(),
                parameters: whole.parameters.clone(),
                ..v1::VolumeSnapshot::default()
            };
            // There already: listed before.
            self.swap(0, snapshot).await?;
            self.site.fault(faults::CUT_LISTED).await;
        }
        Ok(())
    }

    pub async fn delete_group_snapshot(self: &Arc<Self>, id: &str, proof: Proof) -> Answer<Done> {
        let Some(found) = self.books.get::<v1::VolumeGroupSnapshot>(id) else { return Ok(Done {}) };
        let mut things = vec![(Kind::GroupSnapshot, found.name.clone())];
        for cut in &found.cuts {
            let of = cut.volume.clone().unwrap_or_default();
            self.uid_not_lost(&of.name, &of.uid)?;
            if let Some(volume) =
                self.books.get::<v1::Volume>(&of.name).filter(|it| it.uid == of.uid)
            {
                check_proof(&volume, proof.credential.as_ref())?;
                things.push((Kind::Volume, of.name));
            }
        }
        let this = Arc::clone(self);
        self.run(things, async move {
            this.undo_cut(&found).await?;
            Ok(Done {})
        })
        .await
    }

    /// Takes a group snapshot away, however far it came. Parts that something was cloned from stay, and
    /// nobody sees them.
    pub(super) async fn undo_cut(&self, snapshot: &v1::VolumeGroupSnapshot) -> Answer<()> {
        let edited = self.edit::<v1::VolumeGroupSnapshot>(&snapshot.name, &snapshot.uid, |it| {
            it.deleting = true;
            Ok(())
        });
        match edited.await {
            Ok(_) => {}
            Err(gone) if gone.code == Code::NotFound => return Ok(()),
            Err(error) => return Err(error),
        }
        self.site.fault(faults::CUT_UNWANTED).await;
        for cut in &snapshot.cuts {
            self.undo_part(cut).await?;
            self.site.fault(faults::CUT_MEMBER_GONE).await;
        }
        while let Some((version, found)) =
            self.fresh::<v1::VolumeGroupSnapshot>(&snapshot.name).await?
        {
            let (is_it, name) = (found.uid == snapshot.uid, &snapshot.name);
            if !is_it || self.remove::<v1::VolumeGroupSnapshot>(version, name).await?.is_some() {
                break;
            }
        }
        Ok(())
    }

    async fn undo_part(&self, cut: &v1::GroupCut) -> Answer<()> {
        let listed = self.fresh::<v1::VolumeSnapshot>(&cut.snapshot_name).await?;
        if let Some((_, listed)) = listed.filter(|(_, it)| it.uid == cut.snapshot) {
            return match self.unwant_snapshot(&listed).await? {
                Some(unwanted) => self.drop_snapshot(&unwanted).await,
                None => Ok(()),
            };
        }
        let of = cut.volume.clone().unwrap_or_default();
        let volume = self.site.volume(&of.name).await?;
        if volume.is_none_or(|it| it.volume.uid != of.uid || it.volume.deleting) {
            return Ok(());
        }
        self.take_away(&of.name, &cut.snapshot).await
    }
}

fn is_same_set(a: &[v1::VolumeRef], b: &[v1::VolumeRef]) -> bool {
    a.len() == b.len() && a.iter().all(|it| b.contains(it))
}

/// The part's name tells what it belongs to, and its uid makes it unlike others.
fn cut_of(volume: v1::VolumeRef, name: &str) -> v1::GroupCut {
    let snapshot = new_uid();
    let beginning: String = name.chars().take(40).collect();
    let snapshot_name = format!("{beginning}-{}", &hex::encode(&snapshot)[..16]);
    v1::GroupCut { volume: Some(volume), snapshot_name, snapshot, ..v1::GroupCut::default() }
}

/// Of the volume that a known group snapshot has; kept here so that both lists agree.
pub(super) fn parts(
    controller: &Controller,
    snapshot: &Known<v1::VolumeGroupSnapshot>,
) -> Vec<Known<v1::VolumeSnapshot>> {
    let part = |cut: &v1::GroupCut| controller.books.get::<v1::VolumeSnapshot>(&cut.snapshot_name);
    snapshot.cuts.iter().filter_map(part).collect()
}
