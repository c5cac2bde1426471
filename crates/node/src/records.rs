//! What the catalog says that a shard has to know: of volumes, and of where nodes are.
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

use block::ByteLen;
use frontend::scsi::words::Rights;
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
    pub credentials: Credentials,
    pub logins: Logins,
    /// The newest stage of each machine that the volume is attached to, by the name of its initiator; 0: it has had
    /// none since it was attached.
    pub stages: BTreeMap<String, u64>,
}

impl Access {
    /// What a client may do; `None`: nothing, not even log in. Whether it knows the credentials is another question;
    /// but one that has no way to prove anything has no place where they are asked for.
    pub fn admit(&self, client: Client<'_>) -> Option<Rights> {
        match (client, &self.credentials) {
            (Client::Remote, Credentials::Chap(_) | Credentials::Unknown) => None,
            _ => self.logins.admit(client),
        }
    }

    /// Whether a stage is from before the volume was attached to this machine, or from before a newer one: what its
    /// user remembers of the volume may be older than what is there.
    pub fn is_old(&self, initiator: &str, stage: Option<u64>) -> bool {
        match (self.stages.get(initiator), stage) {
            (Some(&newest), Some(stage)) => newest == 0 || stage < newest,
            _ => false,
        }
    }
}

/// Who may log in.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Logins {
    #[default]
    Everybody,
    /// Initiators with these names, by iSCSI or by the hello of NBD. A client that has no name has to be
    /// on the node itself.
    Named(BTreeSet<String>),
    /// Only machines that the volume is attached to, by the names of their initiators. Whoever has no
    /// name has to be on the node itself.
    Attached(BTreeMap<String, Rights>),
}

/// Who wants to log in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Client<'a> {
    Initiator(&'a str),
    /// Of NBD, over the node's own socket: only root of this machine reaches it.
    Local,
    /// Of NBD, from anywhere.
    Remote,
}

impl Logins {
    fn admit(&self, client: Client<'_>) -> Option<Rights> {
        match (self, client) {
            (_, Client::Local) => Some(Rights::Write),
            (Logins::Everybody, _) => Some(Rights::Write),
            (Logins::Named(_) | Logins::Attached(_), Client::Remote) => None,
            (Logins::Named(names), Client::Initiator(name)) => {
                names.contains(name).then_some(Rights::Write)
            }
            (Logins::Attached(attached), Client::Initiator(name)) => attached.get(name).copied(),
        }
    }
}

/// What initiators have to prove.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Credentials {
    /// Nothing: everybody who is allowed may log in.
    #[default]
    Nothing,
    Chap(Chap),
    /// The volume has credentials that this node does not know: it has started without the catalog, and does not keep
    /// secrets. Logins that need them wait until the catalog was reached.
    Unknown,
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_who_is_meant_is_admitted() {
        let (write, read) = (Some(Rights::Write), Some(Rights::Read));
        let named = Logins::Named(BTreeSet::from(["iqn.a".into()]));
        let attached = |all: &[(&str, Rights)]| {
            let one = |(name, rights): &(&str, Rights)| ((*name).to_owned(), *rights);
            Logins::Attached(all.iter().map(one).collect())
        };
        let both = attached(&[("iqn.a", Rights::Write), ("iqn.b", Rights::Read)]);
        let rows = [
            (Logins::Everybody, [write, write, write, write]),
            (named, [write, None, None, write]),
            (both, [write, read, None, write]),
            (attached(&[]), [None, None, None, write]),
        ];
        for (logins, expected) in rows {
            let clients = [
                Client::Initiator("iqn.a"),
                Client::Initiator("iqn.b"),
                Client::Remote,
                Client::Local,
            ];
            assert_eq!(clients.map(|client| logins.admit(client)), expected, "{logins:?}");
            if logins != Logins::Everybody {
                assert_eq!(logins.admit(Client::Initiator("")), None);
            }
        }
    }

    #[test]
    fn where_there_are_credentials_nobody_comes_without() {
        let chap = Chap { user: "u".into(), secret: "s".into(), mutual: None };
        for credentials in [Credentials::Chap(chap), Credentials::Unknown] {
            let access = Access { credentials, ..Access::default() };
            assert_eq!(access.admit(Client::Remote), None);
            assert_eq!(access.admit(Client::Local), Some(Rights::Write));
            assert_eq!(access.admit(Client::Initiator("iqn.a")), Some(Rights::Write));
        }
        assert_eq!(Access::default().admit(Client::Remote), Some(Rights::Write));
    }

    #[test]
    fn a_stage_ends_with_its_attachment() {
        let stages = [("iqn.a".to_owned(), 7), ("iqn.b".to_owned(), 0)].into();
        let access = Access { stages, ..Access::default() };
        for (initiator, stage, is_old) in [
            ("iqn.a", Some(6), true),
            ("iqn.a", Some(7), false),
            ("iqn.a", Some(8), false),
            ("iqn.a", None, false),
            ("iqn.b", Some(7), true),
            ("iqn.b", None, false),
            ("iqn.c", Some(1), false),
        ] {
            assert_eq!(access.is_old(initiator, stage), is_old, "{initiator} {stage:?}");
        }
    }
}
