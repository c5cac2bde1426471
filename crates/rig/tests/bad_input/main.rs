//! What clients, peers and strangers may send to a node: whoever misbehaves is refused or closed, the log
//! says why, what it took is given back, and a load beside it does not notice.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on says so by its line")]
mod crowds;
mod initiator;
mod iscsi;
mod nbd;
mod peers;

use std::io::{ErrorKind, Read};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use control::steps::NewVolume;
use proto::v1;
use rig::links::Network;
use rig::load::{Load, Plan};
use rig::site::{MIB, Rig, Wires};

const VOLUME: &str = "load";
const GUARDED: &str = "guarded";
const SIZE: u64 = 64 * MIB;

/// For what is answered at once.
const SOON: Duration = Duration::from_secs(3);
/// What a load may be held up by anything that happens here, on a busy machine.
const PAUSE_MAX: Duration = Duration::from_millis(1500);
/// Memory that a node may have gained by it all: of what its allocator keeps.
const MEMORY_MAX: u64 = 48 * MIB;

#[test]
fn bad_input() {
    run().unwrap();
}

fn run() -> Result<()> {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("bad_input");
    let mut rig = Rig::start_on(Wires::Plain, &folder, &[512 * MIB], Network::loopback())?;
    let operator = rig.operator()?;
    operator.create(VOLUME, SIZE, 4096, &[1])?;
    let guarded = guarded();
    operator.ask(async |site| {
        site.create(&guarded).await?;
        site.serve(GUARDED, "node-1").await
    })?;
    let load = Load::start(plan(), rig.finder(VOLUME)?);
    load.wait_acks(500, Duration::from_secs(20))?;

    operator.target(VOLUME)?;
    let before = rig.node(1).descriptors()?;
    // A first crowd is what makes pools of memory as large as they get.
    crowds::flood(&mut rig, &operator)?;
    let memory = rig.node(1).memory()?;
    crowds::flood(&mut rig, &operator)?;
    let silent = crowds::Silent::of_all_kinds(&rig)?;
    crowds::restless(&mut rig)?;
    nbd::all(&mut rig)?;
    iscsi::all(&mut rig)?;
    peers::all(&mut rig, &operator)?;
    silent.are_closed(&mut rig)?;

    load.wait_acks(100, SOON)?;
    operator.target(VOLUME)?;
    back_to(&mut rig, before, memory)?;
    let mut rested = load.rest()?;
    println!("{:?}", rested.report);
    let pause = rested.report.longest_pause;
    ensure!(pause < PAUSE_MAX, "the load was held up for {pause:?}");
    ensure!(rested.report.errors.is_empty(), "{:?}", rested.report);
    rested.verify()
}

fn plan() -> Plan {
    Plan {
        volume: VOLUME.into(),
        block: 4096,
        first: 0,
        blocks: 2048,
        writers: 2,
        seed: 3,
        rest: Duration::from_millis(3),
    }
}

fn guarded() -> NewVolume {
    NewVolume {
        name: GUARDED.into(),
        uid: [77; 16],
        size: SIZE,
        block_size: 4096,
        compression: "off".into(),
        places: vec![("node-1".into(), "main".into())],
        hold_deadline_ms: 60_000,
        zvol_workers: 0,
        chap: Some(v1::Chap {
            user: "somebody".into(),
            secret: "a secret of sixteen".into(),
            ..v1::Chap::default()
        }),
        allowed_initiators: Vec::new(),
    }
}

/// Descriptors and memory are what they were.
fn back_to(rig: &mut Rig, descriptors: usize, memory: u64) -> Result<()> {
    let begun = Instant::now();
    loop {
        let now = rig.node(1).descriptors()?;
        if now <= descriptors {
            break;
        }
        ensure!(begun.elapsed() < SOON, "{now} descriptors, and {descriptors} before");
        thread::sleep(Duration::from_millis(50));
    }
    let now = rig.node(1).memory()?;
    println!("memory: {} MiB before, {} MiB now", memory / MIB, now / MIB);
    ensure!(now < memory + MEMORY_MAX, "{now} bytes of memory, and {memory} before");
    Ok(())
}

fn connect(at: SocketAddr) -> Result<TcpStream> {
    let stream = TcpStream::connect(at)?;
    stream.set_read_timeout(Some(SOON))?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// Reads until the other side closes.
fn until_closed(mut stream: &TcpStream) -> Result<Vec<u8>> {
    let mut all = Vec::new();
    let mut bytes = [0; 4096];
    loop {
        match stream.read(&mut bytes) {
            Ok(0) => return Ok(all),
            Ok(got) => all.extend_from_slice(&bytes[..got]),
            Err(error) if error.kind() == ErrorKind::ConnectionReset => return Ok(all),
            Err(error) => bail!("not closed: {error}, after {all:?}"),
        }
    }
}

/// The offender's connection is closed, and the log of the node says so.
fn is_cut_off(rig: &mut Rig, stream: &TcpStream, what: &str, words: &[&str]) -> Result<()> {
    until_closed(stream).with_context(|| what.to_string())?;
    is_logged(rig, what, words)
}

fn is_logged(rig: &mut Rig, what: &str, words: &[&str]) -> Result<()> {
    let line = rig.node(1).wait_log(0, words, SOON).with_context(|| what.to_string())?;
    ensure!(line.contains(" WARN "), "{what}: {line}");
    println!("{what}: {}", line.split_once(" WARN ").map_or(&line[..], |(_, rest)| rest));
    Ok(())
}
