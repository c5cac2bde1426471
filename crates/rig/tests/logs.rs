//! A log that cannot be written: processes drop its lines, count them, and serve on.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on says so by its line")]
use std::fs::{self, File};
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use rig::nbd::Nbd;
use rig::site::{MIB, Rig};
use rustix::fs::{FileType, Mode, OFlags};

const VOLUME: &str = "logs";
const BLOCK: usize = 4096;
const PATIENCE: Duration = Duration::from_secs(30);
/// Enough lines to fill every buffer on the way.
const LOUD: [(&str, &str); 1] = [("POLLUX_LOG", "trace")];

#[test]
fn a_log_on_a_full_disk_ends_no_process() {
    let (mut rig, folder) = start("logs_full");
    assert!(dropped(&rig, &folder) == [0, 0], "a log that can be written loses nothing");
    served_with(&mut rig, &folder, Path::new("/dev/full"), 1).unwrap();
}

#[test]
fn a_log_that_is_not_read_stops_no_loop() {
    let (mut rig, folder) = start("logs_pipe");
    let pipe = folder.join("pipe");
    let _held = full_pipe(&pipe).unwrap();
    // What fits into the queue waits there; only what comes after it is dropped.
    served_with(&mut rig, &folder, &pipe, 0).unwrap();
}

fn start(name: &str) -> (Rig, PathBuf) {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let mut rig = Rig::start_controlled(&folder, &[64 * MIB], &[]).unwrap();
    rig.node(1).run_by(&["sh", "-c", "exec \"$@\" --metrics 127.0.0.1:0", "sh"]);
    rig.restart(1).unwrap();
    let api = rig.api().unwrap();
    api.wait_nodes(1, PATIENCE).unwrap();
    api.create(VOLUME, 4 * MIB, 1).unwrap();
    (rig, folder)
}

/// Node and control plane start again with both outputs there, serve, and stop cleanly.
fn served_with(rig: &mut Rig, folder: &Path, output: &Path, dropped_min: u64) -> Result<()> {
    let script = format!("exec \"$@\" >'{0}' 2>'{0}'", output.display());
    for process in [true, false] {
        let process = if process { rig.catalog() } else { rig.node(1) };
        process.run_by(&["sh", "-c", &script, "sh"]);
        process.restart_with(&LOUD)?;
    }
    let api = rig.api()?;
    api.wait_nodes(1, PATIENCE)?;
    api.wait_healthy(VOLUME, PATIENCE)?;
    write_and_read(rig)?;
    let lost = dropped(rig, folder);
    println!("{lost:?} lines were dropped");
    ensure!(lost.iter().all(|lost| *lost >= dropped_min), "not counted: {lost:?}");
    rig.stop(1)?;
    rig.catalog().stop()
}

fn write_and_read(rig: &Rig) -> Result<()> {
    let at = rig.finder(VOLUME)?().context("the volume is served")?;
    let mut nbd = Nbd::connect(at, VOLUME, Box::new(|| true))?;
    for block in 0..=u8::MAX {
        nbd.write(u64::from(block) * BLOCK as u64, &[block; BLOCK], false)?;
    }
    nbd.flush()?;
    let mut found = [0; BLOCK];
    for block in 0..=u8::MAX {
        nbd.read(u64::from(block) * BLOCK as u64, &mut found)?;
        ensure!(found == [block; BLOCK], "block {block}");
    }
    Ok(())
}

/// Dropped lines, as node and control plane tell them.
fn dropped(rig: &Rig, folder: &Path) -> [u64; 2] {
    let ready = fs::read(folder.join("node-1.json")).unwrap();
    let ready: serde_json::Value = serde_json::from_slice(&ready).unwrap();
    let node = ready["metrics"].as_str().expect("it was asked for").to_owned();
    [node, rig.api_address()].map(|at| counter(&at, "pollux_log_lines_dropped_total").unwrap())
}

fn counter(at: &str, name: &str) -> Result<u64> {
    let mut stream = TcpStream::connect(at)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    write!(stream, "GET /metrics HTTP/1.1\r\nHost: {at}\r\nConnection: close\r\n\r\n")?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    Ok(line.with_context(|| text.clone())?.trim().parse()?)
}

/// A pipe that takes nothing more, for as long as the file is held.
fn full_pipe(at: &Path) -> Result<File> {
    rustix::fs::mknodat(rustix::fs::CWD, at, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0)?;
    let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let mut pipe = File::from(rustix::fs::open(at, flags, Mode::empty())?);
    let begun = Instant::now();
    loop {
        match pipe.write(&[b'.'; 4096]) {
            Ok(_) if begun.elapsed() < PATIENCE => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(pipe),
            other => bail!("the pipe does not fill up: {other:?}"),
        }
    }
}
