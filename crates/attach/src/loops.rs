//! Loop devices: a file as a block device.
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use block::ByteLen;
use thiserror::Error;

use crate::calls;

const CONTROL: &str = "/dev/loop-control";
/// Somebody else may take a free device before we do; so often in a row it is not chance.
const TRIES: usize = 32;
/// Whoever looks at new devices (udev, for example) closes them within moments.
const LET_GO_MAX: Duration = Duration::from_secs(10);
const LOOK_EVERY: Duration = Duration::from_millis(20);

#[derive(Debug, Error)]
pub enum LoopError {
    #[error("no loop device can be had ({CONTROL}): {0}")]
    None(io::Error),
    #[error("{} cannot be made a device: {error}", file.display())]
    Configure { file: PathBuf, error: io::Error },
    #[error("{} is still used by somebody: close what has it open", device.display())]
    Busy { device: PathBuf },
    #[error("{}: {error}", device.display())]
    Device { device: PathBuf, error: io::Error },
}

/// Whether this kernel has them, otherwise why not.
pub fn there() -> Result<(), LoopError> {
    OpenOptions::new().read(true).write(true).open(CONTROL).map(drop).map_err(LoopError::None)
}

/// Makes a device of a file. `note` is told each device before it is tried: when the mount that the file is in goes
/// away, nobody else can tell any more whose device it was.
pub fn attach(
    file: &Path,
    block: ByteLen,
    read_only: bool,
    note: impl Fn(&Path) -> io::Result<()>,
) -> Result<PathBuf, LoopError> {
    let failed = |error| LoopError::Configure { file: file.to_owned(), error };
    let control = OpenOptions::new().read(true).write(true).open(CONTROL);
    let control = control.map_err(LoopError::None)?;
    let backing = OpenOptions::new()
        .read(true)
        .write(!read_only)
        .custom_flags(libc::O_DIRECT)
        .open(file)
        .map_err(failed)?;
    let mut last = io::ErrorKind::ResourceBusy.into();
    for _ in 0..TRIES {
        let number = calls::free_loop(&control).map_err(LoopError::None)?;
        let path = PathBuf::from(format!("/dev/loop{number}"));
        let device = open(&path, read_only)?;
        note(&path).map_err(failed)?;
        match calls::configure_loop(&device, &backing, block, read_only, &file.to_string_lossy()) {
            Ok(()) => return Ok(path),
            Err(error) if error.kind() == io::ErrorKind::ResourceBusy => last = error,
            Err(error) => return Err(failed(error)),
        }
    }
    Err(failed(last))
}

fn open(path: &Path, read_only: bool) -> Result<File, LoopError> {
    let opened = OpenOptions::new().read(true).write(!read_only).open(path);
    opened.map_err(|error| LoopError::Device { device: path.to_owned(), error })
}

/// Whose file is a part of this folder.
pub fn under(folder: &Path) -> Vec<PathBuf> {
    let Ok(devices) = fs::read_dir("/sys/block") else { return Vec::new() };
    let names = devices.filter_map(|device| device.ok()?.file_name().into_string().ok());
    let devices =
        names.filter(|name| name.starts_with("loop")).map(|name| Path::new("/dev").join(name));
    devices.filter(|device| file_of(device).is_some_and(|file| file.starts_with(folder))).collect()
}

/// What it is a device of, as far as the kernel can tell; `None`: nothing.
fn file_of(device: &Path) -> Option<PathBuf> {
    let name = device.file_name()?.to_string_lossy().into_owned();
    let file = fs::read_to_string(format!("/sys/block/{name}/loop/backing_file")).ok()?;
    Some(PathBuf::from(file.trim_end()))
}

/// Whether the mount that its file was in is gone: it has a name then, and no folder.
pub fn is_lost(device: &Path, name: &str) -> bool {
    file_of(device).is_some_and(|file| file == Path::new("/").join(name))
}

/// Gone when this returns.
pub fn detach(device: &Path) -> Result<(), LoopError> {
    let failed = |error| LoopError::Device { device: device.to_owned(), error };
    match calls::clear_loop(&open(device, true)?) {
        Ok(()) => {}
        // Nothing is attached to it.
        Err(error) if error.raw_os_error() == Some(libc::ENXIO) => return Ok(()),
        Err(error) => return Err(failed(error)),
    }
    let begun = Instant::now();
    while is_attached(device) {
        if begun.elapsed() > LET_GO_MAX {
            return Err(LoopError::Busy { device: device.to_owned() });
        }
        thread::sleep(LOOK_EVERY);
    }
    Ok(())
}

/// Whether it is a device of this file, and not of another one that came later.
pub fn is_on(device: &Path, file: &Path) -> bool {
    file_of(device).is_some_and(|on| on == file)
}

fn is_attached(device: &Path) -> bool {
    let name = device.file_name().unwrap_or_default().to_string_lossy();
    Path::new(&format!("/sys/block/{name}/loop/backing_file")).exists()
}

/// As large as its file by now.
pub fn resize(device: &Path) -> Result<(), LoopError> {
    let failed = |error| LoopError::Device { device: device.to_owned(), error };
    calls::resize_loop(&open(device, false)?).map_err(failed)
}
