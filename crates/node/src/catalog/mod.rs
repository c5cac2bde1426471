//! The catalog as a node sees it: a copy that a watch keeps fresh, and questions of targets.
mod asks;
pub mod convert;
mod copy;
mod follow;
mod nodes;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use prost::Message;
use proto::catalog_client::{Client, Found};
use proto::v1;
use proto::v1::object::Body;
use replication::target::starting;
use replication::words::{Boot, NodeId, ReplicaId, VolumeUid};
use thiserror::Error;
use tokio::sync::{Notify, watch};
use tonic::Status;

use crate::admin::Generation;
use crate::process::{Memory, MemoryError};
use crate::records::{NodeBook, VolumeRecord};
use copy::{Copy, is_deleted};

pub use asks::Of;
pub use convert::Unusable;
pub use follow::follow;

/// A volume as the catalog has it.
#[derive(Clone, Debug)]
pub struct Known {
    pub record: VolumeRecord,
    /// In which pool of its node each replica is.
    pub pools: BTreeMap<ReplicaId, String>,
    pub deleting: bool,
    /// The object itself.
    pub object: Box<v1::Object>,
}

/// What the catalog says of one very volume.
#[derive(Clone, Debug)]
pub enum Listing {
    /// It has it; or had it, and has an older object now.
    Listed(Box<Known>),
    /// It was deleted.
    Deleted,
    /// The catalog does not know it: it never did, or has lost it. That permits nothing.
    Unknown,
}

/// Why an object is not acted on.
#[derive(Debug, Error)]
pub enum LearnError {
    #[error(transparent)]
    Memory(#[from] MemoryError),
    #[error(
        "the catalog has another volume `{name}` than the one that this node knows, and nothing says that that one was \
         deleted: the catalog has lost it; bring it back with `pollux site restore` or `pollux site rebuild`"
    )]
    NameOfLost { name: String },
}

/// What the log and people are told.
const LOST: &str = "the catalog has lost this volume: it has no object of it, or an older one, and nothing says that it was \
    deleted. It is served on. Bring the catalog back with `pollux site restore` or `pollux site rebuild`";

/// Volumes that a beat names.
const LOST_TOLD_MAX: usize = 64;

/// What this node knows of the catalog. Whatever destroys something asks anew.
pub struct Books {
    client: Client,
    node: NodeId,
    memory: Arc<Memory>,
    copy: Mutex<Copy>,
    /// Turns true when everything was told once.
    current: watch::Sender<bool>,
    /// Runs of targets that have asked and not stopped: only the first answer may come from memory.
    asking: Mutex<BTreeSet<Boot>>,
    /// What this node registers of itself, once that is known.
    registered: Mutex<Option<v1::Node>>,
    /// The catalog has told everything, and does not have this node as it registered.
    unlisted: Notify,
}

impl Books {
    /// Begins with what is remembered; what the catalog has is newer, or the same.
    pub fn new(client: Client, node: NodeId, memory: Arc<Memory>) -> Books {
        let books = Books {
            client,
            node,
            memory,
            copy: Mutex::default(),
            current: watch::Sender::new(false),
            asking: Mutex::default(),
            registered: Mutex::default(),
            unlisted: Notify::new(),
        };
        for known in books.remembered() {
            books.copy().insert(known);
        }
        books
    }

    /// What the catalog is to have of this node from now on.
    pub fn set_registered(&self, node: v1::Node) {
        *self.registered.lock().unwrap_or_else(PoisonError::into_inner) = Some(node);
    }

    fn registered(&self) -> Option<v1::Node> {
        self.registered.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Until the catalog has told everything, and this node is not in it, or in an older or another record.
    pub async fn unlisted(&self) {
        self.unlisted.notified().await;
    }

    /// All that this node knows of the catalog.
    pub fn objects(&self) -> Vec<v1::Object> {
        self.copy().objects()
    }

    /// Volumes that the catalog has lost: some, and how many there are.
    pub fn lost(&self) -> (Vec<v1::VolumeRef>, u64) {
        let mut lost = self.copy().lost_volumes();
        let count = lost.len() as u64;
        lost.truncate(LOST_TOLD_MAX);
        (lost, count)
    }

    /// Until the catalog has told everything.
    pub async fn current(&self) {
        let mut current = self.current.subscribe();
        let waited = current.wait_for(|current| *current).await;
        waited.expect("the sender lives as long as the books");
    }

    /// Volumes whose grant a node has: as the catalog says, or said when it could be asked.
    pub fn granted_to(&self, node: NodeId) -> Vec<Known> {
        let is_own = |known: &&Known| {
            starting::resume(&known.record.object, node).is_some() && !known.deleting
        };
        self.copy().volumes().filter(is_own).cloned().collect()
    }

    fn remembered(&self) -> Vec<Known> {
        let all = self.memory.all().unwrap_or_else(|error| {
            tracing::error!(%error, "what was remembered of the catalog cannot be read");
            Vec::new()
        });
        let known = |(name, bytes): &(String, Vec<u8>)| {
            let object = v1::Object::decode(bytes.as_slice()).ok()?;
            // Otherwise it is an unfinished file of an earlier version.
            let is_named = object.key.as_ref().is_some_and(|key| key.name == *name);
            is_named.then(|| convert::known(&object).ok()).flatten()
        };
        all.iter().filter_map(known).collect()
    }

    /// Before anybody acts on it. Only volumes whose grant is here matter after a restart.
    fn remember(&self, object: &v1::Object, known: &Known) -> Result<(), MemoryError> {
        let Some(key) = &object.key else { return Ok(()) };
        match starting::is_remembered(&known.record.object, self.node) {
            true => {
                let bare = convert::without_secrets(object);
                self.memory.keep(&key.name, &bare.as_ref().unwrap_or(object).encode_to_vec())
            }
            false => self.memory.forget(&key.name),
        }
    }

    /// No invariant spans a panic: each use is one lookup or one replacement.
    fn copy(&self) -> MutexGuard<'_, Copy> {
        self.copy.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn client(&self) -> &Client {
        &self.client
    }

    /// From the copy where it is there, otherwise from the catalog.
    pub async fn volume(&self, name: &str) -> Result<Option<Known>, Status> {
        let known = self.copy().volume(name).cloned();
        match known {
            Some(known) => Ok(Some(known)),
            None => self.fetch(name).await,
        }
    }

    /// As the catalog has it now.
    pub async fn fetch(&self, name: &str) -> Result<Option<Known>, Status> {
        match self.find(name).await? {
            Found::Object(object) => self.learn_fetched(&object).map(Some),
            Found::Deleted(_) | Found::Nothing => Ok(None),
        }
    }

    /// What the catalog has of this very volume now. For whatever destroys something: only what is listed, or was
    /// deleted, may be.
    pub async fn look_up(&self, name: &str, uid: VolumeUid) -> Result<Listing, Status> {
        let found = self.find(name).await?;
        match found {
            Found::Object(object) if is_of(&object, uid) => {
                let known = self.learn_fetched(&object)?;
                Ok(Listing::Listed(Box::new(known)))
            }
            Found::Object(object) | Found::Deleted(object) => {
                match is_deleted(&object, uid, None) {
                    true => Ok(Listing::Deleted),
                    false => Ok(Listing::Unknown),
                }
            }
            Found::Nothing => Ok(Listing::Unknown),
        }
    }

    async fn find(&self, name: &str) -> Result<Found, Status> {
        let found = self.client.find(&volume_key(name)).await;
        found.map_err(|error| Status::unavailable(error.to_string()))
    }

    fn learn_fetched(&self, object: &v1::Object) -> Result<Known, Status> {
        let known = convert::known(object);
        let known = known.map_err(|unusable| Status::internal(unusable.to_string()))?;
        self.learn(object, known).map_err(|error| match error {
            LearnError::Memory(_) => Status::internal(error.to_string()),
            LearnError::NameOfLost { .. } => Status::failed_precondition(error.to_string()),
        })
    }

    /// Hands the newest record of a volume that this node has heard of to an order. Changes that are heard of later
    /// are sent to the shard behind that order, so none is lost in between.
    pub fn send_newest(&self, record: VolumeRecord, send: impl FnOnce(VolumeRecord)) {
        let copy = self.copy();
        let newest = copy.newest(&record).map_or(record, |known| known.record.clone());
        send(newest);
    }

    /// What the node knows after an answer or an event of the catalog: the newer of that and of what it knew. It is on
    /// the disk before anything acts on it.
    fn learn(&self, object: &v1::Object, known: Known) -> Result<Known, LearnError> {
        let mut copy = self.copy();
        if let Some(newer) = copy.newer_than(&known.record) {
            return Ok(newer.clone());
        }
        let name = &known.record.name;
        let other = copy.volume(name).filter(|it| it.record.uid != known.record.uid);
        if other.is_some_and(|other| !copy.gives_way(other, object)) {
            return Err(LearnError::NameOfLost { name: name.clone() });
        }
        self.remember(object, &known)?;
        if copy.insert(known.clone()) {
            tracing::info!(volume = known.record.name, "the catalog has the volume again");
        }
        Ok(known)
    }

    /// Who controls the site, as the catalog has it now; `None`: nobody ever did.
    pub async fn controller(&self) -> Result<Option<Generation>, Status> {
        let object = self.client.get(&controller_key()).await;
        let object = object.map_err(|error| {
            Status::unavailable(format!("it is not known who controls the site: {error}"))
        })?;
        Ok(match object.and_then(|object| object.body) {
            Some(Body::Controller(controller)) => Some(Generation(controller.generation)),
            _ => None,
        })
    }

    pub fn place_of(&self, volume: VolumeUid, node: NodeId) -> Option<ReplicaId> {
        let copy = self.copy();
        let known = copy.volumes().find(|known| known.record.uid == volume)?;
        let mut places = known.record.places.iter();
        places.find(|(_, at)| **at == node).map(|(replica, _)| *replica)
    }

    /// Where the peers are that have an address which can be used.
    pub fn nodes(&self) -> NodeBook {
        let copy = self.copy();
        let address = |node: &v1::Node| node.peer_address.parse::<SocketAddr>().ok();
        let known = copy.nodes.iter().filter_map(|node| Some((NodeId(node.id), address(node)?)));
        known.collect()
    }

    /// A run of a target asks; whether that is its first question.
    pub fn asked(&self, run: Boot) -> bool {
        self.asking.lock().unwrap_or_else(PoisonError::into_inner).insert(run)
    }

    /// It has stopped, and asks nothing more.
    pub fn stopped(&self, run: Boot) {
        self.asking.lock().unwrap_or_else(PoisonError::into_inner).remove(&run);
    }

    #[cfg(test)]
    pub fn runs_that_ask(&self) -> usize {
        self.asking.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// A volume that may be acted on: it is understood, and remembered before anybody does.
    fn usable(&self, object: &v1::Object) -> Option<Known> {
        let known = convert::known(object).inspect_err(|unusable| {
            tracing::error!(%unusable, "the catalog has an object that this node cannot use");
        });
        let learnt = self.learn(object, known.ok()?).inspect_err(|error| {
            tracing::error!(%error, "what the catalog says is not obeyed");
        });
        learnt.ok()
    }
}

/// Whether an object is that of this very volume.
fn is_of(object: &v1::Object, uid: VolumeUid) -> bool {
    matches!(&object.body, Some(Body::Volume(volume)) if volume.uid == uid.0)
}

pub fn volume_key(name: &str) -> v1::Key {
    v1::Key { kind: v1::Kind::Volume.into(), name: name.into() }
}

fn controller_key() -> v1::Key {
    v1::Key { kind: v1::Kind::Controller.into(), name: "controller".into() }
}

pub fn node_key(name: &str) -> v1::Key {
    v1::Key { kind: v1::Kind::Node.into(), name: name.into() }
}
