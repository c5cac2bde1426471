//! Volumes that only machines may use to which they are attached.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on says so by its line")]
mod initiator;
mod process;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use node::shard::IQN;
use proto::v1;
use proto::v1::node_admin_client::NodeAdminClient;
use tonic::transport::Channel;

use initiator::{Initiator, Outcome};
use process::{FalseCatalog, Process, folder, make, served, volume, volume_ref, vote};

const MIB: u64 = 1 << 20;
const DENIED: u16 = 0x0202;
const PROTECTED: Outcome = Outcome::Sense([7, 0x27, 0]);

fn attachment(initiator: &str, read_only: bool) -> v1::Attachment {
    let (host, initiator) = (initiator.into(), initiator.into());
    v1::Attachment { host, initiator, read_only, since_ms: 1, ..v1::Attachment::default() }
}

struct Bench {
    catalog: FalseCatalog,
    node: Process,
    admin: NodeAdminClient<Channel>,
}

impl Bench {
    async fn new(name: &str, attached: &[v1::Attachment]) -> Bench {
        Bench::with(FalseCatalog::default(), name, attached).await
    }

    async fn with(catalog: FalseCatalog, name: &str, attached: &[v1::Attachment]) -> Bench {
        let node = Process::start(&folder(name), &catalog);
        let mut admin = node.admin().await;
        let db = v1::Volume {
            attached_only: true,
            attachments: attached.to_vec(),
            allowed_initiators: vec!["iqn.operator".into()],
            ..volume("db", 16 * MIB)
        };
        let incarnation = make(&catalog, &mut admin, db).await;
        vote(&catalog, "db", incarnation);
        let mut bench = Bench { catalog, node, admin };
        bench.start().await;
        served(&mut bench.admin, "db").await;
        bench
    }

    async fn start(&mut self) {
        let request = v1::StartTargetRequest { volume: Some(volume_ref("db")), take_over: true };
        self.admin.start_target(request).await.unwrap();
    }

    fn attach(&self, attached: &[v1::Attachment]) {
        self.catalog.change_volume("db", |volume| volume.attachments = attached.to_vec());
    }

    fn log_in(&self, name: &str) -> Result<Initiator, u16> {
        Initiator::log_in(self.node.at.iscsi.unwrap(), name, &format!("{IQN}db"))
    }

    /// The node hears of changes by a watch.
    fn log_in_soon(&self, name: &str) -> Initiator {
        let begun = Instant::now();
        loop {
            match self.log_in(name) {
                Ok(initiator) => return initiator,
                Err(refused) => assert_eq!(refused, DENIED),
            }
            assert!(begun.elapsed() < Duration::from_secs(10), "{name} is not let in");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    async fn sessions(&mut self) -> usize {
        let request = v1::GetTargetRequest { volume: Some(volume_ref("db")) };
        self.admin.get_target(request).await.unwrap().into_inner().sessions.len()
    }
}

/// Protects from a machine that goes on using a volume which was taken from it, and from one that has to
/// wait for a restart.
#[tokio::test]
async fn attachments_take_effect_at_once() {
    let mut bench = Bench::new("access", &[]).await;
    for name in ["iqn.a", "iqn.operator"] {
        assert_eq!(bench.log_in(name).err(), Some(DENIED), "nobody is attached");
    }
    bench.attach(&[attachment("iqn.a", false)]);
    let mut first = bench.log_in_soon("iqn.a");
    first.ready().unwrap();
    assert_eq!(first.write(0, 7).unwrap(), Outcome::Good(Vec::new()));
    assert_eq!(bench.log_in("iqn.b").err(), Some(DENIED));

    bench.attach(&[attachment("iqn.a", false), attachment("iqn.b", false)]);
    let mut second = bench.log_in_soon("iqn.b");
    second.ready().unwrap();
    assert_eq!(second.read(0).unwrap(), Outcome::Good(vec![7; 4096]));
    assert_eq!(first.write(1, 8).unwrap(), Outcome::Good(Vec::new()), "another one came");
    assert_eq!(bench.sessions().await, 2);

    bench.attach(&[attachment("iqn.b", false)]);
    assert!(first.is_cut_off());
    assert_eq!(bench.log_in("iqn.a").err(), Some(DENIED));
    assert_eq!(second.read(1).unwrap(), Outcome::Good(vec![8; 4096]), "it is still attached");
    assert_eq!(bench.sessions().await, 1);
    bench.node.stop();
}

/// Protects from a controller that says that a machine is attached, or is not any more, before that is so:
/// it can ask the node to look at the catalog, and the node has done so when it answers.
#[tokio::test]
async fn who_starts_a_target_that_runs_finds_it_up_to_date() {
    let catalog = FalseCatalog::late(v1::Kind::Volume);
    let mut bench = Bench::with(catalog, "access-late", &[]).await;
    bench.attach(&[attachment("iqn.a", false)]);
    assert_eq!(bench.log_in("iqn.a").err(), Some(DENIED), "nobody has told the node");
    bench.start().await;
    let mut initiator = bench.log_in("iqn.a").unwrap();
    bench.attach(&[]);
    initiator.ready().unwrap();
    bench.start().await;
    assert_eq!(bench.sessions().await, 0);
    assert!(initiator.is_cut_off());
    bench.node.stop();
}

/// Protects from a watch event that was sent before a detachment, and arrives after the node has read the catalog for
/// it: the host would be let in again, and write to a volume that another one uses.
#[tokio::test]
async fn a_late_event_does_not_bring_a_detached_host_back() {
    let catalog = FalseCatalog::late(v1::Kind::Volume);
    let both = [attachment("iqn.a", false), attachment("iqn.b", false)];
    let mut bench = Bench::with(catalog, "access-overtaken", &both[..1]).await;
    let mut initiator = bench.log_in("iqn.a").unwrap();
    initiator.ready().unwrap();
    bench.attach(&both);
    let older = bench.catalog.get(v1::Kind::Volume, "db").unwrap();
    bench.attach(&both[1..]);
    bench.start().await;
    assert!(initiator.is_cut_off());
    assert_eq!(bench.log_in("iqn.a").err(), Some(DENIED));

    bench.catalog.deliver(&older);
    // Events are taken in order: when this one was, the older one was too.
    bench.catalog.control(9);
    let begun = Instant::now();
    while bench.admin.beat(v1::BeatRequest { controller: 8 }).await.is_ok() {
        assert!(begun.elapsed() < Duration::from_secs(10), "the watch told nothing");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(bench.sessions().await, 0);
    assert_eq!(bench.log_in("iqn.a").err(), Some(DENIED), "it stays detached");
    bench.log_in("iqn.b").unwrap().ready().unwrap();
    bench.node.stop();
}

#[tokio::test]
async fn a_volume_that_is_attached_read_only_is_not_written() {
    let attached = |read_only| [attachment("iqn.a", read_only), attachment("iqn.b", false)];
    let bench = Bench::new("read-only", &attached(true)).await;
    let (mut reader, mut writer) = (bench.log_in_soon("iqn.a"), bench.log_in_soon("iqn.b"));
    reader.ready().unwrap();
    writer.ready().unwrap();
    assert_eq!(writer.write(3, 9).unwrap(), Outcome::Good(Vec::new()));
    assert_eq!(reader.write(3, 5).unwrap(), PROTECTED);
    assert_eq!(reader.read(3).unwrap(), Outcome::Good(vec![9; 4096]));
    let sense = |it: &mut Initiator| match it.run(&[0x1a, 0, 0x3f, 0, 4, 0], &[], 4).unwrap() {
        Outcome::Good(bytes) => bytes[2] & 0x80 != 0,
        other => panic!("a look ended as {other:?}"),
    };
    assert!(sense(&mut reader) && !sense(&mut writer), "WP");

    // Who may do more, or less, begins anew.
    bench.attach(&attached(false));
    assert!(reader.is_cut_off());
    let mut reader = bench.log_in_soon("iqn.a");
    reader.ready().unwrap();
    assert_eq!(reader.write(3, 5).unwrap(), Outcome::Good(Vec::new()));
    assert_eq!(writer.read(3).unwrap(), Outcome::Good(vec![5; 4096]), "its rights are the same");
    bench.node.stop();
}

/// Asks for the volume by NBD's option GO; the type of the answer, and its data.
fn go(stream: &mut (impl Read + Write)) -> (u32, Vec<u8>) {
    let mut greeting = [0; 18];
    stream.read_exact(&mut greeting).unwrap();
    let mut option = 3_u32.to_be_bytes().to_vec();
    option.extend_from_slice(b"IHAVEOPT");
    option.extend_from_slice(&7_u32.to_be_bytes());
    option.extend_from_slice(&8_u32.to_be_bytes());
    option.extend_from_slice(&2_u32.to_be_bytes());
    option.extend_from_slice(b"db\0\0");
    stream.write_all(&option).unwrap();
    let mut reply = [0; 20];
    stream.read_exact(&mut reply).unwrap();
    let len = u32::from_be_bytes(reply[16..20].try_into().unwrap());
    let mut data = vec![0; usize::try_from(len).unwrap()];
    stream.read_exact(&mut data).unwrap();
    (u32::from_be_bytes(reply[12..16].try_into().unwrap()), data)
}

const POLICY: u32 = 1 << 31 | 2;
const INFO: u32 = 3;

/// Protects from a way round attachments: a plain client of NBD does not say who it is.
#[tokio::test]
async fn nbd_is_for_the_machine_itself() {
    let bench = Bench::new("access-nbd", &[attachment("iqn.a", false)]).await;
    let nbd = bench.node.at.nbd.unwrap();
    let (kind, reason) = go(&mut TcpStream::connect(nbd).unwrap());
    assert_eq!(kind, POLICY);
    let reason = String::from_utf8(reason).unwrap();
    assert!(reason.contains("does not say who it is"), "{reason}");
    let mut local = UnixStream::connect(&bench.node.socket).unwrap();
    assert_eq!(go(&mut local).0, INFO);

    // The operator's list counts, for NBD as for iSCSI.
    bench.catalog.change_volume("db", |volume| volume.attached_only = false);
    bench.log_in_soon("iqn.operator");
    assert_eq!(bench.log_in("iqn.a").err(), Some(DENIED));
    assert_eq!(go(&mut TcpStream::connect(nbd).unwrap()).0, POLICY);

    // Whoever came while everybody might is cut off when that ends.
    bench.catalog.change_volume("db", |volume| volume.allowed_initiators.clear());
    let begun = Instant::now();
    let mut remote = loop {
        let mut stream = TcpStream::connect(nbd).unwrap();
        if go(&mut stream).0 == INFO {
            break stream;
        }
        assert!(begun.elapsed() < Duration::from_secs(10));
        std::thread::sleep(Duration::from_millis(10));
    };
    bench.log_in("iqn.a").unwrap();
    let list = vec!["iqn.operator".into()];
    bench.catalog.change_volume("db", |volume| volume.allowed_initiators = list);
    remote.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let mut rest = Vec::new();
    remote.read_to_end(&mut rest).unwrap();
    local.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
    let still_there = loop {
        match local.read(&mut [0; 256]) {
            Ok(0) => break false,
            Ok(_) => {}
            Err(_) => break true,
        }
    };
    assert!(still_there, "it is the machine itself");
    bench.node.stop();
}
