//! Permission of the site to format a volume, for whoever stages it.
use attach::filesystem::Kind;
use attach::host::{Permit, PermitError};
use tokio::runtime::Handle;

use crate::api::types::{BeginFormat, Credential, EndFormat};
use crate::api::{ApiError, Client, Code};

/// Of one volume, one host and its newest stage. Asked from threads that may block.
pub struct SitePermit {
    pub runtime: Handle,
    pub client: Client,
    pub uid: String,
    pub host: String,
    pub stage: u64,
    pub credential: Option<Credential>,
}

impl Permit for SitePermit {
    fn is_unfinished(&self) -> Result<bool, PermitError> {
        let volume = self.runtime.block_on(self.client.volume(&self.uid)).map_err(unable)?;
        Ok(volume.format.is_some_and(|format| format.verified && format.stage == self.stage))
    }

    fn begin(&self, kind: Kind) -> Result<(), PermitError> {
        let of = BeginFormat {
            host: self.host.clone(),
            stage: self.stage,
            file_system: kind.name().into(),
            credential: self.credential.clone(),
        };
        self.runtime.block_on(self.client.begin_format(&self.uid, &of)).map_err(unable)?;
        Ok(())
    }

    fn finish(&self) -> Result<(), PermitError> {
        self.runtime.block_on(self.end()).map_err(unable)
    }
}

impl SitePermit {
    /// The volume is used as a device: what was begun is forgotten, since whoever has the device may write.
    pub async fn end(&self) -> Result<(), ApiError> {
        let of = EndFormat {
            host: self.host.clone(),
            stage: self.stage,
            credential: self.credential.clone(),
        };
        self.client.end_format(&self.uid, &of).await?;
        Ok(())
    }

    /// The same, if there is anything to forget.
    pub async fn forget(&self) -> Result<(), ApiError> {
        match self.client.volume(&self.uid).await?.format {
            None => Ok(()),
            Some(_) => self.end().await,
        }
    }
}

fn unable(error: ApiError) -> PermitError {
    match error.code {
        Code::InUse | Code::NotFound => PermitError::Refused(error.message),
        Code::Busy => PermitError::Busy(error.message),
        Code::Unavailable => PermitError::Unavailable(error.message),
        _ => PermitError::Failed(error.to_string()),
    }
}
