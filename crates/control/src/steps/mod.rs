//! What is done to a site, step by step: by its controller, or by an operator where there is none.
//!
//! Steps are in an order that a crash between any two of them can be finished or undone by saying the
//! same again. `faults` names the places between them.
mod change;
mod clones;
mod create;
mod delete;
mod error;
pub mod faults;
mod nodes;
mod replicas;

use std::sync::Arc;

use certs::{Identity, Name};
use proto::catalog_client::{Client, Swapped};
use proto::v1;
use proto::v1::object::Body;
use proto::v1::swap_request::Change;

pub use clones::NewClone;
pub use create::{NewVolume, has_votes, nobody};
pub use delete::{Left, Manner};
pub use error::StepError;
pub use nodes::{Admin, Says};

use faults::Faults;
use nodes::Nodes;

/// A site, by way of its catalog.
pub struct Site {
    client: Client,
    nodes: Nodes,
    faults: Faults,
    told: Told,
}

/// Told of what was swapped by way of this site.
pub type Told = Option<Arc<dyn Fn(&v1::Object) + Send + Sync>>;

/// A volume as the catalog has it.
#[derive(Clone, Debug)]
pub struct Found {
    pub version: u64,
    pub volume: v1::Volume,
}

impl Site {
    /// `catalog` is host:port.
    pub fn new(catalog: &str, identity: Option<Identity>) -> Result<Site, StepError> {
        let channel = certs::channel(catalog, &Name::catalog(), identity.as_ref())?;
        let nodes = Nodes::new(identity);
        Ok(Site { client: Client::new(channel), nodes, faults: Faults::none(), told: None })
    }

    /// The site as a controller of this generation sees it: nodes are told who asks.
    pub fn controlled(self, generation: u64, faults: Faults, told: Told) -> Site {
        let client = self.client.controlled(generation);
        Site { client, nodes: self.nodes.controlled(generation), faults, told }
    }

    fn tell(&self, object: &v1::Object) {
        if let Some(told) = &self.told {
            told(object);
        }
    }

    pub fn client(&self) -> &Client {
        &self.client
    }

    /// A place between two steps, where a test may end the process.
    pub(crate) async fn fault(&self, point: faults::Point) {
        self.faults.at(point).await;
    }

    pub async fn volumes(&self) -> Result<Vec<Found>, StepError> {
        let objects = self.client.list(v1::Kind::Volume).await?;
        let found = |object: v1::Object| match object.body {
            Some(Body::Volume(volume)) => Some(Found { version: object.version, volume }),
            _ => None,
        };
        Ok(objects.into_iter().filter_map(found).collect())
    }

    pub async fn volume(&self, name: &str) -> Result<Option<Found>, StepError> {
        let object = self.client.get(&key(name)).await?;
        Ok(object.and_then(|object| match object.body {
            Some(Body::Volume(volume)) => Some(Found { version: object.version, volume }),
            _ => None,
        }))
    }

    pub async fn known(&self, name: &str) -> Result<Found, StepError> {
        let found = self.volume(name).await?;
        found.ok_or_else(|| StepError::NoVolume { name: name.into() })
    }

    /// This very volume, unless it is gone or being deleted.
    async fn kept(&self, of: &v1::Volume) -> Result<Found, StepError> {
        let found = self.this(of).await?;
        match found.volume.deleting {
            true => Err(StepError::Deleting { name: of.name.clone() }),
            false => Ok(found),
        }
    }

    /// This very volume, not another that has its name by now.
    async fn this(&self, of: &v1::Volume) -> Result<Found, StepError> {
        let found = self.known(&of.name).await?;
        match found.volume.uid == of.uid {
            true => Ok(found),
            false => Err(StepError::NoVolume { name: of.name.clone() }),
        }
    }

    async fn swap(&self, version: u64, volume: &v1::Volume) -> Result<Option<Found>, StepError> {
        let change = Change::Volume(volume.clone());
        match self.client.swap(&key(&volume.name), version, change).await? {
            Swapped::Done(object) => {
                self.tell(&object);
                Ok(Some(Found { version: object.version, volume: volume.clone() }))
            }
            Swapped::Conflict(_) => Ok(None),
        }
    }

    /// Changes a volume's object, as often as somebody else is faster.
    pub async fn change(
        &self,
        name: &str,
        edit: impl Fn(&mut v1::Volume) -> Result<(), StepError>,
    ) -> Result<Found, StepError> {
        loop {
            let mut found = self.known(name).await?;
            edit(&mut found.volume)?;
            if let Some(done) = self.swap(found.version, &found.volume).await? {
                return Ok(done);
            }
        }
    }

    /// The same for this very volume, not for another that has its name by now.
    async fn change_of(
        &self,
        of: &v1::Volume,
        edit: impl Fn(&mut v1::Volume) -> Result<(), StepError>,
    ) -> Result<Found, StepError> {
        self.change(&of.name, |volume| match volume.uid == of.uid {
            true => edit(volume),
            false => Err(StepError::NoVolume { name: of.name.clone() }),
        })
        .await
    }

    /// The same unless it is being deleted.
    async fn change_kept(
        &self,
        of: &v1::Volume,
        edit: impl Fn(&mut v1::Volume) -> Result<(), StepError>,
    ) -> Result<Found, StepError> {
        self.change_of(of, |volume| match volume.deleting {
            true => Err(StepError::Deleting { name: of.name.clone() }),
            false => edit(volume),
        })
        .await
    }

    /// The node whose target has the grant.
    pub async fn holder(&self, name: &str) -> Result<(Found, Admin), StepError> {
        let found = self.known(name).await?;
        let holder = found.volume.quorum.as_ref().map_or(0, |quorum| quorum.holder);
        if holder == 0 {
            return Err(StepError::NotServed { name: name.into() });
        }
        let node = self.node_of_id(holder).await?;
        let admin = self.admin(&node)?;
        Ok((found, admin))
    }

    pub async fn target(&self, name: &str) -> Result<v1::TargetStatus, StepError> {
        let (found, mut admin) = self.holder(name).await?;
        let request = v1::GetTargetRequest { volume: Some(reference(&found.volume)) };
        Ok(admin.get_target(request).await?.into_inner())
    }
}

pub fn key(name: &str) -> v1::Key {
    v1::Key { kind: v1::Kind::Volume.into(), name: name.into() }
}

pub fn reference(volume: &v1::Volume) -> v1::VolumeRef {
    v1::VolumeRef { name: volume.name.clone(), uid: volume.uid.clone() }
}
