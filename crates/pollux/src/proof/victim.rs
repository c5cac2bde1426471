//! A writer from outside: started, listened to, and killed.
use std::io::BufReader;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail, ensure};
use disk::{Backend, Direct};

use super::step::Event;
use super::wire;
use super::writer::Orders;

/// A writer that has not answered for so long is stuck.
const FIRST_ANSWER_MAX: Duration = Duration::from_secs(20);
const SIGKILL: i32 = 9;

/// A running writer. It does not outlive this value.
pub struct Victim {
    child: Child,
    listener: Option<JoinHandle<Result<Vec<Event>>>>,
    answered: mpsc::Receiver<()>,
}

impl Victim {
    /// Starts `program demo-writer ...`.
    pub fn spawn(program: &Path, orders: &Orders) -> Result<Victim> {
        let backend = match orders.backend {
            Backend::Auto => "auto",
            Backend::Ring => "ring",
            Backend::Threads => "threads",
            Backend::Calls => "calls",
        };
        let direct = match orders.direct {
            Direct::Auto => "auto",
            Direct::Never => "never",
        };
        let mut child = Command::new(program)
            .arg("demo-writer")
            .arg(&orders.path)
            .args(["--backend", backend, "--direct", direct])
            .args(["--seed", &orders.seed.to_string()])
            .args(["--term", &orders.term.to_string()])
            .args(["--depth", &orders.depth.to_string()])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("{} could not be started", program.display()))?;
        let stdout = child.stdout.take().context("the writer's voice was asked for")?;
        let (first, answered) = mpsc::channel();
        let listener = Some(std::thread::spawn(move || listen(stdout, &first)));
        Ok(Victim { child, listener, answered })
    }

    /// Waits until the writer got its first answer and then for a while, kills it, and returns all
    /// that it told.
    pub fn kill_after(mut self, while_: Duration) -> Result<Vec<Event>> {
        if self.answered.recv_timeout(FIRST_ANSWER_MAX).is_err() {
            // Either it is stuck, or it ended and said on stderr why.
            bail!("the writer got no answer from the pool: {}", self.end()?);
        }
        std::thread::sleep(while_);
        let end = self.end()?;
        ensure!(end.signal() == Some(SIGKILL), "the writer ended before it was killed: {end}");
        let listener = self.listener.take().context("it is listened to once")?;
        listener.join().map_err(|_| anyhow!("the listener panicked"))?
    }

    fn end(&mut self) -> Result<std::process::ExitStatus> {
        self.child.kill().context("the writer cannot be killed")?;
        self.child.wait().context("the writer cannot be waited for")
    }
}

impl Drop for Victim {
    fn drop(&mut self) {
        // After a regular end both fail, and there is nothing left to do.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn listen(stdout: ChildStdout, first: &mpsc::Sender<()>) -> Result<Vec<Event>> {
    let mut from = BufReader::new(stdout);
    let mut events = Vec::new();
    let mut first = Some(first);
    while let Some(event) = wire::hear(&mut from)? {
        events.push(event);
        if matches!(event, Event::Acked { .. })
            && let Some(first) = first.take()
        {
            // Nobody waits any more if the writer was given up.
            let _ = first.send(());
        }
    }
    Ok(events)
}
