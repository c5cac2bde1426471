//! Shards on threads of this process, with real pools and sockets, and a catalog in memory: it has
//! the catalog's rules and nothing else. Processes with the real catalog are tested elsewhere.
#![allow(dead_code, reason = "each test that includes this uses a part of it")]
use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use block::{ByteLen, Position};
use engine::{BlockSize, Compression, CreateOptions, Pool};
use mio::Poll;
use mio::net::TcpListener;
use node::clock::Clock;
use node::records::{Access, VolumeRecord};
use node::shard::{
    Config, Extents, ExtentsAsk, Listener, Order, PoolPlace, Refusal, ReplicaSpec, Report, Sender,
    Service, Shard, ShardStatus, kernel_boot,
};
use replication::catalog::{CatalogAnswer, CatalogAsk, VolumeObject};
use replication::client::{Command, CommandAnswer};
use replication::membership::{Member, Membership, Voters};
use replication::state::{Origin, SnapshotSpec};
use replication::target::{Begin, Standing};
use replication::words::{
    Boot, CatalogVersion, Grant, Incarnation, NodeId, Powered, ReplicaId, SnapshotUid, Span,
    VolumeUid,
};

type Records = Arc<Mutex<BTreeMap<VolumeUid, VolumeRecord>>>;
type Senders = Arc<Mutex<HashMap<NodeId, Sender>>>;

pub struct Site {
    dir: PathBuf,
    pub nodes: BTreeMap<NodeId, Node>,
    records: Records,
    senders: Senders,
    boots: u64,
    /// How long IO of volumes waits that are made from now on.
    pub hold: Span,
    /// Clocks of nodes that are started from now on, where they are not the machine's.
    pub clocks: BTreeMap<NodeId, Clock>,
}

pub struct Node {
    pub peers: SocketAddr,
    pub nbd: SocketAddr,
    pub iscsi: SocketAddr,
    shard: Sender,
    thread: Option<JoinHandle<()>>,
}

impl Site {
    pub fn new(dir: &Path) -> Site {
        let (records, senders) = (Records::default(), Senders::default());
        Site {
            dir: dir.into(),
            nodes: BTreeMap::new(),
            records,
            senders,
            boots: 1,
            hold: Span::secs(60),
            clocks: BTreeMap::new(),
        }
    }

    /// Starts a node with one pool, which is made if it is not there.
    pub fn start(&mut self, id: u64, pool_size: u64) {
        let node = NodeId(id);
        let path = self.pool(id);
        if !path.exists() {
            make_pool(&path, pool_size);
        }
        self.boots += 1;
        let clock = self.clocks.get(&node).cloned().unwrap_or_default();
        let config = Config { node, boot: Boot(self.boots * 1_000_000), tls: None, clock };
        let poll = Poll::new().unwrap();
        let (sender, orders) = Sender::new(Shard::waker(&poll).unwrap());
        let peers = listener(self.nodes.get(&node).map(|node| node.peers));
        let nbd = listener(self.nodes.get(&node).map(|node| node.nbd));
        let iscsi = listener(self.nodes.get(&node).map(|node| node.iscsi));
        let address = |of: &TcpListener| of.local_addr().unwrap();
        let addresses = (address(&peers), address(&nbd), address(&iscsi));
        let report = reporter(node, Arc::clone(&self.records), Arc::clone(&self.senders));
        let (ready, is_ready) = channel();
        let thread = std::thread::spawn(move || {
            let mut shard = Shard::new(config, poll, orders, report);
            let powered = Powered { kernel: kernel_boot().unwrap(), device: u128::from(id) };
            let place = PoolPlace { name: "main".into(), path: path.clone(), powered };
            let disk = open(&path);
            let pool = Pool::open(disk, engine::OpenOptions::default()).unwrap();
            shard.add_pool(place, pool).unwrap();
            shard.listen(Listener::Tcp(peers), Service::Peers).unwrap();
            shard.listen(Listener::Tcp(nbd), Service::Nbd).unwrap();
            shard.listen(Listener::Tcp(iscsi), Service::Iscsi).unwrap();
            ready.send(()).unwrap();
            shard.run().unwrap();
            shard.close_pools().unwrap();
        });
        is_ready.recv().unwrap();
        self.senders.lock().unwrap().insert(node, sender.clone());
        let (peers, nbd, iscsi) = addresses;
        self.nodes.insert(node, Node { peers, nbd, iscsi, shard: sender, thread: Some(thread) });
        let book: BTreeMap<NodeId, SocketAddr> =
            self.nodes.iter().map(|(id, node)| (*id, node.peers)).collect();
        for node in self.nodes.values() {
            node.shard.send(Order::Nodes(book.clone()));
        }
    }

    /// A volume with replicas on these nodes.
    pub fn create(&mut self, name: &str, size: u64, on: &[u64]) -> VolumeUid {
        let uid = VolumeUid([u8::try_from(name.len()).unwrap(); 16]);
        let mut members = Vec::new();
        for id in on {
            let incarnation = self.create_replica(uid, name, size, *id, None).unwrap();
            members.push(Member { replica: ReplicaId(*id), incarnation });
        }
        let object = VolumeObject {
            version: CatalogVersion(1),
            membership: Membership { version: 1, voters: Voters::of(&members), next: None },
            desired: members,
            ..VolumeObject::default()
        };
        self.list(uid, name, size, on, object);
        uid
    }

    /// A clone on nodes 1 to 3, of which the last begins empty.
    pub fn clone(&mut self, name: &str, size: u64, origin: Origin) -> VolumeUid {
        let uid = VolumeUid([0xc1; 16]);
        let made = [1, 2, 3].map(|id| {
            let origin = Some(origin).filter(|_| id < 3);
            let incarnation = self.create_replica(uid, name, size, id, origin).unwrap();
            Member { replica: ReplicaId(id), incarnation }
        });
        let elsewhere = Origin { at: Position::new(1, origin.at.seq.0), ..origin };
        let other = self.create_replica(VolumeUid([0xc2; 16]), "other", size, 1, Some(elsewhere));
        assert!(other.is_err(), "a snapshot of another history");
        let object = VolumeObject {
            version: CatalogVersion(1),
            grant: Grant::of(origin.at.term),
            membership: Membership { version: 1, voters: Voters::of(&made[..2]), next: None },
            desired: made.to_vec(),
            ..VolumeObject::default()
        };
        self.list(uid, name, size, &[1, 2, 3], object);
        uid
    }

    fn list(&self, uid: VolumeUid, name: &str, size: u64, on: &[u64], object: VolumeObject) {
        let record = VolumeRecord {
            uid,
            name: name.into(),
            size: ByteLen(size),
            block_size: ByteLen(4096),
            object,
            places: on.iter().map(|id| (ReplicaId(*id), NodeId(*id))).collect(),
            hold_deadline: self.hold,
            workers: None,
            access: Access::default(),
        };
        self.records.lock().unwrap().insert(uid, record);
    }

    /// Takes a snapshot; where it is.
    pub fn snapshot(&self, volume: VolumeUid, on: u64, uid: [u8; 16]) -> Position {
        // Its uid is in its name: a volume has no two of one name.
        let name = format!("then-{}", uid[0]);
        let spec = SnapshotSpec { uid: SnapshotUid(uid), name, created: 0 };
        self.command(volume, on, Command::Snapshot(spec))
    }

    /// Runs a command at the target of a volume; where it was done.
    pub fn command(&self, volume: VolumeUid, on: u64, command: Command) -> Position {
        let (answer, answered) = channel();
        let reply = Box::new(move |result| answer.send(result).unwrap());
        self.nodes[&NodeId(on)].shard.send(Order::Command { volume, command, reply });
        match answered.recv().unwrap() {
            Ok(CommandAnswer::Done { at }) => at,
            other => panic!("a command ended as {other:?}"),
        }
    }

    /// A part of what a snapshot has, as the replica of a node has it.
    pub fn extents(&self, on: u64, ask: ExtentsAsk) -> Result<Extents, Refusal> {
        let (answer, answered) = channel();
        let answer = Box::new(move |result| answer.send(result).unwrap());
        self.nodes[&NodeId(on)].shard.send(Order::Extents { ask, answer });
        answered.recv().unwrap()
    }

    pub fn pool(&self, id: u64) -> PathBuf {
        self.dir.join(format!("pool{id}"))
    }

    /// Until so many replicas vote.
    pub fn wait_voters(&self, volume: VolumeUid, count: usize) {
        let begun = Instant::now();
        loop {
            let membership = self.records.lock().unwrap()[&volume].object.membership.clone();
            if membership.next.is_none() && membership.voters.members.len() == count {
                return;
            }
            assert!(begun.elapsed() < Duration::from_secs(60), "{membership:?}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn create_replica(
        &self,
        uid: VolumeUid,
        name: &str,
        size: u64,
        id: u64,
        origin: Option<Origin>,
    ) -> Result<Incarnation, Refusal> {
        let spec = ReplicaSpec {
            volume: uid,
            name: name.into(),
            pool: "main".into(),
            size: ByteLen(size),
            block_size: BlockSize::new(4096).unwrap(),
            compression: Compression::Off,
            incarnation: Incarnation(id * 100 + self.boots),
            workers: None,
            origin,
        };
        let (answer, answered) = channel();
        let answer = Box::new(move |result| answer.send(result).unwrap());
        self.nodes[&NodeId(id)].shard.send(Order::CreateReplica { spec, answer });
        answered.recv().unwrap()
    }

    /// The catalog has another bound on concurrent operations now, and a node hears of it.
    pub fn bound_workers(&self, uid: VolumeUid, on: u64, workers: Option<usize>) {
        let mut records = self.records.lock().unwrap();
        let record = records.get_mut(&uid).unwrap();
        record.workers = workers;
        self.nodes[&NodeId(on)].shard.send(Order::Record(Box::new(record.clone())));
    }

    pub fn serve(&self, uid: VolumeUid, on: u64) {
        self.begin(uid, on, Begin::TakeOver);
    }

    pub fn begin(&self, uid: VolumeUid, on: u64, begin: Begin) {
        self.try_begin(uid, on, begin).unwrap();
    }

    pub fn try_begin(&self, uid: VolumeUid, on: u64, begin: Begin) -> Result<(), Refusal> {
        let record = Box::new(self.records.lock().unwrap()[&uid].clone());
        let (answer, answered) = channel();
        let answer = Box::new(move |result| answer.send(result).unwrap());
        self.nodes[&NodeId(on)].shard.send(Order::StartTarget { record, begin, answer });
        answered.recv().unwrap()
    }

    pub fn status(&self, on: u64) -> ShardStatus {
        let (tell, told) = channel();
        let tell = Box::new(move |status| tell.send(status).unwrap());
        self.nodes[&NodeId(on)].shard.send(Order::Status(tell));
        told.recv().unwrap()
    }

    /// Until all voters of the only target of a node are in the stream.
    pub fn wait_healthy(&self, on: u64) {
        let begun = Instant::now();
        loop {
            let status = self.status(on);
            let target = &status.targets[0].status;
            let mut peers = target.peers.iter();
            if target.serving && peers.all(|peer| peer.standing == Standing::Healthy) {
                return;
            }
            assert!(begun.elapsed() < Duration::from_secs(60), "not healthy: {target:?}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    pub fn stop(&mut self, id: u64) {
        let node = self.nodes.get_mut(&NodeId(id)).unwrap();
        node.shard.send(Order::End);
        node.thread.take().unwrap().join().unwrap();
    }
}

fn listener(at: Option<SocketAddr>) -> TcpListener {
    let any = SocketAddr::from(([127, 0, 0, 1], 0));
    TcpListener::bind(at.unwrap_or(any)).unwrap()
}

fn open(path: &Path) -> disk::FileDisk {
    disk::open(path, &disk::OpenOptions::default()).unwrap()
}

fn make_pool(path: &Path, size: u64) {
    let create = Some(ByteLen(size));
    let options = disk::OpenOptions { create, ..disk::OpenOptions::default() };
    let mut disk = disk::open(path, &options).unwrap();
    engine::create(&mut disk, &CreateOptions::default()).unwrap();
}

/// Plays the catalog for one node.
fn reporter(node: NodeId, records: Records, senders: Senders) -> Box<dyn Fn(Report) + Send> {
    Box::new(move |report| {
        let Report::Catalog { volume, run, ask, .. } = report else { return };
        let mut records = records.lock().unwrap();
        let answer = match (records.get_mut(&volume), ask) {
            (None, _) => CatalogAnswer::Missing,
            (Some(record), CatalogAsk::Get) => {
                CatalogAnswer::Object(Box::new(record.object.clone()))
            }
            (Some(record), CatalogAsk::Swap { expected, grant, object }) => {
                let present = &mut record.object;
                if present.version != expected || present.grant != grant {
                    CatalogAnswer::Object(Box::new(present.clone()))
                } else {
                    let version = CatalogVersion(expected.0 + 1);
                    *present = VolumeObject { version, ..*object };
                    CatalogAnswer::Swapped(Box::new(present.clone()))
                }
            }
        };
        let record = records.get(&volume).cloned();
        drop(records);
        let senders = senders.lock().unwrap();
        senders[&node].send(Order::Catalog { volume, run, answer });
        for (other, sender) in senders.iter() {
            if let Some(record) = record.clone().filter(|_| *other != node) {
                sender.send(Order::Record(Box::new(record)));
            }
        }
    })
}
