//! Snapshots: taken, deleted, looked into.
use std::sync::Arc;

use proto::v1;

use super::books::{Kept, Known};
use super::names::{Named, named};
use super::shape::check_proof;
use super::{Answer, Controller, now_ms};
use crate::api::types::{Done, Extent, Extents, NewSnapshot, Proof, Snapshot, Source};
use crate::api::{ApiError, Code};
use crate::steps::faults;

type Kind = v1::Kind;

impl Controller {
    pub async fn create_snapshot(self: &Arc<Self>, asked: NewSnapshot) -> Answer<Snapshot> {
        let named = named(&asked.name)?;
        let volume = self.usable(&asked.volume)?;
        check_proof(&volume, asked.credential.as_ref())?;
        let things =
            vec![(Kind::Snapshot, named.name.clone()), (Kind::Volume, volume.name.clone())];
        let this = Arc::clone(self);
        self.run(things, async move {
            let wanted = new_snapshot(&volume, &named, asked.parameters);
            let snapshot = match this.fresh::<v1::VolumeSnapshot>(&named.name).await? {
                Some((_, found)) => same(&found, &wanted)?,
                None => this.intend_snapshot(wanted).await?,
            };
            this.make_snapshot(&snapshot).await?;
            this.snapshot(&named.name)
        })
        .await
    }

    /// A volume that people see.
    pub(super) fn usable(&self, id: &str) -> Answer<Known<v1::Volume>> {
        let volume = self.find::<v1::Volume>(id)?;
        match volume.deleting {
            false => Ok(volume),
            true => Err(ApiError::not_found("volume", id)),
        }
    }

    pub(super) async fn intend_snapshot(
        &self,
        snapshot: v1::VolumeSnapshot,
    ) -> Answer<v1::VolumeSnapshot> {
        let name = snapshot.name.clone();
        match self.swap(0, snapshot.clone()).await? {
            Some(_) => Ok(snapshot),
            None => Err(ApiError::busy("snapshot", &name)),
        }
    }

    /// Takes it, unless that was done, and stores where it is. One that cannot be taken is not kept.
    pub(super) async fn make_snapshot(
        &self,
        snapshot: &v1::VolumeSnapshot,
    ) -> Answer<v1::VolumeSnapshot> {
        self.site.fault(faults::SNAPSHOT_INTENDED).await;
        if snapshot.at.is_some() {
            return Ok(snapshot.clone());
        }
        match self.take_snapshot(snapshot).await {
            Ok(made) => Ok(made),
            Err(error) => Err(match self.forget_snapshot(snapshot).await {
                Ok(()) => error,
                Err(left) => {
                    ApiError { message: format!("{error}; it goes later: {left}"), ..error }
                }
            }),
        }
    }

    async fn take_snapshot(&self, snapshot: &v1::VolumeSnapshot) -> Answer<v1::VolumeSnapshot> {
        let of = snapshot.volume.clone().unwrap_or_default();
        let spec = v1::SnapshotSpec {
            uid: snapshot.uid.clone(),
            name: snapshot.name.clone(),
            created_ms: snapshot.created_ms,
        };
        let made = self.site.snapshot(&of.name, spec).await?;
        self.site.fault(faults::SNAPSHOT_MADE).await;
        let found = self.site.known(&of.name).await?;
        let size = self.site.size_of(&found, &made).await?;
        self.edit::<v1::VolumeSnapshot>(&snapshot.name, &snapshot.uid, |it| {
            (it.at, it.size) = (made.position, size);
            Ok(())
        })
        .await
    }

    /// What a new volume begins as: a snapshot that there is, or one that is made for it.
    pub(super) async fn origin(&self, source: &Source, owner: &[u8]) -> Answer<v1::VolumeSnapshot> {
        match source {
            Source::Snapshot { id } => {
                let snapshot = self.find::<v1::VolumeSnapshot>(id)?;
                let is_hidden = snapshot.deleting || !snapshot.owner.is_empty();
                match (is_hidden, snapshot.at) {
                    (true, _) => Err(ApiError::not_found("snapshot", id)),
                    (false, None) => {
                        let message = format!("the snapshot `{id}` is not ready yet: ask again");
                        Err(ApiError::new(Code::Unavailable, message))
                    }
                    (false, Some(_)) => Ok(v1::VolumeSnapshot::clone(&snapshot)),
                }
            }
            Source::Volume { id } => {
                let volume = self.usable(id)?;
                let name = super::volumes::copy_name(owner);
                let named = Named { name, title: String::new() };
                let mut wanted = new_snapshot(&volume, &named, Default::default());
                wanted.owner = owner.to_vec();
                let snapshot = self.intend_snapshot(wanted).await?;
                self.make_snapshot(&snapshot).await
            }
        }
    }

    /// Nobody sees it from now on. It goes at once, or when nothing was cloned from it any more.
    pub async fn delete_snapshot(self: &Arc<Self>, id: &str, proof: Proof) -> Answer<Done> {
        let Some(found) = self.books.get::<v1::VolumeSnapshot>(id) else { return Ok(Done {}) };
        if !found.group_snapshot.is_empty() && !found.deleting {
            let message = format!(
                "the snapshot `{}` is a part of the group snapshot `{}`: delete that",
                found.name, found.group_snapshot
            );
            return Err(ApiError::new(Code::InUse, message));
        }
        let of = found.volume.clone().unwrap_or_default();
        self.uid_not_lost(&of.name, &of.uid)?;
        if let Some(volume) = self.books.get::<v1::Volume>(&of.name).filter(|it| it.uid == of.uid) {
            check_proof(&volume, proof.credential.as_ref())?;
        }
        let things = vec![(Kind::Snapshot, found.name.clone()), (Kind::Volume, of.name)];
        let this = Arc::clone(self);
        self.run(things, async move {
            let unwanted = this.unwant_snapshot(&found).await?;
            if let Some(unwanted) = unwanted {
                this.site.fault(faults::SNAPSHOT_UNWANTED).await;
                this.drop_snapshot(&unwanted).await?;
            }
            Ok(Done {})
        })
        .await
    }

    /// `None`: it is gone already.
    pub(super) async fn unwant_snapshot(
        &self,
        snapshot: &v1::VolumeSnapshot,
    ) -> Answer<Option<v1::VolumeSnapshot>> {
        let unwanted = self.edit::<v1::VolumeSnapshot>(&snapshot.name, &snapshot.uid, |it| {
            it.deleting = true;
            Ok(())
        });
        match unwanted.await {
            Ok(unwanted) => Ok(Some(unwanted)),
            Err(error) if error.code == Code::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Volumes that began as it, and still need it.
    pub(super) fn has_clones(&self, snapshot: &v1::VolumeSnapshot) -> bool {
        let is_clone = |it: &Known<v1::Volume>| {
            it.origin.as_ref().is_some_and(|origin| origin.snapshot == snapshot.uid)
        };
        self.books.all::<v1::Volume>().iter().any(is_clone)
    }

    /// Takes a snapshot away that nobody sees, unless something was cloned from it.
    pub(super) async fn drop_snapshot(&self, snapshot: &v1::VolumeSnapshot) -> Answer<()> {
        match self.has_clones(snapshot) {
            true => Ok(()),
            false => self.forget_snapshot(snapshot).await,
        }
    }

    /// Deletes a snapshot of a volume, unless it is gone: only who serves the volume can tell.
    pub(super) async fn take_away(&self, volume: &str, snapshot: &[u8]) -> Answer<()> {
        let deleted = self.site.delete_snapshot(volume, snapshot.to_vec()).await;
        let missing = match deleted.map_err(ApiError::from) {
            Ok(()) => return Ok(()),
            Err(error) if error.code == Code::NotFound => error,
            Err(error) => return Err(error),
        };
        match self.site.target(volume).await {
            Ok(target) if target.serving => Ok(()),
            Ok(_) | Err(_) => Err(ApiError::new(Code::Unavailable, missing.message)),
        }
    }

    /// Content first, then the object.
    async fn forget_snapshot(&self, snapshot: &v1::VolumeSnapshot) -> Answer<()> {
        let of = snapshot.volume.clone().unwrap_or_default();
        let volume = self.site.volume(&of.name).await?;
        // With its volume it went, or goes.
        if volume.is_some_and(|it| it.volume.uid == of.uid && !it.volume.deleting) {
            self.take_away(&of.name, &snapshot.uid).await?;
        }
        self.site.fault(faults::SNAPSHOT_GONE).await;
        while let Some((version, found)) = self.fresh::<v1::VolumeSnapshot>(&snapshot.name).await? {
            let is_it = found.uid == snapshot.uid;
            if !is_it || self.remove::<v1::VolumeSnapshot>(version, &snapshot.name).await?.is_some()
            {
                break;
            }
        }
        Ok(())
    }

    /// One whose making was interrupted: it is there, or it will not be. Taken now it would be of a
    /// moment that nobody asked for.
    pub(super) async fn settle_snapshot(&self, snapshot: &v1::VolumeSnapshot) -> Answer<()> {
        let of = snapshot.volume.clone().unwrap_or_default();
        let Some(found) = self.site.volume(&of.name).await?.filter(|it| it.volume.uid == of.uid)
        else {
            return self.forget_snapshot(snapshot).await;
        };
        let taken = self.site.snapshots(&of.name).await?;
        match taken.into_iter().find(|it| it.uid == snapshot.uid) {
            None => self.forget_snapshot(snapshot).await,
            Some(taken) => {
                let size = self.site.size_of(&found, &taken).await?;
                self.edit::<v1::VolumeSnapshot>(&snapshot.name, &snapshot.uid, |it| {
                    (it.at, it.size) = (taken.position, size);
                    Ok(())
                })
                .await?;
                Ok(())
            }
        }
    }

    /// What a snapshot has, or what changed since an earlier one of the same volume.
    pub async fn extents(
        &self,
        id: &str,
        base: Option<&str>,
        from: u64,
        limit: u32,
    ) -> Answer<Extents> {
        let snapshot = self.ready(id)?;
        let base = base.map(|id| self.ready(id)).transpose()?;
        if let Some(base) = &base {
            if base.volume != snapshot.volume {
                return Err(ApiError::invalid("base", "it is a snapshot of another volume"));
            }
            let seq = |it: &v1::VolumeSnapshot| it.at.map_or(0, |at| at.seq);
            if seq(base) > seq(&snapshot) {
                return Err(ApiError::invalid("base", "it is newer than the snapshot"));
            }
        }
        if from > snapshot.size {
            let message = format!("{from} is beyond the size of the snapshot, {}", snapshot.size);
            return Err(ApiError {
                field: Some("from".into()),
                ..ApiError::new(Code::OutOfRange, message)
            });
        }
        let request = v1::ListExtentsRequest {
            volume: snapshot.volume.clone(),
            snapshot: snapshot.uid.clone(),
            at: snapshot.at,
            base: base.as_ref().map(|base| base.uid.clone()).unwrap_or_default(),
            base_at: base.as_ref().and_then(|base| base.at),
            from,
            limit,
        };
        self.ask_replicas(&snapshot, request).await
    }

    fn ready(&self, id: &str) -> Answer<Known<v1::VolumeSnapshot>> {
        let snapshot = self.find::<v1::VolumeSnapshot>(id)?;
        match snapshot.at.is_some() && !snapshot.deleting {
            true => Ok(snapshot),
            false => Err(ApiError::not_found("snapshot", id)),
        }
    }

    /// Whoever has a replica with the snapshot can tell.
    pub(super) async fn ask_replicas(
        &self,
        snapshot: &v1::VolumeSnapshot,
        request: v1::ListExtentsRequest,
    ) -> Answer<Extents> {
        let of = snapshot.volume.clone().unwrap_or_default();
        let volume = self.look_up::<v1::Volume>(&of.name)?;
        let nodes: Vec<String> =
            volume.places.iter().map(|place| format!("`{}`", self.node_name(place.node))).collect();
        let message = format!(
            "the snapshot `{}` is on {}, which cannot be reached: start one of them",
            snapshot.name,
            nodes.join(", ")
        );
        let mut last = ApiError::new(Code::Unavailable, message);
        for place in &volume.places {
            let node = self.books.node(place.node).filter(|it| self.presence(it.id).is_here());
            let Some(node) = node else { continue };
            match self.site.admin(&node)?.list_extents(request.clone()).await {
                Ok(told) => return Ok(extents(told.into_inner())),
                Err(status) => match ApiError::from(status) {
                    wrong if wrong.code == Code::Invalid => return Err(wrong),
                    behind => last = ApiError::new(Code::Unavailable, behind.message),
                },
            }
        }
        Err(last)
    }
}

fn extents(told: v1::ListExtentsResponse) -> Extents {
    let extent = |it: &v1::Extent| Extent { offset: it.offset, len: it.len };
    Extents { extents: told.extents.iter().map(extent).collect(), size: told.size, next: told.next }
}

pub(super) fn new_uid() -> Vec<u8> {
    let mut uid = vec![0; 16];
    certs::random(&mut uid);
    uid
}

pub(super) fn new_snapshot(
    volume: &v1::Volume,
    named: &Named,
    parameters: crate::api::types::Pairs,
) -> v1::VolumeSnapshot {
    v1::VolumeSnapshot {
        uid: new_uid(),
        name: named.name.clone(),
        title: named.title.clone(),
        volume: Some(crate::steps::reference(volume)),
        created_ms: now_ms(),
        parameters,
        ..v1::VolumeSnapshot::default()
    }
}

/// The same is asked for again.
fn same(found: &v1::VolumeSnapshot, wanted: &v1::VolumeSnapshot) -> Answer<v1::VolumeSnapshot> {
    if found.deleting {
        return Err(ApiError::busy(v1::VolumeSnapshot::NOUN, &found.name));
    }
    let same =
        found.volume == wanted.volume && found.title == wanted.title && found.owner.is_empty();
    match same && found.group_snapshot.is_empty() {
        true => Ok(found.clone()),
        false => {
            let name = &found.name;
            let message = format!("there is a snapshot `{name}` already, of something else");
            Err(ApiError::new(Code::AlreadyExists, message))
        }
    }
}
