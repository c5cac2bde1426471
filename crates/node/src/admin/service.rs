//! The generated service: each call is one line, the work is in the modules beside. Whatever changes something
//! passes the fence first.
use proto::catalog_client::parts;
use proto::v1;
use proto::v1::node_admin_server::NodeAdmin;
use replication::client::Command;
use tonic::{Request, Response, Status};

use super::Admin;
use super::holds::CutStream;

type Answered<T> = Result<Response<T>, Status>;

#[tonic::async_trait]
impl NodeAdmin for Admin {
    type CutStream = CutStream;
    type RecallCatalogStream =
        tokio_stream::Iter<std::vec::IntoIter<Result<v1::CatalogPart, Status>>>;

    async fn create_replica(
        &self,
        request: Request<v1::CreateReplicaRequest>,
    ) -> Answered<v1::CreateReplicaResponse> {
        Admin::create_replica(self, self.fenced(request)?).await.map(Response::new)
    }

    async fn delete_replica(
        &self,
        request: Request<v1::DeleteReplicaRequest>,
    ) -> Answered<v1::DeleteReplicaResponse> {
        let request = self.fenced_anew(request).await?;
        Admin::delete_replica(self, request).await.map(Response::new)
    }

    async fn list_replicas(
        &self,
        _: Request<v1::ListReplicasRequest>,
    ) -> Answered<v1::ListReplicasResponse> {
        let replicas = self.replicas(None).await?;
        Ok(Response::new(v1::ListReplicasResponse { replicas }))
    }

    async fn get_replica(&self, request: Request<v1::GetReplicaRequest>) -> Answered<v1::Replica> {
        self.replica(request.into_inner()).await.map(Response::new)
    }

    async fn get_replica_snapshot(
        &self,
        request: Request<v1::GetReplicaSnapshotRequest>,
    ) -> Answered<v1::ReplicaSnapshot> {
        self.replica_snapshot(request.into_inner()).await.map(Response::new)
    }

    async fn start_target(
        &self,
        request: Request<v1::StartTargetRequest>,
    ) -> Answered<v1::StartTargetResponse> {
        let request = match request.get_ref().take_over {
            true => self.fenced_anew(request).await?,
            false => self.fenced(request)?,
        };
        Admin::start_target(self, request).await.map(Response::new)
    }

    async fn stop_target(
        &self,
        request: Request<v1::StopTargetRequest>,
    ) -> Answered<v1::StopTargetResponse> {
        Admin::stop_target(self, self.fenced(request)?).await.map(Response::new)
    }

    async fn list_targets(
        &self,
        _: Request<v1::ListTargetsRequest>,
    ) -> Answered<v1::ListTargetsResponse> {
        let targets = self.targets().await?;
        Ok(Response::new(v1::ListTargetsResponse { targets }))
    }

    async fn get_target(
        &self,
        request: Request<v1::GetTargetRequest>,
    ) -> Answered<v1::TargetStatus> {
        self.target(request.into_inner()).await.map(Response::new)
    }

    async fn create_snapshot(
        &self,
        request: Request<v1::CreateSnapshotRequest>,
    ) -> Answered<v1::Snapshot> {
        Admin::create_snapshot(self, self.fenced(request)?).await.map(Response::new)
    }

    async fn delete_snapshot(
        &self,
        request: Request<v1::DeleteSnapshotRequest>,
    ) -> Answered<v1::Done> {
        Admin::delete_snapshot(self, self.fenced(request)?).await.map(Response::new)
    }

    async fn list_snapshots(
        &self,
        request: Request<v1::ListSnapshotsRequest>,
    ) -> Answered<v1::ListSnapshotsResponse> {
        Admin::list_snapshots(self, request.into_inner()).await.map(Response::new)
    }

    async fn rollback(&self, request: Request<v1::RollbackRequest>) -> Answered<v1::Done> {
        Admin::rollback(self, self.fenced(request)?).await.map(Response::new)
    }

    async fn resize(&self, request: Request<v1::ResizeRequest>) -> Answered<v1::Done> {
        Admin::resize(self, self.fenced(request)?).await.map(Response::new)
    }

    async fn mark_clone(&self, request: Request<v1::MarkCloneRequest>) -> Answered<v1::Done> {
        Admin::mark_clone(self, self.fenced(request)?).await.map(Response::new)
    }

    async fn unmark_clone(&self, request: Request<v1::UnmarkCloneRequest>) -> Answered<v1::Done> {
        Admin::unmark_clone(self, self.fenced(request)?).await.map(Response::new)
    }

    async fn new_stage(
        &self,
        request: Request<v1::NewStageRequest>,
    ) -> Answered<v1::NewStageResponse> {
        Admin::new_stage(self, self.fenced(request)?).await.map(Response::new)
    }

    async fn take_note(&self, request: Request<v1::TakeNoteRequest>) -> Answered<v1::Done> {
        let volume = self.volume(self.fenced(request)?.volume).await?;
        self.done(volume, Command::TakeNote).await.map(Response::new)
    }

    async fn hold(&self, request: Request<v1::HoldRequest>) -> Answered<v1::HoldResponse> {
        Admin::hold(self, self.fenced(request)?).await.map(Response::new)
    }

    async fn cut(&self, request: Request<v1::CutRequest>) -> Answered<CutStream> {
        Admin::cut(self, self.fenced(request)?).await.map(Response::new)
    }

    async fn release(&self, request: Request<v1::ReleaseRequest>) -> Answered<v1::ReleaseResponse> {
        Admin::release(self, self.fenced(request)?).await.map(Response::new)
    }

    async fn choose(&self, request: Request<v1::ChooseRequest>) -> Answered<v1::Done> {
        Admin::choose(self, self.fenced(request)?).await.map(Response::new)
    }

    async fn confirm_catalog(
        &self,
        request: Request<v1::ConfirmCatalogRequest>,
    ) -> Answered<v1::Done> {
        let volume = self.volume(self.fenced(request)?.volume).await?;
        self.done(volume, Command::ConfirmCatalog).await.map(Response::new)
    }

    async fn list_extents(
        &self,
        request: Request<v1::ListExtentsRequest>,
    ) -> Answered<v1::ListExtentsResponse> {
        Admin::list_extents(self, request.into_inner()).await.map(Response::new)
    }

    async fn beat(&self, request: Request<v1::BeatRequest>) -> Answered<v1::BeatResponse> {
        Admin::beat(self, request.into_inner()).await.map(Response::new)
    }

    async fn reach_replicas(
        &self,
        request: Request<v1::ReachReplicasRequest>,
    ) -> Answered<v1::ReachReplicasResponse> {
        Admin::reach_replicas(self, request.into_inner()).await.map(Response::new)
    }

    async fn list_pools(
        &self,
        _: Request<v1::ListPoolsRequest>,
    ) -> Answered<v1::ListPoolsResponse> {
        Ok(Response::new(v1::ListPoolsResponse { pools: self.pools().await? }))
    }

    async fn recall_catalog(
        &self,
        _: Request<v1::RecallCatalogRequest>,
    ) -> Answered<Self::RecallCatalogStream> {
        let mut objects = self.books.objects();
        let last = self.copies.newest();
        let last = last.map_err(|error| Status::internal(format!("the last copy: {error}")))?;
        objects.extend(last.into_iter().flat_map(|copy| copy.objects));
        let parts: Vec<_> = parts(0, objects).into_iter().map(Ok).collect();
        Ok(Response::new(tokio_stream::iter(parts)))
    }

    async fn get_pool(&self, request: Request<v1::GetPoolRequest>) -> Answered<v1::Pool> {
        self.pool(&request.into_inner().name).await.map(Response::new)
    }
}
