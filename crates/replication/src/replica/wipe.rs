//! Whether the content of a replica may be destroyed (Q13).
use thiserror::Error;

use crate::membership::{Member, Membership};
use crate::replica::Replica;
use crate::words::Incarnation;

/// Why a replica keeps its content though it was told to give it up.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum WipeRefusal {
    #[error("version {seen} of the membership was seen, and the command knows {given}")]
    OlderMembership { seen: u64, given: u64 },
    #[error("another content is meant: this is {has:?}")]
    OtherIncarnation { has: Incarnation },
    #[error("it still has a vote")]
    Voter,
}

impl Replica {
    /// `member`: which replica, with the content that whoever asks means. `membership`: what the
    /// catalog has now. A vote in either set of a change under way counts.
    pub fn may_wipe(&self, member: Member, membership: &Membership) -> Result<(), WipeRefusal> {
        let seen = self.state.membership_seen.max(self.state.shared.membership.version);
        let has = self.state.incarnation;
        if membership.version < seen {
            return Err(WipeRefusal::OlderMembership { seen, given: membership.version });
        }
        if member.incarnation != has {
            return Err(WipeRefusal::OtherIncarnation { has });
        }
        match membership.has(member) {
            true => Err(WipeRefusal::Voter),
            false => Ok(()),
        }
    }
}
