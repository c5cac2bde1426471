//! The API of a site as a stranger, a viewer and a mistaken client meet it.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on says so by its line")]
mod false_node;
#[path = "api/lost.rs"]
mod lost;
mod site;

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use control::api::types::{
    Attach, BeginFormat, Credential, Detach, EndFormat, Format, Health, Move, NewGroupSnapshot,
    NewHost, NewSnapshot, NewStage, NewToken, NewVolume, Role, Rollback, Stage,
};
use control::api::{Client, Code, Endpoint};
use control::controller::Settings;
use control::serve::{Options, serve};
use false_node::FalseNode;
use proto::catalog_client::Swapped;
use proto::v1::object::Body;
use proto::v1::swap_request::Change;
use proto::v1::{Chap, Key, Kind, Member, Membership, Node, Place, Quorum, Volume, Voters};
use site::Scratch;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::oneshot;

/// A control plane that runs until it is dropped, and its first token.
struct Control {
    api: SocketAddr,
    catalog: SocketAddr,
    token: String,
    _stop: oneshot::Sender<()>,
    scratch: Scratch,
}

async fn control() -> Control {
    let scratch = Scratch::new();
    started(scratch).await
}

async fn started(scratch: Scratch) -> Control {
    let options = Options {
        catalog: site::plain(scratch.path("catalog"), 0),
        api: "127.0.0.1:0".parse().unwrap(),
        token_file: scratch.path("admin.token"),
        settings: Settings { beat: Duration::from_millis(50), ..Settings::default() },
    };
    let (ready, told) = oneshot::channel();
    let (stop, stopped) = oneshot::channel::<()>();
    tokio::spawn(async move {
        let ready = |at| {
            ready.send(at).expect("somebody waits");
            Ok(())
        };
        let until = async {
            let _ = stopped.await;
        };
        serve(options, ready, until).await.unwrap();
    });
    let at = told.await.unwrap();
    let token = std::fs::read_to_string(scratch.path("admin.token")).unwrap().trim().into();
    Control { api: at.api, catalog: at.catalog, token, _stop: stop, scratch }
}

impl Control {
    fn client(&self, token: &str) -> Client {
        let (address, token) = (self.api.to_string(), token.into());
        Client::new(Endpoint { address, token, trust: None })
    }

    /// What is answered to these very bytes.
    async fn raw(&self, request: &str) -> String {
        let mut stream = TcpStream::connect(self.api).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await.unwrap();
        String::from_utf8_lossy(&answer).into_owned()
    }

    fn post(&self, path: &str, body: &str) -> String {
        let (token, len) = (&self.token, body.len());
        format!(
            "POST {path} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {token}\r\n\
             content-type: application/json\r\ncontent-length: {len}\r\n\r\n{body}"
        )
    }

    /// Nodes without content, as many as are asked for.
    async fn nodes(&self, count: u64) -> Vec<FalseNode> {
        let client = site::client(self.catalog);
        let mut fakes = Vec::new();
        for id in 1..=count {
            let (fake, node) = FalseNode::start(id, site::client(self.catalog)).await;
            fake.with(|state| state.never_serves = true);
            let key = Key { kind: Kind::Node.into(), name: node.name.clone() };
            client.swap(&key, 0, Change::Node(node)).await.unwrap();
            fakes.push(fake);
        }
        let api = self.client(&self.token);
        loop {
            let here = api.nodes().await.unwrap().items;
            let healthy = here.iter().filter(|it| it.state.health == Health::Healthy).count();
            if healthy as u64 == count {
                return fakes;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// A volume that the first node serves, and that is nobody's care.
    async fn volume(&self, name: &str, chap: Option<Chap>) {
        let Change::Volume(volume) = site::volume(name, 256) else { panic!("no volume") };
        let member = Member { replica: 1, incarnation: 101 };
        let voters = Voters { members: vec![member], rf: 1 };
        let quorum = Quorum {
            grant: 1,
            holder: 1,
            membership: Some(Membership { version: 1, voters: Some(voters), next: None }),
            desired: vec![member],
            ..volume.quorum.clone().unwrap()
        };
        let places = vec![Place { replica: 1, node: 1, pool: "main".into() }];
        let volume = Volume { quorum: Some(quorum), places, chap, attached_only: true, ..volume };
        let client = site::client(self.catalog);
        client.swap(&site::key(name), 0, Change::Volume(volume)).await.unwrap();
        let api = self.client(&self.token);
        while api.volume(name).await.is_err() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

impl Control {
    /// Past the API, as somebody else would.
    async fn change(&self, name: &str, change: impl Fn(&mut Volume)) {
        let client = site::client(self.catalog);
        loop {
            let found = client.get(&site::key(name)).await.unwrap().unwrap();
            let Some(Body::Volume(mut volume)) = found.body else { panic!("no volume") };
            change(&mut volume);
            let swapped =
                client.swap(&site::key(name), found.version, Change::Volume(volume)).await;
            if let Swapped::Done(_) = swapped.unwrap() {
                return;
            }
        }
    }
}

fn attach_to(host: &str) -> Attach {
    Attach { host: host.into(), ..Attach::default() }
}

#[tokio::test]
async fn nobody_gets_in_without_a_token_and_nobody_further_than_his_role() {
    let control = control().await;
    let stranger = control.raw("GET /v1/volumes HTTP/1.1\r\nhost: x\r\n\r\n").await;
    assert!(stranger.starts_with("HTTP/1.1 401"), "{stranger}");
    for wrong in ["", "nonsense", "pollux_0000"] {
        let refused = control.client(wrong).site().await.unwrap_err();
        assert_eq!(refused.code, Code::Unauthenticated, "{wrong}");
    }
    let admin = control.client(&control.token);
    let make = async |name: &str, role, lasts_seconds| {
        let wanted = NewToken { name: name.into(), role, lasts_seconds };
        admin.create_token(&wanted).await.unwrap().token.unwrap()
    };
    let viewer = control.client(&make("looks", Role::Viewer, None).await);
    let editor = control.client(&make("works", Role::Editor, None).await);
    let late = control.client(&make("late", Role::Admin, Some(0)).await);
    assert!(viewer.volumes("", 0).await.is_ok());
    let wanted = NewVolume { name: "db".into(), ..NewVolume::default() };
    assert_eq!(viewer.create_volume(&wanted).await.unwrap_err().code, Code::Forbidden);
    let no_room = editor.create_volume(&wanted).await.unwrap_err();
    assert_eq!(no_room.code, Code::OutOfSpace, "there are no nodes: {no_room}");
    assert_eq!(editor.tokens().await.unwrap_err().code, Code::Forbidden);
    assert_eq!(late.site().await.unwrap_err().code, Code::Unauthenticated, "it has expired");
    let told = admin.tokens().await.unwrap().items;
    assert!(told.iter().all(|token| token.token.is_none()), "shown once: {told:?}");
    admin.delete_token("works").await.unwrap();
    assert_eq!(editor.site().await.unwrap_err().code, Code::Unauthenticated);
}

#[tokio::test]
async fn mistakes_are_named_and_leave_nothing() {
    let control = control().await;
    for (path, body, status, word) in [
        ("/v1/volumes", "{", "400", "body"),
        ("/v1/volumes", r#"{"name":"a","sizes":1}"#, "400", "sizes"),
        ("/v1/volumes", r#"{"name":"a","replicas":9}"#, "400", "replicas"),
        ("/v1/volumes", r#"{"name":"a","size":5000,"sizeLimit":4097}"#, "400", "size"),
        ("/v1/volumes", r#"{"name":"a","source":{"kind":"snapshot","id":"s"}}"#, "404", "snapshot"),
        ("/v1/volumes", r#"{"name":"a","group":"g"}"#, "400", "group"),
        ("/v1/volumes/none/resize", r#"{"size":1}"#, "404", "none"),
        ("/v1/volumes/none/attach", r#"{"host":"node-1"}"#, "404", "none"),
        ("/v1/group-snapshots", r#"{"name":"g"}"#, "400", "volumes"),
        ("/v1/nonsense", "{}", "400", "openapi"),
        ("/v1/tokens", r#"{"name":"A B","role":"viewer"}"#, "400", "name"),
    ] {
        let answer = control.raw(&control.post(path, body)).await;
        assert!(answer.starts_with(&format!("HTTP/1.1 {status}")), "{path} {body}: {answer}");
        assert!(answer.contains(word), "{path} {body}: {answer}");
    }
    let huge = control.raw(&control.post("/v1/volumes", &" ".repeat(300 << 10))).await;
    assert!(huge.starts_with("HTTP/1.1 400") || huge.starts_with("HTTP/1.1 413"), "{huge}");
    let client = control.client(&control.token);
    assert!(client.volumes("", 0).await.unwrap().items.is_empty());
    // What is deleted and was never there is gone.
    assert!(client.delete_volume("none", &Default::default()).await.is_ok());
}

/// The fake nodes never serve: the creation is not finished, and what was begun is known.
#[tokio::test]
async fn a_second_call_while_one_is_pending_is_told_so() {
    let control = control().await;
    control.nodes(3).await;
    let wanted = NewVolume { name: "db".into(), size: 1 << 20, ..NewVolume::default() };
    let (client, again) = (control.client(&control.token), wanted.clone());
    let first = tokio::spawn(async move { client.create_volume(&again).await });
    let client = control.client(&control.token);
    while client.volume("db").await.is_err() {
        assert!(!first.is_finished(), "{first:?}");
        tokio::task::yield_now().await;
    }
    let second = client.create_volume(&wanted).await.unwrap_err();
    assert_eq!(second.code, Code::Busy, "{second}");
    let other = client.delete_volume("db", &Default::default()).await.unwrap_err();
    assert_eq!(other.code, Code::Busy, "{other}");
}

#[tokio::test]
async fn a_site_that_comes_back_knows_its_tokens() {
    let control = control().await;
    let Control { token, scratch, _stop, .. } = control;
    drop(_stop);
    tokio::time::sleep(Duration::from_millis(200)).await;
    let again = started(scratch).await;
    assert_eq!(again.token, token);
    assert!(again.client(&token).site().await.is_ok());
}

/// Protects from machines without a pool that cannot have volumes, and from one that is forgotten while it
/// uses some.
#[tokio::test]
async fn a_host_that_is_no_node_has_volumes() {
    let control = control().await;
    control.nodes(1).await;
    control.volume("db", None).await;
    let client = control.client(&control.token);
    let topology = [("zone".to_owned(), "a".to_owned())].into();
    let wanted = NewHost { name: "worker-1".into(), topology };
    let unknown = client.attach_volume("db", &attach_to("worker-1")).await.unwrap_err();
    assert_eq!(unknown.code, Code::NotFound, "{unknown}");
    let made = client.create_host(&wanted).await.unwrap();
    assert_eq!((&made.name[..], &made.topology), ("worker-1", &wanted.topology));
    assert!(made.created_ms > 0 && made.seen_ms >= made.created_ms && made.volumes.is_empty());
    tokio::time::sleep(Duration::from_millis(5)).await;
    let elsewhere = NewHost { topology: Default::default(), ..wanted.clone() };
    let again = client.create_host(&elsewhere).await.unwrap();
    assert_eq!((again.created_ms, again.topology.len()), (made.created_ms, 0));
    assert!(again.seen_ms > made.seen_ms, "it was seen again");

    let volume = client.attach_volume("db", &attach_to("worker-1")).await.unwrap();
    assert_eq!(volume.attachments[0].initiator, made.initiator);
    assert_eq!(client.host("worker-1").await.unwrap().volumes, ["db"]);
    let refused = client.delete_host("worker-1").await.unwrap_err();
    assert_eq!(refused.code, Code::InUse);
    assert!(refused.message.contains("db"), "{refused}");
    let detach = Detach { host: "worker-1".into(), credential: None };
    client.detach_volume("db", &detach).await.unwrap();
    client.attach_volume("db", &attach_to("node-1")).await.unwrap();
    client.delete_host("worker-1").await.unwrap();
    client.delete_host("worker-1").await.expect("it is gone");
    assert!(client.hosts().await.unwrap().items.is_empty());
    assert_eq!(client.host("worker-1").await.unwrap_err().code, Code::NotFound);
    assert!(client.create_host(&wanted).await.is_ok(), "it may come back");

    for name in ["", "A", "a b", "-a", &"a".repeat(64)] {
        let wrong = NewHost { name: name.into(), ..NewHost::default() };
        assert_eq!(client.create_host(&wrong).await.unwrap_err().code, Code::Invalid, "{name}");
    }
    let viewer = NewToken { name: "looks".into(), role: Role::Viewer, lasts_seconds: None };
    let viewer = client.create_token(&viewer).await.unwrap().token.unwrap();
    let viewer = control.client(&viewer);
    assert_eq!(viewer.hosts().await.unwrap().items.len(), 1);
    assert_eq!(viewer.create_host(&wanted).await.unwrap_err().code, Code::Forbidden);
    assert_eq!(viewer.delete_host("worker-1").await.unwrap_err().code, Code::Forbidden);
}

fn stage(host: &str, credential: Option<Credential>) -> NewStage {
    NewStage { host: host.into(), credential, ..NewStage::default() }
}

#[tokio::test]
async fn a_stage_is_for_hosts_that_have_the_volume() {
    let control = control().await;
    let nodes = control.nodes(1).await;
    nodes[0].with(|state| state.never_serves = false);
    let chap = Chap { user: "user".into(), secret: "twelve bytes".into(), ..Chap::default() };
    control.volume("db", Some(chap)).await;
    let client = control.client(&control.token);
    for host in ["node-1", "nobody"] {
        let refused = client.new_stage("db", &stage(host, None)).await.unwrap_err();
        assert_eq!(refused.code, Code::InUse, "{refused}");
        assert!(refused.message.contains("not attached"), "{refused}");
    }
    let missing = client.new_stage("other", &stage("node-1", None)).await.unwrap_err();
    assert_eq!(missing.code, Code::NotFound);
    client.attach_volume("db", &attach_to("node-1")).await.unwrap();
    assert_eq!(client.new_stage("db", &stage("node-1", None)).await, Ok(Stage { stage: 1 }));
    let shown = |secret: &str| {
        let (user, secret) = ("user".into(), secret.into());
        Some(Credential { user, secret, ..Credential::default() })
    };
    let right = stage("node-1", shown("twelve bytes"));
    assert_eq!(client.new_stage("db", &right).await, Ok(Stage { stage: 2 }));
    let wrong = client.new_stage("db", &stage("node-1", shown("other secret"))).await;
    assert_eq!(wrong.unwrap_err().code, Code::Unauthenticated);
    nodes[0].with(|state| state.never_serves = true);
    let refused = client.new_stage("db", &right).await.unwrap_err();
    assert_eq!(refused.code, Code::Unavailable, "{refused}");
    let viewer = NewToken { name: "looks".into(), role: Role::Viewer, lasts_seconds: None };
    let viewer = client.create_token(&viewer).await.unwrap().token.unwrap();
    let refused = control.client(&viewer).new_stage("db", &right).await.unwrap_err();
    assert_eq!(refused.code, Code::Forbidden);
}

fn begin(stage: u64) -> BeginFormat {
    BeginFormat {
        host: "node-1".into(),
        stage,
        file_system: "ext4".into(),
        ..BeginFormat::default()
    }
}

/// The client, and the number of a stage of `db` on the first node, that only mounts it.
async fn staged(control: &Control) -> (Client, u64) {
    let client = control.client(&control.token);
    client.attach_volume("db", &attach_to("node-1")).await.unwrap();
    let stage = mounts(&client).await;
    (client, stage)
}

async fn mounts(client: &Client) -> u64 {
    let of = NewStage { mounts: true, ..stage("node-1", None) };
    client.new_stage("db", &of).await.unwrap().stage
}

async fn mark(client: &Client) -> Option<Format> {
    client.volume("db").await.unwrap().format
}

/// Protects data that is neither at the beginning nor at the end of a volume.
#[tokio::test]
async fn a_volume_with_data_is_formatted_only_if_that_was_begun() {
    let control = control().await;
    let nodes = control.nodes(1).await;
    nodes[0].with(|state| state.never_serves = false);
    control.volume("db", None).await;
    let (client, stage) = staged(&control).await;
    let extent = proto::v1::Extent { offset: 700 << 10, len: 4096 };
    nodes[0].with(|state| state.data = vec![extent]);
    let refused = client.begin_format("db", &begin(stage)).await.unwrap_err();
    assert_eq!(refused.code, Code::InUse, "{refused}");
    assert!(refused.message.contains("the first at byte 716800"), "{refused}");
    assert_eq!(mark(&client).await, None);
    nodes[0].with(|state| state.data.clear());
    client.begin_format("db", &begin(stage)).await.unwrap();
    let noted = mark(&client).await.unwrap();
    assert_eq!((&*noted.file_system, &*noted.host, noted.stage), ("ext4", "node-1", stage));
    assert!(noted.verified);
    // The mkfs was cut off: what is there now is what it left, for this host and the next.
    nodes[0].with(|state| state.data = vec![extent]);
    client.begin_format("db", &begin(stage)).await.unwrap();
    client.detach_volume("db", &Detach::default()).await.unwrap();
    let (client, next) = staged(&control).await;
    let old = client.begin_format("db", &begin(stage)).await.unwrap_err();
    assert!(old.message.contains("not the newest"), "{old}");
    client.begin_format("db", &begin(next)).await.unwrap();
    let end = EndFormat { host: "node-1".into(), stage: next, credential: None };
    let early = client.end_format("db", &EndFormat { stage, ..end.clone() }).await.unwrap_err();
    assert_eq!(early.code, Code::InUse, "{early}");
    client.end_format("db", &end).await.unwrap();
    client.end_format("db", &end).await.unwrap();
    assert_eq!(mark(&client).await, None);
    assert!(client.begin_format("db", &begin(next)).await.is_err(), "it is in use by now");
    let left = nodes[0].with(|state| state.snapshots.len());
    assert_eq!((left, client.snapshots(None, "", 0).await.unwrap().items.len()), (0, 0));
}

/// Protects what an initiator without an attachment writes while the site looks whether the volume is blank.
#[tokio::test]
async fn an_open_volume_is_closed_to_others_before_it_is_formatted() {
    let control = control().await;
    let nodes = control.nodes(1).await;
    nodes[0].with(|state| state.never_serves = false);
    control.volume("db", None).await;
    control.change("db", |volume| volume.attached_only = false).await;
    let (client, stage) = staged(&control).await;
    assert!(!client.volume("db").await.unwrap().attached_only);
    // Somebody writes just before the target hears that he may not.
    let state = std::sync::Arc::clone(&nodes[0].state);
    let written = async move {
        state.lock().unwrap().data = vec![proto::v1::Extent { offset: 600 << 10, len: 4096 }];
    };
    nodes[0].with(|state| state.when = Some(("start_target", Box::pin(written))));
    let refused = client.begin_format("db", &begin(stage)).await.unwrap_err();
    assert!(refused.message.contains("the first at byte 614400"), "{refused}");
    assert_eq!(mark(&client).await, None);
    nodes[0].with(|state| state.data.clear());
    client.begin_format("db", &begin(stage)).await.unwrap();
    assert!(mark(&client).await.is_some_and(|mark| mark.verified));
    // A controller that ended before it had looked leaves a mark that permits nothing.
    let unverified = |volume: &mut Volume| {
        volume.format.iter_mut().for_each(|mark| mark.verified = false);
    };
    control.change("db", unverified).await;
    let begun = Instant::now();
    while mark(&client).await.is_some() {
        assert!(begun.elapsed() < Duration::from_secs(20), "care removes it");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Protects what was written between a mkfs that was cut off and the next mount.
#[tokio::test]
async fn that_a_format_was_begun_is_forgotten_with_any_other_use() {
    let control = control().await;
    let nodes = control.nodes(1).await;
    nodes[0].with(|state| state.never_serves = false);
    control.volume("db", None).await;
    let (client, first) = staged(&control).await;
    let snapshot = NewSnapshot { name: "s".into(), volume: "db".into(), ..Default::default() };
    client.create_snapshot(&snapshot).await.unwrap();
    client.begin_format("db", &begin(first)).await.unwrap();
    let next = mounts(&client).await;
    assert_eq!(mark(&client).await.map(|it| it.stage), Some(next), "it is mounted");
    client.new_stage("db", &stage("node-1", None)).await.unwrap();
    assert_eq!(mark(&client).await, None, "it is a device");
    let next = mounts(&client).await;
    client.begin_format("db", &begin(next)).await.unwrap();
    // A catalog that was restored from a backup knows nothing of stages that were given since.
    nodes[0].with(|state| state.stages += 1);
    let next = mounts(&client).await;
    assert_eq!(mark(&client).await, None, "somebody had a stage that is not known");
    client.begin_format("db", &begin(next)).await.unwrap();
    client.detach_volume("db", &Detach::default()).await.unwrap();
    assert!(mark(&client).await.is_some());
    client.roll_back_volume("db", &Rollback { snapshot: "s".into() }).await.unwrap();
    assert_eq!(mark(&client).await, None, "it is as it was before");
}

/// Protects from callers who wait for a quorum until their time is over, while nobody else can do anything
/// with the volume.
#[tokio::test]
async fn a_target_without_a_quorum_is_refused_at_once() {
    let control = control().await;
    let nodes = control.nodes(1).await;
    nodes[0].with(|state| (state.never_serves, state.without_quorum) = (false, true));
    control.volume("db", None).await;
    let client = control.client(&control.token);
    client.attach_volume("db", &attach_to("node-1")).await.unwrap();
    let begun = Instant::now();
    let cut = NewGroupSnapshot {
        name: "now".into(),
        volumes: vec!["db".into()],
        ..NewGroupSnapshot::default()
    };
    let refused = client.create_group_snapshot(&cut).await.unwrap_err();
    assert_eq!(refused.code, Code::Unavailable, "{refused}");
    assert!(refused.message.contains("0 replicas follow"), "{refused}");
    let refused = client.new_stage("db", &stage("node-1", None)).await.unwrap_err();
    assert_eq!(refused.code, Code::Unavailable, "{refused}");
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
}

/// Protects from an orchestrator that is told for good that there is no room, by a controller that has just
/// begun.
#[tokio::test]
async fn nothing_is_full_before_every_node_was_heard_of() {
    let control = control().await;
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let admin_address = silent.local_addr().unwrap().to_string();
    let node = Node { id: 1, name: "node-1".into(), admin_address, ..Node::default() };
    let key = Key { kind: Kind::Node.into(), name: "node-1".into() };
    site::client(control.catalog).swap(&key, 0, Change::Node(node)).await.unwrap();
    let client = control.client(&control.token);
    while client.node("node-1").await.is_err() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let wanted = NewVolume { name: "db".into(), size: 1 << 20, ..NewVolume::default() };
    let refused = client.create_volume(&wanted).await.unwrap_err();
    assert_eq!(refused.code, Code::Unavailable, "{refused}");
    assert!(refused.message.contains("heard of"), "{refused}");
    assert!(client.volumes("", 0).await.unwrap().items.is_empty());
}

#[tokio::test]
async fn too_few_nodes_are_told_with_the_reason_of_each() {
    let control = control().await;
    let _nodes = control.nodes(2).await;
    let client = control.client(&control.token);
    client.cordon_node("node-2", true).await.unwrap();
    let wanted =
        NewVolume { name: "db".into(), size: 1 << 20, replicas: Some(3), ..NewVolume::default() };
    let refused = client.create_volume(&wanted).await.unwrap_err();
    assert_eq!(refused.code, Code::OutOfSpace, "{refused}");
    let sentence =
        "needs 3 nodes, and only `node-1` qualifies: `node-2` is cordoned; start or add nodes";
    assert!(refused.message.contains(sentence), "{refused}");
}

/// Protects from a list that shows nothing right after something was made: the node's own count may be old.
#[tokio::test]
async fn nodes_and_pools_have_what_the_catalog_says() {
    let control = control().await;
    let _nodes = control.nodes(2).await;
    control.volume("db", None).await;
    let client = control.client(&control.token);
    let nodes = client.nodes().await.unwrap().items;
    let counts: Vec<(u64, u64)> = nodes.iter().map(|it| (it.replicas, it.targets)).collect();
    assert_eq!(counts, [(1, 1), (0, 0)]);
    let pools = client.pools().await.unwrap().items;
    let counts: Vec<u64> = pools.iter().map(|it| it.replicas).collect();
    assert_eq!(counts, [1, 0]);
}

/// Protects from a controller that waits for a node without peers for as long as IO is held, while another could serve.
#[tokio::test]
async fn a_node_that_reaches_no_quorum_is_not_waited_for() {
    let control = control().await;
    let nodes = control.nodes(1).await;
    control.volume("db", None).await;
    nodes[0].with(|state| state.without_quorum = true);
    let begun = Instant::now();
    let client = control.client(&control.token);
    let refused = client.move_volume("db", &Move { node: "node-1".into() }).await.unwrap_err();
    assert_eq!(refused.code, Code::Unavailable, "{refused}");
    assert!(refused.message.contains("0 replicas follow"), "{refused}");
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
}
