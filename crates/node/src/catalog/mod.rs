//! The catalog as a node sees it: a copy that a watch keeps fresh, and questions of targets.
mod convert;
mod copy;
mod follow;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use prost::Message;
use proto::catalog_client::{CallError, Client, Swapped};
use proto::v1;
use proto::v1::object::Body;
use proto::v1::swap_request::Change;
use replication::catalog::{CatalogAnswer, CatalogAsk};
use replication::words::{Boot, NodeId, ReplicaId, VolumeUid};
use tokio::sync::watch;
use tonic::Status;

use crate::admin::Generation;
use crate::process::{Memory, MemoryError};
use crate::records::{NodeBook, VolumeRecord};
use copy::Copy;

pub use convert::Unusable;
pub use follow::follow;

/// A volume as the catalog has it.
#[derive(Clone, Debug)]
pub struct Known {
    pub record: VolumeRecord,
    /// In which pool of its node each replica is.
    pub pools: BTreeMap<ReplicaId, String>,
    pub deleting: bool,
}

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
}

impl Books {
    pub fn new(client: Client, node: NodeId, memory: Arc<Memory>) -> Books {
        Books {
            client,
            node,
            memory,
            copy: Mutex::default(),
            current: watch::Sender::new(false),
            asking: Mutex::default(),
        }
    }

    /// Until the catalog has told everything.
    pub async fn current(&self) {
        let mut current = self.current.subscribe();
        let waited = current.wait_for(|current| *current).await;
        waited.expect("the sender lives as long as the books");
    }

    /// Volumes whose grant a node has: as the catalog says, or said when it could be asked.
    pub fn granted_to(&self, node: NodeId) -> Vec<Known> {
        let known: Vec<Known> = match *self.current.borrow() {
            true => self.copy().volumes().cloned().collect(),
            false => self.remembered(),
        };
        let is_own = |known: &Known| known.record.object.holder == node && !known.deleting;
        known.into_iter().filter(is_own).collect()
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
    fn remember(&self, object: &v1::Object) -> Result<(), MemoryError> {
        let Some(key) = &object.key else { return Ok(()) };
        let Some(Body::Volume(volume)) = &object.body else { return Ok(()) };
        let holder = volume.quorum.as_ref().map_or(0, |quorum| quorum.holder);
        match holder == self.node.0 {
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
        let object = self.client.get(&volume_key(name)).await;
        let object = object.map_err(|error| Status::unavailable(error.to_string()))?;
        let Some(object) = object else { return Ok(None) };
        let known = convert::known(&object);
        let known = known.map_err(|unusable| Status::internal(unusable.to_string()))?;
        self.learn(&object, known).map(Some).map_err(|error| Status::internal(error.to_string()))
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
    fn learn(&self, object: &v1::Object, known: Known) -> Result<Known, MemoryError> {
        let mut copy = self.copy();
        if let Some(newer) = copy.newer_than(&known.record) {
            return Ok(newer.clone());
        }
        self.remember(object)?;
        copy.insert(known.clone());
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
        let known = copy.nodes.values().filter_map(|node| Some((NodeId(node.id), address(node)?)));
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

    /// What a target asks. `None`: the catalog could not answer; the target asks again by itself.
    pub async fn answer(&self, name: &str, first: bool, ask: CatalogAsk) -> Option<CatalogAnswer> {
        let is_get = matches!(ask, CatalogAsk::Get);
        let answered = match ask {
            CatalogAsk::Get => self.get(name).await,
            CatalogAsk::Swap { expected, grant, object } => {
                let wanted = (expected, grant, *object);
                self.swap(name, wanted).await
            }
        };
        match answered {
            Ok(answer) => answer,
            // The same node may start again under its grant without the catalog (Q1).
            Err(_) if first && is_get => {
                let mut remembered = self.remembered().into_iter();
                let known = remembered.find(|known| known.record.name == name)?;
                Some(CatalogAnswer::Object(Box::new(known.record.object)))
            }
            Err(error) => {
                tracing::warn!(volume = name, %error, "a target has to wait for the catalog");
                None
            }
        }
    }

    async fn get(&self, name: &str) -> Result<Option<CatalogAnswer>, CallError> {
        let object = self.client.get(&volume_key(name)).await?;
        Ok(self.present(object.as_ref()))
    }

    async fn swap(
        &self,
        name: &str,
        (expected, grant, wanted): convert::Wanted,
    ) -> Result<Option<CatalogAnswer>, CallError> {
        let key = volume_key(name);
        let found = self.client.get(&key).await?;
        let missing = Ok(Some(CatalogAnswer::Missing));
        let Some(object) = found.as_ref() else { return missing };
        let Some(Body::Volume(volume)) = &object.body else { return missing };
        let present_grant = volume.quorum.as_ref().map_or(0, |quorum| quorum.grant);
        if object.version != expected.0 || present_grant != grant.0 {
            return Ok(self.present(found.as_ref()));
        }
        // Everything but the quorum stays as it is.
        let quorum = Some(convert::quorum(&wanted));
        let next = v1::Volume { quorum, ..volume.clone() };
        match self.client.swap(&key, expected.0, Change::Volume(next)).await? {
            Swapped::Done(object) => Ok(match self.present(Some(&object)) {
                Some(CatalogAnswer::Object(object)) => Some(CatalogAnswer::Swapped(object)),
                other => other,
            }),
            Swapped::Conflict(object) => Ok(self.present(object.as_ref())),
        }
    }

    /// What a target is told; nothing if this node cannot use it, or cannot remember it first.
    fn present(&self, object: Option<&v1::Object>) -> Option<CatalogAnswer> {
        match object {
            Some(object) => {
                let known = self.usable(object)?;
                Some(CatalogAnswer::Object(Box::new(known.record.object)))
            }
            None => Some(CatalogAnswer::Missing),
        }
    }

    /// A volume that may be acted on: it is understood, and remembered before anybody does.
    fn usable(&self, object: &v1::Object) -> Option<Known> {
        let known = convert::known(object).inspect_err(|unusable| {
            tracing::error!(%unusable, "the catalog has an object that this node cannot use");
        });
        let learnt = self.learn(object, known.ok()?).inspect_err(|error| {
            tracing::error!(%error, "what the catalog says cannot be remembered, so it is not obeyed");
        });
        learnt.ok()
    }
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
