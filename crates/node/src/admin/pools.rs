//! Pools: looked at. They are made by `pollux disk` and given to a node when it starts. And beats, which
//! tell of them.
use proto::v1;
use tonic::Status;

use super::{Admin, ended, statuses};
use crate::clock;
use crate::shard::{Order, Pulse};

impl Admin {
    pub(super) async fn pools(&self) -> Result<Vec<v1::Pool>, Status> {
        let pulse = self.pulse().await?;
        Ok(pulse.pools.iter().map(statuses::pool).collect())
    }

    pub(super) async fn pool(&self, name: &str) -> Result<v1::Pool, Status> {
        let mut pools = self.pools().await?.into_iter();
        pools
            .find(|pool| pool.name == name)
            .ok_or_else(|| Status::not_found(format!("there is no pool `{name}` on this node")))
    }

    pub(super) async fn beat(&self, request: v1::BeatRequest) -> Result<v1::BeatResponse, Status> {
        self.heard(&request)?;
        let pulse = self.pulse().await?;
        let (lost, lost_count) = self.books.lost();
        Ok(v1::BeatResponse {
            node: self.node.0,
            boot: self.boot,
            up_ms: clock::now().since(self.since).0 / 1000,
            pools: pulse.pools.iter().map(statuses::pool).collect(),
            replicas: pulse.replicas as u64,
            targets: pulse.targets as u64,
            lost,
            lost_count,
        })
    }

    async fn pulse(&self) -> Result<Pulse, Status> {
        let (tell, told) = tokio::sync::oneshot::channel();
        self.shard.send(Order::Pulse(Box::new(move |pulse| {
            let _ = tell.send(pulse);
        })));
        told.await.map_err(|_| ended())
    }
}
