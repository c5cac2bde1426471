//! Who may use a volume, and who may not any more.
//!
//! Whoever logs in is judged by the volume's record of that moment. When the record changes, everybody who
//! is logged in is judged again: whose rights are others by now is cut off, and may log in with those.
use frontend::export::{OpenError, split_stage};
use frontend::iscsi::Event;
use frontend::nbd::hello::{Introduction, Mac};
use frontend::scsi::words::Rights;
use tracing::warn;

use super::Shard;
use super::asks::Asker;
use super::status::Protocol;
use super::targets::User;
use super::volumes::VolumeNo;
use crate::records::{Chap, Client, Credentials};

/// What a client of NBD may do, and how the target shows it that it is the right one.
#[derive(Clone, Copy, Debug)]
pub struct Admitted {
    pub rights: Rights,
    pub target_mac: Option<Mac>,
}

impl Shard {
    /// What an initiator may do with a volume that is served here.
    pub(super) fn admit_initiator(
        &mut self,
        volume: VolumeNo,
        initiator: &str,
        stage: Option<u64>,
    ) -> Result<Rights, OpenError> {
        let target = self.volumes.get(volume).target.as_ref().ok_or(OpenError::Unknown)?;
        let access = &target.record.access;
        if let Some(rights) = access.admit(Client::Initiator(initiator)) {
            return match access.is_old(initiator, stage) {
                true => Err(OpenError::OldStage),
                false => Ok(rights),
            };
        }
        let volume = &target.record.name;
        let what = format!("{volume} {initiator}");
        if let Some(before) = self.complaints.due("not allowed", &what, self.now) {
            warn!(volume, initiator, before, "an initiator is not allowed");
        }
        Err(OpenError::Denied)
    }

    /// The same for a client of NBD, by its line and by what it says of itself. Whoever says a name has
    /// to prove it, if the volume has credentials.
    pub(super) fn admit_client(
        &self,
        volume: VolumeNo,
        line: usize,
        export: &str,
        by: Option<&Introduction>,
    ) -> Result<Admitted, OpenError> {
        let target = self.volumes.get(volume).target.as_ref().ok_or(OpenError::Unknown)?;
        let access = &target.record.access;
        let Some(by) = by else {
            let rights = access.admit(self.client_on(line)).ok_or(OpenError::Unnamed)?;
            return Ok(Admitted { rights, target_mac: None });
        };
        let client = Client::Initiator(&by.hello.initiator);
        let rights = access.admit(client).ok_or(OpenError::Denied)?;
        if access.is_old(&by.hello.initiator, split_stage(export).1) {
            return Err(OpenError::OldStage);
        }
        let target_mac = match &access.credentials {
            Credentials::Chap(chap) => prove(chap, export, by)?,
            Credentials::Nothing => None,
            Credentials::Unknown => return Err(unknown_credentials()),
        };
        Ok(Admitted { rights, target_mac })
    }

    /// Who is there, of whom nothing is known but where it comes from.
    fn client_on(&self, line: usize) -> Client<'static> {
        let is_remote = self.lines.get(line).is_none_or(|line| line.socket.tcp().is_some());
        if is_remote { Client::Remote } else { Client::Local }
    }

    /// The record of a volume has changed.
    pub(super) fn judge_users(&mut self, volume: VolumeNo) {
        let Some(target) = &self.volumes.get(volume).target else { return };
        let access = &target.record.access;
        let is_welcome = |user: &&User| {
            let client = match (user.protocol, user.asker) {
                (Protocol::Nbd, Asker::Nbd { line }) if user.initiator.is_empty() => {
                    self.client_on(line)
                }
                _ => Client::Initiator(&user.initiator),
            };
            let stage = user.login.stage.map(|stage| stage.0);
            access.admit(client) == Some(user.rights) && !access.is_old(&user.initiator, stage)
        };
        let unwelcome = target.users.values().filter(|user| !is_welcome(user));
        let reason = |user: &User| match user.initiator.is_empty() {
            true => OpenError::Unnamed,
            false => OpenError::Denied,
        };
        let unwelcome: Vec<(Asker, OpenError)> =
            unwelcome.map(|user| (user.asker, reason(user))).collect();
        for (asker, reason) in unwelcome {
            match asker {
                Asker::Iscsi { nexus } => self.step_portal(Event::Expel { nexus }),
                Asker::Nbd { line } => self.refuse_line(line, &reason.to_string()),
            }
        }
    }
}

/// A login whose credentials cannot be compared is refused for now: initiators try again.
pub fn unknown_credentials() -> OpenError {
    let reason =
        "this node has started without the catalog, and learns the volume's credentials from it";
    OpenError::NotReady { reason: reason.into() }
}

/// Whether a client knows the credentials of a volume; our own proof, if it wants one.
fn prove(chap: &Chap, export: &str, by: &Introduction) -> Result<Option<Mac>, OpenError> {
    let proof = by.proof.as_ref().filter(|proof| proof.user == chap.user);
    let claim = by.hello.initiator_claim(&by.challenge, export);
    let secret = chap.secret.as_bytes();
    if !proof.is_some_and(|proof| certs::is_hmac_sha256(secret, &claim, &proof.mac)) {
        return Err(OpenError::Denied);
    }
    let mutual = chap.mutual.as_ref().map(|(_, secret)| secret.as_bytes());
    let claim = by.hello.target_claim(&by.challenge, export);
    Ok(mutual.map(|secret| certs::hmac_sha256(secret, &claim)))
}
