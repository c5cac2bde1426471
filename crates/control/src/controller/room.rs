//! How much room there is, and where.
use std::collections::{BTreeMap, BTreeSet};

use block::ByteLen;
use proto::v1;

use super::no_room::{NoRoom, Unfit};
use super::placement::{self, Candidate, NODE_KEY, Wanted};
use super::presence::Presence;
use super::shape::{REPLICAS_DEFAULT, Shape, check_replicas};
use super::{Answer, Controller};
use crate::api::types::{Capacity, CapacityQuery};
use crate::api::{ApiError, Code};

impl Controller {
    pub fn capacity(&self, of: &CapacityQuery) -> Answer<Capacity> {
        let replicas = of.replicas.unwrap_or(REPLICAS_DEFAULT);
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

    pub(super) fn wanted(&self, shape: &Shape) -> Wanted {
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
        let candidates = self.candidates();
        placement::choose(&candidates, wanted).map_err(|_| {
            let no_room = self.no_room(&candidates, wanted);
            // A node that was not heard of yet may have the room: nothing is known to be full.
            match self.has_heard_of_all() {
                true => ApiError::new(Code::OutOfSpace, no_room.to_string()),
                false => {
                    let message = format!("not all nodes were heard of yet: {no_room}; ask again");
                    ApiError::new(Code::Unavailable, message)
                }
            }
        })
    }

    /// Why there are too few nodes: each that does not qualify, with its reason.
    fn no_room(&self, candidates: &[Candidate], wanted: &Wanted) -> NoRoom {
        let (mut fit, mut unfit) = (Vec::new(), Vec::new());
        for node in self.books.all::<v1::Node>() {
            let pools: Vec<&Candidate> =
                candidates.iter().filter(|it| it.node == node.id).collect();
            let why = match self.presence(node.id) {
                _ if wanted.taken.contains(&node.id) => Some(Unfit::Holds),
                Presence::Away { .. } => Some(Unfit::Away),
                Presence::Unknown => Some(Unfit::Unknown),
                Presence::Here if node.cordoned => Some(Unfit::Cordoned),
                Presence::Here if pools.is_empty() => Some(self.without_pool(node.id)),
                Presence::Here => wanted.rejects(&pools),
            };
            match why {
                Some(why) => unfit.push((node.name.clone(), why)),
                None => fit.push(node.name.clone()),
            }
        }
        NoRoom { need: wanted.count, size: wanted.size, fit, unfit }
    }

    fn without_pool(&self, node: u64) -> Unfit {
        let beat = self.pulse.beat(node);
        let mut pools = beat.iter().flat_map(|beat| &beat.pools);
        match pools.find(|pool| pool.state() == v1::PoolState::Failed) {
            Some(pool) => Unfit::PoolFailed { pool: pool.name.clone() },
            None => Unfit::NoPool,
        }
    }

    /// Pools that are open, in nodes that are there and may have more.
    pub(super) fn candidates(&self) -> Vec<Candidate> {
        let mut promised = BTreeMap::<(u64, String), u64>::new();
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

    pub(super) fn has_room_to_grow(&self, volume: &v1::Volume, more: u64) -> Answer<()> {
        let candidates = self.candidates();
        for place in &volume.places {
            let is_it = |it: &&Candidate| it.node == place.node && it.pool == place.pool;
            let room = candidates.iter().find(is_it).map(|it| it.room.saturating_sub(it.promised));
            if let Some(room) = room.filter(|room| *room < more) {
                let pool = &place.pool;
                let message = format!(
                    "the pool `{pool}` of `{}` has room for {} more, and {} are needed: add space to it \
                     (`pollux disk grow`), or delete volumes",
                    self.node_name(place.node),
                    ByteLen(room),
                    ByteLen(more)
                );
                return Err(ApiError::new(Code::OutOfSpace, message));
            }
        }
        Ok(())
    }
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
