//! Keeps the copy of the catalog fresh, and tells the shard what changed.
use std::collections::BTreeSet;
use std::sync::Arc;

use proto::catalog_client::News;
use proto::v1;
use proto::v1::object::Body;
use tracing::{info, warn};

use super::Books;
use crate::admin::{Fence, Generation};
use crate::shard::{Order, Sender};

/// Names that were told since everything began anew: whatever is not among them is gone.
#[derive(Default)]
struct Told {
    volumes: BTreeSet<String>,
    nodes: BTreeSet<String>,
}

/// Never ends by itself.
pub async fn follow(books: Arc<Books>, fence: Arc<Fence>, shard: Sender) {
    let mut watch = books.client().watch(v1::Kind::Unspecified, None);
    let mut told: Option<Told> = None;
    loop {
        match watch.next().await {
            News::Everything => told = Some(Told::default()),
            News::Object(object) => {
                if let (Some(told), Some(key)) = (&mut told, &object.key) {
                    match key.kind() {
                        v1::Kind::Volume => told.volumes.insert(key.name.clone()),
                        v1::Kind::Node => told.nodes.insert(key.name.clone()),
                        v1::Kind::Snapshot
                        | v1::Kind::Group
                        | v1::Kind::GroupSnapshot
                        | v1::Kind::Controller
                        | v1::Kind::Token
                        | v1::Kind::Host
                        | v1::Kind::Unspecified => false,
                    };
                }
                if let Some(Body::Controller(controller)) = &object.body {
                    fence.learn(Generation(controller.generation));
                }
                books.take(&object, &shard);
            }
            News::Current { .. } => {
                if let Some(told) = told.take() {
                    info!("the catalog is known");
                    books.forget_all_but(&told);
                    books.current.send_replace(true);
                }
            }
            News::Lost { reason } => warn!(reason, "the catalog is away; volumes are served on"),
        }
    }
}

impl Books {
    fn take(&self, object: &v1::Object, shard: &Sender) {
        let Some(key) = &object.key else { return };
        match (&object.body, key.kind()) {
            (Some(Body::Volume(_)), _) => {
                let Some(known) = self.usable(object) else { return };
                shard.send(Order::Record(Box::new(known.record)));
            }
            (Some(Body::Node(node)), _) => {
                self.copy().nodes.insert(key.name.clone(), node.clone());
                shard.send(Order::Nodes(self.nodes()));
            }
            (None, v1::Kind::Volume) => {
                let mut copy = self.copy();
                if !copy.delete_volume(&key.name, object.version) {
                    return;
                }
                if let Err(error) = self.memory.forget(&key.name) {
                    warn!(%error, "a deleted volume is still remembered");
                }
            }
            (None, v1::Kind::Node) => {
                self.copy().nodes.remove(&key.name);
                shard.send(Order::Nodes(self.nodes()));
            }
            // They are for controllers, and for people; or were looked at before.
            (
                Some(
                    Body::Snapshot(_)
                    | Body::Group(_)
                    | Body::GroupSnapshot(_)
                    | Body::Controller(_)
                    | Body::Token(_)
                    | Body::Host(_),
                ),
                _,
            )
            | (
                None,
                v1::Kind::Snapshot
                | v1::Kind::Group
                | v1::Kind::GroupSnapshot
                | v1::Kind::Controller
                | v1::Kind::Token
                | v1::Kind::Host
                | v1::Kind::Unspecified,
            ) => {}
        }
    }

    fn forget_all_but(&self, told: &Told) {
        self.copy().retain(&told.volumes, &told.nodes);
    }
}
