//! Nodes and pools.
use std::sync::Arc;
use std::time::Instant;

use proto::v1;

use super::books::Known;
use super::names::named;
use super::placement::NODE_KEY;
use super::states;
use super::{Answer, Controller};
use crate::api::types::{Done, Node, Page, Pool};
use crate::api::{ApiError, Code};
use crate::hex;

impl Controller {
    pub fn nodes(&self) -> Page<Node> {
        let nodes = self.books.all::<v1::Node>();
        Page { items: nodes.iter().map(|node| self.show_node(node)).collect(), next: None }
    }

    pub fn node(&self, id: &str) -> Answer<Node> {
        Ok(self.show_node(&*self.find::<v1::Node>(id)?))
    }

    fn show_node(&self, node: &v1::Node) -> Node {
        let presence = self.pulse.presence(node.id, Instant::now());
        let trouble = self.pulse.trouble(node.id);
        let volumes = self.books.all::<v1::Volume>();
        let serves = |it: &&Known<v1::Volume>| {
            it.quorum.as_ref().is_some_and(|quorum| quorum.holder == node.id)
        };
        let beat = self.pulse.beat(node.id);
        let lost = beat.as_ref().map_or(0, |beat| beat.lost_count);
        let state = match lost {
            0 => states::of_node(node, presence, &trouble, self.settings.grace),
            lost => states::of_witness(lost),
        };
        let mut topology = node.topology.clone();
        topology.insert(NODE_KEY.into(), node.name.clone());
        Node {
            name: node.name.clone(),
            id: node.id,
            state: self.dated("node", &node.name, state),
            topology,
            cordoned: node.cordoned,
            admin: node.admin_address.clone(),
            peers: node.peer_address.clone(),
            iscsi: node.iscsi_address.clone(),
            nbd: node.nbd_address.clone(),
            // As the catalog has it: what a node said last may be a second old.
            replicas: placed(&volumes, |place| place.node == node.id),
            targets: volumes.iter().filter(serves).count() as u64,
            lost_volumes: beat
                .iter()
                .flat_map(|beat| &beat.lost)
                .map(|it| it.name.clone())
                .collect(),
        }
    }

    /// Refuses what is asked of a volume that nodes know and the catalog has lost: it is not gone, and its name is not free.
    pub(super) fn id_not_lost(&self, id: &str) -> Answer<()> {
        let name = named(id).map_or_else(|_| id.to_owned(), |named| named.name);
        self.not_lost(id, |it| it.name == name || hex::encode(&it.uid) == id)
    }

    /// The same for this very volume, of which the catalog may have an older object. Another volume that has its name by
    /// now may be changed, and has to be deleted before the lost one is brought back.
    pub(super) fn uid_not_lost(&self, name: &str, uid: &[u8]) -> Answer<()> {
        self.not_lost(name, |it| it.uid == uid)?;
        self.lost_are_named(name)
    }

    fn not_lost(&self, id: &str, is_it: impl Fn(&v1::VolumeRef) -> bool) -> Answer<()> {
        let nodes = self.books.all::<v1::Node>();
        let knows = |node: &&Known<v1::Node>| {
            self.pulse.beat(node.id).is_some_and(|beat| beat.lost.iter().any(&is_it))
        };
        match nodes.iter().find(knows) {
            None => Ok(()),
            Some(node) => Err(ApiError::new(
                Code::Unavailable,
                format!(
                    "the catalog has lost the volume `{id}`, which `{}` knows: bring it back with `pollux site restore` or \
                     `pollux site rebuild`",
                    node.name
                ),
            )),
        }
    }

    /// The same for a volume that the catalog does not have and that is about to be made, or taken for deleted.
    pub(super) fn unknown_not_lost(&self, id: &str) -> Answer<()> {
        self.id_not_lost(id)?;
        self.lost_are_named(id)
    }

    /// A heartbeat lists only some of the lost volumes. While there are more, any volume may be among them: the catalog
    /// may have an older object of it, and a change would make that the newest.
    fn lost_are_named(&self, id: &str) -> Answer<()> {
        let nodes = self.books.all::<v1::Node>();
        let unlisted = |node: &Known<v1::Node>| {
            let beat = self.pulse.beat(node.id)?;
            let count = beat.lost_count.saturating_sub(beat.lost.len() as u64);
            (count > 0).then(|| (node.name.clone(), beat.lost_count))
        };
        match nodes.iter().find_map(unlisted) {
            None => Ok(()),
            Some((node, count)) => Err(ApiError::new(
                Code::Unavailable,
                format!(
                    "the catalog has lost {count} volumes, which `{node}` knows, and `{id}` may be one of them: bring them \
                     back with `pollux site restore` or `pollux site rebuild`"
                ),
            )),
        }
    }

    pub fn pools(&self) -> Page<Pool> {
        let mut items = Vec::new();
        let volumes = self.books.all::<v1::Volume>();
        for node in self.books.all::<v1::Node>() {
            let presence = self.presence(node.id);
            let Some(beat) = self.pulse.beat(node.id) else { continue };
            for pool in &beat.pools {
                let state = states::of_pool(pool, &node.name, presence);
                let id = format!("{}/{}", node.name, pool.name);
                items.push(Pool {
                    node: node.name.clone(),
                    name: pool.name.clone(),
                    uuid: hex::encode(&pool.uuid),
                    path: pool.path.clone(),
                    state: self.dated("pool", &id, state),
                    size: pool.size,
                    free: pool.free,
                    reserved: pool.reserved,
                    reclaimable: pool.reclaimable,
                    replicas: placed(&volumes, |it| it.node == node.id && it.pool == pool.name),
                    direct_io: pool.io_mode() == v1::IoMode::Direct,
                });
            }
        }
        Page { items, next: None }
    }

    pub async fn cordon_node(self: &Arc<Self>, id: &str, cordoned: bool) -> Answer<Node> {
        let found = self.find::<v1::Node>(id)?;
        let this = Arc::clone(self);
        self.run(vec![(v1::Kind::Node, found.name.clone())], async move {
            this.edit::<v1::Node>(&found.name, &[], |node| {
                node.cordoned = cordoned;
                Ok(())
            })
            .await?;
            this.node(&found.name)
        })
        .await
    }

    /// It is gone for good: what it had is given up, and replaced where it can be.
    pub async fn forget_node(self: &Arc<Self>, id: &str) -> Answer<Done> {
        let Some(found) = self.books.get::<v1::Node>(id) else { return Ok(Done {}) };
        if !self.presence(found.id).is_away() {
            let message = format!("the node `{}` is there: stop it first", found.name);
            return Err(ApiError::new(Code::InUse, message));
        }
        let in_use = |it: &&Known<v1::Volume>| !it.deleting && needs(it, found.id);
        let volumes = self.books.all::<v1::Volume>();
        let names = volumes.iter().filter(in_use).map(|it| it.name.as_str());
        let names: Vec<&str> = names.take(NAMED).collect();
        if !names.is_empty() {
            let message = format!(
                "volumes still reckon with replicas on `{}`, which are replaced when it is away for long \
                 enough: {}",
                found.name,
                names.join(", ")
            );
            return Err(ApiError::new(Code::InUse, message));
        }
        let this = Arc::clone(self);
        self.run(vec![(v1::Kind::Node, found.name.clone())], async move {
            // What it has left of volumes that do without it is given up with it.
            for volume in this.books.all::<v1::Volume>() {
                if volume.places.iter().any(|place| place.node == found.id) {
                    this.edit::<v1::Volume>(&volume.name, &volume.uid, |volume| {
                        if volume.deleting || !needs(volume, found.id) {
                            volume.places.retain(|place| place.node != found.id);
                        }
                        Ok(())
                    })
                    .await?;
                }
            }
            if let Some((version, _)) = this.fresh::<v1::Node>(&found.name).await? {
                let gone = this.remove::<v1::Node>(version, &found.name).await?;
                gone.ok_or_else(|| ApiError::busy("node", &found.name))?;
            }
            Ok(Done {})
        })
        .await
    }
}

/// Replicas in some places.
fn placed(volumes: &[Known<v1::Volume>], is_there: impl Fn(&v1::Place) -> bool) -> u64 {
    let places = volumes.iter().flat_map(|volume| &volume.places);
    places.filter(|place| is_there(place)).count() as u64
}

/// Volumes that are named in an error.
const NAMED: usize = 5;

/// A replica on the node votes, or is to.
fn needs(volume: &v1::Volume, node: u64) -> bool {
    let quorum = volume.quorum.clone().unwrap_or_default();
    let membership = quorum.membership.unwrap_or_default();
    let sets = membership.voters.iter().chain(&membership.next);
    let mut members = sets.flat_map(|voters| &voters.members).chain(&quorum.desired);
    let here = |replica: u64| {
        volume.places.iter().any(|place| place.replica == replica && place.node == node)
    };
    members.any(|member| here(member.replica))
}
