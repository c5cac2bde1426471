//! Machines that use volumes and are no nodes. A node is a host too, without saying so.
use std::sync::Arc;

use proto::v1;

use super::attach::initiator;
use super::books::Known;
use super::{Answer, Controller, now_ms};
use crate::api::types::{Done, Host, NewHost, Page};
use crate::api::{ApiError, Code};
use crate::catalog;

/// Volumes that are named in an error.
const NAMED: usize = 5;

impl Controller {
    /// The name of a node or of a host, to which something can be attached.
    pub(super) fn host_named(&self, id: &str) -> Answer<String> {
        let node = self.books.get::<v1::Node>(id).map(|node| node.name.clone());
        let host = || self.books.get::<v1::Host>(id).map(|host| host.name.clone());
        node.or_else(host).ok_or_else(|| ApiError::not_found("node or host", id))
    }

    pub fn hosts(&self) -> Page<Host> {
        let volumes = self.books.all::<v1::Volume>();
        let hosts = self.books.all::<v1::Host>();
        Page { items: hosts.iter().map(|host| show(host, &volumes)).collect(), next: None }
    }

    pub fn host(&self, id: &str) -> Answer<Host> {
        Ok(show(&*self.find::<v1::Host>(id)?, &self.books.all::<v1::Volume>()))
    }

    /// A host says that it is there: for the first time, or again.
    pub async fn create_host(self: &Arc<Self>, asked: NewHost) -> Answer<Host> {
        if !catalog::is_name(&asked.name) {
            return Err(ApiError::invalid("name", "use 1 to 63 of a-z, 0-9, '.' and '-'"));
        }
        let this = Arc::clone(self);
        self.run(vec![(v1::Kind::Host, asked.name.clone())], async move {
            loop {
                let seen_ms = now_ms();
                let found = this.fresh::<v1::Host>(&asked.name).await?;
                let (version, created_ms) =
                    found.map_or((0, seen_ms), |(version, host)| (version, host.created_ms));
                let (name, topology) = (asked.name.clone(), asked.topology.clone());
                let host = v1::Host { name, topology, seen_ms, created_ms };
                if this.swap(version, host).await?.is_some() {
                    return this.host(&asked.name);
                }
            }
        })
        .await
    }

    pub async fn delete_host(self: &Arc<Self>, id: &str) -> Answer<Done> {
        let Some(found) = self.books.get::<v1::Host>(id) else { return Ok(Done {}) };
        let this = Arc::clone(self);
        self.run(vec![(v1::Kind::Host, found.name.clone())], async move {
            let name = &found.name;
            let attached = attached(name, &this.books.all::<v1::Volume>());
            if !attached.is_empty() {
                let shown: Vec<&str> = attached.iter().map(String::as_str).take(NAMED).collect();
                let message = format!(
                    "volumes are attached to `{name}`: detach them first: {}",
                    shown.join(", ")
                );
                return Err(ApiError::new(Code::InUse, message));
            }
            if let Some((version, _)) = this.fresh::<v1::Host>(name).await? {
                let gone = this.remove::<v1::Host>(version, name).await?;
                gone.ok_or_else(|| ApiError::busy("host", name))?;
            }
            Ok(Done {})
        })
        .await
    }
}

fn show(host: &v1::Host, volumes: &[Known<v1::Volume>]) -> Host {
    Host {
        name: host.name.clone(),
        // A name of the catalog is one of a host, too.
        initiator: initiator(&host.name).unwrap_or_default(),
        topology: host.topology.clone(),
        created_ms: host.created_ms,
        seen_ms: host.seen_ms,
        volumes: attached(&host.name, volumes),
    }
}

/// Names of volumes that a host may use.
fn attached(host: &str, volumes: &[Known<v1::Volume>]) -> Vec<String> {
    let is_there = |it: &&Known<v1::Volume>| it.attachments.iter().any(|it| it.host == host);
    volumes.iter().filter(is_there).map(|it| it.name.clone()).collect()
}
