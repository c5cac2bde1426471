//! One process of the product: started, killed, started again the same way.
use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process_group};

/// A start reads the journal of its pool; a stop may wait twice 10 s for what it closes.
const PATIENCE: Duration = Duration::from_secs(40);
const PAUSE: Duration = Duration::from_millis(20);
const TAIL: usize = 40;

/// The product's program: `POLLUX_BIN`, or what cargo built beside the calling test.
pub fn pollux() -> PathBuf {
    if let Some(told) = std::env::var_os("POLLUX_BIN") {
        return told.into();
    }
    let test = std::env::current_exe().unwrap_or_default();
    let profile =
        test.ancestors().find(|path| path.ends_with("debug") || path.ends_with("release"));
    profile.unwrap_or(Path::new("target/debug")).join("pollux")
}

/// How to start it: the words of the command, and the file that it writes when it is ready.
#[derive(Clone, Debug)]
pub struct Recipe {
    pub name: String,
    pub words: Vec<OsString>,
    pub ready: PathBuf,
}

#[derive(Debug)]
pub struct Process {
    recipe: Recipe,
    folder: PathBuf,
    child: Option<Child>,
    /// Where it writes its log, if not into the file of its own.
    output: Option<PathBuf>,
}

impl Process {
    pub fn start(folder: &Path, recipe: Recipe) -> Result<Process> {
        let mut process = Process { recipe, folder: folder.into(), child: None, output: None };
        process.begin(&[])?;
        process.wait_ready()?;
        Ok(process)
    }

    fn begin(&mut self, variables: &[(&str, &str)]) -> Result<()> {
        if self.ready().exists() {
            fs::remove_file(self.ready())?;
        }
        let output = self.output.clone().unwrap_or_else(|| self.log());
        let log = OpenOptions::new().create(true).append(true).open(output)?;
        let (program, words) = self.recipe.words.split_first().context("a command has words")?;
        let child = Command::new(program)
            .args(words)
            .env("NO_COLOR", "1")
            .envs(variables.iter().copied())
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .process_group(0)
            .spawn()
            .with_context(|| format!("{} does not start", program.display()))?;
        fs::write(self.pid_file(), child.id().to_string())?;
        self.child = Some(child);
        Ok(())
    }

    fn wait_ready(&mut self) -> Result<()> {
        let begun = Instant::now();
        while !self.ready().exists() {
            let child = self.child.as_mut().context("it was started")?;
            if let Some(status) = child.try_wait()? {
                bail!("{} ended with {status}:\n{}", self.recipe.name, self.tail());
            }
            if begun.elapsed() > PATIENCE {
                bail!("{} is not ready after {PATIENCE:?}:\n{}", self.recipe.name, self.tail());
            }
            thread::sleep(PAUSE);
        }
        Ok(())
    }

    pub fn is_up(&self) -> bool {
        self.child.is_some()
    }

    pub fn pid(&self) -> Option<u32> {
        self.child.as_ref().map(Child::id)
    }

    /// SIGKILL, and the end of it.
    pub fn kill9(&mut self) {
        let Some(mut child) = self.child.take() else { return };
        // The only error is that there is nobody left to kill.
        let _ = kill_process_group(Pid::from_child(&child), Signal::KILL);
        let _ = child.wait();
        let _ = fs::remove_file(self.pid_file());
    }

    /// SIGSTOP: it does nothing, and keeps its connections and its idea of what it may do.
    pub fn freeze(&self) -> Result<()> {
        self.signal(Signal::STOP)
    }

    pub fn thaw(&self) -> Result<()> {
        self.signal(Signal::CONT)
    }

    fn signal(&self, signal: Signal) -> Result<()> {
        let child = self.child.as_ref().with_context(|| format!("{} is down", self.name()))?;
        Ok(kill_process_group(Pid::from_child(child), signal)?)
    }

    /// SIGTERM, and the end of it.
    pub fn stop(&mut self) -> Result<()> {
        self.signal(Signal::TERM)?;
        let Some(child) = self.child.as_mut() else { return Ok(()) };
        let begun = Instant::now();
        let status = loop {
            match child.try_wait()? {
                Some(status) => break status,
                None if begun.elapsed() > PATIENCE => {
                    self.kill9();
                    bail!("{} did not stop within {PATIENCE:?}", self.recipe.name);
                }
                None => thread::sleep(PAUSE),
            }
        };
        self.child = None;
        fs::remove_file(self.pid_file())?;
        if !status.success() {
            bail!("{} stopped with {status}:\n{}", self.recipe.name, self.tail());
        }
        Ok(())
    }

    pub fn restart(&mut self) -> Result<()> {
        self.restart_with(&[])
    }

    /// With these variables in its environment, until it is started anew.
    pub fn restart_with(&mut self, variables: &[(&str, &str)]) -> Result<()> {
        self.kill9();
        self.begin(variables)?;
        self.wait_ready()
    }

    /// From the next start on, by a program that becomes it.
    pub fn run_by(&mut self, words: &[&str]) {
        self.recipe.words.splice(0..0, words.iter().map(OsString::from));
    }

    /// From the next start on it logs there, or into the file of its own again.
    pub fn log_to(&mut self, output: Option<&Path>) {
        self.output = output.map(Path::to_owned);
    }

    /// Until it has ended by itself.
    pub fn wait_end(&mut self, patience: Duration) -> Result<()> {
        let begun = Instant::now();
        let Some(child) = self.child.as_mut() else { return Ok(()) };
        while child.try_wait()?.is_none() {
            if begun.elapsed() > patience {
                bail!("{} still runs after {patience:?}", self.recipe.name);
            }
            thread::sleep(PAUSE);
        }
        self.kill9();
        Ok(())
    }

    fn ready(&self) -> &Path {
        &self.recipe.ready
    }

    fn pid_file(&self) -> PathBuf {
        self.folder.join(format!("{}.pid", self.recipe.name))
    }

    pub fn log(&self) -> PathBuf {
        self.folder.join(format!("{}.log", self.recipe.name))
    }

    pub fn name(&self) -> &str {
        &self.recipe.name
    }

    /// The last lines of its log.
    pub fn tail(&self) -> String {
        let text = fs::read(self.log()).unwrap_or_default();
        let text = String::from_utf8_lossy(&text).into_owned();
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(TAIL)..].join("\n")
    }

    /// Until its log has a line with all of these words, since so many bytes of it; the line.
    pub fn wait_log(&self, since: usize, words: &[&str], patience: Duration) -> Result<String> {
        let begun = Instant::now();
        loop {
            let text = fs::read(self.log())?;
            let text = String::from_utf8_lossy(&text[since.min(text.len())..]).into_owned();
            let found = text.lines().find(|line| words.iter().all(|word| line.contains(word)));
            if let Some(line) = found {
                return Ok(line.into());
            }
            if begun.elapsed() > patience {
                bail!("{} logged nothing with {words:?} within {patience:?}", self.recipe.name);
            }
            thread::sleep(PAUSE);
        }
    }

    /// Bytes that its log has.
    pub fn logged(&self) -> usize {
        fs::metadata(self.log()).ok().and_then(|it| usize::try_from(it.len()).ok()).unwrap_or(0)
    }

    /// Open descriptors.
    pub fn descriptors(&self) -> Result<usize> {
        let pid = self.pid().with_context(|| format!("{} is down", self.name()))?;
        Ok(fs::read_dir(format!("/proc/{pid}/fd"))?.count())
    }

    /// Bytes of memory that it has.
    pub fn memory(&self) -> Result<u64> {
        let pid = self.pid().with_context(|| format!("{} is down", self.name()))?;
        let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
        Ok(kib.context("a process has memory")? * 1024)
    }

    /// Puts a line of the test between those of the process.
    pub fn note(&self, line: &str) {
        if let Ok(mut log) = OpenOptions::new().append(true).open(self.log()) {
            let _ = writeln!(log, "---- rig: {line}");
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill9();
    }
}

/// Ends what is left when the test itself is killed, which runs no `drop`: a shell that reads from
/// a pipe until nobody holds its other end.
#[derive(Debug)]
pub struct Watchdog {
    child: Child,
    pipe: Option<ChildStdin>,
}

impl Watchdog {
    pub fn over(folder: &Path) -> Result<Watchdog> {
        let script = "cat >/dev/null; for f in \"$0\"/*.pid; do \
                      [ -f \"$f\" ] && kill -s KILL -- -$(cat \"$f\"); done; true";
        let mut child = Command::new("sh")
            .args(["-c", script])
            .arg(folder)
            .stdin(Stdio::piped())
            .stderr(File::create(folder.join("watchdog.log"))?)
            .process_group(0)
            .spawn()?;
        let pipe = child.stdin.take();
        Ok(Watchdog { child, pipe })
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        drop(self.pipe.take());
        let _ = self.child.wait();
    }
}
