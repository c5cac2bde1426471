//! A whole node in this process, as it is served, and a catalog in memory beside it: it has the catalog's
//! swaps and watches, and nothing else.
#![allow(dead_code, reason = "each test that includes this uses a part of it")]
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use block::ByteLen;
use engine::CreateOptions;
use node::process::{Addresses, Options, PoolOption, serve};
use proto::v1;
use proto::v1::catalog_server::{Catalog, CatalogServer};
use proto::v1::event::Event as Told;
use proto::v1::node_admin_client::NodeAdminClient;
use proto::v1::object::Body;
use proto::v1::swap_request::Change;
use proto::v1::swap_response::Outcome;
use replication::words::NodeId;
use tokio::sync::{mpsc, oneshot};
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::transport::{Channel, Server};
use tonic::{Request, Response, Status};

type Watcher = mpsc::UnboundedSender<Result<v1::Event, Status>>;
type Objects = BTreeMap<(i32, String), v1::Object>;

#[derive(Default)]
struct Books {
    objects: Objects,
    watchers: Vec<Watcher>,
    revision: u64,
}

/// What a catalog had at some time; the default: nothing.
#[derive(Default)]
pub struct Backup(Objects);

/// Clones are the same catalog.
#[derive(Clone, Default)]
pub struct FalseCatalog {
    books: Arc<Mutex<Books>>,
    /// It answers nobody who asks, as if it was away.
    away: Arc<AtomicBool>,
    /// Watches do not tell of these, as if they came late.
    late: Option<v1::Kind>,
    /// Copies that it gave.
    backups: Arc<AtomicUsize>,
}

fn key(kind: v1::Kind, name: &str) -> v1::Key {
    v1::Key { kind: kind.into(), name: name.into() }
}

fn told(event: Told) -> Result<v1::Event, Status> {
    Ok(v1::Event { event: Some(event) })
}

impl FalseCatalog {
    /// One whose watches do not tell of a kind.
    pub fn late(kind: v1::Kind) -> FalseCatalog {
        FalseCatalog { late: Some(kind), ..FalseCatalog::default() }
    }

    /// How many copies it gave.
    pub fn backups(&self) -> usize {
        self.backups.load(Ordering::SeqCst)
    }

    pub fn set_away(&self, away: bool) {
        self.away.store(away, Ordering::SeqCst);
    }

    pub fn get(&self, kind: v1::Kind, name: &str) -> Option<v1::Object> {
        self.books.lock().unwrap().objects.get(&(kind.into(), name.into())).cloned()
    }

    /// Whatever was there before; the new version.
    pub fn put(&self, kind: v1::Kind, name: &str, body: Body) -> u64 {
        let mut books = self.books.lock().unwrap();
        books.revision += 1;
        let revision = books.revision;
        let at = (kind.into(), name.to_owned());
        let version = books.objects.get(&at).map_or(0, |object| object.version) + 1;
        let key = Some(key(kind, name));
        let body = Some(body);
        let object = v1::Object { key, version, revision, body, ..v1::Object::default() };
        books.objects.insert(at, object.clone());
        if self.late != Some(kind) {
            books.watchers.retain(|it| it.send(told(Told::Object(object.clone()))).is_ok());
        }
        version
    }

    /// All that it has, for [`FalseCatalog::go_back`].
    pub fn backup_file(&self) -> Backup {
        Backup(self.books.lock().unwrap().objects.clone())
    }

    /// It is started again with an older file: watches end, and the next ones are told everything.
    pub fn go_back(&self, to: Backup) {
        let mut books = self.books.lock().unwrap();
        books.objects = to.0;
        books.watchers.clear();
    }

    /// Tells an object to the watchers now, whatever was told or asked before.
    pub fn deliver(&self, object: &v1::Object) {
        let mut books = self.books.lock().unwrap();
        books.watchers.retain(|it| it.send(told(Told::Object(object.clone()))).is_ok());
    }

    pub fn control(&self, generation: u64) {
        let controller = v1::Controller { generation, ..v1::Controller::default() };
        self.put(v1::Kind::Controller, "controller", Body::Controller(controller));
    }

    /// Changes a volume, and tells whoever watches.
    pub fn change_volume(&self, name: &str, change: impl FnOnce(&mut v1::Volume)) {
        let object = self.get(v1::Kind::Volume, name).unwrap();
        let Some(Body::Volume(mut volume)) = object.body else { panic!("no volume") };
        change(&mut volume);
        self.put(v1::Kind::Volume, name, Body::Volume(volume));
    }

    /// Where it is served.
    fn serve(&self) -> SocketAddr {
        let (tell, address) = std::sync::mpsc::channel();
        let catalog = self.clone();
        std::thread::spawn(move || {
            runtime().block_on(async {
                let any = SocketAddr::from(([127, 0, 0, 1], 0));
                let (at, incoming) = certs::listen(any, None, |_, _| {}).await.unwrap();
                tell.send(at).unwrap();
                let server = Server::builder();
                server.serve_with_incoming(CatalogServer::new(catalog), incoming).await.unwrap();
            });
        });
        address.recv().unwrap()
    }

    fn answers(&self) -> Result<(), Status> {
        match self.away.load(Ordering::SeqCst) {
            true => Err(Status::unavailable("the catalog is away")),
            false => Ok(()),
        }
    }
}

#[tonic::async_trait]
impl Catalog for FalseCatalog {
    type WatchStream = UnboundedReceiverStream<Result<v1::Event, Status>>;
    type BackupStream = tokio_stream::Iter<std::vec::IntoIter<Result<v1::CatalogPart, Status>>>;

    async fn backup(
        &self,
        _: Request<v1::BackupRequest>,
    ) -> Result<Response<Self::BackupStream>, Status> {
        self.answers()?;
        self.backups.fetch_add(1, Ordering::SeqCst);
        let books = self.books.lock().unwrap();
        let objects = books.objects.values().cloned().collect();
        let parts = proto::catalog_client::parts(books.revision, objects);
        Ok(Response::new(tokio_stream::iter(parts.into_iter().map(Ok).collect::<Vec<_>>())))
    }

    async fn restore(
        &self,
        _: Request<tonic::Streaming<v1::CatalogPart>>,
    ) -> Result<Response<v1::RestoreResponse>, Status> {
        Err(Status::unimplemented("nodes bring nothing back"))
    }

    async fn get(&self, request: Request<v1::GetRequest>) -> Result<Response<v1::Object>, Status> {
        self.answers()?;
        let key = request.into_inner().key.unwrap();
        let found = FalseCatalog::get(self, key.kind(), &key.name);
        found.map(Response::new).ok_or_else(|| Status::not_found("no such object"))
    }

    async fn list(
        &self,
        _: Request<v1::ListRequest>,
    ) -> Result<Response<v1::ListResponse>, Status> {
        Err(Status::unimplemented("nodes do not list"))
    }

    async fn swap(
        &self,
        request: Request<v1::SwapRequest>,
    ) -> Result<Response<v1::SwapResponse>, Status> {
        self.answers()?;
        let request = request.into_inner();
        let key = request.key.unwrap();
        let present = FalseCatalog::get(self, key.kind(), &key.name);
        let version = present.as_ref().map_or(0, |object| object.version);
        let outcome = if version != request.expected_version {
            Outcome::Conflict(v1::Conflict { present })
        } else {
            let body = match request.change.unwrap() {
                Change::Volume(volume) => Body::Volume(volume),
                Change::Node(node) => Body::Node(node),
                other => panic!("a node swaps {other:?}"),
            };
            self.put(key.kind(), &key.name, body);
            Outcome::Swapped(FalseCatalog::get(self, key.kind(), &key.name).unwrap())
        };
        Ok(Response::new(v1::SwapResponse { outcome: Some(outcome) }))
    }

    async fn watch(
        &self,
        _: Request<v1::WatchRequest>,
    ) -> Result<Response<Self::WatchStream>, Status> {
        self.answers()?;
        let (send, receive) = mpsc::unbounded_channel();
        let mut books = self.books.lock().unwrap();
        let begin = v1::Begin { whole: true, session: 1 };
        send.send(told(Told::Begin(begin))).unwrap();
        let late: Option<i32> = self.late.map(Into::into);
        let shown = books.objects.iter().filter(|(at, _)| late != Some(at.0));
        let mut objects: Vec<_> = shown.map(|(_, object)| object.clone()).collect();
        objects.sort_by_key(|object| object.revision);
        objects.into_iter().for_each(|object| send.send(told(Told::Object(object))).unwrap());
        let current = v1::Current { revision: books.revision };
        send.send(told(Told::Current(current))).unwrap();
        books.watchers.push(send);
        Ok(Response::new(UnboundedReceiverStream::new(receive)))
    }
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

/// Node 1 with the pool `main`. Ends cleanly when it is dropped.
pub struct Process {
    pub at: Addresses,
    pub socket: PathBuf,
    end: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

pub fn folder(name: &str) -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

fn options(folder: &Path, catalog: SocketAddr) -> Options {
    let any = SocketAddr::from(([127, 0, 0, 1], 0));
    Options {
        id: NodeId(1),
        name: "node-1".into(),
        state: folder.join("state"),
        pools: vec![PoolOption { name: "main".into(), path: folder.join("pool") }],
        peers: any,
        nbd: Some(any),
        nbd_socket: Some(folder.join("nbd")),
        iscsi: Some(any),
        metrics: None,
        admin: any,
        catalog: catalog.to_string(),
        tls: None,
        topology: Vec::new(),
        copies_every: std::time::Duration::from_secs(600),
    }
}

impl Process {
    /// A pool is made if there is none.
    pub fn start(folder: &Path, catalog: &FalseCatalog) -> Process {
        Process::start_with(folder, catalog, |_| {})
    }

    pub fn start_with(
        folder: &Path,
        catalog: &FalseCatalog,
        change: impl FnOnce(&mut Options),
    ) -> Process {
        let mut options = options(folder, catalog.serve());
        change(&mut options);
        let pool = &options.pools[0].path;
        if !pool.exists() {
            let create = Some(ByteLen(256 << 20));
            let open = disk::OpenOptions { create, ..disk::OpenOptions::default() };
            let mut disk = disk::open(pool, &open).unwrap();
            engine::create(&mut disk, &CreateOptions::default()).unwrap();
        }
        let (end, ended) = oneshot::channel();
        let (tell, ready) = std::sync::mpsc::channel();
        let ready_at = move |at| tell.send(at).map_err(std::io::Error::other);
        let thread = std::thread::spawn(move || {
            runtime().block_on(async {
                let stop = async move { drop(ended.await) };
                serve(options, ready_at, stop).await.unwrap();
            });
        });
        let at = ready.recv().unwrap();
        let socket = folder.join("nbd");
        Process { at, socket, end: Some(end), thread: Some(thread) }
    }

    pub async fn admin(&self) -> NodeAdminClient<Channel> {
        NodeAdminClient::connect(format!("http://{}", self.at.admin)).await.unwrap()
    }

    pub fn stop(mut self) {
        self.end.take().unwrap().send(()).unwrap();
        self.thread.take().unwrap().join().unwrap();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if let Some(end) = self.end.take() {
            let _ = end.send(());
        }
        if let Some(thread) = self.thread.take() {
            // A test that failed says so by itself.
            let _ = thread.join();
        }
    }
}

pub fn volume_ref(name: &str) -> v1::VolumeRef {
    v1::VolumeRef { name: name.into(), uid: uid_of(name) }
}

fn uid_of(name: &str) -> Vec<u8> {
    let mut uid = [7; 16];
    uid[..name.len()].copy_from_slice(name.as_bytes());
    uid.to_vec()
}

/// A volume with its only replica on node 1; nobody votes yet.
pub fn volume(name: &str, size: u64) -> v1::Volume {
    v1::Volume {
        uid: uid_of(name),
        name: name.into(),
        size,
        block_size: 4096,
        compression: "off".into(),
        quorum: Some(v1::Quorum {
            membership: Some(v1::Membership {
                version: 1,
                voters: Some(v1::Voters::default()),
                next: None,
            }),
            ..v1::Quorum::default()
        }),
        places: vec![v1::Place { replica: 1, node: 1, pool: "main".into() }],
        ..v1::Volume::default()
    }
}

/// Lists a volume, and makes its replica; its incarnation.
pub async fn make(
    catalog: &FalseCatalog,
    admin: &mut NodeAdminClient<Channel>,
    volume: v1::Volume,
) -> u64 {
    let (name, size) = (volume.name.clone(), volume.size);
    catalog.put(v1::Kind::Volume, &name, Body::Volume(volume));
    let request = v1::CreateReplicaRequest {
        volume: Some(volume_ref(&name)),
        replica: 1,
        pool: "main".into(),
        size,
        block_size: 4096,
        compression: "off".into(),
        ..v1::CreateReplicaRequest::default()
    };
    admin.create_replica(request).await.unwrap().into_inner().incarnation
}

/// Gives the only replica its vote.
pub fn vote(catalog: &FalseCatalog, name: &str, incarnation: u64) {
    let member = v1::Member { replica: 1, incarnation };
    catalog.change_volume(name, |volume| {
        let quorum = volume.quorum.as_mut().unwrap();
        let voters = v1::Voters { members: vec![member], rf: 1 };
        let membership = v1::Membership { version: 2, voters: Some(voters), next: None };
        quorum.membership = Some(membership);
        quorum.desired = vec![member];
    });
}

/// Until the target of a volume serves.
pub async fn served(admin: &mut NodeAdminClient<Channel>, name: &str) {
    for _ in 0..600 {
        let request = v1::GetTargetRequest { volume: Some(volume_ref(name)) };
        if admin.get_target(request).await.is_ok_and(|it| it.into_inner().serving) {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    panic!("{name} is not served");
}
