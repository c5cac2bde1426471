//! Stages: since when a host has a volume, as far as losses go (P8).
use std::sync::Arc;

use proto::v1;

use super::format::{last_stage, mark_after_stage};
use super::shape::check_proof;
use super::{Answer, Controller};
use crate::api::types::{NewStage, Stage};
use crate::api::{ApiError, Code};
use crate::steps::reference;

impl Controller {
    /// A number for whoever is about to use a volume, and has nothing of it mounted: what was lost before
    /// is nothing to it. Each call gives another.
    pub async fn new_stage(self: &Arc<Self>, id: &str, asked: NewStage) -> Answer<Stage> {
        let found = self.find::<v1::Volume>(id)?;
        let host = self.host_named(&asked.host).unwrap_or(asked.host);
        let this = Arc::clone(self);
        self.run(vec![(v1::Kind::Volume, found.name.clone())], async move {
            check_proof(&found, asked.credential.as_ref())?;
            let volume = this.site.known(&found.name).await?.volume;
            if volume.uid != found.uid || volume.deleting {
                return Err(ApiError::not_found("volume", &found.name));
            }
            if !volume.attachments.iter().any(|it| it.host == host) {
                let name = &volume.name;
                let message =
                    format!("the volume `{name}` is not attached to `{host}`: attach it first");
                return Err(ApiError::new(Code::InUse, message));
            }
            let (_, mut admin) = this.ready_target(&volume.name).await?;
            let last = match volume.format {
                None => 0,
                Some(_) => last_stage(&mut admin, &volume).await?,
            };
            let request = v1::NewStageRequest { volume: Some(reference(&volume)) };
            let stage = admin.new_stage(request).await?.into_inner().stage;
            this.edit::<v1::Volume>(&volume.name, &volume.uid, |volume| {
                let attached = volume.attachments.iter_mut().filter(|it| it.host == host);
                attached.for_each(|it| it.stage = it.stage.max(stage));
                let mark = volume.format.take();
                volume.format = mark_after_stage(mark, last, stage, asked.mounts);
                Ok(())
            })
            .await?;
            this.tell_target(&volume.name).await?;
            Ok(Stage { stage })
        })
        .await
    }
}
