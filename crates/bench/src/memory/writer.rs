//! The process that writes and is killed; and the reads that look for what it wrote.
use std::os::unix::process::parent_id;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use block::{Buf, ByteLen, ByteOffset, Data, Position};
use disk::FileDisk;
use engine::{BlockSize, Op, OpenOptions, Pool, Reply, RequestId, VolumeId, VolumeSpec};
use sim::Rng;

use super::writes::{BLOCK, Order, Writes, fill};
use super::{Task, VOLUME, Written};
use crate::child;
use crate::cost::Stopwatch;
use crate::place;

const NAME: &str = "thin";
const DEPTH: usize = 32;

/// How often the engine is asked what it uses, in writes.
const ASK_EVERY: u64 = 64;
const SHOW_EVERY: Duration = Duration::from_secs(10);

pub fn write(task: &Task) -> Result<()> {
    let disk = place::open(&task.path, None)?;
    let parent = parent_id();
    let mut bufs: Vec<Option<Data>> = Vec::with_capacity(DEPTH);
    bufs.resize_with(DEPTH, || Some(Buf::zeroed(BLOCK).into_data()));
    let mut order = Order::new(task.seed);

    counting::begin();
    let mut pool = Pool::open(disk, OpenOptions::with(task.limits()))?;
    let volume = create_volume(&mut pool)?;
    let (mut begun, mut done, mut used_peak) = (0, 0, 0);
    let watch = Stopwatch::start();
    let mut shown = Instant::now();
    let mut lanes: Vec<usize> = (0..DEPTH).collect();
    while done < task.writes {
        while begun < task.writes
            && let Some(lane) = lanes.pop()
        {
            begun += 1;
            let block = order.next();
            let data = refilled(bufs[lane].take(), block, begun);
            bufs[lane] = Some(data.clone());
            let write = Op::Write {
                volume,
                position: Position::new(1, begun),
                offset: ByteOffset(block * BLOCK as u64),
                data,
            };
            pool.submit(RequestId(lane as u64), write);
        }
        pool.poll();
        let mut reply = pool.reply();
        while reply.is_none() {
            pool.wait();
            reply = pool.reply();
        }
        while let Some((id, result)) = reply {
            result.context("a write")?;
            lanes.push(usize::try_from(id.0)?);
            done += 1;
            if done % ASK_EVERY == 0 {
                used_peak = used_peak.max(pool.memory().used);
            }
            reply = pool.reply();
        }
        if shown.elapsed() >= SHOW_EVERY {
            shown = Instant::now();
            eprintln!("{done} writes, heap {} MiB", counting::now() >> 20);
            ensure!(parent_id() == parent, "nobody waits for these figures any more");
        }
    }
    let heap_peak = counting::peak();
    let round = watch.stop(done, done * BLOCK as u64);
    let counters = pool.counters();
    let written = Written {
        seconds: round.elapsed.as_secs_f64(),
        cpu_seconds: round.cpu.as_secs_f64(),
        checkpoints: counters.checkpoints,
        map_pages_read: counters.map_pages_read,
        map_pages_written: counters.map_pages_written,
        heap_peak,
        used_peak: used_peak as u64,
        bound: pool.memory().bound as u64,
        resident_peak: resident_peak().unwrap_or(0),
    };
    child::tell(&written)?;
    // To be killed here, with the pool open.
    child::wait_for_the_end()?;
    drop(pool);
    bail!("nobody killed this process")
}

/// Block contents in memory that was used before, unless somebody still holds it.
fn refilled(old: Option<Data>, block: u64, seq: u64) -> Data {
    let mut buf = old.and_then(Data::into_buf).unwrap_or_else(|| Buf::zeroed(BLOCK));
    fill(&mut buf, block, seq);
    buf.into_data()
}

fn create_volume(pool: &mut Pool<FileDisk>) -> Result<VolumeId> {
    let spec = VolumeSpec {
        name: NAME.into(),
        size: VOLUME,
        block_size: BlockSize::DEFAULT,
        uid: [1; 16],
        ..VolumeSpec::default()
    };
    match pool.run(Op::Create { spec })? {
        Reply::Created(volume) => Ok(volume),
        other => bail!("a creation was answered with {other:?}"),
    }
}

/// From /proc: the most memory that this process ever had.
fn resident_peak() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kib: u64 = line.trim().trim_end_matches("kB").trim().parse().ok()?;
    Some(kib * 1024)
}

/// Reads a sample of what was written, and compares it. Returns how many blocks it looked at.
pub fn verify(pool: &mut Pool<FileDisk>, writes: &Writes, samples: usize) -> Result<usize> {
    let volume = pool.volume_named(NAME).context("the volume is gone")?;
    let mut rng = Rng::new(5);
    let mut wanted = [(0, 0); DEPTH];
    let mut expected = vec![0; BLOCK];
    let (mut begun, mut done) = (0, 0);
    let mut lanes: Vec<usize> = (0..DEPTH).collect();
    while done < samples {
        while begun < samples
            && let Some(lane) = lanes.pop()
        {
            begun += 1;
            wanted[lane] = writes.pick(&mut rng);
            let offset = ByteOffset(wanted[lane].0 * BLOCK as u64);
            let len = ByteLen(BLOCK as u64);
            pool.submit(RequestId(lane as u64), Op::Read { volume, offset, len });
        }
        pool.poll();
        let mut reply = pool.reply();
        while reply.is_none() {
            pool.wait();
            reply = pool.reply();
        }
        while let Some((id, result)) = reply {
            let lane = usize::try_from(id.0)?;
            let (block, seq) = wanted[lane];
            let Reply::Read(data) = result.with_context(|| format!("reading block {block}"))?
            else {
                bail!("a read was answered with something else");
            };
            fill(&mut expected, block, seq);
            ensure!(data[..] == expected[..], "block {block} does not hold write {seq}");
            pool.recycle(data);
            lanes.push(lane);
            done += 1;
            reply = pool.reply();
        }
    }
    Ok(done)
}
