//! Volumes on this machine for people, without an orchestrator.
use attach::host::Unwritten;
use attach::orders::Status as Attachment;
use tonic::Status;

use super::requests::{self, Stage};
use super::{NodeService, refused, unable, unless_missing};
use crate::api::types::{Attach, Credential, Detach, NewHost};

impl NodeService {
    /// The volume `name` at a place of this machine. The site lets this machine use it first.
    pub async fn mount(&self, name: &str, wanted: Mounted) -> Result<Attachment, Status> {
        let Mounted { at, kind, read_only, credential } = wanted;
        let client = self.site.client()?;
        let host = self.host.name.clone();
        let new = NewHost { name: host.clone(), topology: self.host.place.clone() };
        client.create_host(&new).await.map_err(refused)?;
        let attach =
            Attach { host, read_only, credential: credential.clone(), ..Attach::default() };
        let before = client.volume(name).await.map_err(refused)?;
        let volume = client.attach_volume(name, &attach).await.map_err(refused)?;
        let mount = Some(requests::Mount { kind: kind.unwrap_or_default(), flags: Vec::new() });
        let uid = volume.uid.clone();
        let wanted = Stage { uid, path: at, mount, read_only, credential };
        let staged = self.stage(&volume, wanted).await;
        if let Err(error) = &staged
            && is_taken_back(
                error,
                before.attachments.iter().map(|it| it.host.as_str()),
                &attach.host,
            )
        {
            let from = Detach { host: attach.host, credential: attach.credential };
            // The first error is the one to tell.
            let _ = client.detach_volume(&volume.uid, &from).await;
        }
        staged
    }

    /// Away from wherever it is on this machine, which may not use it any more then. Writes that do not arrive
    /// keep it here, unless they are given up.
    pub async fn unmount(
        &self,
        name: &str,
        credential: Option<Credential>,
        unwritten: Unwritten,
    ) -> Result<(), Status> {
        let client = self.site.client()?;
        // Known here also while the site is away, or after the volume was deleted.
        let here = self.machine.host.attachments().map_err(unable)?.into_iter();
        let here = here.map(|(record, _)| record).find(|record| record.volume == name);
        let uid = match here {
            Some(record) => record.uid,
            None => client.volume(name).await.map_err(refused)?.uid,
        };
        self.claimed(uid.clone(), move |claim| claim.unmount_and_detach(unwritten)).await?;
        let from = Detach { host: self.host.name.clone(), credential };
        unless_missing(client.detach_volume(&uid, &from).await)?;
        Ok(())
    }
}

/// Whether a mount that failed detaches the volume from its host again: not if it was attached before, and not if
/// another mount is under way, for which the site let the host in as well.
fn is_taken_back<'a>(
    error: &Status,
    mut hosts_before: impl Iterator<Item = &'a str>,
    host: &str,
) -> bool {
    !hosts_before.any(|before| before == host) && error.code() != tonic::Code::Aborted
}

/// What a person wants of a volume.
pub struct Mounted {
    pub at: std::path::PathBuf,
    /// As its class says unless given.
    pub kind: Option<String>,
    pub read_only: bool,
    pub credential: Option<Credential>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mount_that_failed_detaches_only_what_it_attached_itself() {
        let taken_back = |error: &Status, before: &[&'static str]| {
            is_taken_back(error, before.iter().copied(), "here")
        };
        let failed = Status::unavailable("no target");
        assert!(taken_back(&failed, &[]));
        assert!(taken_back(&failed, &["elsewhere"]));
        assert!(!taken_back(&failed, &["elsewhere", "here"]), "it was attached before");
        let busy = Status::aborted("another mount is under way");
        assert!(!taken_back(&busy, &[]));
    }
}
