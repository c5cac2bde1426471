//! A controller whose machine slept wakes up when another has taken the site over: it does no harm.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on says so by its line")]
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use control::api::types::{Modify, NewVolume, Proof};
use control::api::{ApiError, Code};
use control::controller::{Controller, Running, Settings, begin};
use control::steps::faults::{self, Faults, Halt, Point};
use rig::links::Network;
use rig::nbd::Nbd;
use rig::site::{MIB, Rig, Wires};
use tokio::task::JoinHandle;

const PATIENCE: Duration = Duration::from_secs(30);

async fn controller(rig: &Rig, faults: Faults) -> Running {
    let running = begin(&rig.catalog_address(), None, Settings::default(), faults).await.unwrap();
    let until = tokio::time::Instant::now() + PATIENCE;
    while running.controller.nodes().items.iter().any(|it| it.state.reason != "Healthy") {
        assert!(tokio::time::Instant::now() < until, "nodes are heard of");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    running
}

/// One that falls asleep at a point.
async fn sleeper(rig: &Rig, point: Point) -> (Running, Arc<Halt>) {
    let halt = Arc::new(Halt::default());
    let running = controller(rig, Faults::halt_at(point, 1, Arc::clone(&halt))).await;
    (running, halt)
}

async fn make(controller: &Arc<Controller>, replicas: u32) {
    let wanted = NewVolume {
        name: "a".into(),
        size: 16 * MIB,
        replicas: Some(replicas),
        ..NewVolume::default()
    };
    controller.create_volume(wanted).await.unwrap();
}

async fn asleep(halt: &Halt) {
    tokio::time::timeout(PATIENCE, halt.reached.notified()).await.expect("it comes to the point");
}

/// What the sleeper does when it wakes up comes to an end, and changes nothing.
async fn wake<T>(halt: &Halt, work: JoinHandle<Result<T, ApiError>>) -> Result<T, ApiError> {
    halt.go_on.notify_one();
    tokio::time::timeout(PATIENCE, work).await.expect("it comes to its end").unwrap()
}

fn content(rig: &Rig, write: Option<&[u8]>) -> Vec<u8> {
    let address = rig.finder("a").unwrap()().unwrap();
    let mut nbd = Nbd::connect(address, "a", Box::new(|| true)).unwrap();
    if let Some(bytes) = write {
        nbd.write(0, bytes, true).unwrap();
    }
    let mut read = vec![0; 4096];
    nbd.read(0, &mut read).unwrap();
    read
}

fn rig(name: &str) -> Rig {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    Rig::start_on(Wires::Plain, &folder, &[256 * MIB; 4], Network::loopback()).unwrap()
}

fn run(work: impl Future<Output = ()>) {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap()
        .block_on(work);
}

/// The old one was deleting a volume; by now there is another of its name, with content.
#[test]
fn a_deletion_that_slept_spares_what_came_after() {
    let rig = rig("old_deletion");
    run(async {
        let (old, halt) = sleeper(&rig, faults::VOTES_TAKEN).await;
        make(&old.controller, 3).await;
        let deleting = Arc::clone(&old.controller);
        let deleting =
            tokio::spawn(async move { deleting.delete_volume("a", Proof::default()).await });
        asleep(&halt).await;

        let new = controller(&rig, Faults::none()).await;
        assert!(new.controller.generation() > old.controller.generation());
        let until = tokio::time::Instant::now() + PATIENCE;
        while new.controller.volume("a").is_ok() {
            assert!(tokio::time::Instant::now() < until, "the new one finishes the deletion");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        make(&new.controller, 3).await;
        let written = tokio::task::block_in_place(|| content(&rig, Some(&[7; 4096])));

        let _ = wake(&halt, deleting).await;
        let refused = old.controller.delete_volume("a", Proof::default()).await.unwrap_err();
        assert_eq!(refused.code, Code::Unavailable, "{refused}");
        new.controller
            .move_volume("a", control::api::types::Move { node: "node-1".into() })
            .await
            .ok();
        let read = tokio::task::block_in_place(|| content(&rig, None));
        assert_eq!(read, written);
        let there = new.controller.volume("a").unwrap();
        assert_eq!(there.copies.len(), 3, "{there:?}");
    });
}

/// The old one was about to wipe a replica; by now the number of replicas is another.
#[test]
fn a_wipe_that_slept_is_refused() {
    let rig = rig("old_wipe");
    run(async {
        let (old, halt) = sleeper(&rig, faults::REPLICA_UNWANTED).await;
        make(&old.controller, 4).await;
        let fewer = Modify { replicas: Some(3), ..Modify::default() };
        old.controller.modify_volume("a", fewer).await.unwrap();
        asleep(&halt).await;

        let new = controller(&rig, Faults::none()).await;
        let voting = |count: usize| {
            new.controller
                .volume("a")
                .is_ok_and(|it| it.copies.len() == count && it.copies.iter().all(|copy| copy.votes))
        };
        let until = tokio::time::Instant::now() + PATIENCE;
        while !voting(3) {
            assert!(tokio::time::Instant::now() < until, "{:?}", new.controller.volume("a"));
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        let more = Modify { replicas: Some(4), ..Modify::default() };
        new.controller.modify_volume("a", more).await.unwrap();
        halt.go_on.notify_one();
        let until = tokio::time::Instant::now() + PATIENCE;
        while !voting(4) {
            assert!(tokio::time::Instant::now() < until, "{:?}", new.controller.volume("a"));
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        // It had time enough to do something.
        tokio::time::sleep(Duration::from_secs(3)).await;
        assert!(voting(4), "{:?}", new.controller.volume("a"));
    });
}
