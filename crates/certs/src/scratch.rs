//! A folder for a test, which goes with it.
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use crate::{Authority, Name, Validity};

pub const DAY: Duration = Duration::from_secs(24 * 60 * 60);

pub struct Scratch(PathBuf);

impl Scratch {
    pub fn new() -> Scratch {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("pollux-certs-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        fs::create_dir(&path).expect("a folder for the test");
        Scratch(path)
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    /// The folder of a participant whom an authority of its own has certified.
    pub fn issued(&self, name: &Name) -> PathBuf {
        issue(&authority(), name, self.path())
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

pub fn authority() -> Authority {
    Authority::make(Validity::of_authority(SystemTime::now())).expect("an authority")
}

pub fn issue(authority: &Authority, name: &Name, folder: &Path) -> PathBuf {
    let valid = Validity::of_certificate(SystemTime::now());
    let issued = authority.issue(name, &["10.0.0.7".into()], valid).expect("a certificate");
    issued.write(folder).expect("it can be written")
}

/// A validity that ended some days ago.
pub fn expired() -> Validity {
    let now = SystemTime::now();
    Validity { from: now - 10 * DAY, until: now - 5 * DAY }
}
