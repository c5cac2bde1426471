//! A block device for a test, where the system lets us have one.
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A loop device, detached with the test.
pub struct Loop(PathBuf);

impl Loop {
    /// `None`, and loudly so, where there is none to be had.
    pub fn attach(backing: &Path) -> Option<Loop> {
        let attached = Command::new("losetup")
            .args(["--direct-io=on", "--show", "--find"])
            .arg(backing)
            .output();
        let reason = match attached {
            Ok(output) if output.status.success() => {
                let path = String::from_utf8_lossy(&output.stdout).trim().into();
                return Some(Loop(path));
            }
            Ok(output) => String::from_utf8_lossy(&output.stderr).trim().to_owned(),
            Err(error) => error.to_string(),
        };
        say(&format!("SKIPPED: no loop device (root is needed): {reason}"));
        None
    }

    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let detached = Command::new("losetup").arg("--detach").arg(&self.0).status();
        if !detached.is_ok_and(|status| status.success()) {
            say(&format!("{} could not be detached", self.0.display()));
        }
    }
}

/// Past libtest, which hides what a passing test prints.
pub fn say(text: &str) {
    // Without a place to say it, the test still has its result.
    let _ = writeln!(std::io::stderr(), "{text}");
}
