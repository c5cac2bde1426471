//! Pools: looked at. They are made by `pollux disk` and given to a node when it starts.
use proto::v1;
use tonic::Status;

use super::{Admin, statuses};

impl Admin {
    pub(super) async fn pools(&self) -> Result<Vec<v1::Pool>, Status> {
        let status = self.status().await?;
        let pool = |pool| statuses::pool(pool, &status.replicas);
        Ok(status.pools.iter().map(pool).collect())
    }

    pub(super) async fn pool(&self, name: &str) -> Result<v1::Pool, Status> {
        let mut pools = self.pools().await?.into_iter();
        pools
            .find(|pool| pool.name == name)
            .ok_or_else(|| Status::not_found(format!("there is no pool `{name}` on this node")))
    }
}
