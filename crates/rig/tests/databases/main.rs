//! Databases on a mounted volume: what they committed is there, whoever dies in between.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on says so by its line")]
mod postgres;
mod shell;
mod sqlite;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use control::api::types::Volume;
use rig::api::Api;
use rig::csi::{Access, Claim};
use rig::plugin::{Plugin, missing};
use rig::site::{MIB, node_name};

use postgres::Postgres;
use shell::Shell;
use sqlite::Sqlite;

const PATIENCE: Duration = Duration::from_secs(60);
const ROUNDS: usize = 10;
/// Commits between two blows.
const ENOUGH: u64 = 20;

trait Database {
    /// After it was killed, or for the first time.
    fn start(&mut self) -> Result<()>;
    /// Somebody who commits.
    fn open(&self) -> Result<Shell>;
    /// With whoever commits just now.
    fn kill9(&mut self, shell: u32) -> Result<()>;
    fn stop(&mut self) -> Result<()>;
}

/// Commits number after number, each after the one before was acknowledged.
struct Writer {
    shell: u32,
    stop: Arc<AtomicBool>,
    acknowledged: Arc<AtomicU64>,
    thread: JoinHandle<Result<()>>,
}

impl Writer {
    fn start(mut shell: Shell, last: u64) -> Writer {
        let stop = Arc::new(AtomicBool::new(false));
        let acknowledged = Arc::new(AtomicU64::new(last));
        let (pid, told, noted) = (shell.pid(), Arc::clone(&stop), Arc::clone(&acknowledged));
        let thread = thread::spawn(move || {
            let mut last = last;
            while !told.load(Ordering::SeqCst) {
                last += 1;
                shell.commit(last)?;
                noted.store(last, Ordering::SeqCst);
            }
            Ok(())
        });
        Writer { shell: pid, stop, acknowledged, thread }
    }

    fn acknowledged(&self) -> u64 {
        self.acknowledged.load(Ordering::SeqCst)
    }

    fn go_on(&self, more: u64) -> Result<()> {
        let (begun, goal) = (Instant::now(), self.acknowledged() + more);
        while self.acknowledged() < goal {
            ensure!(!self.thread.is_finished(), "the database takes no more commits");
            ensure!(begun.elapsed() < PATIENCE, "no {more} commits within {PATIENCE:?}");
            thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }

    /// The end of a writer whose database was killed. It is not told to stop: it could do so before it notices.
    fn outlive(self) -> Result<(u64, Result<()>)> {
        let begun = Instant::now();
        while !self.thread.is_finished() {
            ensure!(begun.elapsed() < PATIENCE, "commits go on for {PATIENCE:?} after the kill");
            thread::sleep(Duration::from_millis(10));
        }
        Ok(self.end())
    }

    /// The last number that was acknowledged, and how it ended.
    fn end(self) -> (u64, Result<()>) {
        self.stop.store(true, Ordering::SeqCst);
        let ended = self.thread.join().unwrap_or_else(|_| bail!("the writer panicked"));
        (self.acknowledged.load(Ordering::SeqCst), ended)
    }
}

struct Blows<'a> {
    plugin: &'a mut Plugin,
    api: Api,
    claim: &'a Claim,
    database: &'a mut dyn Database,
}

impl Blows<'_> {
    fn all(&mut self) -> Result<u64> {
        self.database.start()?;
        let mut last = 0;
        for round in 0..ROUNDS {
            last = self.the_database_dies(last).with_context(|| format!("round {round}"))?;
            last = self.the_node_dies(last).with_context(|| format!("round {round}"))?;
        }
        self.database.stop()?;
        Ok(last)
    }

    fn the_database_dies(&mut self, last: u64) -> Result<u64> {
        let writer = Writer::start(self.database.open()?, last);
        writer.go_on(ENOUGH)?;
        self.database.kill9(writer.shell)?;
        let (acknowledged, ended) = writer.outlive()?;
        ensure!(ended.is_err(), "it was killed, and goes on");
        self.database.start()?;
        self.has(acknowledged)
    }

    /// The one that serves the volume.
    fn the_node_dies(&mut self, last: u64) -> Result<u64> {
        let volume = self.api.ask(async |client| client.volume(&self.claim.id).await)?;
        let target = volume.target.context("it is served")?.node;
        let rig = &mut self.plugin.rig;
        let holder = rig.ids().find(|id| node_name(*id) == target).context("a node")?;
        let writer = Writer::start(self.database.open()?, last);
        writer.go_on(ENOUGH)?;
        rig.kill9(holder);
        let moved = |volume: &Volume| {
            volume.target.as_ref().is_some_and(|it| it.serving && it.node != target)
        };
        self.api.wait_volume(&self.claim.id, "the target to move", PATIENCE, moved)?;
        writer.go_on(ENOUGH)?;
        rig.restart(holder)?;
        self.api.wait_healthy(&self.claim.id, PATIENCE)?;
        let (acknowledged, ended) = writer.end();
        ended.context("a node died, and the database noticed")?;
        self.has(acknowledged)
    }

    /// Everything that was acknowledged, and at the most one row whose acknowledgement was lost. The last row.
    fn has(&self, acknowledged: u64) -> Result<u64> {
        let rows = self.database.open()?.rows()?;
        let whole = rows.count == rows.last && rows.wrong == 0;
        let known = (acknowledged..=acknowledged + 1).contains(&rows.last);
        ensure!(whole && known, "{acknowledged} rows were committed, and there are {rows:?}");
        Ok(rows.last)
    }
}

fn survives(
    name: &str,
    tools: &[&str],
    made: impl FnOnce(&Path, &Path) -> Result<Box<dyn Database>>,
) {
    let tools = [&["mkfs.ext4", "losetup", "stdbuf", "setpriv"], tools].concat();
    if let Some(missing) = missing(&tools) {
        eprintln!("SKIPPED: {name}: {missing}");
        return;
    }
    let begun = Instant::now();
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("databases-{name}"));
    let mut plugin = Plugin::start(&folder, &[1024 * MIB; 3], &["--away-after", "2"]).unwrap();
    let claim = plugin.claim("data", 256 * MIB, Access::Mount("ext4"), None).unwrap();
    plugin.bring(&claim).unwrap();
    let mut database = made(&claim.target, &folder).unwrap();
    let api = plugin.rig.api().unwrap();
    let (plugin_ref, database_ref) = (&mut plugin, &mut *database);
    let mut blows = Blows { plugin: plugin_ref, api, claim: &claim, database: database_ref };
    let rows = blows.all().unwrap();
    drop(database);
    plugin.remove(&claim).unwrap();
    plugin.end().unwrap();
    println!("{name}: {rows} rows, {:.1?}", begun.elapsed());
}

#[test]
fn sqlite_keeps_what_it_committed() {
    survives("sqlite", &["sqlite3"], |at, _| Ok(Box::new(Sqlite::new(at.to_owned()))));
}

#[test]
fn postgres_keeps_what_it_committed() {
    if missing(&[]).is_none()
        && let Err(missing) = postgres::programs()
    {
        eprintln!("SKIPPED: postgres: {missing}");
        return;
    }
    survives("postgres", &[], |at, folder| {
        let programs = postgres::programs().map_err(anyhow::Error::msg)?;
        Ok(Box::new(Postgres::new(programs, at, folder.join("postgres.log"))?))
    });
}
