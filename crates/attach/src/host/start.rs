//! Attaching: a record first, then a process that outlives this one.
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};

use super::claim::is_running;
use super::{Claim, HostError};
use crate::orders::{self, Order, Status};
use crate::record::Record;

/// Reaching the target may take a failover; then there is not much more to do.
const START_MAX: Duration = Duration::from_secs(45);
const LOOK_EVERY: Duration = Duration::from_millis(10);
/// The bit of SIGKILL among the signals of a process.
const KILL: u64 = 1 << (libc::SIGKILL - 1);
/// What of a failed process' words is told on.
const WORDS_MAX: usize = 500;

/// What is to be attached.
pub type Wanted = Record;

impl Claim {
    /// Nothing may be attached. Its stage has to be a new one (P8).
    pub fn attach(&self, wanted: &Wanted) -> Result<Status, HostError> {
        self.folder.write(wanted)?;
        let attached = self.start(wanted.stage);
        if attached.is_err() {
            // The first error is the one to tell; what cannot be undone now is found by the next one.
            let _ = self.detach();
        }
        attached
    }

    fn start(&self, stage: u64) -> Result<Status, HostError> {
        let mut child = self.spawn().map_err(HostError::system("the attachment's process"))?;
        let begun = Instant::now();
        loop {
            if let Ok(status) = orders::tell(&self.folder.orders(), Order::Status)
                && status.stage == stage
            {
                // Somebody has to take note of its end, as long as we are its parent.
                thread::spawn(move || child.wait());
                return Ok(status);
            }
            let ended = child.try_wait().map_err(HostError::system("the attachment's process"))?;
            if let Some(status) = ended {
                let words = self.last_words();
                let words =
                    if status.code() == Some(1) { words } else { format!("{status}: {words}") };
                return Err(HostError::Start(words));
            }
            if is_dying(child.id()) {
                self.let_go()?;
            }
            if begun.elapsed() > START_MAX {
                self.end(&mut child)?;
                let words = self.last_words();
                return Err(HostError::Start(format!(
                    "it took longer than {START_MAX:?}: {words}"
                )));
            }
            thread::sleep(LOOK_EVERY);
        }
    }

    fn spawn(&self) -> std::io::Result<Child> {
        let mut open = OpenOptions::new();
        let log = open.append(true).create(true).mode(0o600).open(self.folder.log())?;
        let mut command = Command::new(&self.host.program);
        command.args(["serve", "attachment", "--folder"]).arg(&self.folder.0);
        command.stdin(self.lock_process()?).stdout(Stdio::null()).stderr(log);
        command.spawn()
    }

    /// The lock of the process from before it begins: it inherits it. If it took the lock itself, whoever comes
    /// after a killed driver could take it for dead while it begins, and start another beside it.
    fn lock_process(&self) -> std::io::Result<File> {
        let file = File::create(self.folder.process_lock())?;
        flock(&file, FlockOperation::NonBlockingLockExclusive)?;
        Ok(file)
    }

    fn end(&self, child: &mut Child) -> Result<(), HostError> {
        let failed = || HostError::system("the attachment's process");
        child.kill().map_err(failed())?;
        self.let_go()?;
        child.wait().map_err(failed())?;
        assert!(!is_running(&self.folder), "a process that was waited for has no lock");
        Ok(())
    }

    /// The last line that the process said.
    fn last_words(&self) -> String {
        let log = fs::read(self.folder.log()).unwrap_or_default();
        let log = String::from_utf8_lossy(&log);
        let last = log.lines().rfind(|line| !line.trim().is_empty());
        last.unwrap_or("it said nothing").chars().take(WORDS_MAX).collect()
    }
}

/// Whether it was killed and has not come to its end.
fn is_dying(process: u32) -> bool {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let pending = |line: &str| {
        let mask = line.strip_prefix("SigPnd:").or_else(|| line.strip_prefix("ShdPnd:"))?;
        u64::from_str_radix(mask.trim(), 16).ok()
    };
    status.lines().filter_map(pending).any(|mask| mask & KILL != 0)
}
