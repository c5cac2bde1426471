//! Which parts of a snapshot have data, and which changed since an earlier one: streams that are as fast
//! as whoever reads them.
//!
//! A page is asked for when the one before has been taken, and nobody is asked any more once the reader is
//! gone.
use proto::csi::snapshot_metadata_server::SnapshotMetadata;
use proto::csi::{
    BlockMetadata, BlockMetadataType, GetMetadataAllocatedRequest, GetMetadataAllocatedResponse,
    GetMetadataDeltaRequest, GetMetadataDeltaResponse,
};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status};

use super::capacity::signed;
use super::fields::{given, id};
use super::secrets::credential;
use super::site::Site;
use super::status::{invalid, not_yet, refused};
use crate::api::Client;
use crate::api::types::{Extent, Extents, Snapshot};

/// Blocks of one message, and extents of one question to the site: some 20 KiB.
const BLOCKS_MAX: usize = 1024;
/// Messages that are ready for a reader.
const READY_MAX: usize = 1;

pub struct MetadataService {
    pub site: Site,
}

type Messages<M> = ReceiverStream<Result<M, Status>>;

#[tonic::async_trait]
impl SnapshotMetadata for MetadataService {
    type GetMetadataAllocatedStream = Messages<GetMetadataAllocatedResponse>;

    async fn get_metadata_allocated(
        &self,
        request: Request<GetMetadataAllocatedRequest>,
    ) -> Result<Response<Self::GetMetadataAllocatedStream>, Status> {
        let GetMetadataAllocatedRequest { snapshot_id, starting_offset, max_results, secrets } =
            request.into_inner();
        given("snapshot_id", &snapshot_id)?;
        let block_count = block_count(max_results)?;
        credential(secrets)?;
        let uid = id("snapshot", "snapshot_id", &snapshot_id)?;
        let client = self.site.client()?;
        let of = client.snapshot(uid).await.map_err(refused)?;
        let walk = Walk::new(starting_offset, ready(&of)?.size)?;
        Ok(stream(Reading { client, of: of.uid, base: None, walk, block_count }))
    }

    type GetMetadataDeltaStream = Messages<GetMetadataDeltaResponse>;

    async fn get_metadata_delta(
        &self,
        request: Request<GetMetadataDeltaRequest>,
    ) -> Result<Response<Self::GetMetadataDeltaStream>, Status> {
        let GetMetadataDeltaRequest {
            base_snapshot_id,
            target_snapshot_id,
            starting_offset,
            max_results,
            secrets,
        } = request.into_inner();
        given("base_snapshot_id", &base_snapshot_id)?;
        given("target_snapshot_id", &target_snapshot_id)?;
        let block_count = block_count(max_results)?;
        credential(secrets)?;
        let base = id("snapshot", "base_snapshot_id", &base_snapshot_id)?;
        let target = id("snapshot", "target_snapshot_id", &target_snapshot_id)?;
        let client = self.site.client()?;
        let base = client.snapshot(base).await.map_err(refused)?;
        let target = client.snapshot(target).await.map_err(refused)?;
        follows(ready(&base)?, ready(&target)?)?;
        let walk = Walk::new(starting_offset, target.size)?;
        Ok(stream(Reading { client, of: target.uid, base: Some(base.uid), walk, block_count }))
    }
}

fn block_count(max_results: i32) -> Result<usize, Status> {
    match usize::try_from(max_results) {
        Ok(0) => Ok(BLOCKS_MAX),
        Ok(count) => Ok(count.min(BLOCKS_MAX)),
        Err(_) => Err(invalid("max_results", format!("{max_results} is below zero"))),
    }
}

fn ready(snapshot: &Snapshot) -> Result<&Snapshot, Status> {
    match snapshot.ready {
        true => Ok(snapshot),
        false => Err(not_yet(format!("the snapshot {} is being taken", snapshot.name))),
    }
}

fn follows(base: &Snapshot, target: &Snapshot) -> Result<(), Status> {
    let (base_name, name) = (&base.name, &target.name);
    let problem = if base.volume_uid != target.volume_uid {
        format!("{base_name} and {name} are of two volumes")
    } else if base.uid == target.uid {
        format!("{name} is both of them")
    } else if base.created_ms > target.created_ms {
        format!("{base_name} is younger than {name}: exchange them")
    } else {
        return Ok(());
    };
    Err(invalid("base_snapshot_id", problem))
}

/// How far a stream is. What it tells goes forward and never over itself, whatever the site says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Walk {
    /// Asked for from here on.
    from: u64,
    /// The end of what was told.
    told: u64,
    size: u64,
}

impl Walk {
    fn new(starting_offset: i64, size: u64) -> Result<Walk, Status> {
        match u64::try_from(starting_offset) {
            Ok(from) if from <= size => Ok(Walk { from, told: 0, size }),
            _ => Err(Status::out_of_range(format!(
                "starting_offset: {starting_offset} is not from 0 to {size}, the volume's size"
            ))),
        }
    }

    /// The blocks of a page, and whether there are more.
    fn take(&mut self, page: Extents) -> Result<(Vec<BlockMetadata>, bool), Status> {
        let mut blocks = Vec::with_capacity(page.extents.len());
        for Extent { offset, len } in page.extents {
            let end = offset.checked_add(len).filter(|end| offset < *end && *end <= self.size);
            let end = end.filter(|_| self.told <= offset);
            let end = end.ok_or_else(|| {
                Status::internal(format!("the site tells of {len} bytes at {offset} out of turn"))
            })?;
            self.told = end;
            if end > self.from {
                let (byte_offset, size_bytes) = (signed(offset), signed(len));
                blocks.push(BlockMetadata { byte_offset, size_bytes });
            }
        }
        match page.next {
            None => Ok((blocks, false)),
            Some(next) if next <= self.from => {
                Err(Status::internal(format!("the site goes from {} to {next}", self.from)))
            }
            Some(next) => {
                self.from = next;
                Ok((blocks, true))
            }
        }
    }
}

/// One stream: of which snapshot, since which, and how far it is.
struct Reading {
    client: Client,
    of: String,
    base: Option<String>,
    walk: Walk,
    block_count: usize,
}

/// A message of either stream.
trait Message: Send + 'static {
    fn of(capacity: i64, blocks: Vec<BlockMetadata>) -> Self;
}

impl Message for GetMetadataAllocatedResponse {
    fn of(volume_capacity_bytes: i64, block_metadata: Vec<BlockMetadata>) -> Self {
        let block_metadata_type = BlockMetadataType::VariableLength.into();
        Self { block_metadata_type, volume_capacity_bytes, block_metadata }
    }
}

impl Message for GetMetadataDeltaResponse {
    fn of(volume_capacity_bytes: i64, block_metadata: Vec<BlockMetadata>) -> Self {
        let block_metadata_type = BlockMetadataType::VariableLength.into();
        Self { block_metadata_type, volume_capacity_bytes, block_metadata }
    }
}

fn stream<M: Message>(reading: Reading) -> Response<Messages<M>> {
    let (out, messages) = mpsc::channel(READY_MAX);
    tokio::spawn(async move {
        let reader = out.clone();
        tokio::select! {
            () = reader.closed() => {}
            failed = reading.tell(&out) => if let Err(status) = failed {
                // A reader that is gone does not need to know.
                let _ = out.send(Err(status)).await;
            }
        }
    });
    Response::new(ReceiverStream::new(messages))
}

impl Reading {
    /// Until the end, an error, or forever if nobody reads: whoever calls this watches the reader.
    async fn tell<M: Message>(
        mut self,
        out: &mpsc::Sender<Result<M, Status>>,
    ) -> Result<(), Status> {
        let limit = u32::try_from(BLOCKS_MAX).unwrap_or(u32::MAX);
        let capacity = signed(self.walk.size);
        let (mut more, mut silent) = (true, true);
        while more {
            let base = self.base.as_deref();
            let page = self.client.extents(&self.of, base, self.walk.from, limit).await;
            let (blocks, further) = self.walk.take(page.map_err(refused)?)?;
            more = further;
            for part in blocks.chunks(self.block_count) {
                silent = false;
                let _ = out.send(Ok(M::of(capacity, part.to_vec()))).await;
            }
        }
        if silent {
            // The size is worth knowing too.
            let _ = out.send(Ok(M::of(capacity, Vec::new()))).await;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
