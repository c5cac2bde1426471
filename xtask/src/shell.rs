//! Running a command: shown live, kept in a log, and its standard output handed back.
use std::env;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{self, Stdio};
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};

use crate::totals::Totals;

/// The top of the workspace. `cargo run` tells where the manifest is now; the path of the build
/// is only a fallback, since a cached binary may have been built in another checkout.
pub fn root() -> PathBuf {
    let manifest = env::var_os("CARGO_MANIFEST_DIR")
        .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from);
    let top = manifest.parent().expect("the manifest of xtask lies in a folder of the workspace");
    top.to_path_buf()
}

/// Where builds go, and everything that can be made again.
pub fn target() -> PathBuf {
    root().join(env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| "target".into()))
}

/// Where reports and logs go; made on demand.
pub fn reports() -> Result<PathBuf> {
    let reports = root().join("reports");
    fs::create_dir_all(reports.join("logs"))
        .with_context(|| format!("making {}", reports.display()))?;
    Ok(reports)
}

fn log_path(log: &str) -> Result<PathBuf> {
    Ok(reports()?.join("logs").join(format!("{log}.log")))
}

/// Commands add to their log; this begins it anew.
pub fn clear_log(log: &str) -> Result<()> {
    let path = log_path(log)?;
    fs::write(&path, "").with_context(|| format!("writing {}", path.display()))
}

/// Whether standard output is for people, or for a program that reads it from us.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Output {
    Shown,
    Kept,
}

pub struct Command {
    program: OsString,
    args: Vec<String>,
    env: Vec<(&'static str, String)>,
    output: Output,
    /// Where it runs, if not at the top of the workspace.
    at: Option<PathBuf>,
}

/// How a command with a limit ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    Well,
    Badly,
    TooLate,
}

#[derive(Debug)]
pub struct Finished {
    pub exited_well: bool,
    pub stdout: String,
}

impl Finished {
    /// The whole command as one check.
    pub fn as_check(&self) -> Totals {
        Totals::of_check(self.exited_well)
    }

    /// The tests that the command ran.
    pub fn as_tests(&self) -> Totals {
        Totals::of_libtest(&self.stdout, self.exited_well)
    }
}

/// A cargo command, words separated by spaces.
pub fn cargo(words: &str) -> Command {
    Command {
        program: env::var_os("CARGO").unwrap_or_else(|| "cargo".into()),
        args: words.split_whitespace().map(str::to_owned).collect(),
        env: Vec::new(),
        output: Output::Shown,
        at: None,
    }
}

/// A program of the system, with words separated by spaces.
pub fn program(name: &str, words: &str) -> Command {
    Command {
        program: name.into(),
        args: words.split_whitespace().map(str::to_owned).collect(),
        env: Vec::new(),
        output: Output::Shown,
        at: None,
    }
}

impl Command {
    /// Runs in another folder than the top of the workspace.
    pub fn at(mut self, folder: &Path) -> Command {
        self.at = Some(folder.to_owned());
        self
    }

    pub fn arg(mut self, arg: &str) -> Command {
        self.args.push(arg.to_owned());
        self
    }

    pub fn env(mut self, name: &'static str, value: impl ToString) -> Command {
        self.env.push((name, value.to_string()));
        self
    }

    /// Standard output is for the caller, not for people.
    pub fn keep_output(mut self) -> Command {
        self.output = Output::Kept;
        self
    }

    fn shown(&self) -> String {
        let program =
            Path::new(&self.program).file_name().unwrap_or(&self.program).to_string_lossy();
        let env = self.env.iter().map(|(name, value)| format!("{name}={value} "));
        format!("{}{program} {}", env.collect::<String>(), self.args.join(" "))
    }

    /// Runs to its end, or until its time is over: then it is killed with all that it started. What it says
    /// goes to the log alone.
    pub fn run_within(&self, limit: Duration, log: &str) -> Result<Ended> {
        let shown = self.shown();
        println!("$ {shown}");
        let mut log = File::options().create(true).append(true).open(log_path(log)?)?;
        writeln!(log, "$ {shown}")?;
        let mut child = process::Command::new(&self.program)
            .args(&self.args)
            .envs(self.env.iter().map(|(name, value)| (name, value)))
            .current_dir(self.at.clone().unwrap_or_else(root))
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()
            .with_context(|| format!("starting `{shown}`"))?;
        let end = Instant::now() + limit;
        loop {
            if let Some(status) = child.try_wait()? {
                return Ok(if status.success() { Ended::Well } else { Ended::Badly });
            }
            if Instant::now() >= end {
                let group = format!("-{}", child.id());
                process::Command::new("kill").args(["-9", "--", &group]).status()?;
                child.wait()?;
                return Ok(Ended::TooLate);
            }
            thread::sleep(Duration::from_millis(100));
        }
    }

    /// Runs at the top of the workspace, to its end. Both streams are also added to
    /// `reports/logs/<log>.log`.
    pub fn run(&self, log: &str) -> Result<Finished> {
        let shown = self.shown();
        println!("$ {shown}");
        let path = log_path(log)?;
        let mut log = File::options()
            .create(true)
            .append(true)
            .open(&path)
            .with_context(|| format!("opening {}", path.display()))?;
        writeln!(log, "$ {shown}")?;
        let log = Mutex::new(log);

        let mut child = process::Command::new(&self.program)
            .args(&self.args)
            .envs(self.env.iter().map(|(name, value)| (name, value)))
            .current_dir(self.at.clone().unwrap_or_else(root))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .with_context(|| format!("starting `{shown}`"))?;
        let stdout = child.stdout.take().context("a piped stdout is there")?;
        let stderr = child.stderr.take().context("a piped stderr is there")?;

        let log = &log;
        let kept = thread::scope(|scope| -> Result<Vec<u8>> {
            let errors = scope.spawn(|| tee(stderr, &mut io::stderr(), log));
            let kept = match self.output {
                Output::Shown => tee(stdout, &mut io::stdout(), log),
                Output::Kept => tee(stdout, &mut io::sink(), log),
            };
            errors.join().map_err(|_| anyhow!("a copier panicked"))??;
            Ok(kept?)
        })?;
        Ok(Finished {
            exited_well: child.wait()?.success(),
            stdout: String::from_utf8_lossy(&kept).into_owned(),
        })
    }
}

/// Copies a stream to people and to the log as it comes, and hands it back whole.
fn tee(mut from: impl Read, to: &mut impl Write, log: &Mutex<File>) -> io::Result<Vec<u8>> {
    let mut kept = Vec::new();
    let mut chunk = [0; 8192];
    loop {
        let read = from.read(&mut chunk)?;
        if read == 0 {
            return Ok(kept);
        }
        let bytes = &chunk[..read];
        kept.extend_from_slice(bytes);
        to.write_all(bytes)?;
        to.flush()?;
        log.lock().expect("a copier that panics ends the run").write_all(bytes)?;
    }
}
