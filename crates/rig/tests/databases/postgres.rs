//! PostgreSQL: a server of its own for the test, which does not run as root.
use std::fs::{self, OpenOptions};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use rustix::process::{Pid, Signal, kill_process};

use crate::Database;
use crate::shell::Shell;

const PATIENCE: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(50);
/// Debian's programs are in a folder for each version.
const PROGRAMS: &str = "/usr/lib/postgresql";

pub struct Postgres {
    programs: PathBuf,
    data: PathBuf,
    log: PathBuf,
    /// In no folder: those of tests are too long for one.
    socket: String,
    server: Option<Child>,
}

/// Where the programs are, after they were installed if need be; otherwise why not.
pub fn programs() -> Result<PathBuf, String> {
    if let Some(found) = find() {
        return Ok(found);
    }
    let mut install = Command::new("timeout");
    install.args(["120", "apt-get", "-y", "-q", "install", "postgresql"]);
    // So that the package starts no server of its own.
    install.env("DEBIAN_FRONTEND", "noninteractive").env("RUNLEVEL", "1");
    let done =
        install.stdin(Stdio::null()).output().map_err(|error| format!("apt-get: {error}"))?;
    find().ok_or_else(|| format!("no PostgreSQL: {}", String::from_utf8_lossy(&done.stderr).trim()))
}

fn find() -> Option<PathBuf> {
    let versions = fs::read_dir(PROGRAMS).ok()?;
    let folders = versions.filter_map(|version| Some(version.ok()?.path().join("bin")));
    folders.filter(|folder| folder.join("initdb").is_file()).max()
}

/// Its own user, or the one that is nobody.
fn user() -> Result<&'static str> {
    let known = fs::read_to_string("/etc/passwd")?;
    let is_there = |name: &str| known.lines().any(|line| line.split(':').next() == Some(name));
    let user = ["postgres", "nobody"].into_iter().find(|name| is_there(name));
    user.context("there is no user for a server")
}

/// The folders of a test may be closed to all but root: its user may walk through them nevertheless.
fn as_user(program: &Path) -> Result<Command> {
    let user = user()?;
    let mut command = Command::new("setpriv");
    let walk = "+dac_read_search";
    command.args(["--reuid", user, "--regid", &group_of(user)?, "--clear-groups"]);
    command.args(["--inh-caps", walk, "--ambient-caps", walk]).arg(program);
    command.current_dir("/").env("LC_ALL", "C").stdin(Stdio::null());
    Ok(command)
}

fn group_of(user: &str) -> Result<String> {
    let known = fs::read_to_string("/etc/passwd")?;
    let line = known.lines().find(|line| line.split(':').next() == Some(user));
    Ok(line.and_then(|line| line.split(':').nth(3)).context("a user has a group")?.to_owned())
}

impl Postgres {
    /// A new one in this folder.
    pub fn new(programs: PathBuf, folder: &Path, log: PathBuf) -> Result<Postgres> {
        let data = folder.join("cluster");
        fs::create_dir(&data)?;
        let owned = Command::new("chown").arg(user()?).arg(&data).status()?;
        ensure!(owned.success(), "chown: {owned}");
        let mut init = as_user(&programs.join("initdb"))?;
        init.args(["--auth=trust", "--username=postgres", "--no-locale", "--encoding=UTF8"]);
        // Segments of 1 MiB: the usual ones are written as a whole before they are used.
        init.args(["--data-checksums", "--wal-segsize=1", "--pgdata"]).arg(&data);
        let made = init.output()?;
        ensure!(made.status.success(), "initdb: {}", String::from_utf8_lossy(&made.stderr));
        let socket = format!("@pollux-rig-{}", std::process::id());
        Ok(Postgres { programs, data, log, socket, server: None })
    }

    fn try_start(&mut self) -> Result<Child> {
        let log = OpenOptions::new().create(true).append(true).open(&self.log)?;
        let mut server = as_user(&self.programs.join("postgres"))?;
        server.arg("-D").arg(&self.data).args(["-c", "listen_addresses="]);
        server.arg("-c").arg(format!("unix_socket_directories={}", self.socket));
        Ok(server.stdout(log.try_clone()?).stderr(log).spawn()?)
    }

    fn is_ready(&self) -> Result<bool> {
        let mut ask = Command::new(self.programs.join("pg_isready"));
        Ok(ask.args(["-q", "-h", &self.socket]).status()?.success())
    }

    /// All of its processes: those of connections are no children of ours, and of no group of ours.
    fn processes(&self) -> Result<Vec<u32>> {
        let mut ours = Vec::new();
        for process in fs::read_dir("/proc")? {
            let process = process?;
            let number = process.file_name().to_str().and_then(|name| name.parse().ok());
            let works_in = fs::read_link(process.path().join("cwd"));
            if let Some(number) = number.filter(|_| works_in.is_ok_and(|at| at == self.data)) {
                ours.push(number);
            }
        }
        Ok(ours)
    }

    fn end(&mut self) -> Result<()> {
        let begun = Instant::now();
        if let Some(mut server) = self.server.take() {
            server.kill()?;
            server.wait()?;
        }
        loop {
            let left = self.processes()?;
            if left.is_empty() {
                return Ok(());
            }
            ensure!(begun.elapsed() < PATIENCE, "these do not end: {left:?}");
            for process in left.into_iter().filter_map(|it| Pid::from_raw(i32::try_from(it).ok()?))
            {
                // The only error is that it is gone already.
                let _ = kill_process(process, Signal::KILL);
            }
            thread::sleep(PAUSE);
        }
    }
}

impl Database for Postgres {
    fn start(&mut self) -> Result<()> {
        let begun = Instant::now();
        let mut server = self.try_start()?;
        while !self.is_ready()? {
            if let Some(status) = server.try_wait()? {
                let said = fs::read_to_string(&self.log).unwrap_or_default();
                bail!("the server ended with {status}: {said}");
            }
            ensure!(begun.elapsed() < PATIENCE, "the server is not ready after {PATIENCE:?}");
            thread::sleep(PAUSE);
        }
        self.server = Some(server);
        Ok(())
    }

    fn open(&self) -> Result<Shell> {
        let psql = self.programs.join("psql");
        let psql = psql.to_str().context("a path of a package is text")?;
        let words = [psql, "-XqAt", "-v", "ON_ERROR_STOP=1", "-U", "postgres", "-h", &self.socket];
        let mut shell = Shell::start(&words.map(String::from))?;
        let table = "CREATE TABLE IF NOT EXISTS numbered (n bigint PRIMARY KEY, words text);";
        shell.ask(&format!("SET client_min_messages = error; {table} SELECT 'made';"), "made")?;
        Ok(shell)
    }

    fn kill9(&mut self, _: u32) -> Result<()> {
        self.end()
    }

    fn stop(&mut self) -> Result<()> {
        self.end()
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        if let Err(error) = self.end() {
            eprintln!("{error:#}");
        }
    }
}
