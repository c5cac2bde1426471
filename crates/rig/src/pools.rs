//! What pools hold when nobody has them open, by way of the product's own commands.
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io::Read;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use crc_fast::{CrcAlgorithm, Digest};
use serde_json::Value;

use crate::process::pollux;

/// One number for everything that a snapshot of a volume holds: blocks, holes, and when each of
/// them changed. Two replicas with the same number are alike.
pub fn sum(pool: &Path, volume: &str, snapshot: &str) -> Result<u64> {
    let point = format!("{volume}@{snapshot}");
    let mut child = Command::new(pollux())
        .args(["disk", "export", "--quiet", "--from", "empty", "--to", &point])
        .arg(pool)
        .stdout(Stdio::piped())
        .spawn()?;
    let mut output = child.stdout.take().context("it is a pipe")?;
    let mut digest = Digest::new(CrcAlgorithm::Crc64Nvme);
    let mut bytes = vec![0; 1 << 20];
    loop {
        match output.read(&mut bytes)? {
            0 => break,
            got => digest.update(&bytes[..got]),
        }
    }
    let status = child.wait()?;
    ensure!(status.success(), "export of {point} from {} ended with {status}", pool.display());
    Ok(digest.finalize())
}

/// The users' snapshots of a volume by name, as the pool has them.
pub fn snapshots(pool: &Path, volume: &str) -> Result<Vec<String>> {
    names(&run(pool, &["disk", "snapshot", "list"], &[volume])?)
}

/// The volumes of a pool by name.
pub fn volumes(pool: &Path) -> Result<Vec<String>> {
    names(&run(pool, &["disk", "volumes"], &[])?)
}

fn names(list: &[u8]) -> Result<Vec<String>> {
    let list: Value = serde_json::from_slice(list)?;
    let rows = list.as_array().context("a list")?;
    let mut names: Vec<String> =
        rows.iter().filter_map(|row| row["name"].as_str()).map(str::to_owned).collect();
    names.sort();
    Ok(names)
}

/// Whether a pool is whole, with every stored byte.
pub fn check(pool: &Path) -> Result<()> {
    run(pool, &["disk", "check", "--data"], &[])?;
    Ok(())
}

/// Every snapshot of a volume in these pools, with what each pool has of it.
pub fn compare(pools: &[impl AsRef<Path>], volume: &str) -> Result<BTreeMap<String, u64>> {
    let mut all: Vec<BTreeMap<String, u64>> = Vec::new();
    for pool in pools {
        let pool = pool.as_ref();
        check(pool)?;
        let names = snapshots(pool, volume)?;
        let sums = names.into_iter().map(|name| {
            let sum = sum(pool, volume, &name)?;
            Ok((name, sum))
        });
        all.push(sums.collect::<Result<_>>()?);
    }
    let first = all.first().cloned().unwrap_or_default();
    ensure!(all.iter().all(|sums| *sums == first), "replicas differ: {all:#?}");
    Ok(first)
}

fn run(pool: &Path, words: &[&str], more: &[&str]) -> Result<Vec<u8>> {
    let mut command = Command::new(pollux());
    command.args(["--output", "json"]).args(words).arg(pool).args(more.iter().map(OsStr::new));
    let output = command.output()?;
    ensure!(
        output.status.success(),
        "{command:?}: {}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(output.stdout)
}
