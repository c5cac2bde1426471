//! Tells the catalog where this node is.
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use proto::catalog_client::{CallError, Found, Swapped};
use proto::v1;
use proto::v1::object::Body;
use proto::v1::swap_request::Change;
use tokio::sync::oneshot;
use tracing::{info, warn};

use super::{Addresses, Options};
use crate::catalog::{Books, node_key};

const PAUSE: Duration = Duration::from_millis(500);

/// What a node says of itself.
pub fn node(options: &Options, at: Addresses, topology: BTreeMap<String, String>) -> v1::Node {
    let text = |address: Option<SocketAddr>| address.map(|at| at.to_string()).unwrap_or_default();
    v1::Node {
        id: options.id.0,
        name: options.name.clone(),
        peer_address: at.peers.to_string(),
        admin_address: at.admin.to_string(),
        iscsi_address: text(at.iscsi),
        nbd_address: text(at.nbd),
        topology,
        cordoned: false,
    }
}

/// Registers the node, says so, and does it again if the catalog has lost it. Never ends by itself.
pub async fn stay_registered(books: Arc<Books>, node: v1::Node, registered: oneshot::Sender<()>) {
    register(&books, &node).await;
    // The node may have gone on without it.
    let _ = registered.send(());
    loop {
        books.unlisted().await;
        match books.client().find(&node_key(&node.name)).await {
            Ok(Found::Nothing) => register(&books, &node).await,
            Ok(Found::Deleted(_)) => {
                warn!("the site has forgotten this node: start it again if it is to come back");
            }
            // It is there, or the next watch tells.
            Ok(Found::Object(_)) | Err(_) => {}
        }
    }
}

/// Tries until the catalog has it.
async fn register(books: &Books, node: &v1::Node) {
    loop {
        match tell(books, node).await {
            Ok(true) => return info!("the catalog knows where this node is"),
            Ok(false) => {}
            Err(error) if error.may_pass() => {}
            Err(error) => warn!(%error, "the catalog does not take this node"),
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// Whether the catalog has it now; if not, somebody else was faster.
async fn tell(books: &Books, node: &v1::Node) -> Result<bool, CallError> {
    let key = node_key(&node.name);
    let present = books.client().get(&key).await?;
    let version = present.as_ref().map_or(0, |object| object.version);
    let known = match present.and_then(|object| object.body) {
        Some(Body::Node(known)) => Some(known),
        _ => None,
    };
    let node = registered(node, known.as_ref());
    if known.as_ref() == Some(&node) {
        return Ok(true);
    }
    let swapped = books.client().swap(&key, version, Change::Node(node)).await?;
    Ok(matches!(swapped, Swapped::Done(_)))
}

/// What the catalog is to have: whether a node is cordoned is not the node's own affair.
fn registered(node: &v1::Node, known: Option<&v1::Node>) -> v1::Node {
    v1::Node { cordoned: known.is_some_and(|known| known.cordoned), ..node.clone() }
}
