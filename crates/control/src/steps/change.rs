//! What is done to the content of a volume that is served.
use proto::v1;

use super::{Site, StepError, faults, reference};

impl Site {
    /// Grows a volume: the target first, then what the catalog says of it.
    pub async fn resize(&self, name: &str, size: u64) -> Result<(), StepError> {
        let (found, mut admin) = self.holder(name).await?;
        let volume = Some(reference(&found.volume));
        admin.resize(v1::ResizeRequest { volume, size }).await?;
        self.fault(faults::GROWTH_DONE).await;
        self.change_of(&found.volume, |volume| {
            volume.size = volume.size.max(size);
            if volume.wanted_size <= volume.size {
                volume.wanted_size = 0;
            }
            Ok(())
        })
        .await?;
        Ok(())
    }

    pub async fn snapshot(
        &self,
        name: &str,
        spec: v1::SnapshotSpec,
    ) -> Result<v1::Snapshot, StepError> {
        let (found, mut admin) = self.holder(name).await?;
        let volume = Some(reference(&found.volume));
        let request = v1::CreateSnapshotRequest { volume, spec: Some(spec) };
        Ok(admin.create_snapshot(request).await?.into_inner())
    }

    pub async fn snapshots(&self, name: &str) -> Result<Vec<v1::Snapshot>, StepError> {
        let (found, mut admin) = self.holder(name).await?;
        let request = v1::ListSnapshotsRequest { volume: Some(reference(&found.volume)) };
        Ok(admin.list_snapshots(request).await?.into_inner().snapshots)
    }

    pub async fn delete_snapshot(&self, name: &str, snapshot: Vec<u8>) -> Result<(), StepError> {
        let (found, mut admin) = self.holder(name).await?;
        let volume = Some(reference(&found.volume));
        let request = v1::DeleteSnapshotRequest { volume, snapshot: snapshot.clone() };
        match admin.delete_snapshot(request).await {
            Ok(_) => Ok(()),
            Err(status) if status.code() == tonic::Code::FailedPrecondition => {
                self.without_clones(&found.volume, Some(&snapshot)).await?;
                Err(status.into())
            }
            Err(status) => Err(status.into()),
        }
    }

    pub async fn rollback(&self, name: &str, snapshot: Vec<u8>) -> Result<(), StepError> {
        let (found, mut admin) = self.holder(name).await?;
        let volume = Some(reference(&found.volume));
        if found.volume.format.is_some() {
            // What the volume has from now on was left by no mkfs. A newer stage makes the mark void also in copies of
            // the catalog.
            admin.new_stage(v1::NewStageRequest { volume: volume.clone() }).await?;
            self.change_of(&found.volume, |volume| {
                volume.format = None;
                Ok(())
            })
            .await?;
        }
        admin.rollback(v1::RollbackRequest { volume, snapshot }).await?;
        Ok(())
    }

    /// An operator knows that writes may have been lost.
    pub async fn take_note(&self, name: &str) -> Result<(), StepError> {
        let (found, mut admin) = self.holder(name).await?;
        let volume = Some(reference(&found.volume));
        admin.take_note(v1::TakeNoteRequest { volume }).await?;
        Ok(())
    }

    /// Q12: goes on with what one replica has.
    pub async fn choose(&self, name: &str, member: v1::Member) -> Result<(), StepError> {
        let (found, mut admin) = self.holder(name).await?;
        let request = v1::ChooseRequest {
            volume: Some(reference(&found.volume)),
            replica: member.replica,
            incarnation: member.incarnation,
            catalog_version: found.version,
        };
        admin.choose(request).await?;
        Ok(())
    }
}
