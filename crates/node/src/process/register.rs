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

/// Why a node registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Occasion {
    /// Its process has started, by which a forgotten node comes back.
    Start,
    /// The catalog has lost it, or has an older or another record of it. A forgotten node stays forgotten.
    Unlisted,
}

/// What a node does about what the catalog has of it.
#[derive(Debug, PartialEq)]
enum Next {
    Listed,
    Swap { expected: u64, node: Box<v1::Node> },
    Forgotten,
}

/// Registers the node, says so, and does it again if the catalog has lost it or has another address of it. Never ends by
/// itself.
pub async fn stay_registered(books: Arc<Books>, node: v1::Node, registered: oneshot::Sender<()>) {
    books.set_registered(node.clone());
    register(&books, &node, Occasion::Start).await;
    // The node may have gone on without it.
    let _ = registered.send(());
    loop {
        books.unlisted().await;
        register(&books, &node, Occasion::Unlisted).await;
    }
}

/// Tries until the catalog has it, or says that it was deleted.
async fn register(books: &Books, node: &v1::Node, occasion: Occasion) {
    loop {
        match tell(books, node, occasion).await {
            Ok(true) => return,
            Ok(false) => {}
            Err(error) if error.may_pass() => {}
            Err(error) => warn!(%error, "the catalog does not take this node"),
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// Whether nothing is left to do; if not, somebody else was faster.
async fn tell(books: &Books, node: &v1::Node, occasion: Occasion) -> Result<bool, CallError> {
    let key = node_key(&node.name);
    // Looked up each time: it may have been deleted while the catalog was away.
    let found = books.client().find(&key).await?;
    match next(node, occasion, &found) {
        Next::Listed => {}
        Next::Swap { expected, node } => {
            let swapped = books.client().swap(&key, expected, Change::Node(*node)).await?;
            if !matches!(swapped, Swapped::Done(_)) {
                return Ok(false);
            }
        }
        Next::Forgotten => {
            warn!("the site has forgotten this node: start it again if it is to come back");
            return Ok(true);
        }
    }
    info!("the catalog knows where this node is");
    Ok(true)
}

fn next(node: &v1::Node, occasion: Occasion, found: &Found) -> Next {
    let (expected, known) = match found {
        Found::Deleted(_) if occasion == Occasion::Unlisted => return Next::Forgotten,
        Found::Deleted(_) | Found::Nothing => (0, None),
        Found::Object(object) => match &object.body {
            Some(Body::Node(known)) => (object.version, Some(known)),
            _ => (object.version, None),
        },
    };
    // Whether a node is cordoned is not the node's own affair.
    let node = v1::Node { cordoned: known.is_some_and(|it| it.cordoned), ..node.clone() };
    match known == Some(&node) {
        true => Next::Listed,
        false => Next::Swap { expected, node: Box::new(node) },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(port: u16) -> v1::Node {
        let peer_address = format!("10.0.0.1:{port}");
        v1::Node { id: 1, name: "node-1".into(), peer_address, ..v1::Node::default() }
    }

    fn listed(version: u64, node: v1::Node) -> Found {
        let body = Some(Body::Node(node));
        Found::Object(v1::Object { version, body, ..v1::Object::default() })
    }

    fn swap(expected: u64, node: v1::Node) -> Next {
        Next::Swap { expected, node: Box::new(node) }
    }

    /// Protects from a node that an operator has deleted, and that is back when the catalog is restored or cannot be reached
    /// for a while.
    #[test]
    fn a_forgotten_node_comes_back_by_a_start_only() {
        let mark = Found::Deleted(v1::Object { version: 7, ..v1::Object::default() });
        assert_eq!(next(&at(71), Occasion::Unlisted, &mark), Next::Forgotten);
        assert_eq!(next(&at(71), Occasion::Start, &mark), swap(0, at(71)));
        assert_eq!(next(&at(71), Occasion::Unlisted, &Found::Nothing), swap(0, at(71)));
    }

    /// Protects from a node that leaves its old address in a restored catalog, or takes back that it is cordoned.
    #[test]
    fn a_node_that_is_listed_elsewhere_says_where_it_is_and_stays_cordoned() {
        let cordoned = |port| v1::Node { cordoned: true, ..at(port) };
        let next = |found: &Found| next(&at(71), Occasion::Unlisted, found);
        assert_eq!(next(&listed(4, cordoned(70))), swap(4, cordoned(71)));
        assert_eq!(next(&listed(5, cordoned(71))), Next::Listed);
    }
}
