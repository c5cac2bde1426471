//! Nodes of a site, and connections to them that are kept.
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use certs::{Identity, Name};
use proto::catalog_client::CONTROLLER;
use proto::v1;
use proto::v1::node_admin_client::NodeAdminClient;
use proto::v1::object::Body;
use tonic::metadata::MetadataValue;
use tonic::service::Interceptor;
use tonic::service::interceptor::InterceptedService;
use tonic::transport::Channel;
use tonic::{Request, Status};

use super::{Site, StepError};

pub type Admin = NodeAdminClient<InterceptedService<Channel, Says>>;

/// Says with every call which controller asks; an operator says nothing.
#[derive(Clone, Copy, Debug)]
pub struct Says {
    generation: Option<u64>,
}

impl Interceptor for Says {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        if let Some(generation) = self.generation {
            request.metadata_mut().insert(CONTROLLER, MetadataValue::from(generation));
        }
        Ok(request)
    }
}

/// Connections by node; one is made anew when its node is somewhere else by now.
#[derive(Debug)]
pub(super) struct Nodes {
    identity: Option<Identity>,
    says: Says,
    kept: Mutex<BTreeMap<u64, (String, Channel)>>,
}

impl Nodes {
    pub fn new(identity: Option<Identity>) -> Nodes {
        Nodes { identity, says: Says { generation: None }, kept: Mutex::default() }
    }

    pub fn controlled(self, generation: u64) -> Nodes {
        Nodes { says: Says { generation: Some(generation) }, ..self }
    }

    fn admin(&self, node: &v1::Node) -> Result<Admin, StepError> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let channel = match kept.get(&node.id) {
            Some((address, channel)) if *address == node.admin_address => channel.clone(),
            _ => {
                let name = Name::node(node.id);
                let at = &node.admin_address;
                let channel = certs::channel(at, &name, self.identity.as_ref())?;
                kept.insert(node.id, (at.clone(), channel.clone()));
                channel
            }
        };
        Ok(NodeAdminClient::with_interceptor(channel, self.says))
    }
}

impl Site {
    pub async fn nodes(&self) -> Result<Vec<v1::Node>, StepError> {
        let objects = self.client.list(v1::Kind::Node).await?;
        let node = |object: v1::Object| match object.body {
            Some(Body::Node(node)) => Some(node),
            _ => None,
        };
        Ok(objects.into_iter().filter_map(node).collect())
    }

    async fn node_by(
        &self,
        is_it: impl Fn(&v1::Node) -> bool,
    ) -> Result<Option<v1::Node>, StepError> {
        Ok(self.nodes().await?.into_iter().find(|node| is_it(node)))
    }

    pub async fn node_named(&self, name: &str) -> Result<v1::Node, StepError> {
        let node = self.node_by(|node| node.name == name).await?;
        node.ok_or_else(|| StepError::NoNode { node: name.into() })
    }

    pub async fn node_of_id(&self, id: u64) -> Result<v1::Node, StepError> {
        let node = self.node_by(|node| node.id == id).await?;
        node.ok_or_else(|| StepError::NoNode { node: id.to_string() })
    }

    pub fn admin(&self, node: &v1::Node) -> Result<Admin, StepError> {
        self.nodes.admin(node)
    }
}
