//! A file that this process serves, and a loop device of it.
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::{fs, io};

use fuser::BackgroundSession;

use super::{Attached, WayError, linked, tell_device, told_device, unused};
use crate::link::{Link, Plan};
use crate::orders::Health;
use crate::record::{Folder, Record};
use crate::{fuse, loops, mounts};

pub struct Attachment {
    link: Arc<Link>,
    folder: Folder,
    /// `None`: it is closed.
    session: Option<BackgroundSession>,
    file: PathBuf,
    device: PathBuf,
}

impl Attachment {
    pub fn open(record: &Record, folder: &Folder, plan: Plan) -> Result<Attachment, WayError> {
        let link = Arc::new(Link::open(plan, linked::REACH_MAX)?);
        let failed = |what| move |error| WayError::System { what, error };
        let at = folder.fuse();
        // Never the folder above: if that is gone, so is this attachment.
        match fs::create_dir(&at) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                return Err(failed("the folder of the volume's file")(error));
            }
            _ => {}
        }
        let session = fuse::mount(Arc::clone(&link), &at);
        let session = session.map_err(failed("the volume's file cannot be served by FUSE"))?;
        let file = at.join(fuse::FILE);
        let disk = link.disk();
        let read_only = record.read_only || disk.read_only;
        let note = |device: &Path| tell_device(folder, device);
        let device = loops::attach(&file, disk.block, read_only, note)?;
        Ok(Attachment { link, folder: folder.clone(), session: Some(session), file, device })
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
        match loops::is_on(&self.device, &self.file) {
            true => linked::health(&self.link),
            // Its number may be somebody else's by now.
            false => Health::Ended { reason: "the loop device is gone".into() },
        }
    }

    fn failed_writes(&self) -> Option<u64> {
        Some(self.link.failed_writes())
    }

    fn resize(&mut self) -> Result<(), WayError> {
        self.link.refresh()?;
        let failed = |error| WayError::System { what: "the volume's file", error };
        // So that the kernel asks how large the file is before it asks the file for its size.
        fs::metadata(&self.file).map_err(failed)?;
        match loops::is_on(&self.device, &self.file) {
            true => Ok(loops::resize(&self.device)?),
            false => Err(WayError::Gone { device: self.device.clone() }),
        }
    }

    fn close(&mut self) -> Result<(), WayError> {
        // The device goes last: whatever fails before leaves everything as it was.
        let is_on = loops::is_on(&self.device, &self.file);
        let alone = is_on.then(|| unused(&self.device)).transpose()?;
        linked::write_back(&self.link, &self.folder, &self.device, is_on)?;
        drop(alone);
        if is_on {
            loops::detach(&self.device)?;
        }
        // Unmounts, and waits until nobody is answered any more.
        drop(self.session.take());
        self.link.stop();
        Ok(())
    }

    fn abandon(&mut self) {
        self.link.stop();
    }
}

/// Also one whose file cannot be found any more: the note of it was made before it was one.
pub fn devices(folder: &Folder) -> Vec<PathBuf> {
    let mut found = loops::under(&folder.fuse());
    let noted = told_device(folder).filter(|device| loops::is_lost(device, fuse::FILE));
    found.extend(noted.filter(|device| !found.contains(device)));
    found
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
