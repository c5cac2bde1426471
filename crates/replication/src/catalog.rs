//! The catalog's door: one object per volume; get, compare-and-swap, watch.
//!
//! Invariants: the version grows by one with every swap that succeeds, and a swap succeeds only
//! against the version that it names. The grant never goes back. What a target does on its own
//! authority, it does under a grant that it has seen in the catalog.
use crate::membership::{Member, Membership};
use crate::words::{CatalogVersion, Grant, NodeId};

/// Which side of a mirror a volume is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Role {
    #[default]
    Primary,
    Secondary,
}

/// What the catalog keeps of a volume.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VolumeObject {
    pub version: CatalogVersion,
    pub grant: Grant,
    /// The node that the grant is for.
    pub holder: NodeId,
    pub membership: Membership,
    /// Who is to vote in the end; the target gets there one step at a time.
    pub desired: Vec<Member>,
    pub role: Role,
    /// An operator chose what to go on with: whatever was acknowledged elsewhere may be lost, which
    /// the next barrier tells everybody who is attached.
    pub chosen: bool,
}

impl VolumeObject {
    /// Whether `other` is a later state of the same object. Grants are compared first: they never go back, while the
    /// versions of a catalog that lost its end begin again below those that were seen, until an operator confirmed it
    /// with a higher grant. Without such a loss both orders are the same.
    pub fn is_older_than(&self, other: &VolumeObject) -> bool {
        (self.grant, self.version) < (other.grant, other.version)
    }
}

/// What is asked of the catalog. Answers may come late, never, or after a later question's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CatalogAsk {
    Get,
    /// Replaces the object if its version is still `expected` and its grant still `grant`.
    Swap {
        expected: CatalogVersion,
        grant: Grant,
        object: Box<VolumeObject>,
    },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CatalogAnswer {
    /// The present object: to a get, to a watch, or to a swap that came too late.
    Object(Box<VolumeObject>),
    /// The swap is done; the object with its new version.
    Swapped(Box<VolumeObject>),
    /// The volume was deleted.
    Deleted,
    /// The catalog has no such volume, or an older object than it had before, and nothing says that it was deleted: its end
    /// is lost, or it is another catalog. Nothing follows from that but that it cannot be asked.
    Missing,
}
