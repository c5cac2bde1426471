//! Volumes: made, grown, changed, deleted, as somebody asks for it.
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use proto::v1;

use super::books::Known;
use super::placement::{self, Candidate, NODE_KEY, Wanted};
use super::shape::{Shape, check_proof, check_replicas, sized};
use super::{Answer, Controller};
use crate::api::types::{
    Capacity, CapacityQuery, Done, Modify, Move, NewVolume, Proof, Resize, Rollback, Source, Volume,
};
use crate::api::{ApiError, Code};
use crate::hex;
use crate::steps::faults;
use crate::steps::{Found, Left, Manner, NewClone};

/// Between two questions whether a target serves.
const PAUSE: Duration = Duration::from_millis(10);
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
                self.same(shape, &found.volume)?;
                (found, false)
            }
            None => (self.intend(shape).await?, true),
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
    async fn undo(&self, volume: &v1::Volume, error: ApiError) -> ApiError {
        if error.may_retry() && error.code != Code::OutOfSpace {
            return error;
        }
        let away = |node| self.presence(node).is_away();
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

    /// Has it served by somebody, and waits until it is.
    pub(super) async fn serve(&self, volume: &v1::Volume) -> Answer<()> {
        let found = self.site.known(&volume.name).await?;
        let holder = found.volume.quorum.as_ref().map_or(0, |quorum| quorum.holder);
        if holder == 0 || self.presence(holder).is_away() {
            let on = self.server_for(&found.volume, None)?;
            self.site.serve(&volume.name, &on.name).await?;
        }
        self.wait_serving(&volume.name).await
    }

    async fn wait_serving(&self, name: &str) -> Answer<()> {
        let until = Instant::now() + self.settings.patience;
        loop {
            let asked = Instant::now();
            let why = match self.site.target(name).await {
                Ok(target) if target.serving => {
                    self.pulse.heard_target(target.node, asked, target);
                    return Ok(());
                }
                Ok(target) => target.held_because.unwrap_or_else(|| "it is not ready yet".into()),
                Err(error) => error.to_string(),
            };
            if Instant::now() > until {
                let message = format!("the volume `{name}` is not served yet: {why}");
                return Err(ApiError::new(Code::Unavailable, message));
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Where a target is best: with a replica that votes, in a node that is there, with the fewest
    /// others.
    pub(super) fn server_for(
        &self,
        volume: &v1::Volume,
        not: Option<u64>,
    ) -> Answer<Known<v1::Node>> {
        let membership = volume.quorum.as_ref().and_then(|quorum| quorum.membership.as_ref());
        let voters = membership.and_then(|membership| membership.voters.as_ref());
        let votes = |place: &&v1::Place| {
            voters.is_some_and(|it| it.members.iter().any(|it| it.replica == place.replica))
        };
        let mut load = std::collections::BTreeMap::<u64, usize>::new();
        for other in self.books.all::<v1::Volume>() {
            *load.entry(other.quorum.as_ref().map_or(0, |it| it.holder)).or_default() += 1;
        }
        let here = volume.places.iter().filter(votes).map(|place| place.node);
        let here = here.filter(|node| self.presence(*node).is_here() && Some(*node) != not);
        let best = here.min_by_key(|node| (load.get(node).copied().unwrap_or(0), *node));
        best.and_then(|node| self.books.node(node)).ok_or_else(|| {
            let message =
                format!("no node with a replica of `{}` that votes is there", volume.name);
            ApiError::new(Code::Unavailable, message)
        })
    }

    pub async fn delete_volume(self: &Arc<Self>, id: &str, proof: Proof) -> Answer<Done> {
        let Some(found) = self.books.get::<v1::Volume>(id) else { return Ok(Done {}) };
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

    fn has_room_to_grow(&self, volume: &v1::Volume, more: u64) -> Answer<()> {
        let candidates = self.candidates();
        for place in &volume.places {
            let is_it = |it: &&Candidate| it.node == place.node && it.pool == place.pool;
            let room = candidates.iter().find(is_it).map(|it| it.room.saturating_sub(it.promised));
            if let Some(room) = room.filter(|room| *room < more) {
                let pool = &place.pool;
                let message = format!(
                    "the pool `{pool}` of node {} has room for {room} more bytes, and {more} are needed",
                    place.node
                );
                return Err(ApiError::new(Code::OutOfSpace, message));
            }
        }
        Ok(())
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
            this.site.serve(&found.name, &node.name).await?;
            this.wait_serving(&found.name).await?;
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

    pub fn capacity(&self, of: &CapacityQuery) -> Answer<Capacity> {
        let replicas = of.replicas.unwrap_or(super::shape::REPLICAS_DEFAULT);
        check_replicas(replicas)?;
        let wanted = Wanted {
            count: usize::try_from(replicas).unwrap_or(usize::MAX),
            pools: of.pools.clone(),
            accessible: of.accessible.clone(),
            ..Wanted::default()
        };
        let (largest, available) = placement::capacity(&self.candidates(), &wanted);
        Ok(Capacity { available, largest, smallest: 4096 })
    }

    fn wanted(&self, shape: &Shape) -> Wanted {
        Wanted {
            count: usize::try_from(shape.replicas).unwrap_or(usize::MAX),
            size: shape.size,
            pools: shape.asked.pools.clone(),
            accessible: shape.asked.accessible.clone(),
            preferred: shape.asked.preferred.clone(),
            spread: shape.asked.spread.clone(),
            ..Wanted::default()
        }
    }

    pub(super) fn choose(&self, wanted: &Wanted) -> Answer<Vec<(u64, String)>> {
        placement::choose(&self.candidates(), wanted)
            .map_err(|no_room| ApiError::new(Code::OutOfSpace, no_room.to_string()))
    }

    /// Pools that are open, in nodes that are there and may have more.
    pub(super) fn candidates(&self) -> Vec<Candidate> {
        let mut promised = std::collections::BTreeMap::<(u64, String), u64>::new();
        for volume in self.books.all::<v1::Volume>() {
            for place in &volume.places {
                let size = volume.size.max(volume.wanted_size);
                *promised.entry((place.node, place.pool.clone())).or_default() += size;
            }
        }
        let mut candidates = Vec::new();
        for node in self.books.all::<v1::Node>() {
            if node.cordoned || !self.presence(node.id).is_here() {
                continue;
            }
            let Some(beat) = self.pulse.beat(node.id) else { continue };
            for pool in beat.pools.iter().filter(|it| it.state() == v1::PoolState::Open) {
                let usable = pool.size.saturating_sub(pool.reserved);
                let room = u128::from(usable) * u128::from(self.settings.overcommit_percent) / 100;
                let key = (node.id, pool.name.clone());
                let mut topology = node.topology.clone();
                topology.insert(NODE_KEY.into(), node.name.clone());
                candidates.push(Candidate {
                    node: node.id,
                    pool: pool.name.clone(),
                    topology,
                    room: u64::try_from(room).unwrap_or(u64::MAX),
                    promised: promised.get(&key).copied().unwrap_or(0),
                    free: pool.free.saturating_sub(pool.reserved),
                });
            }
        }
        candidates
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

/// More replicas of a volume that is there.
pub(super) fn wanted_of(volume: &v1::Volume, count: usize) -> Wanted {
    let placement = volume.placement.clone().unwrap_or_default();
    Wanted {
        count,
        size: volume.size.max(volume.wanted_size),
        pools: placement.pools,
        accessible: placement.accessible.into_iter().map(|segment| segment.pairs).collect(),
        spread: Some(placement.spread).filter(|key| !key.is_empty()),
        taken: volume.places.iter().map(|place| place.node).collect::<BTreeSet<u64>>(),
        ..Wanted::default()
    }
}
