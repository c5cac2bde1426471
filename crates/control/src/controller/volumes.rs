//! Volumes: made, grown, changed, deleted, as somebody asks for it.
use std::sync::Arc;

use proto::v1;

use super::books::Known;
use super::room::wanted_of;
use super::shape::{Shape, check_proof, check_replicas, sized};
use super::{Answer, Controller};
use crate::api::types::{Done, Modify, Move, NewVolume, Proof, Resize, Rollback, Source, Volume};
use crate::api::{ApiError, Code};
use crate::hex;
use crate::steps::faults;
use crate::steps::{Found, Left, Manner, NewClone, has_votes};

/// How often another node is tried when one is away that was chosen.
const TRIES: usize = 3;

fn thing(name: &str) -> (v1::Kind, String) {
    (v1::Kind::Volume, name.into())
}

impl Controller {
    pub async fn create_volume(self: &Arc<Self>, asked: NewVolume) -> Answer<Volume> {
        let shape = Shape::of(asked)?;
        let mut things = vec![thing(&shape.named.name)];
        if let Some(Source::Volume { id }) = &shape.asked.source {
            things.push(thing(&self.find::<v1::Volume>(id)?.name));
        }
        let this = Arc::clone(self);
        self.run(things, async move { this.create(&shape).await }).await
    }

    async fn create(&self, shape: &Shape) -> Answer<Volume> {
        let name = &shape.named.name;
        let group = shape.asked.group.as_deref();
        let group = group.map(|id| self.group_with_room(id)).transpose()?;
        let (found, is_new) = match self.site.volume(name).await? {
            Some(found) => {
                self.uid_not_lost(name, &found.volume.uid)?;
                self.same(shape, &found.volume)?;
                (found, false)
            }
            None => {
                self.unknown_not_lost(name)?;
                (self.intend(shape).await?, true)
            }
        };
        let made = match self.finish(&found.volume).await {
            Ok(made) => made,
            // What was there before may have content.
            Err(error) if is_new => return Err(self.undo(&found.volume, error).await),
            Err(error) => return Err(error),
        };
        if let Some(group) = group {
            self.enter_group(&group, &made.volume).await?;
        }
        self.volume(name)
    }

    /// What is there is what is asked for.
    fn same(&self, shape: &Shape, found: &v1::Volume) -> Answer<()> {
        let name = &shape.asked.name;
        if found.deleting {
            let message =
                format!("the volume `{name}` is being deleted: ask again when it is gone");
            return Err(ApiError::new(Code::Busy, message));
        }
        check_proof(found, shape.asked.chap.as_ref())?;
        let differs = shape.differs_from(found).or_else(|| self.source_differs(shape, found));
        match differs {
            None => Ok(()),
            Some(field) => {
                let message = format!("there is a volume `{name}` already, with another {field}");
                Err(ApiError {
                    field: Some(field.into()),
                    ..ApiError::new(Code::AlreadyExists, message)
                })
            }
        }
    }

    fn source_differs(&self, shape: &Shape, found: &v1::Volume) -> Option<&'static str> {
        let origin = found.origin.as_ref();
        let same = match &shape.asked.source {
            None => origin.is_none(),
            Some(Source::Snapshot { id }) => {
                let snapshot = self.books.get::<v1::VolumeSnapshot>(id);
                let uid = snapshot.map(|it| it.uid.clone()).or_else(|| hex::decode(id));
                uid.is_some() && uid == origin.map(|origin| origin.snapshot.clone())
            }
            Some(Source::Volume { id }) => {
                let volume = self.books.get::<v1::Volume>(id);
                let of = origin.and_then(|origin| origin.volume.as_ref());
                let is_copy = origin.is_some_and(|it| it.snapshot_name == copy_name(&found.uid));
                is_copy && volume.is_some_and(|it| of.is_some_and(|of| of.uid == it.uid))
            }
        };
        (!same).then_some("source")
    }

    /// Everything that can be wrong is looked at before anything is stored.
    async fn intend(&self, shape: &Shape) -> Answer<Found> {
        let mut uid = vec![0; 16];
        certs::random(&mut uid);
        let volume = match &shape.asked.source {
            None => {
                let mut volume = shape.volume(uid);
                let chosen = self.choose(&self.wanted(shape))?;
                volume.places = places(&chosen);
                volume
            }
            Some(source) => {
                let snapshot = self.origin(source, &uid).await?;
                self.plan_clone(shape, &snapshot, uid).await?
            }
        };
        Ok(self.site.intend(&volume).await?)
    }

    async fn plan_clone(
        &self,
        shape: &Shape,
        snapshot: &v1::VolumeSnapshot,
        uid: Vec<u8>,
    ) -> Answer<v1::Volume> {
        let of = snapshot.volume.clone().unwrap_or_default();
        let source = self.find::<v1::Volume>(&of.name)?;
        // Whoever may not use the source may not use a copy of it either.
        if source.chap.is_some() {
            check_proof(&source, shape.asked.chap.as_ref())?;
        }
        let size = sized(shape.asked.size, None, source.block_size, snapshot.size)?;
        if shape.size_limit.is_some_and(|limit| limit < snapshot.size) {
            let message =
                format!("the source has {} bytes, which is above the limit", snapshot.size);
            return Err(ApiError {
                field: Some("sizeLimit".into()),
                ..ApiError::new(Code::OutOfRange, message)
            });
        }
        let size = match shape.asked.size {
            0 => None,
            _ if size < snapshot.size => {
                let message = format!(
                    "the source has {} bytes: a volume of {size} is too small",
                    snapshot.size
                );
                return Err(ApiError {
                    field: Some("size".into()),
                    ..ApiError::new(Code::OutOfRange, message)
                });
            }
            _ => Some(size),
        };
        let wanted = NewClone {
            name: shape.named.name.clone(),
            uid: uid.as_slice().try_into().expect("a uid has 16 bytes"),
            source: of.name,
            snapshot: snapshot.name.clone(),
            size,
        };
        let mut volume = self.site.plan_clone(&wanted).await?;
        if shape.asked.block_size.is_some_and(|block_size| block_size != volume.block_size) {
            let problem = format!("a copy has that of its source, {}", volume.block_size);
            return Err(ApiError::invalid("blockSize", problem));
        }
        let compression = shape.asked.compression.as_ref();
        if compression.is_some_and(|compression| *compression != volume.compression) {
            let problem = format!("a copy has that of its source, {}", volume.compression);
            return Err(ApiError::invalid("compression", problem));
        }
        let (chap, allowed) = (volume.chap.clone(), volume.allowed_initiators.clone());
        let attached_only = volume.attached_only;
        shape.dress(&mut volume);
        volume.chap = volume.chap.or(chap);
        volume.allowed_initiators = allowed;
        volume.attached_only |= attached_only;
        Ok(volume)
    }

    /// Replicas, votes, target. Whatever is done already is not done again.
    pub(super) async fn finish(&self, volume: &v1::Volume) -> Answer<Found> {
        let mut tries = 0;
        let made = loop {
            let found = self.site.known(&volume.name).await?;
            let made = match found.volume.origin.is_some() {
                true => self.site.make_clone(&found).await,
                false => self.site.make(&found).await,
            };
            let error = match made {
                Ok(made) => break made,
                Err(error) => ApiError::from(error),
            };
            tries += 1;
            let elsewhere = error.code == Code::Unavailable && tries < TRIES;
            if !elsewhere || !self.place_elsewhere(&found.volume).await? {
                return Err(error);
            }
        };
        self.serve(&made.volume).await?;
        Ok(made)
    }

    /// It cannot be made, and will not be: nothing of it stays.
    pub(super) async fn undo(&self, volume: &v1::Volume, error: ApiError) -> ApiError {
        if error.may_retry() && error.code != Code::OutOfSpace {
            return error;
        }
        let away = |node| self.presence(node).is_away();
        // With votes it may have content.
        let fresh = self.site.volume(&volume.name).await;
        let is_unmade = |it: &Found| it.volume.uid == volume.uid && !has_votes(&it.volume);
        if !fresh.is_ok_and(|found| found.as_ref().is_some_and(is_unmade)) {
            return error;
        }
        // Care goes on with it if this does not work out: it is marked as on its way out by then.
        let left = self.site.delete_this(volume, Manner::Controlled { away: &away }).await;
        match left {
            Ok(_) => error,
            Err(left) => {
                let message = format!("{error}; what was made of it goes later: {left}");
                ApiError { message, ..error }
            }
        }
    }

    /// Replicas that were never made move from nodes that are away. Whether any did.
    async fn place_elsewhere(&self, volume: &v1::Volume) -> Answer<bool> {
        if volume.origin.is_some() {
            return Ok(false);
        }
        let is_gone = |place: &v1::Place| !self.answers(place.node);
        let gone: Vec<v1::Place> = volume.places.iter().filter(|it| is_gone(it)).cloned().collect();
        if gone.is_empty() {
            return Ok(false);
        }
        let mut wanted = wanted_of(volume, gone.len());
        wanted.taken = volume.places.iter().map(|place| place.node).collect();
        let chosen = self.choose(&wanted)?;
        self.edit::<v1::Volume>(&volume.name, &volume.uid, |volume| {
            let last = volume.places.iter().map(|place| place.replica).max().unwrap_or(0);
            volume.places.retain(|place| !gone.contains(place));
            let new = (last + 1..).zip(&chosen);
            volume.places.extend(new.map(|(replica, (node, pool))| v1::Place {
                replica,
                node: *node,
                pool: pool.clone(),
            }));
            Ok(())
        })
        .await?;
        Ok(true)
    }

    /// It was heard of since something went wrong a moment ago.
    fn answers(&self, node: u64) -> bool {
        self.presence(node).is_here() && self.pulse.trouble(node).is_empty()
    }

    pub async fn delete_volume(self: &Arc<Self>, id: &str, proof: Proof) -> Answer<Done> {
        let Some(found) = self.books.get::<v1::Volume>(id) else {
            return self.unknown_not_lost(id).map(|()| Done {});
        };
        self.uid_not_lost(&found.name, &found.uid)?;
        let (this, things) = (Arc::clone(self), vec![thing(&found.name)]);
        self.run(things, async move {
            let Some((_, volume)) = this.fresh::<v1::Volume>(&found.name).await? else {
                return Ok(Done {});
            };
            if volume.uid != found.uid {
                return Ok(Done {});
            }
            check_proof(&volume, proof.credential.as_ref())?;
            this.may_delete(&volume)?;
            let away = |node| this.presence(node).is_away();
            match this.site.delete_this(&volume, Manner::Controlled { away: &away }).await? {
                // Nobody can use it any more; the rest goes when those nodes are back.
                Left::Nothing | Left::Replicas { .. } | Left::Changed => {}
            }
            this.leave_groups(&volume).await?;
            Ok(Done {})
        })
        .await
    }

    fn may_delete(&self, volume: &v1::Volume) -> Answer<()> {
        let name = &volume.name;
        let in_use = |message: String| Err(ApiError::new(Code::InUse, message));
        if let Some(attachment) = volume.attachments.first() {
            let host = &attachment.host;
            return in_use(format!("the volume `{name}` is attached to `{host}`: detach it first"));
        }
        let snapshots = self.books.all::<v1::VolumeSnapshot>();
        let is_of = |it: &&Known<v1::VolumeSnapshot>| {
            it.volume.as_ref().is_some_and(|of| of.uid == volume.uid)
                && !it.deleting
                && it.owner.is_empty()
        };
        let names: Vec<&str> = snapshots.iter().filter(is_of).map(|it| it.name.as_str()).collect();
        match names.is_empty() {
            true => Ok(()),
            false => in_use(format!(
                "the volume `{name}` has snapshots, which go first: {}",
                names.join(", ")
            )),
        }
    }

    pub async fn resize_volume(self: &Arc<Self>, id: &str, to: Resize) -> Answer<Volume> {
        let found = self.find::<v1::Volume>(id)?;
        let this = Arc::clone(self);
        self.run(vec![thing(&found.name)], async move {
            check_proof(&found, to.credential.as_ref())?;
            let size = sized(to.size, to.size_limit, found.block_size, found.size)?;
            let has = found.size.max(found.wanted_size);
            if size <= has && to.size_limit.is_some_and(|limit| limit < has) {
                let message = format!("it has {has} bytes already, and a volume never shrinks");
                return Err(ApiError {
                    field: Some("size".into()),
                    ..ApiError::new(Code::OutOfRange, message)
                });
            }
            if size > has {
                this.has_room_to_grow(&found, size - has)?;
                this.edit::<v1::Volume>(&found.name, &found.uid, |volume| {
                    volume.wanted_size = volume.wanted_size.max(size);
                    this.not_deleting(volume)
                })
                .await?;
            }
            this.site.fault(faults::GROWTH_INTENDED).await;
            this.grow(&found.name).await?;
            this.volume(&found.name)
        })
        .await
    }

    fn not_deleting(&self, volume: &v1::Volume) -> Answer<()> {
        match volume.deleting {
            false => Ok(()),
            true => Err(ApiError::not_found("volume", &volume.name)),
        }
    }

    /// To the size that is wanted.
    pub(super) async fn grow(&self, name: &str) -> Answer<()> {
        let found = self.site.known(name).await?;
        match found.volume.wanted_size {
            wanted if wanted > found.volume.size => Ok(self.site.resize(name, wanted).await?),
            _ => Ok(()),
        }
    }

    pub async fn modify_volume(self: &Arc<Self>, id: &str, to: Modify) -> Answer<Volume> {
        let found = self.find::<v1::Volume>(id)?;
        if let Some(replicas) = to.replicas {
            check_replicas(replicas)?;
        }
        let this = Arc::clone(self);
        self.run(vec![thing(&found.name)], async move {
            check_proof(&found, to.credential.as_ref())?;
            this.edit::<v1::Volume>(&found.name, &found.uid, |volume| {
                volume.replicas = to.replicas.unwrap_or(volume.replicas);
                volume.hold_deadline_ms = to.hold_deadline_ms.unwrap_or(volume.hold_deadline_ms);
                volume.zvol_workers = to.zvol_workers.unwrap_or(volume.zvol_workers);
                this.not_deleting(volume)
            })
            .await?;
            this.volume(&found.name)
        })
        .await
    }

    pub async fn move_volume(self: &Arc<Self>, id: &str, to: Move) -> Answer<Volume> {
        let found = self.find::<v1::Volume>(id)?;
        let node = self.find::<v1::Node>(&to.node)?;
        let this = Arc::clone(self);
        self.run(vec![thing(&found.name)], async move {
            if !this.presence(node.id).is_here() {
                let message = format!("the node `{}` is away", node.name);
                return Err(ApiError::new(Code::Unavailable, message));
            }
            this.serve_on(&found, &node).await?;
            this.volume(&found.name)
        })
        .await
    }

    pub async fn roll_back_volume(self: &Arc<Self>, id: &str, to: Rollback) -> Answer<Volume> {
        let found = self.find::<v1::Volume>(id)?;
        let snapshot = self.find::<v1::VolumeSnapshot>(&to.snapshot)?;
        if snapshot.volume.as_ref().is_none_or(|of| of.uid != found.uid) {
            return Err(ApiError::invalid("snapshot", "it is one of another volume"));
        }
        let this = Arc::clone(self);
        self.run(vec![thing(&found.name)], async move {
            if let Some(attachment) = found.attachments.first() {
                let message = format!(
                    "the volume is attached to `{}`, which would not know that its content changed: detach it first",
                    attachment.host
                );
                return Err(ApiError::new(Code::InUse, message));
            }
            this.site.rollback(&found.name, snapshot.uid.clone()).await?;
            this.volume(&found.name)
        })
        .await
    }
}

/// The snapshot that a copy of a whole volume begins as.
pub(super) fn copy_name(copy: &[u8]) -> String {
    format!("copy-{}", hex::encode(copy))
}

/// Numbers of replicas begin at 1.
fn places(chosen: &[(u64, String)]) -> Vec<v1::Place> {
    let place = |(replica, (node, pool)): (u64, &(u64, String))| v1::Place {
        replica,
        node: *node,
        pool: pool.clone(),
    };
    (1..).zip(chosen).map(place).collect()
}
