//! Permission to make a file system on a volume.
//!
//! A host formats a volume only with the permission of the site, and the site gives it for two reasons: the volume
//! has no allocated block, those of its origin included; or it carries the mark of a mkfs that was begun and has not
//! finished. The mark is set in the volume's object before the host is answered, and removed when the file system is
//! durable, so a mkfs that ended with its machine is repeated by the next host.
//!
//! The mark says that everything in the volume was left by a mkfs. That holds because
//! - only the host whose stage is named may continue: the attachment of another host that writes is refused, and a host
//!   that was detached is cut off by the target before the next one is attached;
//! - a volume that is open to initiators without an attachment is closed to them while the mark is there;
//! - a stage for any other use than mounting removes it (`stages.rs`), and so does a rollback;
//! - no file system is mounted before it is removed;
//! - before it is removed, the volume gives out a stage number that nobody uses: the mark names the newest stage, so a
//!   catalog that is put back to a moment before the removal has a mark that is void;
//! - snapshots and clones do not take it over.
use std::sync::Arc;

use proto::v1;

use super::names::Named;
use super::shape::check_proof;
use super::snapshots::{new_snapshot, new_uid};
use super::{Answer, Controller, now_ms};
use crate::api::types::{BeginFormat, Done, EndFormat};
use crate::api::{ApiError, Code};
use crate::hex;
use crate::parameters::FS_TYPES;
use crate::steps::{Admin, reference};

impl Controller {
    /// Answered when the mark is durable. Can be repeated.
    pub async fn begin_format(self: &Arc<Self>, id: &str, asked: BeginFormat) -> Answer<Done> {
        let found = self.find::<v1::Volume>(id)?;
        if !FS_TYPES.contains(&&*asked.file_system) {
            return Err(ApiError::invalid("fileSystem", "use ext4, xfs or btrfs"));
        }
        let mark = v1::FormatMark {
            file_system: asked.file_system,
            host: self.host_named(&asked.host).unwrap_or(asked.host),
            stage: asked.stage,
            since_ms: now_ms(),
            verified: true,
        };
        // Of two snapshots that nobody sees: a name that was just deleted cannot be used at once.
        let looks = [(); 2].map(|()| format!("check-{}", hex::encode(&new_uid())));
        let mut things = vec![(v1::Kind::Volume, found.name.clone())];
        things.extend(looks.iter().map(|name| (v1::Kind::Snapshot, name.clone())));
        let this = Arc::clone(self);
        self.run(things, async move {
            check_proof(&found, asked.credential.as_ref())?;
            let volume = this.site.known(&found.name).await?.volume;
            if volume.uid != found.uid || volume.deleting {
                return Err(ApiError::not_found("volume", &found.name));
            }
            let has_mark = may_format_again(&volume, &mark)?;
            let (_, mut admin) = this.ready_target(&volume.name).await?;
            if !has_mark || last_stage(&mut admin, &volume).await? != mark.stage {
                this.is_blank(&volume, &looks[0]).await?;
                if !volume.attached_only {
                    this.close_for_others(&volume, &mark, &looks[1]).await?;
                }
            }
            this.set_mark(&volume, &mark).await?;
            Ok(Done {})
        })
        .await
    }

    /// The file system is durable, or a host is about to use the volume as a device.
    pub async fn end_format(self: &Arc<Self>, id: &str, asked: EndFormat) -> Answer<Done> {
        let found = self.find::<v1::Volume>(id)?;
        let host = self.host_named(&asked.host).unwrap_or(asked.host);
        let this = Arc::clone(self);
        self.run(vec![(v1::Kind::Volume, found.name.clone())], async move {
            check_proof(&found, asked.credential.as_ref())?;
            let volume = this.site.known(&found.name).await?.volume;
            if volume.uid != found.uid {
                return Err(ApiError::not_found("volume", &found.name));
            }
            writer(&volume, &host, asked.stage)?;
            if volume.format.is_some() {
                // First, so that no copy of the catalog has a mark that still counts. The stage of the host stays valid.
                let (_, mut admin) = this.ready_target(&volume.name).await?;
                let request = v1::NewStageRequest { volume: Some(reference(&volume)) };
                admin.new_stage(request).await?;
            }
            this.edit::<v1::Volume>(&found.name, &found.uid, |volume| {
                writer(volume, &host, asked.stage)?;
                volume.format = None;
                Ok(())
            })
            .await?;
            if !found.attached_only {
                this.tell_target(&found.name).await?;
            }
            Ok(Done {})
        })
        .await
    }

    async fn set_mark(&self, volume: &v1::Volume, mark: &v1::FormatMark) -> Answer<()> {
        self.edit::<v1::Volume>(&volume.name, &volume.uid, |volume| {
            writer(volume, &mark.host, mark.stage)?;
            volume.format = Some(mark.clone());
            Ok(())
        })
        .await?;
        Ok(())
    }

    /// Cuts off whoever uses the volume without an attachment, then looks again: they may have written since the
    /// first look. Until that is done the mark is not verified and allows nothing.
    async fn close_for_others(
        &self,
        volume: &v1::Volume,
        mark: &v1::FormatMark,
        look: &str,
    ) -> Answer<()> {
        let unverified = v1::FormatMark { verified: false, ..mark.clone() };
        self.set_mark(volume, &unverified).await?;
        self.tell_target(&volume.name).await?;
        let blank = self.is_blank(volume, look).await;
        if blank.is_err() {
            self.drop_unverified_mark(volume).await?;
        }
        blank
    }

    /// A look that did not come to its end: others may use the volume again. Called by care too, after a crash.
    pub(super) async fn drop_unverified_mark(&self, volume: &v1::Volume) -> Answer<()> {
        self.edit::<v1::Volume>(&volume.name, &volume.uid, |volume| {
            volume.format = volume.format.take().filter(|mark| mark.verified);
            Ok(())
        })
        .await?;
        self.tell_target(&volume.name).await
    }

    /// An error if any block is allocated, wherever it is and whichever volume it came from. Asked of a snapshot:
    /// replicas answer for it that have everything up to it, and skip what was never written.
    async fn is_blank(&self, volume: &v1::Volume, look: &str) -> Answer<()> {
        let named = Named { name: look.into(), title: String::new() };
        let mut wanted = new_snapshot(volume, &named, Default::default());
        // Nobody sees it, and care removes it if this controller ends now.
        wanted.owner = volume.uid.clone();
        let intended = self.intend_snapshot(wanted).await?;
        let snapshot = self.make_snapshot(&intended).await?;
        let first = self.first_allocated(&snapshot).await;
        if let Some(unwanted) = self.unwant_snapshot(&snapshot).await? {
            self.drop_snapshot(&unwanted).await?;
        }
        match first? {
            None => Ok(()),
            Some(at) => Err(has_data(&volume.name, at)),
        }
    }

    async fn first_allocated(&self, snapshot: &v1::VolumeSnapshot) -> Answer<Option<u64>> {
        let mut from = 0;
        loop {
            let request = v1::ListExtentsRequest {
                volume: snapshot.volume.clone(),
                snapshot: snapshot.uid.clone(),
                at: snapshot.at,
                from,
                limit: 1,
                ..v1::ListExtentsRequest::default()
            };
            let told = self.ask_replicas(snapshot, request).await?;
            match (told.extents.first(), told.next) {
                (Some(extent), _) => return Ok(Some(extent.offset)),
                (None, Some(next)) if next > from => from = next,
                (None, Some(next)) => {
                    let message = format!("a node goes from byte {from} of a snapshot to {next}");
                    return Err(ApiError::new(Code::Internal, message));
                }
                (None, None) => return Ok(None),
            }
        }
    }
}

fn has_data(name: &str, at: u64) -> ApiError {
    let message = format!(
        "the volume `{name}` has data (the first at byte {at}) that is no known file system: it is not formatted \
         over; if nobody needs the data, attach it as a device and discard all of it (`blkdiscard`)"
    );
    ApiError::new(Code::InUse, message)
}

/// The host may write to the volume, under this stage.
fn writer(volume: &v1::Volume, host: &str, stage: u64) -> Answer<()> {
    let name = &volume.name;
    let refused = |why: String| Err(ApiError::new(Code::InUse, why));
    let Some(attachment) = volume.attachments.iter().find(|it| it.host == host) else {
        return refused(format!(
            "the volume `{name}` is not attached to `{host}`: attach it first"
        ));
    };
    if attachment.read_only {
        return refused(format!("the volume `{name}` is attached to `{host}` for reading only"));
    }
    if stage == 0 || attachment.stage != stage {
        let newest = attachment.stage;
        return refused(format!(
            "stage {stage} of the volume `{name}` is not the newest of `{host}`, which is {newest}: stage it anew"
        ));
    }
    Ok(())
}

/// The newest stage that the volume has given. Asked of the volume itself: a catalog that was restored does not know of
/// later ones.
pub(super) async fn last_stage(admin: &mut Admin, volume: &v1::Volume) -> Answer<u64> {
    let request = v1::GetTargetRequest { volume: Some(reference(volume)) };
    let target = admin.get_target(request).await?.into_inner();
    Ok(target.stages.map_or(0, |stages| stages.last))
}

/// Whether the catalog has the mark of an unfinished mkfs for this stage. It allows another one only if the volume has
/// given no later stage; otherwise the volume has to be blank.
fn may_format_again(volume: &v1::Volume, wanted: &v1::FormatMark) -> Answer<bool> {
    writer(volume, &wanted.host, wanted.stage)?;
    let writes_too = |it: &&v1::Attachment| it.host != wanted.host && !it.read_only;
    if let Some(other) = volume.attachments.iter().find(writes_too) {
        let message = format!(
            "the volume `{}` is attached to `{}` too, which may write to it: detach it there first",
            volume.name, other.host
        );
        return Err(ApiError::new(Code::InUse, message));
    }
    let mark = volume.format.as_ref();
    Ok(mark.is_some_and(|mark| mark.verified && mark.stage == wanted.stage))
}

/// The mark after a stage was given: `last` is the newest that the volume had given before. It stays only for a host
/// that mounts the volume, and if no stage was given that the mark does not know of: by another tool, at the
/// end of the mkfs, or before the catalog was restored from a backup.
pub(super) fn mark_after_stage(
    mark: Option<v1::FormatMark>,
    last: u64,
    stage: u64,
    mounts: bool,
) -> Option<v1::FormatMark> {
    let mark = mark.filter(|mark| mounts && mark.verified && mark.stage == last)?;
    Some(v1::FormatMark { stage, ..mark })
}

#[cfg(test)]
mod tests;
