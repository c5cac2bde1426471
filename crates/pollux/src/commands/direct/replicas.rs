//! More, fewer and other replicas.
use std::time::Duration;

use anyhow::Result;
use control::steps::Site;

use crate::cli::DirectReplica;
use crate::render::say;

/// Catching up takes as long as it takes; whoever waits longer looks at the status.
const PATIENCE: Duration = Duration::from_secs(3600);

pub async fn run(site: &Site, command: DirectReplica) -> Result<()> {
    match command {
        DirectReplica::Add { name, on: (node, pool), wait } => {
            site.add_replica(&name, &node, &pool).await?;
            if wait {
                site.settled(&name, PATIENCE).await?;
                return say(&format!("{name} has a replica on {node}, and it votes"));
            }
            say(&format!("{name} has a replica on {node}; it votes when it has caught up"))
        }
        DirectReplica::Remove { name, on } => {
            site.remove_replica(&name, &on).await?;
            say(&format!("{name} has no replica on {on} any more"))
        }
        DirectReplica::Renew { name, on } => {
            site.renew_replica(&name, &on).await?;
            say(&format!("the replica of {name} on {on} is empty; it votes when it has caught up"))
        }
        DirectReplica::Replace { name, old, new: (node, pool) } => {
            site.replace_replica(&name, &old, &node, &pool).await?;
            say(&format!("{name} has a replica on {node} in place of {old}"))
        }
    }
}
