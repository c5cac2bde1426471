//! What the catalog says that a shard has to know: of volumes, and of where nodes are.
use std::collections::BTreeMap;
use std::net::SocketAddr;

use block::ByteLen;
use replication::catalog::VolumeObject;
use replication::words::{NodeId, ReplicaId, Span, VolumeUid};

/// A volume as the catalog has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeRecord {
    pub uid: VolumeUid,
    pub name: String,
    pub size: ByteLen,
    pub block_size: ByteLen,
    pub object: VolumeObject,
    /// Which node each replica is on.
    pub places: BTreeMap<ReplicaId, NodeId>,
    pub hold_deadline: Span,
    /// Operations that a replica may have under way at once; `None`: as many as the engine takes.
    pub workers: Option<usize>,
    pub access: Access,
}

/// Who may use a volume.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Access {
    /// What initiators have to know; without it everybody who is allowed may log in.
    pub chap: Option<Chap>,
    /// Names of initiators; empty: all.
    pub initiators: Vec<String>,
}

/// Credentials of an initiator, and ours if it asks for them.
#[derive(Clone, PartialEq, Eq)]
pub struct Chap {
    pub user: String,
    pub secret: String,
    pub mutual: Option<(String, String)>,
}

/// Secrets are not for logs.
impl std::fmt::Debug for Chap {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Chap(user {})", self.user)
    }
}

/// Where the peers of a node listen.
pub type NodeBook = BTreeMap<NodeId, SocketAddr>;
