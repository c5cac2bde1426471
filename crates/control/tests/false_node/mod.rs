//! A node that answers an operator and has no content: it keeps the rules by which replicas are made and
//! wiped, and does something of the test's when a call arrives.
use std::collections::{BTreeMap, BTreeSet};
use std::pin::Pin;
use std::sync::{Arc, Mutex};

use proto::catalog_client::Client;
use proto::v1;
use proto::v1::node_admin_server::{NodeAdmin, NodeAdminServer};
use proto::v1::object::Body;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::{Request, Response, Status};

type Answered<T> = Result<Response<T>, Status>;
type Event = Pin<Box<dyn Future<Output = ()> + Send>>;
type Uid = Vec<u8>;

#[derive(Default)]
pub struct State {
    /// Incarnations of replicas, by the uid of their volume.
    pub replicas: BTreeMap<Uid, u64>,
    /// What a crash left of copies that were begun.
    pub half_made: BTreeSet<Uid>,
    pub marks: BTreeSet<Uid>,
    pub snapshots: Vec<v1::Snapshot>,
    /// How the next mark is refused.
    pub no_mark: Option<Status>,
    /// What happens when the next call of this name has arrived.
    pub when: Option<(&'static str, Event)>,
    /// Whether a replica was wanted when it was wiped.
    pub wiped_while_wanted: Vec<bool>,
    /// Its targets wait for a quorum that does not come.
    pub never_serves: bool,
    /// Its targets serve, and have lost their quorum since.
    pub without_quorum: bool,
    /// Numbers that were given.
    pub stages: u64,
    /// Where volumes have data.
    pub data: Vec<v1::Extent>,
    /// What its beats say of volumes that the catalog has lost.
    pub lost: Vec<v1::VolumeRef>,
    pub lost_count: u64,
    made: u64,
}

#[derive(Clone)]
pub struct FalseNode {
    pub id: u64,
    pub state: Arc<Mutex<State>>,
    catalog: Arc<Client>,
}

impl FalseNode {
    /// Serves until the test's runtime ends; its address is in the node's object.
    pub async fn start(id: u64, catalog: Client) -> (FalseNode, v1::Node) {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let admin_address = listener.local_addr().expect("an address").to_string();
        let node = FalseNode { id, state: Arc::default(), catalog: Arc::new(catalog) };
        let service = NodeAdminServer::new(node.clone());
        let incoming = TcpListenerStream::new(listener);
        let server = tonic::transport::Server::builder();
        tokio::spawn(server.serve_with_incoming(service, incoming));
        (node, listed(id, admin_address))
    }

    pub fn with<T>(&self, look: impl FnOnce(&mut State) -> T) -> T {
        look(&mut self.state.lock().expect("no panic"))
    }

    async fn arrived(&self, call: &'static str) {
        let is_it = |state: &mut State| {
            let awaited = state.when.as_ref().is_some_and(|(when, _)| *when == call);
            if awaited { state.when.take() } else { None }
        };
        if let Some((_, event)) = self.with(is_it) {
            event.await;
        }
    }

    async fn object(&self, of: &v1::VolumeRef) -> Option<(u64, v1::Volume)> {
        let found = self.catalog.get(&super::site::key(&of.name)).await.expect("it is there")?;
        match found.body {
            Some(Body::Volume(volume)) if volume.uid == of.uid => Some((found.version, volume)),
            _ => None,
        }
    }
}

pub fn listed(id: u64, admin_address: String) -> v1::Node {
    v1::Node { id, name: format!("node-{id}"), admin_address, ..v1::Node::default() }
}

fn refused(why: &str) -> Status {
    Status::failed_precondition(why)
}

fn not_asked<T>() -> Answered<T> {
    Err(Status::unimplemented("no test asks for it"))
}

#[tonic::async_trait]
impl NodeAdmin for FalseNode {
    type CutStream = tokio_stream::Empty<Result<v1::CutResponse, Status>>;
    type RecallCatalogStream = tokio_stream::Empty<Result<v1::CatalogPart, Status>>;

    async fn recall_catalog(
        &self,
        _: Request<v1::RecallCatalogRequest>,
    ) -> Answered<Self::RecallCatalogStream> {
        not_asked()
    }

    async fn create_replica(
        &self,
        request: Request<v1::CreateReplicaRequest>,
    ) -> Answered<v1::CreateReplicaResponse> {
        self.arrived("create_replica").await;
        let of = request.into_inner().volume.unwrap_or_default();
        let object = self.object(&of).await.filter(|(_, volume)| !volume.deleting);
        object.ok_or_else(|| refused("it is not listed"))?;
        self.with(|state| {
            if state.replicas.contains_key(&of.uid) {
                return Err(Status::already_exists("it is there"));
            }
            if state.half_made.contains(&of.uid) {
                return Err(refused("a volume with this uid exists already"));
            }
            state.made += 1;
            let incarnation = self.id * 100 + state.made;
            state.replicas.insert(of.uid, incarnation);
            Ok(Response::new(v1::CreateReplicaResponse { incarnation }))
        })
    }

    async fn delete_replica(
        &self,
        request: Request<v1::DeleteReplicaRequest>,
    ) -> Answered<v1::DeleteReplicaResponse> {
        self.arrived("delete_replica").await;
        let request = request.into_inner();
        let of = request.volume.unwrap_or_default();
        let object = self.object(&of).await;
        let is_it = |member: &v1::Member| member.replica == request.replica;
        let quorum = object.as_ref().and_then(|(_, volume)| volume.quorum.clone());
        let quorum = quorum.unwrap_or_default();
        let membership = quorum.membership.unwrap_or_default();
        if object.is_some_and(|(version, _)| request.catalog_version < version) {
            return Err(refused("look again"));
        }
        let mut sets = membership.voters.iter().chain(&membership.next);
        if sets.any(|voters| voters.members.iter().any(is_it)) {
            return Err(refused("it votes"));
        }
        self.with(|state| {
            if state.replicas.get(&of.uid).is_some_and(|has| *has != request.incarnation) {
                return Err(refused("another content is meant"));
            }
            state.half_made.remove(&of.uid);
            if state.replicas.remove(&of.uid).is_some() {
                state.wiped_while_wanted.push(quorum.desired.iter().any(is_it));
            }
            Ok(Response::new(v1::DeleteReplicaResponse {}))
        })
    }

    async fn list_replicas(
        &self,
        _: Request<v1::ListReplicasRequest>,
    ) -> Answered<v1::ListReplicasResponse> {
        self.arrived("list_replicas").await;
        let replica = |(uid, incarnation): (&Uid, &u64)| v1::Replica {
            volume: Some(v1::VolumeRef { uid: uid.clone(), ..v1::VolumeRef::default() }),
            incarnation: *incarnation,
            ..v1::Replica::default()
        };
        let replicas = self.with(|state| state.replicas.iter().map(replica).collect());
        Ok(Response::new(v1::ListReplicasResponse { replicas }))
    }

    async fn get_replica_snapshot(
        &self,
        request: Request<v1::GetReplicaSnapshotRequest>,
    ) -> Answered<v1::ReplicaSnapshot> {
        let uid = request.into_inner().snapshot;
        let found = self.with(|state| state.snapshots.iter().find(|it| it.uid == uid).cloned());
        let found = found.ok_or_else(|| Status::not_found("no such snapshot"))?;
        Ok(Response::new(v1::ReplicaSnapshot { at: found.position, size: 1 << 20 }))
    }

    async fn stop_target(
        &self,
        _: Request<v1::StopTargetRequest>,
    ) -> Answered<v1::StopTargetResponse> {
        Ok(Response::new(v1::StopTargetResponse { clean: true }))
    }

    async fn get_target(&self, _: Request<v1::GetTargetRequest>) -> Answered<v1::TargetStatus> {
        let (serving, without) = self.with(|state| (!state.never_serves, state.without_quorum));
        let members = vec![v1::Member { replica: 1, incarnation: 1 }];
        let voters = without.then_some(v1::Voters { members, rf: 1 });
        let membership = Some(v1::Membership { version: 1, voters, next: None });
        let held_because = without.then(|| "0 replicas follow, 1 are needed".into());
        let last = self.with(|state| state.stages);
        let stages = Some(v1::Stages { last, ..v1::Stages::default() });
        let without_quorum_ms = without.then_some(60_000);
        let status = v1::TargetStatus {
            serving,
            membership,
            held_because,
            stages,
            without_quorum_ms,
            ..Default::default()
        };
        Ok(Response::new(status))
    }

    async fn list_snapshots(
        &self,
        _: Request<v1::ListSnapshotsRequest>,
    ) -> Answered<v1::ListSnapshotsResponse> {
        let snapshots = self.with(|state| state.snapshots.clone());
        Ok(Response::new(v1::ListSnapshotsResponse { snapshots }))
    }

    async fn mark_clone(&self, request: Request<v1::MarkCloneRequest>) -> Answered<v1::Done> {
        self.arrived("mark_clone").await;
        let request = request.into_inner();
        self.with(|state| {
            if let Some(refused) = state.no_mark.take() {
                return Err(refused);
            }
            if !state.snapshots.iter().any(|it| it.uid == request.snapshot) {
                return Err(Status::not_found("no such snapshot"));
            }
            state.marks.insert(request.clone);
            Ok(Response::new(v1::Done::default()))
        })
    }

    async fn unmark_clone(&self, request: Request<v1::UnmarkCloneRequest>) -> Answered<v1::Done> {
        let clone = request.into_inner().clone;
        self.with(|state| state.marks.remove(&clone));
        Ok(Response::new(v1::Done::default()))
    }

    async fn get_replica(&self, _: Request<v1::GetReplicaRequest>) -> Answered<v1::Replica> {
        not_asked()
    }

    async fn start_target(
        &self,
        _: Request<v1::StartTargetRequest>,
    ) -> Answered<v1::StartTargetResponse> {
        self.arrived("start_target").await;
        Ok(Response::new(v1::StartTargetResponse {}))
    }

    async fn list_targets(
        &self,
        _: Request<v1::ListTargetsRequest>,
    ) -> Answered<v1::ListTargetsResponse> {
        not_asked()
    }

    async fn create_snapshot(
        &self,
        request: Request<v1::CreateSnapshotRequest>,
    ) -> Answered<v1::Snapshot> {
        self.arrived("create_snapshot").await;
        let v1::SnapshotSpec { uid, name, created_ms } =
            request.into_inner().spec.unwrap_or_default();
        Ok(Response::new(self.with(|state| {
            let seq = state.snapshots.len() as u64 + 1;
            let position = Some(v1::Position { term: 1, seq });
            let made = v1::Snapshot { uid, name, created_ms, position, clones: Vec::new() };
            state.snapshots.push(made.clone());
            made
        })))
    }

    async fn delete_snapshot(
        &self,
        request: Request<v1::DeleteSnapshotRequest>,
    ) -> Answered<v1::Done> {
        let uid = request.into_inner().snapshot;
        self.with(|state| state.snapshots.retain(|it| it.uid != uid));
        Ok(Response::new(v1::Done::default()))
    }

    async fn rollback(&self, _: Request<v1::RollbackRequest>) -> Answered<v1::Done> {
        Ok(Response::new(v1::Done::default()))
    }

    async fn resize(&self, _: Request<v1::ResizeRequest>) -> Answered<v1::Done> {
        not_asked()
    }

    async fn new_stage(&self, _: Request<v1::NewStageRequest>) -> Answered<v1::NewStageResponse> {
        self.arrived("new_stage").await;
        let stage = self.with(|state| {
            state.stages += 1;
            state.stages
        });
        Ok(Response::new(v1::NewStageResponse { stage }))
    }

    async fn take_note(&self, _: Request<v1::TakeNoteRequest>) -> Answered<v1::Done> {
        not_asked()
    }

    async fn hold(&self, _: Request<v1::HoldRequest>) -> Answered<v1::HoldResponse> {
        not_asked()
    }

    async fn cut(&self, _: Request<v1::CutRequest>) -> Answered<Self::CutStream> {
        not_asked()
    }

    async fn release(&self, _: Request<v1::ReleaseRequest>) -> Answered<v1::ReleaseResponse> {
        not_asked()
    }

    async fn choose(&self, _: Request<v1::ChooseRequest>) -> Answered<v1::Done> {
        not_asked()
    }

    async fn confirm_catalog(&self, _: Request<v1::ConfirmCatalogRequest>) -> Answered<v1::Done> {
        not_asked()
    }

    async fn list_extents(
        &self,
        request: Request<v1::ListExtentsRequest>,
    ) -> Answered<v1::ListExtentsResponse> {
        let request = request.into_inner();
        self.with(|state| {
            if !state.snapshots.iter().any(|it| it.uid == request.snapshot) {
                return Err(Status::not_found("no such snapshot"));
            }
            // The first half has nothing, and is a part of its own.
            let (extents, next) = match request.from {
                0 => (Vec::new(), Some(1 << 19)),
                _ => (state.data.clone(), None),
            };
            Ok(Response::new(v1::ListExtentsResponse { extents, size: 1 << 20, next }))
        })
    }

    async fn beat(&self, _: Request<v1::BeatRequest>) -> Answered<v1::BeatResponse> {
        let mut pool = v1::Pool { name: "main".into(), size: 1 << 30, ..v1::Pool::default() };
        pool.free = pool.size;
        pool.set_state(v1::PoolState::Open);
        let (node, pools) = (self.id, vec![pool]);
        let (lost, lost_count) = self.with(|state| (state.lost.clone(), state.lost_count));
        let beat =
            v1::BeatResponse { node, boot: 1, pools, lost, lost_count, ..Default::default() };
        Ok(Response::new(beat))
    }

    async fn reach_replicas(
        &self,
        _: Request<v1::ReachReplicasRequest>,
    ) -> Answered<v1::ReachReplicasResponse> {
        not_asked()
    }

    async fn list_pools(
        &self,
        _: Request<v1::ListPoolsRequest>,
    ) -> Answered<v1::ListPoolsResponse> {
        not_asked()
    }

    async fn get_pool(&self, _: Request<v1::GetPoolRequest>) -> Answered<v1::Pool> {
        not_asked()
    }
}
