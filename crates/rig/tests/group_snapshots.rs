//! Group snapshots of volumes under ordered load: a snapshot never shows a later write without an earlier one.
//!
//! Each writer writes n to the first volume, then n to the second, and so on, each after the one before was
//! acknowledged. A second client reads what a volume has, also while it is held, and writes what it saw to
//! another. In the end every snapshot is looked at: counters of a writer never grow along the volumes, and nobody
//! saw what the snapshot does not have.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on says so by its line")]
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use control::api::types::{GroupSnapshot, NewGroup, NewGroupSnapshot, Proof, Rollback};
use control::api::{ApiError, Code};
use rig::api::Api;
use rig::load::Finder;
use rig::nbd::Nbd;
use rig::site::{MIB, Rig};

const VOLUMES: usize = 8;
const WRITERS: u64 = 3;
const SNAPSHOTS: usize = 100;
const BLOCK: usize = 4096;
const PATIENCE: Duration = Duration::from_secs(60);
/// The node whose targets are slow.
const SLOW: u64 = 2;

fn volume(number: usize) -> String {
    format!("member-{number}")
}

fn plain(number: u64) -> Vec<u8> {
    let mut block = vec![0; BLOCK];
    block[..8].copy_from_slice(&number.to_be_bytes());
    block
}

fn number(block: &[u8]) -> u64 {
    u64::from_be_bytes(block[..8].try_into().unwrap())
}

/// Connections to all members.
struct Members {
    finders: Arc<Vec<Finder>>,
    open: Vec<Option<Nbd>>,
}

impl Members {
    fn new(finders: &Arc<Vec<Finder>>) -> Members {
        Members { finders: Arc::clone(finders), open: finders.iter().map(|_| None).collect() }
    }

    fn nbd(&mut self, at: usize) -> Result<&mut Nbd> {
        if self.open[at].is_none() {
            let address: SocketAddr = self.finders[at]().context("nobody serves it")?;
            let patience = Box::new(|| true);
            self.open[at] = Some(Nbd::connect(address, &volume(at), patience)?);
        }
        Ok(self.open[at].as_mut().unwrap())
    }

    fn read(&mut self, at: usize, block: u64) -> Result<u64> {
        let mut bytes = vec![0; BLOCK];
        self.nbd(at)?.read(block * BLOCK as u64, &mut bytes)?;
        Ok(number(&bytes))
    }

    fn write(&mut self, at: usize, block: u64, n: u64) -> Result<()> {
        Ok(self.nbd(at)?.write(block * BLOCK as u64, &plain(n), false)?)
    }
}

/// Where a witness of a writer says what it saw of `seen` on `at`.
fn testimony(writer: u64, seen: usize) -> u64 {
    WRITERS + writer * VOLUMES as u64 + seen as u64
}

fn write_in_order(writer: u64, mut members: Members, stop: &AtomicBool) -> Result<u64> {
    for n in 1.. {
        for at in 0..VOLUMES {
            if stop.load(Ordering::Relaxed) {
                return Ok(n);
            }
            members.write(at, writer, n)?;
        }
    }
    Ok(0)
}

/// Sees a counter, then says so elsewhere.
fn bear_witness(seed: usize, mut members: Members, stop: &AtomicBool) -> Result<u64> {
    let mut count = 0;
    for turn in seed.. {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        let (seen, at) = (turn % VOLUMES, (turn * 5 + 3) % VOLUMES);
        let writer = (turn as u64) % WRITERS;
        if seen != at {
            let n = members.read(seen, writer)?;
            members.write(at, testimony(writer, seen), n)?;
            count += 1;
        }
    }
    Ok(count)
}

struct Load {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<Result<u64>>>,
}

impl Load {
    fn start(finders: &Arc<Vec<Finder>>) -> Load {
        let stop = Arc::new(AtomicBool::new(false));
        let mut threads = Vec::new();
        for writer in 0..WRITERS {
            let (members, stop) = (Members::new(finders), Arc::clone(&stop));
            threads.push(thread::spawn(move || write_in_order(writer, members, &stop)));
        }
        for seed in [1, 4] {
            let (members, stop) = (Members::new(finders), Arc::clone(&stop));
            threads.push(thread::spawn(move || bear_witness(seed, members, &stop)));
        }
        Load { stop, threads }
    }

    fn end(self) -> Result<Vec<u64>> {
        self.stop.store(true, Ordering::Relaxed);
        self.threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    }
}

fn finders(rig: &Rig) -> Arc<Vec<Finder>> {
    Arc::new((0..VOLUMES).map(|at| rig.finder(&volume(at)).unwrap()).collect())
}

fn take(api: &Api, name: &str) -> Result<GroupSnapshot, ApiError> {
    let (name, group) = (name.into(), Some("all".into()));
    let wanted = NewGroupSnapshot { name, group, ..NewGroupSnapshot::default() };
    api.ask(async |client| client.create_group_snapshot(&wanted).await)
}

fn started(name: &str) -> (Rig, Api) {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    // Short, so that a slow member has its hold expire.
    let rig = Rig::start_controlled(&folder, &[768 * MIB; 3], &["--hold", "1500"]).unwrap();
    let api = rig.api().unwrap();
    for at in 0..VOLUMES {
        api.create(&volume(at), 8 * MIB, 3).unwrap();
    }
    let members = (0..VOLUMES).map(volume).collect();
    let group = NewGroup { name: "all".into(), members, ..NewGroup::default() };
    api.ask(async |client| client.create_group(&group).await).unwrap();
    (rig, api)
}

#[test]
fn a_group_snapshot_is_one_moment() {
    let (rig, api) = started("group_snapshots");
    let load = Load::start(&finders(&rig));
    let mut holds = Vec::new();
    for turn in 0..SNAPSHOTS {
        let whole = take(&api, &format!("cut-{turn:03}")).unwrap();
        assert!(whole.ready && whole.snapshots.len() == VOLUMES, "{whole:?}");
        holds.push(whole.hold_us);
    }
    let counts = load.end().unwrap();
    holds.sort_unstable();
    let (median, worst) = (holds[SNAPSHOTS / 2], holds[SNAPSHOTS - 1]);
    println!(
        "{SNAPSHOTS} snapshots, writers and witnesses {counts:?}; held {median} us, at worst {worst} us"
    );
    let seen = look_at_all(&rig, &api, SNAPSHOTS).unwrap();
    assert!(seen > SNAPSHOTS as u64, "the load went on between snapshots: {seen}");
}

#[test]
fn a_slow_member_makes_it_exact_or_fail() {
    let (mut rig, api) = started("slow_member");
    // Within the hold: three slow steps of 200 ms each.
    slow(&mut rig, "200");
    let load = Load::start(&finders(&rig));
    let mut exact = 0;
    while exact < 5 {
        take(&api, &format!("cut-{exact:03}")).unwrap();
        exact += 1;
    }
    load.end().unwrap();
    // Beyond it: the hold has expired when it is released.
    slow(&mut rig, "900");
    let load = Load::start(&finders(&rig));
    for turn in 0..3 {
        let refused = take(&api, &format!("late-{turn}")).expect_err("a hold has expired");
        assert_eq!(refused.code, Code::Unavailable, "{refused}");
        assert!(refused.message.contains("no common moment"), "{refused}");
    }
    load.end().unwrap();
    let left = api.ask(async |client| client.group_snapshots("", 0).await).unwrap().items;
    assert_eq!(left.len(), exact, "what failed is not kept: {left:?}");
    slow(&mut rig, "0");
    look_at_all(&rig, &api, exact).unwrap();
}

/// Starts a node anew whose targets take their time with everything that has to do with cuts.
fn slow(rig: &mut Rig, millis: &str) {
    rig.node(SLOW).restart_with(&[("POLLUX_SLOW_CUT_MS", millis)]).unwrap();
    let operator = rig.operator().unwrap();
    for at in 0..VOLUMES {
        operator.wait_healthy(&volume(at), 3, PATIENCE).unwrap();
    }
}

/// Takes all members back to each snapshot, the newest first, and looks. How many writes lay in between.
fn look_at_all(rig: &Rig, api: &Api, count: usize) -> Result<u64> {
    let mut members = Members::new(&finders(rig));
    let (mut newest, mut oldest) = (0, 0);
    for turn in (0..count).rev() {
        let name = format!("cut-{turn:03}");
        let whole = api.ask(async |client| client.group_snapshot(&name).await)?;
        for part in &whole.snapshots {
            let to = Rollback { snapshot: part.name.clone() };
            let back = async |client: &control::api::Client| {
                client.roll_back_volume(&part.volume, &to).await
            };
            api.insist(PATIENCE, back)?;
        }
        let first = look_at(&mut members).with_context(|| format!("in {name}"))?;
        if turn + 1 == count {
            newest = first;
        }
        oldest = first;
        let gone = async |client: &control::api::Client| {
            client.delete_group_snapshot(&name, &Proof::default()).await
        };
        api.insist(PATIENCE, gone)?;
    }
    Ok(newest - oldest)
}

fn look_at(members: &mut Members) -> Result<u64> {
    let mut counters: Vec<Vec<u64>> = (0..WRITERS).map(|_| vec![0; VOLUMES]).collect();
    for (writer, row) in (0..).zip(&mut counters) {
        for (at, counter) in row.iter_mut().enumerate() {
            *counter = members.read(at, writer)?;
        }
        let falls = row.windows(2).all(|pair| pair[0] >= pair[1]);
        ensure!(falls && row[0] - row[VOLUMES - 1] <= 1, "writer {writer} has {row:?}");
    }
    for (writer, row) in (0..).zip(&counters) {
        for (seen, has) in row.iter().enumerate() {
            for at in 0..VOLUMES {
                let told = members.read(at, testimony(writer, seen))?;
                ensure!(
                    told <= *has,
                    "member {at} saw {told} of writer {writer} on member {seen}, which has {has}"
                );
            }
        }
    }
    Ok(counters[0][0])
}

/// Protects from a check that finds nothing: snapshots that are taken one by one are of several moments.
#[test]
fn without_a_hold_the_order_is_lost() {
    let (rig, api) = started("no_hold");
    let load = Load::start(&finders(&rig));
    let turns = 5;
    for turn in 0..turns {
        for at in 0..VOLUMES {
            api.snapshot(&volume(at), &format!("alone-{turn}-{at}")).unwrap();
        }
    }
    load.end().unwrap();
    let mut members = Members::new(&finders(&rig));
    let wrong = (0..turns).filter(|turn| {
        for at in 0..VOLUMES {
            let to = Rollback { snapshot: format!("alone-{turn}-{at}") };
            api.insist(PATIENCE, async |it| it.roll_back_volume(&volume(at), &to).await).unwrap();
        }
        look_at(&mut members).is_err()
    });
    assert!(wrong.count() > 0, "a later write without an earlier one is to be seen");
}
