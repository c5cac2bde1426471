//! Hosts that say who they are over NBD.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on says so by its line")]
mod named;
mod process;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use frontend::nbd::hello::Hello;
use frontend::nbd::wire::option_reply::{
    ERR_OLDER_CONNECTION, ERR_POLICY, ERR_STAGE_LOST, ERR_UNKNOWN,
};
use proto::v1;
use proto::v1::node_admin_client::NodeAdminClient;
use tonic::transport::Channel;

use named::{Credentials, Host, hello};
use process::{FalseCatalog, Process, folder, make, served, volume, volume_ref, vote};

const MIB: u64 = 1 << 20;
const NOT_PERMITTED: u32 = 1;

const CREDENTIALS: Credentials =
    Credentials { user: "db-user", secret: b"a secret of db", mutual: None };

fn attachment(initiator: &str, read_only: bool) -> v1::Attachment {
    let (host, initiator) = (initiator.into(), initiator.into());
    v1::Attachment { host, initiator, read_only, since_ms: 1, ..v1::Attachment::default() }
}

fn chap(mutual: bool) -> Option<v1::Chap> {
    let of = |word: &str| if mutual { word.to_owned() } else { String::new() };
    Some(v1::Chap {
        user: "db-user".into(),
        secret: "a secret of db".into(),
        mutual_user: of("pollux"),
        mutual_secret: of("the site's secret"),
    })
}

struct Bench {
    catalog: FalseCatalog,
    folder: PathBuf,
    node: Process,
    admin: NodeAdminClient<Channel>,
}

impl Bench {
    async fn new(name: &str, attached: &[v1::Attachment], chap: Option<v1::Chap>) -> Bench {
        let (catalog, folder) = (FalseCatalog::default(), folder(name));
        let node = Process::start(&folder, &catalog);
        let mut admin = node.admin().await;
        let db = v1::Volume {
            attached_only: true,
            attachments: attached.to_vec(),
            chap,
            ..volume("db", 16 * MIB)
        };
        let incarnation = make(&catalog, &mut admin, db).await;
        vote(&catalog, "db", incarnation);
        let mut bench = Bench { catalog, folder, node, admin };
        bench.start().await;
        bench
    }

    async fn start(&mut self) {
        let request = v1::StartTargetRequest { volume: Some(volume_ref("db")), take_over: true };
        self.admin.start_target(request).await.unwrap();
        served(&mut self.admin, "db").await;
    }

    fn open(&self, hello: &Hello, export: &str) -> Result<Host, u32> {
        Host::open(self.node.at.nbd.unwrap(), hello, export, None)
    }

    fn open_with(&self, hello: &Hello, credentials: &Credentials) -> Result<Host, u32> {
        Host::open(self.node.at.nbd.unwrap(), hello, "db", Some(credentials))
    }

    async fn sessions(&mut self) -> Vec<v1::Session> {
        let request = v1::GetTargetRequest { volume: Some(volume_ref("db")) };
        self.admin.get_target(request).await.unwrap().into_inner().sessions
    }

    async fn new_stage(&mut self) -> u64 {
        let request = v1::NewStageRequest { volume: Some(volume_ref("db")) };
        self.admin.new_stage(request).await.unwrap().into_inner().stage
    }
}

/// Protects from hosts that get at volumes of others, and from one that goes on using a volume which was
/// taken from it.
#[tokio::test]
async fn a_volume_is_for_the_hosts_that_it_is_attached_to() {
    let mut bench = Bench::new("hello", &[attachment("iqn.a", false)], None).await;
    let mut host = bench.open(&hello("iqn.a", 1), "db").unwrap();
    assert!(!host.is_read_only);
    assert_eq!(host.write(0, &[7; 4096]), Ok(()));
    assert_eq!(host.read(0, 4096), Ok(vec![7; 4096]));
    assert_eq!(bench.open(&hello("iqn.b", 1), "db").err(), Some(ERR_POLICY));
    assert_eq!(bench.open(&hello("iqn.a", 2), "other").err(), Some(ERR_UNKNOWN));
    let sessions = bench.sessions().await;
    let [session] = &sessions[..] else { panic!("{sessions:?}") };
    assert_eq!((&session.initiator[..], session.protocol()), ("iqn.a", v1::Protocol::Nbd));

    bench.catalog.change_volume("db", |db| db.attachments = vec![attachment("iqn.b", false)]);
    assert!(host.is_cut_off());
    assert_eq!(bench.open(&hello("iqn.a", 3), "db").err(), Some(ERR_POLICY));
    let mut other = bench.open(&hello("iqn.b", 1), "db").unwrap();
    assert_eq!(other.read(0, 4096), Ok(vec![7; 4096]));
    bench.node.stop();
}

/// Protects from a way round the operator's list: it names initiators, by whatever protocol they come.
#[tokio::test]
async fn a_list_of_initiators_is_for_hosts_that_say_who_they_are() {
    let bench = Bench::new("hello-list", &[], None).await;
    bench.catalog.change_volume("db", |db| {
        db.attached_only = false;
        db.allowed_initiators = vec!["iqn.a".into()];
    });
    let begun = Instant::now();
    while let Err(refused) = bench.open(&hello("iqn.a", 1), "db") {
        assert_eq!(refused, ERR_POLICY);
        assert!(begun.elapsed() < Duration::from_secs(10), "it is on the list");
        std::thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(bench.open(&hello("iqn.b", 1), "db").err(), Some(ERR_POLICY));
    bench.node.stop();
}

/// Protects from writes of a host that may only read, and from one that learns of it by its errors.
#[tokio::test]
async fn a_volume_that_is_attached_read_only_is_not_written() {
    let attached = [attachment("iqn.a", true), attachment("iqn.b", false)];
    let bench = Bench::new("hello-read", &attached, None).await;
    let mut reader = bench.open(&hello("iqn.a", 1), "db").unwrap();
    let mut writer = bench.open(&hello("iqn.b", 1), "db").unwrap();
    assert!(reader.is_read_only && !writer.is_read_only);
    assert_eq!(writer.write(4096, &[9; 4096]), Ok(()));
    assert_eq!(reader.write(4096, &[1; 4096]), Err(NOT_PERMITTED));
    assert_eq!(reader.zero(4096, 4096), Err(NOT_PERMITTED));
    assert_eq!(reader.read(4096, 4096), Ok(vec![9; 4096]));

    bench.catalog.change_volume("db", |db| db.attachments[0].read_only = false);
    assert!(reader.is_cut_off(), "who may do more begins anew");
    let mut reader = bench.open(&hello("iqn.a", 2), "db").unwrap();
    assert_eq!(reader.write(4096, &[1; 4096]), Ok(()));
    assert_eq!(writer.read(4096, 4096), Ok(vec![1; 4096]), "its rights are the same");
    bench.node.stop();
}

/// Protects from somebody who knows the name of a host, and not the secret of its volume.
#[tokio::test]
async fn a_name_is_proved_where_the_volume_has_credentials() {
    let bench = Bench::new("hello-chap", &[attachment("iqn.a", false)], chap(false)).await;
    let refused = Some(ERR_POLICY);
    assert_eq!(bench.open(&hello("iqn.a", 1), "db").err(), refused, "it proves nothing");
    let wrong = [
        Credentials { secret: b"another secret", ..CREDENTIALS },
        Credentials { secret: b"", ..CREDENTIALS },
        Credentials { user: "other", ..CREDENTIALS },
    ];
    for credentials in &wrong {
        assert_eq!(bench.open_with(&hello("iqn.a", 1), credentials).err(), refused);
    }
    assert_eq!(bench.open_with(&hello("iqn.b", 1), &CREDENTIALS).err(), refused, "not attached");
    let mut host = bench.open_with(&hello("iqn.a", 1), &CREDENTIALS).unwrap();
    assert_eq!(host.target_mac, None);
    assert_eq!(host.write(0, &[7; 4096]), Ok(()));
    bench.node.stop();
}

/// Protects from secrets of volumes on the disks of nodes, and from a node that has forgotten them and lets everybody
/// in: without the catalog it serves, and waits with logins that it cannot check.
#[tokio::test]
async fn a_node_that_starts_without_the_catalog_lets_no_unproved_host_in() {
    let bench = Bench::new("hello-memory", &[attachment("iqn.a", false)], chap(true)).await;
    let Bench { catalog, folder, node, .. } = bench;
    node.stop();
    let kept = std::fs::read(folder.join("state/volumes/db")).unwrap();
    let kept = String::from_utf8_lossy(&kept).into_owned();
    assert!(kept.contains("db-user"), "{kept:?}");
    assert!(!kept.contains("a secret of db") && !kept.contains("the site's secret"), "{kept:?}");

    catalog.set_away(true);
    let node = Process::start(&folder, &catalog);
    let mut admin = node.admin().await;
    served(&mut admin, "db").await;
    let open =
        |credentials| Host::open(node.at.nbd.unwrap(), &hello("iqn.a", 1), "db", credentials);
    let empty = Credentials { secret: b"", ..CREDENTIALS };
    for credentials in [None, Some(&CREDENTIALS), Some(&empty)] {
        assert!(open(credentials).is_err());
    }
    catalog.set_away(false);
    let begun = Instant::now();
    while open(Some(&CREDENTIALS)).is_err() {
        assert!(begun.elapsed() < Duration::from_secs(10), "the catalog is back");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert!(open(None).is_err());
    node.stop();
}

/// Protects from a proof that was overheard: it is good for one connection.
#[tokio::test]
async fn an_overheard_proof_opens_nothing() {
    let bench = Bench::new("hello-replay", &[attachment("iqn.a", false)], chap(false)).await;
    let at = bench.node.at.nbd.unwrap();
    let said = hello("iqn.a", 1);
    let mut first = Host::say_hello(at, &said);
    let proof = first.proof(&said, "db", &CREDENTIALS);
    let mut second = Host::say_hello(at, &said);
    second.prove(&proof);
    assert_eq!(second.go("db").err(), Some(ERR_POLICY));
    first.prove(&proof);
    first.go("db").unwrap();
    bench.node.stop();
}

/// Protects from a host that believes somebody else's target.
#[tokio::test]
async fn the_target_proves_itself_where_the_credentials_are_mutual() {
    let bench = Bench::new("hello-mutual", &[attachment("iqn.a", false)], chap(true)).await;
    let said = hello("iqn.a", 1);
    let mutual = Credentials { mutual: Some(b"the site's secret"), ..CREDENTIALS };
    let host = bench.open_with(&said, &mutual).unwrap();
    assert!(host.is_proved, "the code is that of the mutual secret");
    let other = Credentials { mutual: Some(b"another secret"), ..CREDENTIALS };
    let host = bench.open_with(&hello("iqn.a", 2), &other).unwrap();
    assert!(host.target_mac.is_some() && !host.is_proved);
    bench.node.stop();
}

/// Protects from an older request that runs after a newer one (P9).
#[tokio::test]
async fn a_newer_connection_replaces_the_older_and_no_other() {
    let attached = [attachment("iqn.a", false), attachment("iqn.b", false)];
    let mut bench = Bench::new("hello-newer", &attached, None).await;
    let mut bystander = bench.open(&hello("iqn.b", 1), "db").unwrap();
    let sibling = Hello { client: 8, ..hello("iqn.a", 1) };
    let mut sibling = bench.open(&sibling, "db").unwrap();
    let mut old = bench.open(&hello("iqn.a", 5), "db").unwrap();
    assert_eq!(old.write(0, &[1; 4096]), Ok(()));
    for number in [4, 5] {
        let refused = bench.open(&hello("iqn.a", number), "db").err();
        assert_eq!(refused, Some(ERR_OLDER_CONNECTION), "number {number}");
    }
    assert_eq!(old.read(0, 4096), Ok(vec![1; 4096]), "who came too late changes nothing");

    // What it has under way is done before the newer one is answered, or never.
    (0..64).for_each(|block| old.send_write(block * 4096, &[2; 4096]));
    let mut new = bench.open(&hello("iqn.a", 9), "db").unwrap();
    for block in 0..64 {
        assert_eq!(new.write(block * 4096, &[3; 4096]), Ok(()));
    }
    assert!(old.is_cut_off());
    tokio::time::sleep(Duration::from_millis(200)).await;
    for block in 0..64 {
        assert_eq!(new.read(block * 4096, 4096), Ok(vec![3; 4096]), "block {block}");
    }
    assert_eq!(bystander.read(0, 4096), Ok(vec![3; 4096]), "another host with a lower number");
    assert_eq!(sibling.read(0, 4096), Ok(vec![3; 4096]), "another client of the same host");
    assert_eq!(bench.sessions().await.len(), 3);
    drop(new);
    let begun = Instant::now();
    while bench.sessions().await.len() > 2 {
        assert!(begun.elapsed() < Duration::from_secs(10));
    }
    assert_eq!(bench.open(&hello("iqn.a", 9), "db").err(), Some(ERR_OLDER_CONNECTION));
    bench.node.stop();
}

/// Protects from a mount that goes on over writes that were lost (P8): a pool that was written without a
/// flush, and whose device failed, may have lost them.
#[tokio::test]
async fn a_stage_from_before_a_loss_is_told_apart() {
    let attached = v1::Attachment { stage: 1, ..attachment("iqn.a", false) };
    let mut bench = Bench::new("hello-stage", &[attached], None).await;
    let before = format!("db:stage.{}", bench.new_stage().await);
    let mut host = bench.open(&hello("iqn.a", 1), &before).unwrap();
    assert_eq!(host.write(0, &[7; 4096]), Ok(()));
    let (pool, copy) = (bench.folder.join("pool"), bench.folder.join("copy"));
    std::fs::copy(&pool, &copy).unwrap();
    bench.node.stop();
    std::fs::rename(&copy, &pool).unwrap();
    // Each line is the beginning of some pools' numbers, and one of them of this one's.
    let lines: String = "0123456789abcdef".chars().map(|digit| format!("{digit}\n")).collect();
    std::fs::write(bench.folder.join("state/failures"), lines).unwrap();

    bench.node = Process::start(&bench.folder, &bench.catalog);
    bench.admin = bench.node.admin().await;
    served(&mut bench.admin, "db").await;
    assert_eq!(bench.open(&hello("iqn.a", 2), &before).err(), Some(ERR_STAGE_LOST));
    let after = format!("db:stage.{}", bench.new_stage().await);
    let mut host = bench.open(&hello("iqn.a", 3), &after).unwrap();
    assert_eq!(host.read(0, 4096).map(|bytes| bytes.len()), Ok(4096));
    bench.node.stop();
}

/// Protects from a mount that goes on where it was after the volume was detached, written by another machine, and
/// attached again: what it remembers is older than what is there.
#[tokio::test]
async fn a_stage_ends_with_its_attachment() {
    let bench = Bench::new("hello-again", &[attachment("iqn.a", false)], None).await;
    assert_eq!(bench.open(&hello("iqn.a", 1), "db:stage.1").err(), Some(ERR_STAGE_LOST));
    assert!(bench.open(&hello("iqn.a", 2), "db").is_ok(), "who has no stage remembers nothing");
    bench.node.stop();
}
