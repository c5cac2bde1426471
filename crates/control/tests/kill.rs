//! Protects from a catalog that forgets what it answered when its process is killed.
//!
//! A process with swaps of many clients under way is killed at random moments, again and again on the
//! same file. After each, everything that was answered must be there, with what was answered; and a
//! watcher that lives through all of it must have seen the same as there is in the end.
//!
//! `POLLUX_KILL_SEED` and `POLLUX_KILLS` choose another run or a longer one.
mod site;

use std::collections::BTreeMap;
use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use control::catalog::run;
use proto::catalog_client::{Client, News, Swapped};
use proto::v1::{Kind, Object};
use site::{Rng, Scratch, block_on, client, deletion, key, name, plain, volume};

const KILLS: u64 = 12;
const CLIENTS: u64 = 8;
const FILE: &str = "POLLUX_CATALOG_FILE";
const PORT: &str = "POLLUX_CATALOG_PORT";
const READY: &str = "POLLUX_CATALOG_READY";

fn number(variable: &str, otherwise: u64) -> u64 {
    std::env::var(variable).ok().and_then(|text| text.parse().ok()).unwrap_or(otherwise)
}

/// Not a test: the process that is killed, which is this very program.
#[test]
fn child() {
    let Ok(file) = std::env::var(FILE) else { return };
    let port = u16::try_from(number(PORT, 0)).unwrap();
    let ready = std::env::var(READY).unwrap();
    let served = run(&plain(file.into(), port), |address| {
        fs::write(format!("{ready}.new"), address.to_string())?;
        fs::rename(format!("{ready}.new"), &ready)
    });
    served.expect("it serves until it is told to stop");
}

struct Process {
    child: Child,
    address: SocketAddr,
}

impl Process {
    fn start(file: &Path, port: u16, ready: &Path) -> Process {
        let _ = fs::remove_file(ready);
        let mut child = Command::new(std::env::current_exe().expect("this program"))
            .args(["--exact", "child", "--nocapture"])
            .env(FILE, file)
            .env(PORT, port.to_string())
            .env(READY, ready)
            .stdout(Stdio::null())
            .spawn()
            .expect("this program can be started");
        let begun = Instant::now();
        loop {
            if let Ok(address) = fs::read_to_string(ready) {
                return Process { child, address: address.parse().expect("an address") };
            }
            assert!(child.try_wait().expect("a child").is_none(), "the catalog ended");
            assert!(begun.elapsed() < Duration::from_secs(20), "the catalog is not ready");
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    fn kill(&mut self) {
        self.child.kill().expect("it runs");
        self.child.wait().expect("it is gone");
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The last answer of the catalog for each name, of those that only one client changes.
type Ledger = Arc<Mutex<BTreeMap<String, Object>>>;

/// Changes its own names until the catalog is gone, and enters what was answered.
async fn load(client: Client, number: u64, seed: u64, ledger: Ledger, answered: Arc<AtomicU64>) {
    let mut rng = Rng(seed);
    loop {
        let name = format!("v{number}-{}", rng.below(3));
        let Ok(present) = client.get(&key(&name)).await else { return };
        let version = present.map_or(0, |object| object.version);
        let change = match version > 0 && rng.one_in(4) {
            true => deletion(),
            false => volume(&name, 1 + rng.below(1 << 20)),
        };
        match client.swap(&key(&name), version, change).await {
            Ok(Swapped::Done(object)) => {
                answered.fetch_add(1, Ordering::Relaxed);
                ledger.lock().expect("no panic").insert(name, object);
            }
            Ok(Swapped::Conflict(present)) => panic!("{name} is nobody else's: {present:?}"),
            Err(_) => return,
        }
    }
}

/// What was answered is there, or what came after it.
async fn check(client: &Client, ledger: &Ledger) {
    let ledger = ledger.lock().expect("no panic").clone();
    for (name, answered) in ledger {
        let present = client.get(&key(&name)).await.expect("a catalog");
        match (&answered.body, present) {
            (_, Some(present)) if present.version > answered.version => {}
            (Some(_), Some(present)) => assert_eq!(present, answered, "LOST"),
            (None, None) => {}
            // A swap that was under way when the catalog died may have been done: here a deletion.
            (Some(_), None) => {
                let again = client.swap(&key(&name), 0, volume(&name, 1)).await.expect("a catalog");
                let Swapped::Done(object) = again else { panic!("nothing is there") };
                assert!(object.version > answered.version + 1, "LOST: {name}, version went back");
            }
            (None, Some(present)) => panic!("LOST: {name} was deleted, and is {present:?}"),
        }
    }
}

/// Follows everything, from before the first death to after the last.
async fn follow(client: Client, view: Ledger) {
    let mut watch = client.watch(Kind::Volume, None);
    let (mut at, mut everything) = (0, 0);
    loop {
        match watch.next().await {
            News::Everything => everything += 1,
            News::Object(object) => {
                assert!(object.revision > at, "told twice, or out of order");
                at = object.revision;
                view.lock().expect("no panic").insert(name(&object), *object);
            }
            News::Current { .. } | News::Lost { .. } => {}
        }
        assert_eq!(everything, 1, "a catalog that died is still the same");
    }
}

#[test]
fn a_killed_catalog_has_everything_that_it_answered() {
    let scratch = Scratch::new();
    let (file, ready) = (scratch.path("catalog"), scratch.path("ready"));
    let mut rng = Rng(number("POLLUX_KILL_SEED", 1));
    let (ledger, view) = (Ledger::default(), Ledger::default());
    let answered = Arc::new(AtomicU64::new(0));
    block_on(async {
        let mut process = Process::start(&file, 0, &ready);
        let address = process.address;
        let follower = tokio::spawn(follow(client(address), view.clone()));
        for _ in 0..number("POLLUX_KILLS", KILLS) {
            let seed = rng.below(u64::MAX);
            let load = |number| {
                load(client(address), number, seed + number, ledger.clone(), answered.clone())
            };
            let loads: Vec<_> = (0..CLIENTS).map(|number| tokio::spawn(load(number))).collect();
            tokio::time::sleep(Duration::from_millis(rng.below(200))).await;
            process.kill();
            for load in loads {
                load.await.expect("no panic");
            }
            process = Process::start(&file, address.port(), &ready);
            check(&client(address), &ledger).await;
        }
        settle(&client(address), &view, &follower).await;
    });
    let answered = answered.load(Ordering::Relaxed);
    assert!(answered > 50, "{answered} answers are too few to say anything");
}

/// Waits until the watcher has seen what there is.
async fn settle(client: &Client, view: &Ledger, follower: &tokio::task::JoinHandle<()>) {
    let listed = client.list(Kind::Volume).await.expect("a catalog");
    let begun = Instant::now();
    loop {
        let alive: Vec<Object> = {
            let view = view.lock().expect("no panic");
            view.values().filter(|object| object.body.is_some()).cloned().collect()
        };
        if alive == listed {
            return;
        }
        assert!(!follower.is_finished(), "the watcher gave up");
        assert!(begun.elapsed() < Duration::from_secs(10), "{alive:?}\nis not\n{listed:?}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[test]
fn a_catalog_stops_when_it_is_told_to() {
    let scratch = Scratch::new();
    let (file, ready) = (scratch.path("catalog"), scratch.path("ready"));
    for signal in ["-TERM", "-INT"] {
        let mut process = Process::start(&file, 0, &ready);
        block_on(async {
            let client = client(process.address);
            let mut watch = client.watch(Kind::Volume, None);
            assert_eq!(watch.next().await, News::Everything);
            let pid = process.child.id().to_string();
            assert!(Command::new("kill").args([signal, &pid]).status().unwrap().success());
            while !matches!(watch.next().await, News::Lost { .. }) {}
        });
        assert!(process.child.wait().unwrap().success(), "{signal}");
    }
}
