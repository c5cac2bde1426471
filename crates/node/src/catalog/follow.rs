//! Keeps the copy of the catalog fresh, and tells the shard what changed.
use std::collections::BTreeMap;
use std::sync::Arc;

use proto::catalog_client::News;
use proto::v1;
use proto::v1::object::Body;
use tracing::{error, info, warn};

use super::Books;
use super::copy::{Place, place};
use crate::admin::{Fence, Generation};
use crate::shard::{Order, Sender};

/// Never ends by itself.
pub async fn follow(books: Arc<Books>, fence: Arc<Fence>, shard: Sender) {
    let mut watch = books.client().watch_history();
    // What was told since everything began anew, with its version.
    let mut told: Option<BTreeMap<Place, u64>> = None;
    loop {
        match watch.next().await {
            News::Everything => told = Some(BTreeMap::new()),
            News::Object(object) => {
                if let (Some(told), Some(key)) = (&mut told, &object.key) {
                    told.insert(place(key), object.version);
                }
                if let Some(Body::Controller(controller)) = &object.body {
                    fence.learn(Generation(controller.generation));
                }
                books.take(&object, &shard);
            }
            News::Current { .. } => {
                if let Some(told) = told.take() {
                    info!("the catalog is known");
                    books.compare(&told);
                    shard.send(Order::Nodes(books.nodes()));
                    books.current.send_replace(true);
                }
            }
            News::Lost { reason } => warn!(reason, "the catalog is away; volumes are served on"),
        }
    }
}

impl Books {
    pub(super) fn take(&self, object: &v1::Object, shard: &Sender) {
        let Some(key) = &object.key else { return };
        match (&object.body, key.kind()) {
            (Some(Body::Volume(_)), _) => {
                let Some(known) = self.usable(object) else { return };
                shard.send(Order::Record(Box::new(known.record)));
            }
            (Some(_), kind) => {
                self.copy().insert_other(place(key), object.clone());
                if kind == v1::Kind::Node {
                    shard.send(Order::Nodes(self.nodes()));
                }
            }
            (None, kind) => {
                self.delete(key, object);
                if kind == v1::Kind::Node {
                    shard.send(Order::Nodes(self.nodes()));
                }
            }
        }
    }

    /// Something was deleted, unless its name has a later object.
    pub(super) fn delete(&self, key: &v1::Key, left: &v1::Object) {
        let mut copy = self.copy();
        let is_volume = key.kind() == v1::Kind::Volume;
        if copy.delete(&place(key), left)
            && is_volume
            && let Err(error) = self.memory.forget(&key.name)
        {
            warn!(%error, "a deleted volume is still remembered");
        }
    }

    /// Notes what the catalog does not have any more though nothing says that it was deleted.
    pub(super) fn compare(&self, told: &BTreeMap<Place, u64>) {
        for volume in self.copy().compare(told) {
            error!(volume, "{}", super::LOST);
        }
        // Only here: two processes of one name would otherwise replace each other's record for ever.
        if !self.copy().nodes.has(self.node, self.registered().as_ref()) {
            self.unlisted.notify_one();
        }
    }
}
