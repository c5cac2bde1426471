//! Protects from watchers that miss a change, are told one twice, or believe a past that never was.
mod site;

use std::collections::BTreeMap;
use std::fs;
use std::net::SocketAddr;
use std::time::Duration;

use proto::catalog_client::{Client, News, Swapped, Watch};
use proto::v1::catalog_client::CatalogClient;
use proto::v1::event::Event as Told;
use proto::v1::{Kind, Object, WatchRequest};
use site::{Rng, Scratch, block_on, client, deletion, key, name, plain, start, volume};
use tokio::net::{TcpListener, TcpStream};
use tonic::transport::Endpoint;

/// What a watcher knows, with a check of every step that it makes.
#[derive(Debug, Default)]
struct View {
    objects: BTreeMap<String, Object>,
    revision: u64,
    everything: u32,
    lost: u32,
    /// Set while the beginning of everything is told.
    fresh: Option<BTreeMap<String, Object>>,
}

impl View {
    fn take(&mut self, news: News) {
        match news {
            News::Everything => {
                self.everything += 1;
                self.revision = 0;
                self.fresh = Some(BTreeMap::new());
            }
            News::Object(object) => {
                assert!(object.revision > self.revision, "told twice, or out of order");
                self.revision = object.revision;
                let objects = self.fresh.as_mut().unwrap_or(&mut self.objects);
                match object.body {
                    Some(_) => objects.insert(name(&object), *object),
                    None => objects.remove(&name(&object)),
                };
            }
            News::Current { revision } => {
                assert!(revision >= self.revision, "it went back");
                self.revision = revision;
                self.objects = self.fresh.take().unwrap_or(std::mem::take(&mut self.objects));
            }
            News::Lost { .. } => self.lost += 1,
        }
    }

    async fn follow(&mut self, watch: &mut Watch, until: impl Fn(&View) -> bool) {
        while !until(self) {
            let news = tokio::time::timeout(Duration::from_secs(20), watch.next()).await;
            self.take(news.expect("a change is told within seconds"));
        }
    }

    /// Follows until this revision was told.
    async fn reach(&mut self, watch: &mut Watch, revision: u64) {
        let reached = |view: &View| view.revision >= revision && view.fresh.is_none();
        self.follow(watch, reached).await;
    }
}

async fn truth(client: &Client) -> BTreeMap<String, Object> {
    let all = client.list(Kind::Volume).await.expect("a catalog");
    all.into_iter().map(|object| (name(&object), object)).collect()
}

/// A random change; the revision that it got.
async fn change(client: &Client, rng: &mut Rng) -> u64 {
    let name = format!("v{}", rng.below(12));
    loop {
        let present = client.get(&key(&name)).await.expect("a catalog");
        let version = present.map_or(0, |object| object.version);
        let change = match version > 0 && rng.one_in(3) {
            true => deletion(),
            false => volume(&name, 1 + rng.below(1000)),
        };
        if let Swapped::Done(object) =
            client.swap(&key(&name), version, change).await.expect("a catalog")
        {
            return object.revision;
        }
    }
}

/// Carries connections to the catalog, and cuts them after a random time.
async fn cutting_relay(to: SocketAddr, seed: u64) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("it is bound");
    tokio::spawn(async move {
        let mut rng = Rng(seed);
        loop {
            let (mut near, _) = listener.accept().await.expect("a connection");
            let mut far = TcpStream::connect(to).await.expect("a catalog");
            let lasts = Duration::from_millis(5 + rng.below(60));
            tokio::spawn(async move {
                let carry = tokio::io::copy_bidirectional(&mut near, &mut far);
                let _ = tokio::time::timeout(lasts, carry).await;
            });
        }
    });
    address
}

#[test]
fn nothing_is_missed_or_doubled_over_broken_connections() {
    let scratch = Scratch::new();
    let catalog = start(plain(scratch.path("catalog"), 0)).unwrap();
    block_on(async {
        let direct = client(catalog.address);
        let relay = cutting_relay(catalog.address, 1).await;
        let mut watch = client(relay).watch(Kind::Volume, None);
        let mut view = View::default();
        let mut rng = Rng(2);
        for _ in 0..60 {
            let mut last = 0;
            for _ in 0..rng.below(8) {
                last = change(&direct, &mut rng).await;
            }
            tokio::time::sleep(Duration::from_millis(rng.below(30))).await;
            view.reach(&mut watch, last).await;
            assert_eq!(view.objects, truth(&direct).await);
        }
        assert!(view.lost > 5, "connections were cut {} times", view.lost);
        assert_eq!(view.everything, 1, "the watch went on where it was");
    });
}

#[test]
fn a_watch_goes_on_over_a_restart() {
    let scratch = Scratch::new();
    let path = scratch.path("catalog");
    let catalog = start(plain(path.clone(), 0)).unwrap();
    let address = catalog.address;
    block_on(async {
        let (mut rng, mut view) = (Rng(3), View::default());
        let client = client(address);
        let mut watch = client.watch(Kind::Volume, None);
        for _ in 0..20 {
            change(&client, &mut rng).await;
        }
        view.reach(&mut watch, 20).await;
        tokio::task::spawn_blocking(move || catalog.stop()).await.unwrap();
        view.follow(&mut watch, |view| view.lost > 0).await;
        let _catalog = start(plain(path, address.port())).unwrap();
        let last = change(&client, &mut rng).await;
        assert_eq!(last, 21);
        view.reach(&mut watch, last).await;
        assert_eq!(view.objects, truth(&client).await);
        assert_eq!(view.everything, 1);
    });
}

/// Protects from a watcher that keeps what a restored catalog has never heard of.
#[test]
fn a_restored_catalog_is_noticed() {
    let scratch = Scratch::new();
    let (path, backup) = (scratch.path("catalog"), scratch.path("backup"));
    let catalog = start(plain(path.clone(), 0)).unwrap();
    let address = catalog.address;
    block_on(async {
        client(address).swap(&key("old"), 0, volume("old", 1)).await.unwrap();
    });
    catalog.stop();
    fs::copy(&path, &backup).unwrap();
    let catalog = start(plain(path.clone(), address.port())).unwrap();
    block_on(async {
        let (mut view, client) = (View::default(), client(address));
        let mut watch = client.watch(Kind::Volume, None);
        for name in ["new", "newer"] {
            client.swap(&key(name), 0, volume(name, 1)).await.unwrap();
        }
        view.reach(&mut watch, 3).await;
        assert_eq!(view.objects.len(), 3);
        tokio::task::spawn_blocking(move || catalog.stop()).await.unwrap();
        fs::rename(&backup, &path).unwrap();
        let _catalog = start(plain(path, address.port())).unwrap();
        let mut rng = Rng(4);
        while change(&client, &mut rng).await < 10 {}
        view.follow(&mut watch, |view| view.everything > 1).await;
        view.reach(&mut watch, 10).await;
        assert_eq!(view.objects, truth(&client).await);
        assert!(!view.objects.contains_key("newer"));
    });
}

#[test]
fn a_watcher_of_one_name_sees_only_that() {
    let scratch = Scratch::new();
    let catalog = start(plain(scratch.path("catalog"), 0)).unwrap();
    block_on(async {
        let client = client(catalog.address);
        client.swap(&key("mine"), 0, volume("mine", 1)).await.unwrap();
        client.swap(&key("gone"), 0, volume("gone", 1)).await.unwrap();
        client.swap(&key("gone"), 1, deletion()).await.unwrap();
        let mut mine = client.watch(Kind::Volume, Some("mine"));
        let mut nodes = client.watch(Kind::Node, None);
        assert_eq!(mine.next().await, News::Everything);
        assert!(matches!(mine.next().await, News::Object(object) if name(&object) == "mine"));
        assert_eq!(mine.next().await, News::Current { revision: 3 });
        assert_eq!(nodes.next().await, News::Everything);
        assert_eq!(nodes.next().await, News::Current { revision: 3 });
        client.swap(&key("other"), 0, volume("other", 1)).await.unwrap();
        client.swap(&key("mine"), 1, deletion()).await.unwrap();
        let News::Object(object) = mine.next().await else { panic!("a change") };
        assert_eq!((name(&object).as_str(), object.version, object.body), ("mine", 2, None));
    });
}

/// Protects from a catalog that keeps everything for a watcher that does not listen, or cuts it off.
#[test]
fn a_watcher_that_is_slow_finds_the_last_of_everything() {
    let scratch = Scratch::new();
    let catalog = start(plain(scratch.path("catalog"), 0)).unwrap();
    block_on(async {
        let direct = client(catalog.address);
        // So little may be under way that the catalog notices when nothing is read.
        let endpoint = Endpoint::from_shared(format!("http://{}", catalog.address)).unwrap();
        let channel = endpoint.initial_stream_window_size(512).connect().await.unwrap();
        let mut slow = CatalogClient::new(channel);
        let request = WatchRequest { kind: Kind::Volume.into(), ..WatchRequest::default() };
        let mut events = slow.watch(request).await.unwrap().into_inner();
        let mut rng = Rng(5);
        let mut last = 0;
        while last < 400 {
            last = change(&direct, &mut rng).await;
        }
        let (mut seen, mut at, mut told) = (BTreeMap::new(), 0, 0);
        while at < last {
            match events.message().await.unwrap().unwrap().event.unwrap() {
                Told::Begin(begin) => assert!(begin.whole),
                Told::Current(current) => at = current.revision,
                Told::Object(object) => {
                    assert!(object.revision > at, "told twice, or out of order");
                    (at, told) = (object.revision, told + 1);
                    match object.body {
                        Some(_) => seen.insert(name(&object), object),
                        None => seen.remove(&name(&object)),
                    };
                }
            }
        }
        assert_eq!(seen, truth(&direct).await);
        assert!(told < last / 2, "{told} of {last}: most was followed by another change");
    });
}

#[test]
fn watches_have_a_bound_and_are_given_back() {
    let scratch = Scratch::new();
    let catalog = start(plain(scratch.path("catalog"), 0)).unwrap();
    block_on(async {
        // As many as one connection may have streams would hide the bound of the catalog.
        let (one, two) = (client(catalog.address), client(catalog.address));
        let mut watches = Vec::new();
        for client in [&one, &two] {
            for _ in 0..512 {
                watches.push(client.watch(Kind::Node, None));
            }
        }
        for watch in &mut watches {
            assert_eq!(watch.next().await, News::Everything);
        }
        let mut refused = two.watch(Kind::Node, None);
        let News::Lost { reason } = refused.next().await else { panic!("it must be refused") };
        assert!(reason.contains("1024 watches"), "{reason}");
        drop(watches);
        assert_eq!(refused.next().await, News::Everything, "it tries again by itself");
    });
}
