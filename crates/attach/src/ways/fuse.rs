//! A file that this process serves, and a loop device of it.
use std::path::{Path, PathBuf};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};
use std::{fs, io};

use fuser::BackgroundSession;

use super::{Attached, WayError};
use crate::link::{Failure, Link, Plan, State, Work};
use crate::orders::Health;
use crate::record::{Folder, Record};
use crate::{fuse, loops, mounts};

/// How long somebody who wants a volume waits until it is reached for the first time.
const REACH_MAX: Duration = Duration::from_secs(20);

pub struct Attachment {
    link: Arc<Link>,
    /// `None`: it is closed.
    session: Option<BackgroundSession>,
    file: PathBuf,
    device: PathBuf,
}

impl Attachment {
    pub fn open(record: &Record, folder: &Folder, plan: Plan) -> Result<Attachment, WayError> {
        let link = Arc::new(Link::open(plan, REACH_MAX)?);
        let failed = |what| move |error| WayError::System { what, error };
        let at = folder.fuse();
        fs::create_dir_all(&at).map_err(failed("the folder of the volume's file"))?;
        let session = fuse::mount(Arc::clone(&link), &at);
        let session = session.map_err(failed("the volume's file cannot be served by FUSE"))?;
        let file = at.join(fuse::FILE);
        let disk = link.disk();
        let device = loops::attach(&file, disk.block, record.read_only || disk.read_only)?;
        Ok(Attachment { link, session: Some(session), file, device })
    }

    fn flush(&self) -> Result<(), WayError> {
        let (done, result) = mpsc::channel();
        let answer = move |flushed: Result<&[u8], Failure>| {
            // Nobody waits any more: whoever asked is gone.
            let _ = done.send(flushed.map(drop));
        };
        self.link.submit(Work::Flush, Box::new(answer));
        result.recv().unwrap_or(Err(Failure::Ended)).map_err(WayError::Unflushed)
    }
}

impl Attached for Attachment {
    fn device(&self) -> &Path {
        &self.device
    }

    fn size(&self) -> u64 {
        self.link.disk().size.0
    }

    fn health(&self) -> Health {
        match self.link.state() {
            State::Up { target } => Health::Up { target },
            State::Away { since, reason } => {
                Health::Away { since_ms: since_ms(since), reason }
            }
            State::Ended { reason } => Health::Ended { reason },
        }
    }

    fn resize(&mut self) -> Result<(), WayError> {
        self.link.refresh()?;
        let failed = |error| WayError::System { what: "the volume's file", error };
        // So that the kernel asks how large the file is before it asks the file for its size.
        fs::metadata(&self.file).map_err(failed)?;
        Ok(loops::resize(&self.device)?)
    }

    fn close(&mut self) -> Result<(), WayError> {
        loops::detach(&self.device)?;
        // An attachment that has ended has nothing that could be flushed, and nothing to wait for.
        let flushed = self.flush();
        if let (Err(error), State::Up { .. } | State::Away { .. }) = (flushed, self.link.state()) {
            return Err(error);
        }
        // Unmounts, and waits until nobody is answered any more.
        drop(self.session.take());
        self.link.stop();
        Ok(())
    }
}

/// When that was, for people.
fn since_ms(since: Instant) -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let then = now.unwrap_or_default().saturating_sub(since.elapsed());
    u64::try_from(then.as_millis()).unwrap_or(u64::MAX)
}

pub fn devices(folder: &Folder) -> Vec<PathBuf> {
    loops::under(&folder.fuse())
}

/// What a process that was killed left.
pub fn clean(folder: &Folder) -> Result<(), WayError> {
    for device in devices(folder) {
        loops::detach(&device)?;
    }
    let at = folder.fuse();
    let failed = |error: io::Error| WayError::System { what: "the volume's file", error };
    while mounts::is_mount_point(&at).map_err(failed)? {
        mounts::unmount_lazily(&at).map_err(failed)?;
    }
    Ok(())
}
