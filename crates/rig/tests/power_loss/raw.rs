//! A load on a device itself: writes that nobody flushes, each read again.
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use rustix::fs::OFlags;

const BLOCK: usize = 4096;
const BLOCK_LEN: u64 = 4096;
/// Those that are flushed, and those behind them that are not.
const FLUSHED: u64 = 64;
const UNFLUSHED: u64 = 64;

/// A block in memory, where direct IO takes it.
struct Block(Vec<u8>);

impl Block {
    fn new() -> Block {
        Block(vec![0; 2 * BLOCK])
    }

    fn bytes(&mut self) -> &mut [u8] {
        let skip = self.0.as_ptr().align_offset(BLOCK);
        &mut self.0[skip..skip + BLOCK]
    }
}

fn open(device: &Path) -> io::Result<File> {
    let direct = i32::try_from(OFlags::DIRECT.bits()).map_err(io::Error::other)?;
    OpenOptions::new().read(true).write(true).custom_flags(direct).open(device)
}

fn write(device: &File, at: u64, number: u64) -> io::Result<()> {
    let mut block = Block::new();
    block.bytes()[..8].copy_from_slice(&number.to_be_bytes());
    device.write_all_at(block.bytes(), at * BLOCK_LEN)
}

fn read(device: &File, at: u64) -> io::Result<u64> {
    let mut block = Block::new();
    device.read_exact_at(block.bytes(), at * BLOCK_LEN)?;
    Ok(u64::from_be_bytes(block.bytes()[..8].try_into().map_err(io::Error::other)?))
}

/// Writes what has to outlast everything.
pub fn write_flushed(device: &Path) -> io::Result<()> {
    let device = open(device)?;
    (0..FLUSHED).try_for_each(|at| write(&device, at, at + 1))?;
    device.sync_all()
}

pub fn check_flushed(device: &Path) -> Result<()> {
    let device = open(device)?;
    for at in 0..FLUSHED {
        let found = read(&device, at)?;
        ensure!(found == at + 1, "block {at} has {found}");
    }
    Ok(())
}

/// Ends with the first error of the device, or with bytes that are not the last ones.
pub struct RawLoad {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<Result<()>>>,
}

impl RawLoad {
    pub fn start(device: &Path) -> Result<RawLoad> {
        let (device, stop) = (open(device)?, Arc::new(AtomicBool::new(false)));
        let told = Arc::clone(&stop);
        Ok(RawLoad { stop, thread: Some(thread::spawn(move || run(&device, &told))) })
    }

    /// The end of it; an error if one came in between.
    pub fn rest(&mut self) -> Result<()> {
        self.stop.store(true, Ordering::SeqCst);
        let ended = self.thread.take().context("it has ended before")?.join();
        ended.map_err(|_| anyhow::anyhow!("it panicked"))?
    }

    /// Why it ended by itself.
    pub fn failure(&mut self, patience: Duration) -> Result<anyhow::Error> {
        let begun = Instant::now();
        while self.thread.as_ref().is_some_and(|thread| !thread.is_finished()) {
            ensure!(begun.elapsed() < patience, "the device takes writes after {patience:?}");
            thread::sleep(Duration::from_millis(10));
        }
        self.rest().err().context("it ends with an error")
    }
}

fn run(device: &File, stop: &AtomicBool) -> Result<()> {
    for number in 1u64.. {
        if stop.load(Ordering::SeqCst) {
            break;
        }
        let at = FLUSHED + number % UNFLUSHED;
        write(device, at, number)?;
        if let Some(before) = number.checked_sub(UNFLUSHED / 2).filter(|before| *before > 0) {
            let found = read(device, FLUSHED + before % UNFLUSHED)?;
            ensure!(found == before, "there is {found} where {before} was acknowledged");
        }
        thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}
