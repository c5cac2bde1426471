//! What a crash left in nodes: replicas that no object lists, and that never had content.
//!
//! Only these are wiped. A replica with content that nobody lists may be of a volume that a catalog restored from
//! a backup has forgotten: that is an operator's to say, and until then it is told in the log.
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use proto::v1;
use tokio::task::JoinSet;
use tracing::{info, warn};

use super::super::books::Known;
use super::super::{Answer, Controller};

/// Between two looks at a node. What is found twice was not just about to be listed.
const EVERY: Duration = Duration::from_secs(30);

/// A replica that nobody lists: its node, its volume, its incarnation.
type Orphan = (u64, Vec<u8>, u64);

#[derive(Debug, Default)]
pub struct Sweep {
    last: Option<Instant>,
    /// Found by the last look.
    found: Arc<std::sync::Mutex<BTreeSet<Orphan>>>,
}

impl Sweep {
    pub fn look(&mut self, controller: &Arc<Controller>, working: &mut JoinSet<()>) {
        let now = Instant::now();
        if self.last.is_some_and(|last| now.duration_since(last) < EVERY) {
            return;
        }
        self.last = Some(now);
        let (controller, found) = (Arc::clone(controller), Arc::clone(&self.found));
        working.spawn(async move {
            let mut orphans = BTreeSet::new();
            for node in controller.books.all::<v1::Node>() {
                if !controller.presence(node.id).is_here() {
                    continue;
                }
                let before = found.lock().map(|found| found.clone()).unwrap_or_default();
                match controller.sweep(&node, &before).await {
                    Ok(left) => orphans.extend(left),
                    Err(error) => warn!(node = node.name, %error, "not swept"),
                }
            }
            if let Ok(mut found) = found.lock() {
                *found = orphans;
            }
        });
    }
}

impl Controller {
    /// Wipes what was found before too; tells what is found now.
    async fn sweep(&self, node: &v1::Node, before: &BTreeSet<Orphan>) -> Answer<Vec<Orphan>> {
        let mut admin = self.site.admin(node)?;
        let told = admin.list_replicas(v1::ListReplicasRequest {}).await?.into_inner();
        let mut left = Vec::new();
        for replica in told.replicas {
            let of = replica.volume.clone().unwrap_or_default();
            let volume = self.books.get::<v1::Volume>(&crate::hex::encode(&of.uid));
            let is_listed = volume
                .as_ref()
                .is_some_and(|it| it.places.iter().any(|place| place.node == node.id));
            if is_listed {
                continue;
            }
            let orphan = (node.id, of.uid.clone(), replica.incarnation);
            let is_empty = replica.membership_version == 0
                && replica.held.unwrap_or_default() == v1::Position::default();
            if !before.contains(&orphan) {
                left.push(orphan);
            } else if is_empty {
                let catalog_version = volume.as_ref().map_or(0, Known::version);
                // Of a volume that is gone only the replica has the name.
                let name = volume.map_or_else(|| of.name.clone(), |it| it.name.clone());
                let request = v1::DeleteReplicaRequest {
                    volume: Some(v1::VolumeRef { name: name.clone(), uid: of.uid }),
                    replica: replica.replica,
                    incarnation: replica.incarnation,
                    catalog_version,
                };
                match admin.delete_replica(request).await {
                    Ok(_) => info!(
                        node = node.name,
                        volume = name,
                        "an empty replica that no volume lists is wiped"
                    ),
                    // The catalog may have lost its volume.
                    Err(kept) if kept.code() == tonic::Code::FailedPrecondition => {
                        warn!(node = node.name, volume = name, why = kept.message(), "not wiped");
                        left.push(orphan);
                    }
                    Err(error) => return Err(error.into()),
                }
            } else {
                warn!(
                    node = node.name,
                    volume = of.name,
                    "a replica with content is listed nowhere: if its volume is gone for good, delete it"
                );
                left.push(orphan);
            }
        }
        Ok(left)
    }
}
