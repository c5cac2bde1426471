//! What the owner tells a portal, and what the portal wants to have done.
use std::fmt;

use crate::export::OpenError;
use crate::piece::Piece;
use crate::scsi::words::{Command, InitiatorPort, Managed, Management, NexusId, Response, TaskId};

use super::errors::CloseReason;

/// A connection. Given by the owner, never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnNo(pub u64);

/// A session between the end of its negotiation and its login at the volume. Never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionNo(pub u64);

/// Names a task management function until its end. Never used twice within a nexus.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ManageId(pub u64);

/// A secret of CHAP. It is never shown.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Vec<u8>);

impl Secret {
    pub fn new(bytes: impl Into<Vec<u8>>) -> Secret {
        Secret(bytes.into())
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

/// Who an initiator has to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chap {
    pub user: String,
    pub secret: Secret,
    /// Who we are, to initiators that ask. Its secret has to be another than the one above.
    pub mutual: Option<(String, Secret)>,
}

/// What a login has to show.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Access {
    /// Without it everybody may log in.
    pub chap: Option<Chap>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    pub access: Access,
}

/// A target as it is listed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TargetRecord {
    pub iqn: String,
    /// Addresses with ports. None is the portal that was asked.
    pub portals: Vec<String>,
}

#[derive(Debug)]
pub enum Event<'a> {
    /// `portal` is the address with port under which clients reach us, `peer` the client's without one.
    Accepted { conn: ConnNo, portal: String, peer: String },
    /// Any cut of the stream.
    Received { conn: ConnNo, bytes: &'a [u8] },
    /// So many bytes of the stream were put into the front of what `landing` gave, just now.
    Landed { conn: ConnNo, len: usize },
    /// The connection is gone. Not needed after `Output::Close`.
    Lost { conn: ConnNo },
    /// Answers `Output::List`.
    Listed { conn: ConnNo, targets: Vec<TargetRecord> },
    /// Answers `Output::Find`.
    Found { conn: ConnNo, result: Result<Found, OpenError> },
    /// Answers `Output::Login`.
    LoggedIn { session: SessionNo, result: Result<(), OpenError> },
    /// Answers `Output::Command`. A task that was aborted needs no answer.
    Response { nexus: NexusId, task: TaskId, response: Response },
    /// Answers `Output::Manage`.
    Managed { nexus: NexusId, id: ManageId, result: Managed },
    /// Sessions of a target have to end: they are asked to log out, and closed after a while.
    Drain { iqn: String },
    /// A session has to end now: its initiator may not use the target any more, or not as before. It is
    /// over with the `Ended` that follows, also if its login is not answered yet.
    Expel { nexus: NexusId },
    /// So many bytes of what was to be sent over a connection are left. Told when some were sent, as
    /// long as `Portal::watches_unsent`.
    Unsent { conn: ConnNo, bytes: usize },
    /// Time went by. Once a second is often enough.
    Tick,
}

/// To be carried out in this order, as far as one connection or one nexus is concerned.
#[derive(Debug)]
pub enum Output {
    Send {
        conn: ConnNo,
        piece: Piece,
    },
    /// To be closed when all that was to be sent is sent. The portal has forgotten the connection.
    /// Without a reason the initiator logged out.
    Close {
        conn: ConnNo,
        reason: Option<CloseReason>,
    },
    /// Which targets are there? Or, with a name, is there this one: it may carry a stage.
    List {
        conn: ConnNo,
        name: Option<String>,
    },
    /// The name is as it was sent: it may carry a stage.
    Find {
        conn: ConnNo,
        name: String,
        initiator: String,
    },
    /// A session finished its negotiation. It begins with `Event::LoggedIn`; until then its
    /// initiator waits. `replaces` is a session of the same initiator port at the same target that
    /// is over: it gets no `Ended`, and its work is finished or dropped by the time of the answer.
    Login {
        session: SessionNo,
        nexus: NexusId,
        target: String,
        port: InitiatorPort,
        replaces: Option<NexusId>,
    },
    Command {
        nexus: NexusId,
        task: TaskId,
        command: Command,
    },
    Manage {
        nexus: NexusId,
        id: ManageId,
        lun: u64,
        function: Management,
    },
    /// A session that was given in `Login` is over, also if that is not answered yet. Nothing
    /// is expected for its tasks. Not for a session whose login was answered with an error.
    Ended {
        nexus: NexusId,
    },
}
