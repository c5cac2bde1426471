//! Who may use a volume, and who may not any more.
//!
//! Whoever logs in is judged by the volume's record of that moment. When the record changes, everybody who
//! is logged in is judged again: whose rights are others by now is cut off, and may log in with those.
use frontend::export::OpenError;
use frontend::iscsi::Event;
use frontend::scsi::words::Rights;
use tracing::warn;

use super::Shard;
use super::asks::Asker;
use super::status::Protocol;
use super::targets::User;
use super::volumes::VolumeNo;
use crate::records::Client;

impl Shard {
    /// What an initiator may do with a volume that is served here.
    pub(super) fn admit_initiator(
        &mut self,
        volume: VolumeNo,
        initiator: &str,
    ) -> Result<Rights, OpenError> {
        let target = self.volumes.get(volume).target.as_ref().ok_or(OpenError::Unknown)?;
        if let Some(rights) = target.record.access.logins.admit(Client::Initiator(initiator)) {
            return Ok(rights);
        }
        let volume = &target.record.name;
        let what = format!("{volume} {initiator}");
        if let Some(before) = self.complaints.due("not allowed", &what, self.now) {
            warn!(volume, initiator, before, "an initiator is not allowed");
        }
        Err(OpenError::Denied)
    }

    /// The same for a client of NBD, by its line.
    pub(super) fn admit_client(&self, volume: VolumeNo, line: usize) -> Result<Rights, OpenError> {
        let target = self.volumes.get(volume).target.as_ref().ok_or(OpenError::Unknown)?;
        let admitted = target.record.access.logins.admit(self.client_on(line));
        admitted.ok_or(OpenError::Unnamed)
    }

    fn client_on(&self, line: usize) -> Client<'static> {
        let is_remote = self.lines.get(line).is_none_or(|line| line.socket.tcp().is_some());
        if is_remote { Client::Remote } else { Client::Local }
    }

    /// The record of a volume has changed.
    pub(super) fn judge_users(&mut self, volume: VolumeNo) {
        let Some(target) = &self.volumes.get(volume).target else { return };
        let logins = &target.record.access.logins;
        let is_welcome = |user: &&User| {
            let client = match (user.protocol, user.asker) {
                (Protocol::Nbd, Asker::Nbd { line }) => self.client_on(line),
                _ => Client::Initiator(&user.initiator),
            };
            logins.admit(client) == Some(user.rights)
        };
        let unwelcome = target.users.values().filter(|user| !is_welcome(user));
        let unwelcome: Vec<Asker> = unwelcome.map(|user| user.asker).collect();
        for asker in unwelcome {
            match asker {
                Asker::Iscsi { nexus } => self.step_portal(Event::Expel { nexus }),
                Asker::Nbd { line } => self.refuse_line(line, &OpenError::Unnamed.to_string()),
            }
        }
    }
}
