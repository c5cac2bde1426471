//! What clients can cost a node that nobody knows, or that ask for more than they take: a load beside them
//! is as fast as without them, the node's memory stays within a bound, everything that they held is given
//! back, and the log says who it was and why it was closed.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on says so by its line")]
#[path = "bad_input/initiator.rs"]
#[allow(dead_code, reason = "it can do more than is done here")]
mod initiator;

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use rig::links::Network;
use rig::load::{Load, Plan};
use rig::nbd::Nbd;
use rig::site::{MIB, Rig, Wires};

use initiator::{FULL, Initiator, OPERATIONAL, Pdu};

const LOAD: &str = "load";
const PROBED: &str = "probed";
const SIZE: u64 = 64 * MIB;

/// Volumes beside these, so that lists are long.
const OTHERS: u64 = 12;

/// Memory that a node may gain by strangers.
const MEMORY_MAX: u64 = 64 * MIB;

/// A load may take twice as long, or this, if that is more: the machine has other things to do.
const SLOW: Duration = Duration::from_millis(50);

/// How long each kind of strangers is there.
const PHASE: Duration = Duration::from_secs(4);

/// A machine that was busy with something else is looked at again; what strangers cost stays.
const TRIES: usize = 3;

const SOON: Duration = Duration::from_secs(5);

#[test]
fn strangers() {
    run().unwrap();
}

fn run() -> Result<()> {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("strangers");
    let mut rig = Rig::start_on(Wires::Plain, &folder, &[512 * MIB], Network::loopback())?;
    let operator = rig.operator()?;
    for name in [LOAD, PROBED] {
        operator.create(name, SIZE, 4096, &[1])?;
    }
    for number in 0..OTHERS {
        let name = format!("{}-{number}", "a-long-name".repeat(4));
        operator.create(&name, (4 + number) * MIB, 4096, &[1])?;
    }
    let load = Load::start(plan(), rig.finder(LOAD)?);
    load.wait_acks(200, Duration::from_secs(20))?;
    operator.target(LOAD)?;
    let descriptors = rig.node(1).descriptors()?;
    let node = rig.node(1).pid().context("the node runs")?;
    let mut bench = Bench { probe: Probe::start(&rig)?, node, quiet: None, most: 0 };
    // What is there at any time: pools of memory as large as they get, connections that come and go.
    bench.quiet = Some(bench.watch("nobody", || Ok(()))?);
    let before = memory(node)?;

    // The first kinds stay until their time is over.
    let mut slow = half_open(&rig)?;
    bench.watch("half-open connections", || slow.go_on())?;
    let mut flood = list_flood(&rig)?;
    bench.watch("lists that nobody reads", || flood.go_on())?;
    let mut discovery = Discovery::default();
    bench.watch("discovery sessions", || discovery.go_on(&rig))?;
    let reads = nbd_reads(&rig)?;
    bench.watch("an NBD client that does not read", || Ok(()))?;
    drop(reads);
    let reads = iscsi_reads(&rig)?;
    bench.watch("an initiator that does not read", || Ok(()))?;
    drop((reads, flood, discovery, slow));

    let most = bench.most.saturating_sub(before);
    println!("memory: {} MiB, and {} MiB more with strangers", before / MIB, most / MIB);
    ensure!(most < MEMORY_MAX, "strangers cost {most} bytes of memory");
    bench.probe.end()?;
    are_back(&mut rig, descriptors)?;
    for (kind, reason) in [
        ("an NBD client is refused", "the greeting took too long"),
        ("an iSCSI connection is closed", "too many discovery sessions"),
        ("an iSCSI connection is closed", "not finished in time"),
    ] {
        let words = [kind, reason, "127.0.0.1"];
        println!("{}", rig.node(1).wait_log(0, &words, SOON)?);
    }
    load.wait_acks(100, SOON)?;
    let mut rested = load.rest()?;
    ensure!(rested.report.errors.is_empty(), "{:?}", rested.report);
    rested.verify()
}

fn plan() -> Plan {
    Plan {
        volume: LOAD.into(),
        block: 4096,
        first: 0,
        blocks: 1024,
        writers: 2,
        seed: 5,
        rest: Duration::from_millis(3),
    }
}

struct Bench {
    probe: Probe,
    /// The process of the node.
    node: u32,
    /// The probe's p99 without strangers.
    quiet: Option<Duration>,
    /// Of the node's memory.
    most: u64,
}

impl Bench {
    /// Looks on for a while, in which strangers do something from time to time: the p99 of the probe.
    fn watch(&mut self, what: &str, mut strangers: impl FnMut() -> Result<()>) -> Result<Duration> {
        let most = self.quiet.map_or(Duration::MAX, |quiet| (2 * quiet).max(SLOW));
        let mut p99 = Duration::MAX;
        for _ in 0..TRIES {
            p99 = self.phase(what, &mut strangers)?;
            if p99 <= most {
                return Ok(p99);
            }
        }
        bail!("{what}: p99 is {p99:?}, and {:?} without strangers", self.quiet)
    }

    fn phase(&mut self, what: &str, strangers: &mut dyn FnMut() -> Result<()>) -> Result<Duration> {
        self.probe.taken();
        let begun = Instant::now();
        while begun.elapsed() < PHASE {
            strangers().with_context(|| what.to_owned())?;
            self.most = self.most.max(memory(self.node)?);
            thread::sleep(Duration::from_millis(50));
        }
        let p99 = self.probe.p99();
        let count = self.probe.taken().len();
        println!("{what}: p99 {p99:.1?} of {count}, memory {} MiB", self.most / MIB);
        ensure!(count > 50, "{what}: only {count} requests in {PHASE:?}");
        Ok(p99)
    }
}

/// A client that writes and reads blocks, compares what it reads, and measures how long that takes.
struct Probe {
    times: Arc<Mutex<Vec<Duration>>>,
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Result<()>>,
}

impl Probe {
    fn start(rig: &Rig) -> Result<Probe> {
        let mut nbd = Nbd::connect(rig.nbd(1), PROBED, Box::new(|| true))?;
        let (times, stop) = (Arc::<Mutex<Vec<Duration>>>::default(), Arc::<AtomicBool>::default());
        let (own, stopped) = (times.clone(), stop.clone());
        let thread = thread::spawn(move || {
            for round in 0_u64.. {
                if stopped.load(Ordering::Relaxed) {
                    break;
                }
                let offset = round % 1024 * 4096;
                let data = round.to_be_bytes().repeat(512);
                let begun = Instant::now();
                nbd.write(offset, &data, false)?;
                let mut found = vec![0; data.len()];
                nbd.read(offset, &mut found)?;
                own.lock().unwrap().push(begun.elapsed());
                ensure!(found == data, "block {} is not what was written", round % 1024);
                thread::sleep(Duration::from_millis(2));
            }
            Ok(())
        });
        Ok(Probe { times, stop, thread })
    }

    fn taken(&self) -> Vec<Duration> {
        std::mem::take(&mut *self.times.lock().unwrap())
    }

    fn p99(&self) -> Duration {
        let mut times = self.times.lock().unwrap().clone();
        times.sort();
        let at = times.len() * 99 / 100;
        times.get(at).copied().unwrap_or(Duration::MAX)
    }

    fn end(self) -> Result<()> {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().unwrap()
    }
}

/// Bytes of memory that a process has.
fn memory(pid: u32) -> Result<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    Ok(kib.context("a process has memory")? * 1024)
}

fn connect(at: SocketAddr) -> Result<TcpStream> {
    let stream = TcpStream::connect(at)?;
    stream.set_read_timeout(Some(SOON))?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// Connections that send the same again and again, as much as is taken, and read nothing.
struct Flood {
    streams: Vec<(TcpStream, usize)>,
    bytes: Vec<u8>,
    /// The most that each sends at a time.
    step: usize,
}

impl Flood {
    fn go_on(&mut self) -> Result<()> {
        for (stream, at) in &mut self.streams {
            let len = (self.bytes.len() - *at).min(self.step);
            match stream.write(&self.bytes[*at..*at + len]) {
                Ok(sent) => *at = (*at + sent) % self.bytes.len(),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                // It is closed, and stays so.
                Err(_) => *at = 0,
            }
        }
        Ok(())
    }
}

fn option(kind: u32, data: &[u8]) -> Vec<u8> {
    let len = u32::try_from(data.len()).unwrap();
    [b"IHAVEOPT", &kind.to_be_bytes()[..], &len.to_be_bytes(), data].concat()
}

fn list_flood(rig: &Rig) -> Result<Flood> {
    let mut streams = Vec::new();
    for _ in 0..100 {
        let mut stream = connect(rig.nbd(1))?;
        stream.read_exact(&mut [0; 18])?;
        stream.write_all(&3_u32.to_be_bytes())?;
        stream.set_nonblocking(true)?;
        streams.push((stream, 0));
    }
    Ok(Flood { streams, bytes: option(3, &[]).repeat(16 << 10), step: 256 << 10 })
}

/// Those who say nothing, and those who say it byte by byte.
struct HalfOpen {
    slow: [Flood; 2],
    _silent: Vec<TcpStream>,
}

fn half_open(rig: &Rig) -> Result<HalfOpen> {
    let streams = |at: SocketAddr, count: usize| -> Result<Vec<(TcpStream, usize)>> {
        let one = |_| connect(at).and_then(|it| Ok(it.set_nonblocking(true).map(|()| (it, 0))?));
        (0..count).map(one).collect()
    };
    // The head of a login that announces text, and an option that does.
    let mut login = vec![0; 48];
    (login[0], login[1], login[6]) = (0x43, 0x87, 0x40);
    login.resize(48 + 0x4000, b'x');
    let name = [&[0, 0, 0, 3][..], &option(7, &[b'x'; 0x4000])].concat();
    let slow = [(rig.iscsi(1), login), (rig.nbd(1), name)];
    let [iscsi, nbd] = slow.map(|(at, bytes)| -> Result<Flood> {
        Ok(Flood { streams: streams(at, 50)?, bytes, step: 1 })
    });
    let silent = streams(rig.nbd(1), 100)?.into_iter().chain(streams(rig.iscsi(1), 100)?);
    let silent = silent.map(|(stream, _)| stream).collect();
    Ok(HalfOpen { slow: [iscsi?, nbd?], _silent: silent })
}

impl HalfOpen {
    fn go_on(&mut self) -> Result<()> {
        self.slow.iter_mut().try_for_each(Flood::go_on)
    }
}

/// New discovery sessions all the time; the last hundreds stay.
#[derive(Default)]
struct Discovery {
    initiators: Vec<Initiator>,
}

impl Discovery {
    fn go_on(&mut self, rig: &Rig) -> Result<()> {
        for _ in 0..10 {
            let mut initiator = Initiator::new(rig)?;
            let keys = ["InitiatorName=iqn.2026-11.io.pollux:bad", "SessionType=Discovery"];
            let (status, _) = initiator.step((OPERATIONAL, Some(FULL)), &keys)?;
            ensure!(status == 0, "a discovery session is refused with {status:#x}");
            for number in 1..=20 {
                let text = Pdu::new(0x44, 0x80, b"SendTargets=All\0");
                let text = text.with(16, &[0, 0, 0, number]).with(20, &[0xff; 4]);
                if initiator.send(&text).is_err() {
                    break;
                }
            }
            self.initiators.push(initiator);
        }
        let few = self.initiators.len().saturating_sub(300);
        self.initiators.drain(..few);
        // A host finds its volume all the same.
        Initiator::logged_in(rig, LOAD, &[]).context("an initiator beside strangers").map(drop)
    }
}

/// A client that is logged in and asks for more than it takes.
fn nbd_reads(rig: &Rig) -> Result<TcpStream> {
    let mut stream = connect(rig.nbd(1))?;
    stream.read_exact(&mut [0; 18])?;
    stream.write_all(&3_u32.to_be_bytes())?;
    let name = u32::try_from(LOAD.len())?.to_be_bytes();
    stream.write_all(&option(7, &[&name, LOAD.as_bytes(), &[0; 2]].concat()))?;
    let mut read = 0x2560_9513_u32.to_be_bytes().to_vec();
    read.extend([0; 4]);
    read.extend(7_u64.to_be_bytes());
    read.extend(0_u64.to_be_bytes());
    read.extend((16_u32 << 20).to_be_bytes());
    stream.write_all(&read.repeat(100))?;
    Ok(stream)
}

fn iscsi_reads(rig: &Rig) -> Result<Initiator> {
    let mut initiator = Initiator::logged_in(rig, LOAD, &[])?;
    for number in 1..=120_u32 {
        let mut cdb = [0; 16];
        cdb[0] = 0x88;
        cdb[10..14].copy_from_slice(&4096_u32.to_be_bytes());
        let read = Pdu::new(0x01, 0xc1, &[])
            .with(16, &number.to_be_bytes())
            .with(20, &(16_u32 << 20).to_be_bytes())
            .with(24, &number.to_be_bytes())
            .with(32, &cdb);
        initiator.send(&read)?;
    }
    Ok(initiator)
}

/// The node has closed what strangers had.
fn are_back(rig: &mut Rig, descriptors: usize) -> Result<()> {
    let begun = Instant::now();
    loop {
        let now = rig.node(1).descriptors()?;
        if now <= descriptors {
            println!("descriptors: {now}, and {descriptors} before");
            return Ok(());
        }
        ensure!(begun.elapsed() < SOON, "{now} descriptors, and {descriptors} before");
        thread::sleep(Duration::from_millis(50));
    }
}
