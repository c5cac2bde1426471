//! The controller is killed at each step of each of its operations, and started again: what was begun is
//! finished or undone, the same can be asked for again, and in the end nothing is left anywhere.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on says so by its line")]
use std::collections::BTreeSet;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use control::api::types::{
    Health, Modify, NewGroupSnapshot, NewSnapshot, NewVolume, Proof, Resize, Source, Volume,
};
use control::api::{ApiError, Client, Code};
use control::steps::faults::{self, POINTS};
use rig::api::Api;
use rig::site::{MIB, Rig};

const PATIENCE: Duration = Duration::from_secs(40);
const PAUSE: Duration = Duration::from_millis(50);
const NODES: usize = 4;

/// What is asked for while the controller is about to die.
#[derive(Clone, Copy, Debug)]
enum Operation {
    Create,
    Clone,
    Copy,
    Grow,
    More,
    Fewer,
    Delete,
    DeleteClone,
    Snapshot,
    DeleteSnapshot,
    Cut,
    DeleteCut,
}

/// Every point, and an operation that reaches it.
const MATRIX: &[(&str, Operation)] = &[
    (faults::VOLUME_INTENDED, Operation::Create),
    (faults::REPLICA_MADE, Operation::Create),
    (faults::REPLICAS_MADE, Operation::Create),
    (faults::VOTES_GIVEN, Operation::Create),
    (faults::TARGET_STARTED, Operation::Create),
    (faults::CLONE_INTENDED, Operation::Clone),
    (faults::CLONE_MARKED, Operation::Clone),
    (faults::COPY_MADE, Operation::Clone),
    (faults::SNAPSHOT_INTENDED, Operation::Copy),
    (faults::SNAPSHOT_MADE, Operation::Copy),
    (faults::CLONE_MARKED, Operation::Copy),
    (faults::GROWTH_INTENDED, Operation::Grow),
    (faults::GROWTH_DONE, Operation::Grow),
    (faults::REPLICA_PLACED, Operation::More),
    (faults::REPLICA_WANTED, Operation::More),
    (faults::REPLICA_UNWANTED, Operation::Fewer),
    (faults::REPLICA_WIPED, Operation::Fewer),
    (faults::DELETION_INTENDED, Operation::Delete),
    (faults::TARGET_STOPPED, Operation::Delete),
    (faults::VOTES_TAKEN, Operation::Delete),
    (faults::CONTENT_WIPED, Operation::Delete),
    (faults::CLONE_UNMARKED, Operation::DeleteClone),
    (faults::SNAPSHOT_INTENDED, Operation::Snapshot),
    (faults::SNAPSHOT_MADE, Operation::Snapshot),
    (faults::SNAPSHOT_UNWANTED, Operation::DeleteSnapshot),
    (faults::SNAPSHOT_GONE, Operation::DeleteSnapshot),
    (faults::CUT_INTENDED, Operation::Cut),
    (faults::CUT_HELD, Operation::Cut),
    (faults::CUT_MADE, Operation::Cut),
    (faults::CUT_RELEASED, Operation::Cut),
    (faults::CUT_DURABLE, Operation::Cut),
    (faults::CUT_LISTED, Operation::Cut),
    (faults::CUT_UNWANTED, Operation::DeleteCut),
    (faults::CUT_MEMBER_GONE, Operation::DeleteCut),
];

#[test]
fn the_matrix_has_every_point() {
    let tried: BTreeSet<&str> = MATRIX.iter().map(|(point, _)| *point).collect();
    let all: BTreeSet<&str> = POINTS.iter().copied().collect();
    assert_eq!(tried, all);
}

#[test]
fn a_controller_may_die_anywhere() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("crash_matrix");
    let mut rig = Rig::start_controlled(&folder, &[256 * MIB; NODES], &[]).unwrap();
    for (point, operation) in MATRIX {
        rig.note(&format!("{operation:?} is cut short at {point}"));
        try_one(&mut rig, point, *operation)
            .with_context(|| format!("{operation:?} at {point}"))
            .unwrap();
    }
}

fn try_one(rig: &mut Rig, point: &str, operation: Operation) -> Result<()> {
    let api = rig.api()?;
    operation.prepare(&api)?;
    rig.catalog().restart_with(&[("POLLUX_FAULT", point)])?;
    api.wait_nodes(NODES, PATIENCE)?;
    // Whether there is an answer depends on when it dies.
    let answered = api.ask(async |client| operation.ask(client).await);
    rig.catalog().wait_end(PATIENCE).with_context(|| format!("not reached; {answered:?}"))?;
    rig.catalog().restart()?;
    api.wait_nodes(NODES, PATIENCE)?;
    api.insist(PATIENCE, async |client| operation.ask(client).await)?;
    operation.check(&api)?;
    no_strays(rig)?;
    clean(&api)?;
    nothing_left(rig, &api)
}

fn new(name: &str, source: Option<Source>) -> NewVolume {
    let size = if source.is_some() { 0 } else { 16 * MIB };
    NewVolume { name: name.into(), size, source, ..NewVolume::default() }
}

fn taken(id: &str) -> Option<Source> {
    Some(Source::Snapshot { id: id.into() })
}

async fn modify(client: &Client, replicas: u32) -> Result<(), ApiError> {
    let to = Modify { replicas: Some(replicas), ..Modify::default() };
    client.modify_volume("a", &to).await.map(|_| ())
}

impl Operation {
    /// What there is before.
    fn prepare(self, api: &Api) -> Result<()> {
        let make = |name: &str| api.create(name, 16 * MIB, 3).map(|_| ());
        match self {
            Operation::Create => Ok(()),
            Operation::Copy
            | Operation::Grow
            | Operation::More
            | Operation::Delete
            | Operation::Snapshot => make("a"),
            Operation::Fewer => {
                api.create("a", 16 * MIB, 4)?;
                api.wait_healthy("a", PATIENCE).map(|_| ())
            }
            Operation::Clone | Operation::DeleteSnapshot => {
                make("a")?;
                api.snapshot("a", "s").map(|_| ())
            }
            Operation::DeleteClone => {
                make("a")?;
                api.snapshot("a", "s")?;
                api.ask(async |it| it.create_volume(&new("b", taken("s"))).await)?;
                Ok(())
            }
            Operation::Cut => {
                make("a")?;
                make("b")
            }
            Operation::DeleteCut => {
                make("a")?;
                make("b")?;
                Ok(api.ask(async |it| Operation::Cut.ask(it).await)?)
            }
        }
    }

    async fn ask(self, client: &Client) -> Result<(), ApiError> {
        let proof = Proof::default();
        match self {
            Operation::Create => client.create_volume(&new("a", None)).await.map(|_| ()),
            Operation::Clone => client.create_volume(&new("b", taken("s"))).await.map(|_| ()),
            Operation::Copy => {
                let source = Some(Source::Volume { id: "a".into() });
                client.create_volume(&new("b", source)).await.map(|_| ())
            }
            Operation::Grow => {
                let to = Resize { size: 32 * MIB, ..Resize::default() };
                client.resize_volume("a", &to).await.map(|_| ())
            }
            Operation::More => modify(client, 4).await,
            Operation::Fewer => modify(client, 3).await,
            Operation::Delete => client.delete_volume("a", &proof).await.map(|_| ()),
            Operation::DeleteClone => client.delete_volume("b", &proof).await.map(|_| ()),
            Operation::Snapshot => {
                let (name, volume) = ("s".into(), "a".into());
                let wanted = NewSnapshot { name, volume, ..NewSnapshot::default() };
                client.create_snapshot(&wanted).await.map(|_| ())
            }
            Operation::DeleteSnapshot => client.delete_snapshot("s", &proof).await.map(|_| ()),
            Operation::Cut => {
                let (name, volumes) = ("g".into(), vec!["a".into(), "b".into()]);
                let wanted = NewGroupSnapshot { name, volumes, ..NewGroupSnapshot::default() };
                client.create_group_snapshot(&wanted).await.map(|_| ())
            }
            Operation::DeleteCut => client.delete_group_snapshot("g", &proof).await.map(|_| ()),
        }
    }

    /// It is as if nothing had happened in between.
    fn check(self, api: &Api) -> Result<()> {
        let healthy = |name: &str, copies: usize| {
            api.wait_volume(name, "it to be whole", PATIENCE, |volume: &Volume| {
                let voting = volume.copies.iter().filter(|copy| copy.votes).count();
                volume.state.health == Health::Healthy
                    && voting == copies
                    && volume.copies.len() == copies
            })
            .map(|_| ())
        };
        let gone = |answer: Result<(), ApiError>| {
            ensure!(answer.as_ref().is_err_and(|it| it.code == Code::NotFound), "{answer:?}");
            Ok(())
        };
        match self {
            Operation::Create => healthy("a", 3),
            Operation::Clone | Operation::Copy => healthy("b", 3),
            Operation::Grow => {
                let volume = api.ask(async |it| it.volume("a").await)?;
                ensure!(volume.size == 32 * MIB && volume.wanted_size.is_none(), "{volume:?}");
                Ok(())
            }
            Operation::More => healthy("a", 4),
            Operation::Fewer => healthy("a", 3),
            Operation::Delete => gone(api.ask(async |it| it.volume("a").await).map(|_| ())),
            Operation::DeleteClone => gone(api.ask(async |it| it.volume("b").await).map(|_| ())),
            Operation::DeleteSnapshot => {
                gone(api.ask(async |it| it.snapshot("s").await).map(|_| ()))
            }
            Operation::DeleteCut => {
                gone(api.ask(async |it| it.group_snapshot("g").await).map(|_| ()))
            }
            Operation::Snapshot => {
                let snapshot = api.ask(async |it| it.snapshot("s").await)?;
                ensure!(snapshot.ready && snapshot.size == 16 * MIB, "{snapshot:?}");
                Ok(())
            }
            Operation::Cut => {
                let whole = api.ask(async |it| it.group_snapshot("g").await)?;
                ensure!(whole.ready && whole.snapshots.len() == 2, "{whole:?}");
                Ok(())
            }
        }
    }
}

/// No volume has a snapshot that the catalog does not know.
fn no_strays(rig: &Rig) -> Result<()> {
    let operator = rig.operator()?;
    let known =
        operator.ask(async |site| Ok(site.client().list(proto::v1::Kind::Snapshot).await?))?;
    let known: BTreeSet<String> =
        known.into_iter().filter_map(|it| it.key).map(|it| it.name).collect();
    for found in operator.ask(async |site| site.volumes().await)? {
        let name = &found.volume.name;
        let has = operator.insist(PATIENCE, async |site| site.snapshots(name).await)?;
        let stray: Vec<&String> =
            has.iter().map(|it| &it.name).filter(|it| !known.contains(*it)).collect();
        ensure!(stray.is_empty(), "`{name}` has snapshots that nobody knows: {stray:?}");
    }
    Ok(())
}

/// Everything that people know of is deleted.
fn clean(api: &Api) -> Result<()> {
    let proof = Proof::default();
    for cut in api.ask(async |it| it.group_snapshots("", 0).await)?.items {
        api.insist(PATIENCE, async |it| it.delete_group_snapshot(&cut.name, &proof).await)?;
    }
    // A clone goes before the snapshot that it began as.
    for name in ["b", "a"] {
        for snapshot in api.ask(async |it| it.snapshots(None, "", 0).await)?.items {
            if name == "a" || snapshot.volume == name {
                api.insist(PATIENCE, async |it| it.delete_snapshot(&snapshot.name, &proof).await)?;
            }
        }
        let begun = Instant::now();
        // The snapshot that a copy was made of goes by itself, a moment after the copy.
        while let Err(error) = api.delete(name, PATIENCE) {
            ensure!(begun.elapsed() < PATIENCE, "{error:#}");
            std::thread::sleep(PAUSE);
        }
    }
    Ok(())
}

/// Neither in the catalog, nor in any node.
fn nothing_left(rig: &Rig, api: &Api) -> Result<()> {
    let operator = rig.operator()?;
    let begun = Instant::now();
    loop {
        let mut left: Vec<String> = Vec::new();
        for kind in
            [proto::v1::Kind::Volume, proto::v1::Kind::Snapshot, proto::v1::Kind::GroupSnapshot]
        {
            let objects = operator.ask(async |site| Ok(site.client().list(kind).await?))?;
            left.extend(objects.into_iter().filter_map(|it| it.key).map(|key| key.name));
        }
        for node in operator.ask(async |site| site.nodes().await)? {
            let replicas = operator.ask(async |site| {
                let all =
                    site.admin(&node)?.list_replicas(proto::v1::ListReplicasRequest {}).await?;
                Ok(all.into_inner().replicas)
            })?;
            left.extend(replicas.iter().map(|it| format!("{} on {}", it.replica, node.name)));
        }
        if left.is_empty() {
            return Ok(());
        }
        if begun.elapsed() > PATIENCE {
            let seen = api.ask(async |it| it.volumes("", 0).await)?;
            bail!("left behind: {left:?}; {seen:?}");
        }
        std::thread::sleep(PAUSE);
    }
}
