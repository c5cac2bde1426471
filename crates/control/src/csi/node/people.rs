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
        let is_new = !before.attachments.iter().any(|it| it.host == attach.host);
        // Somebody else may be mounting it at this moment, for whom the site let it in as well.
        let is_busy = staged.as_ref().is_err_and(|error| error.code() == tonic::Code::Aborted);
        if staged.is_err() && is_new && !is_busy {
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

/// What a person wants of a volume.
pub struct Mounted {
    pub at: std::path::PathBuf,
    /// As its class says unless given.
    pub kind: Option<String>,
    pub read_only: bool,
    pub credential: Option<Credential>,
}
