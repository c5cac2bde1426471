//! How full a volume is here, and making it larger.
use std::fs::File;
use std::io::{self, Seek, SeekFrom};
use std::path::Path;

use super::{Claim, HostError, resolved};
use crate::filesystem::{self, Kind};
use crate::mounts::Mount;
use crate::orders::{self, Health, Order};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Figures {
    pub total: u64,
    pub available: u64,
    pub used: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Usage {
    pub bytes: Figures,
    /// `None`: it is a device, or its file system does not count them.
    pub inodes: Option<Figures>,
    /// What is wrong with it on this machine.
    pub trouble: Option<String>,
}

/// Of a device, as the kernel has it.
fn size(device: &Path) -> io::Result<u64> {
    File::open(device)?.seek(SeekFrom::End(0))
}

impl Claim {
    /// Of what is staged or published at this path.
    pub fn usage(&self, at: &Path) -> Result<Usage, HostError> {
        let at = &resolved(at);
        let mounted = self.there(at)?;
        // One that is lost has figures too, and whoever asks for them is to know that it is.
        let (read_only, trouble) = match self.live() {
            Ok((record, status)) => match status.health {
                Health::Up { .. } => (record.read_only, None),
                Health::Away { reason, .. }
                | Health::Denied { reason }
                | Health::Ended { reason } => (record.read_only, Some(reason)),
            },
            Err(error @ HostError::Lost { .. }) => (false, Some(error.to_string())),
            Err(error) => return Err(error),
        };
        if Kind::named(&mounted.kind).is_none() {
            let size = size(at).map_err(HostError::system(at.display().to_string()))?;
            let bytes = Figures { total: size, available: 0, used: size };
            return Ok(Usage { bytes, inodes: None, trouble });
        }
        let figures = rustix::fs::statvfs(at).map_err(std::io::Error::from);
        let of = figures.map_err(HostError::system(at.display().to_string()))?;
        let bytes = Figures {
            total: of.f_blocks * of.f_frsize,
            available: of.f_bavail * of.f_frsize,
            used: of.f_blocks.saturating_sub(of.f_bfree) * of.f_frsize,
        };
        let inodes = (of.f_files > 0).then(|| Figures {
            total: of.f_files,
            available: of.f_favail,
            used: of.f_files.saturating_sub(of.f_ffree),
        });
        let trouble = trouble.or_else(|| {
            let shut = mounted.is_shut && !read_only;
            shut.then(|| "the file system has shut itself for writing after an error".into())
        });
        Ok(Usage { bytes, inodes, trouble })
    }

    fn there(&self, at: &Path) -> Result<Mount, HostError> {
        self.ours_at(at)?.ok_or_else(|| HostError::NotThere { path: at.into() })
    }

    /// The same wherever it is mounted here.
    pub fn expand_mounted(&self) -> Result<u64, HostError> {
        let not_attached = || HostError::NotAttached { uid: self.uid.clone() };
        let mounted = self.mounts()?.into_iter().next().ok_or_else(not_attached)?;
        self.expand(&mounted.at)
    }

    /// The device is as large as the volume is by now, and so is the file system at this path. The device's size.
    pub fn expand(&self, at: &Path) -> Result<u64, HostError> {
        let at = &resolved(at);
        let mounted = self.there(at)?;
        self.live()?;
        let status = orders::tell(&self.folder.orders(), Order::Resize)?;
        if let Some(kind) = Kind::named(&mounted.kind)
            && !mounted.read_only
        {
            filesystem::grow(Path::new(&status.device), at, kind)?;
        }
        Ok(status.size)
    }
}
