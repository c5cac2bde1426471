//! Memory: a volume whose map outgrows the cache many times over, written by a process that is
//! killed, and opened again.
mod writer;
mod writes;

use std::io::Write;
use std::time::Instant;

use anyhow::{Result, ensure};
use block::{ByteLen, Disk, Wait};
use disk::FileDisk;
use engine::{Limits, OpenOptions, Pool};
use serde::{Deserialize, Serialize};

use crate::Settings;
use crate::child;
use crate::place::{self, Machine, Place, Scratch};
use crate::table;
pub use writer::write;
use writes::Writes;

/// The map of the volume must be at least this many times what the cache holds.
const RATIO_MIN: u64 = 32;

/// Thin: far more than the pool could store.
const VOLUME: ByteLen = ByteLen(16 << 40);

struct Effort {
    writes: u64,
    cache_pages: usize,
    overlay_entries: usize,
    /// A sparse file.
    pool: ByteLen,
    /// What of it will be written, and then some.
    room: u64,
    samples: usize,
}

const QUICK: Effort = Effort {
    writes: 50_000,
    cache_pages: 256,
    overlay_entries: 8 << 10,
    pool: ByteLen(8 << 30),
    room: 4 << 30,
    samples: 5_000,
};

const FULL: Effort = Effort {
    writes: 1_000_000,
    cache_pages: 8 << 10,
    overlay_entries: 64 << 10,
    pool: ByteLen(64 << 30),
    room: 20 << 30,
    samples: 100_000,
};

/// What the writing process is to do.
#[derive(clap::Args, Clone, Debug)]
pub struct Task {
    #[arg(long)]
    path: std::path::PathBuf,
    #[arg(long)]
    writes: u64,
    #[arg(long)]
    seed: u64,
    #[arg(long)]
    cache_pages: usize,
    #[arg(long)]
    overlay_entries: usize,
}

impl Task {
    fn limits(&self) -> Limits {
        Limits {
            cache_pages: self.cache_pages,
            overlay_entries: self.overlay_entries,
            queue_ops: 64,
            queue_bytes: 1 << 20,
            buffer_bytes: 4 << 20,
            ..Limits::default()
        }
    }

    fn args(&self) -> [String; 10] {
        [
            "--path".into(),
            self.path.to_string_lossy().into_owned(),
            "--writes".into(),
            self.writes.to_string(),
            "--seed".into(),
            self.seed.to_string(),
            "--cache-pages".into(),
            self.cache_pages.to_string(),
            "--overlay-entries".into(),
            self.overlay_entries.to_string(),
        ]
    }
}

/// What the writing process says when the last write was acknowledged.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Written {
    seconds: f64,
    cpu_seconds: f64,
    checkpoints: u64,
    map_pages_read: u64,
    map_pages_written: u64,
    /// The most that was on the heap since the pool was opened.
    heap_peak: u64,
    /// The most that the engine said it used.
    used_peak: u64,
    /// What the engine said that it never exceeds.
    bound: u64,
    /// The most memory that the process ever had, its program and the measurement's own included.
    resident_peak: u64,
}

#[derive(Clone, Debug, Serialize)]
struct Report {
    area: &'static str,
    quick: bool,
    unix_seconds: u64,
    machine: Machine,
    writes: u64,
    written: Written,
    map_pages: u64,
    cache_pages: usize,
    ratio: u64,
    /// From the kill until the kernel let go of the file.
    release_seconds: f64,
    open_seconds: f64,
    replayed_slots: u64,
    pages_read_at_open: u64,
    verified_blocks: usize,
    verify_seconds: f64,
    passed: bool,
}

pub fn run(settings: &Settings) -> Result<()> {
    let effort = if settings.quick { QUICK } else { FULL };
    let place = Place::new(settings.dir.as_deref())?;
    let file = place.file("memory")?;
    place.need(effort.room)?;
    let task = Task {
        path: file.path().into(),
        writes: effort.writes,
        seed: 3,
        cache_pages: effort.cache_pages,
        overlay_entries: effort.overlay_entries,
    };
    create(&file, effort.pool)?;
    println!(
        "{} ({}): {} random writes of 4 KiB to a volume of {VOLUME}, cache of {} pages",
        file.path().display(),
        place.fs,
        task.writes,
        task.cache_pages
    );
    let written = write_and_kill(&task)?;

    let began = Instant::now();
    let disk = place::open_after_kill(&task.path)?;
    let release_seconds = began.elapsed().as_secs_f64();
    let began = Instant::now();
    let mut pool = Pool::open(disk, OpenOptions::with(task.limits()))?;
    let open_seconds = began.elapsed().as_secs_f64();
    let opened = pool.counters();
    let writes = Writes::new(task.seed, task.writes);
    let began = Instant::now();
    let verified_blocks = writer::verify(&mut pool, &writes, effort.samples)?;
    let verify_seconds = began.elapsed().as_secs_f64();
    let map_pages = writes.map_pages();
    if settings.quick {
        check(pool, map_pages)?;
    }

    let ratio = map_pages / task.cache_pages as u64;
    let report = Report {
        area: "memory",
        quick: settings.quick,
        unix_seconds: table::unix_seconds(),
        machine: place.machine(),
        writes: task.writes,
        map_pages,
        cache_pages: task.cache_pages,
        ratio,
        release_seconds,
        open_seconds,
        replayed_slots: opened.replayed_slots,
        pages_read_at_open: opened.pages_read_at_open,
        verified_blocks,
        verify_seconds,
        passed: written.heap_peak <= written.bound && ratio >= RATIO_MIN,
        written,
    };
    show(&report);
    table::save(settings.json.as_deref(), &report)?;
    let Written { heap_peak, bound, .. } = report.written;
    ensure!(heap_peak <= bound, "the heap had {heap_peak} bytes, more than the bound of {bound}");
    ensure!(ratio >= RATIO_MIN, "the map is only {ratio} times the cache: this shows nothing");
    Ok(())
}

fn create(file: &Scratch, size: ByteLen) -> Result<()> {
    let mut disk = place::open(file.path(), Some(size))?;
    println!("{}", place::describe(&disk));
    let options =
        engine::CreateOptions { uuid: *b"pollux benchmark", ..engine::CreateOptions::default() };
    Ok(engine::create(&mut disk, &options)?)
}

fn write_and_kill(task: &Task) -> Result<Written> {
    let (child, written) = child::start("memory-writer", &task.args())?;
    // Killed while it waits with an open pool: nothing was closed, and nothing flushed for it.
    drop(child);
    Ok(written)
}

/// Counts the pages of the map on the device.
fn check(pool: Pool<FileDisk>, expected: u64) -> Result<()> {
    let mut disk = pool.close()?;
    let found = look(&mut disk)?;
    ensure!(found == expected, "the map has {found} pages, and should have {expected}");
    Ok(())
}

fn look<D: Disk + Wait>(disk: &mut D) -> Result<u64> {
    let report = engine::check::check(disk, engine::check::Depth::Structure)?;
    ensure!(report.is_clean(), "the pool has problems: {:?}", report.problems);
    Ok(report.map_pages)
}

fn show(report: &Report) {
    let written = &report.written;
    let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
    let mut out = std::io::stdout().lock();
    let rows = [
        ("writes", report.writes.to_string()),
        (
            "seconds",
            format!("{:.1} ({:.1} of processor time)", written.seconds, written.cpu_seconds),
        ),
        ("writes per second", format!("{:.0}", report.writes as f64 / written.seconds)),
        ("checkpoints", written.checkpoints.to_string()),
        (
            "map pages read, written",
            format!("{}, {}", written.map_pages_read, written.map_pages_written),
        ),
        ("live map pages", report.map_pages.to_string()),
        ("cache pages", report.cache_pages.to_string()),
        ("live pages per cache page", format!("{} (at least {RATIO_MIN})", report.ratio)),
        ("bound", format!("{:.1} MiB", mib(written.bound))),
        ("peak of the heap", format!("{:.1} MiB", mib(written.heap_peak))),
        ("peak that the engine counts", format!("{:.1} MiB", mib(written.used_peak))),
        ("peak of the process", format!("{:.1} MiB", mib(written.resident_peak))),
        ("pages read at open", report.pages_read_at_open.to_string()),
        ("slots replayed at open", report.replayed_slots.to_string()),
        ("seconds until released", format!("{:.3}", report.release_seconds)),
        ("seconds to open", format!("{:.3}", report.open_seconds)),
        (
            "blocks verified",
            format!("{} in {:.1} s", report.verified_blocks, report.verify_seconds),
        ),
        ("passed", if report.passed { "yes" } else { "no" }.to_owned()),
    ];
    for (name, value) in rows {
        let _ = writeln!(out, "{name:<28} {value}");
    }
}
