//! From a path to a disk: kind, lock, creation, shape, backend.
use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;

use block::{ByteLen, Geometry, IoMode, SectorSize};
use rustix::fs::{Advice, FallocateFlags};
use rustix::io::Errno;

use crate::calls::{CallDisk, is_in_memory};
use crate::error::OpenError;
use crate::lock::{self, Access};
use crate::options::{Backend, DEPTH_MAX, OpenOptions};
use crate::probe::settle;
use crate::ring::RingDisk;
use crate::target::{Kind, Target, size_of, whole_sectors};
use crate::threads::ThreadDisk;
use crate::{Driver, FileDisk};

/// Opens a regular file or a block device, alone among processes unless for reading only.
pub fn open(path: impl AsRef<Path>, options: &OpenOptions) -> Result<FileDisk, OpenError> {
    let path = path.as_ref();
    check(path, options)?;
    match options.create {
        Some(size) => create(path, size, options),
        None => {
            let kind = look(path)?;
            let file = open_existing(path, kind, options.read_only)?;
            lock(path, &file, options)?;
            finish(path, file, options)
        }
    }
}

fn create(path: &Path, size: ByteLen, options: &OpenOptions) -> Result<FileDisk, OpenError> {
    let file = open_new(path)?;
    let created = Created(path);
    if let Err(error) = lock(path, &file, options) {
        // Somebody found the file before it was locked: it is theirs now, and stays.
        if matches!(error, OpenError::InUse { .. }) {
            created.keep();
        }
        return Err(error);
    }
    make_lasting(path, &file, size, options.sparse)?;
    let disk = finish(path, file, options)?;
    created.keep();
    Ok(disk)
}

fn check(path: &Path, options: &OpenOptions) -> Result<(), OpenError> {
    let depth = options.depth;
    if !(1..=DEPTH_MAX).contains(&depth) {
        return Err(OpenError::Depth { depth });
    }
    match options.create {
        Some(size) if size.0 == 0 || !size.0.is_multiple_of(SectorSize::B4096.bytes()) => {
            Err(OpenError::CreateSize { path: path.into(), size })
        }
        Some(_) if options.read_only => Err(OpenError::CreateReadOnly { path: path.into() }),
        _ => Ok(()),
    }
}

/// Looks before opening: only opening a fifo or a tape can already block or move something.
fn look(path: &Path) -> Result<Kind, OpenError> {
    kind_of(path, &std::fs::metadata(path).map_err(refused(path))?)
}

fn kind_of(path: &Path, metadata: &Metadata) -> Result<Kind, OpenError> {
    let found = match metadata.file_type() {
        kind if kind.is_file() => return Ok(Kind::File),
        kind if kind.is_block_device() => return Ok(Kind::Device),
        kind if kind.is_dir() => "directory",
        kind if kind.is_fifo() => "fifo",
        kind if kind.is_socket() => "socket",
        kind if kind.is_char_device() => "character device",
        _ => "file of an unknown kind",
    };
    Err(OpenError::WrongKind { path: path.into(), found })
}

fn refused(path: &Path) -> impl FnOnce(io::Error) -> OpenError {
    move |error| {
        let path = path.to_path_buf();
        match error.kind() {
            io::ErrorKind::NotFound => OpenError::NotFound { path },
            io::ErrorKind::PermissionDenied => OpenError::Denied { path },
            io::ErrorKind::AlreadyExists => OpenError::Exists { path },
            io::ErrorKind::ResourceBusy => OpenError::InUse { path },
            _ => OpenError::system(&path, "open")(error),
        }
    }
}

fn open_existing(path: &Path, kind: Kind, read_only: bool) -> Result<File, OpenError> {
    // Without O_CREAT, O_EXCL claims a block device: it fails on a mounted one, and nobody can
    // mount it while we live.
    let claim = match kind {
        Kind::Device if !read_only => libc::O_EXCL,
        _ => 0,
    };
    // Should the path name a fifo by now, O_NONBLOCK keeps us from hanging; it is gone when the
    // mode of IO is set.
    File::options()
        .read(true)
        .write(!read_only)
        .custom_flags(claim | libc::O_NONBLOCK | libc::O_NOCTTY)
        .open(path)
        .map_err(refused(path))
}

fn open_new(path: &Path) -> Result<File, OpenError> {
    File::options()
        .read(true)
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)
        .map_err(refused(path))
}

/// A file that goes away again unless everything after its creation succeeds.
struct Created<'a>(&'a Path);

impl Created<'_> {
    fn keep(self) {
        std::mem::forget(self);
    }
}

impl Drop for Created<'_> {
    fn drop(&mut self) {
        // The caller hears of the failure that led here; a second one would only hide it.
        let _ = std::fs::remove_file(self.0);
    }
}

fn lock(path: &Path, file: &File, options: &OpenOptions) -> Result<(), OpenError> {
    let access = if options.read_only { Access::Shared } else { Access::Exclusive };
    match lock::take(file, access).map_err(OpenError::system(path, "lock"))? {
        true => Ok(()),
        false => Err(OpenError::InUse { path: path.into() }),
    }
}

/// Gives a new file its size, and sees to it that a power failure does not take the file away:
/// later flushes cover its content only, not its name.
fn make_lasting(path: &Path, file: &File, size: ByteLen, sparse: bool) -> Result<(), OpenError> {
    file.set_len(size.0).map_err(OpenError::system(path, "set the size of"))?;
    if !sparse {
        allocate(path, file, size)?;
    }
    file.sync_all().map_err(OpenError::system(path, "sync"))?;
    let directory = match path.parent() {
        Some(parent) if parent != Path::new("") => parent,
        _ => Path::new("."),
    };
    File::open(directory)
        .and_then(|directory| directory.sync_all())
        .map_err(OpenError::system(path, "sync the directory of"))
}

/// Takes space for all of a file. One whose file system cannot do that stays sparse.
pub fn allocate(path: &Path, file: &File, size: ByteLen) -> Result<(), OpenError> {
    let has = file.metadata().map_err(OpenError::system(path, "stat"))?.blocks() * 512;
    let below = rustix::fs::fstatvfs(file).map_err(OpenError::system(path, "ask the space of"))?;
    // Some file systems take all that is left before they notice that it is not enough.
    if size.0.saturating_sub(has) > below.f_bfree.saturating_mul(below.f_frsize) {
        return Err(OpenError::NoSpace { path: path.into(), size });
    }
    match rustix::fs::fallocate(file, FallocateFlags::KEEP_SIZE, 0, size.0) {
        Ok(()) | Err(Errno::OPNOTSUPP | Errno::NOSYS) => Ok(()),
        Err(Errno::NOSPC | Errno::DQUOT) => Err(OpenError::NoSpace { path: path.into(), size }),
        Err(error) => Err(OpenError::system(path, "take space for")(error)),
    }
}

fn finish(path: &Path, file: File, options: &OpenOptions) -> Result<FileDisk, OpenError> {
    finish_with(path, file, options, &PageCache { flush: &flush, drop: &drop_cache })
}

/// What the system does with the page cache of a file; tests have another one.
struct PageCache<'a> {
    flush: &'a dyn Fn(&File) -> Option<i32>,
    drop: &'a dyn Fn(&File) -> rustix::io::Result<()>,
}

fn finish_with(
    path: &Path,
    file: File,
    options: &OpenOptions,
    cache: &PageCache,
) -> Result<FileDisk, OpenError> {
    let mut driver = set_up(path, file, options)?;
    let target = driver.target_mut();
    // One who only reads has nowhere to note that a flush failed, and must not use up that it did.
    if target.known.mode == IoMode::Buffered && !target.read_only {
        flush_cache(path, target, cache)?;
    }
    Ok(FileDisk(driver))
}

/// Everything that can fail, before the flush whose failure is told once. Nothing of the content is used yet.
fn set_up(path: &Path, file: File, options: &OpenOptions) -> Result<Driver, OpenError> {
    let metadata = file.metadata().map_err(OpenError::system(path, "stat"))?;
    let kind = kind_of(path, &metadata)?;
    let units = settle(path, &file, kind, options.direct)?;
    let size = size_of(&file, kind).map_err(OpenError::system(path, "ask the size of"))?;
    let target = Target {
        file: Arc::new(file),
        kind,
        read_only: options.read_only,
        sparse: kind == Kind::File && metadata.blocks() * 512 < metadata.len(),
        lost: None,
        known: Geometry {
            size: whole_sectors(size, units.sector),
            sector: units.sector,
            physical_sector: units.physical_sector,
            mode: units.mode,
        },
    };
    if target.known.size == ByteLen(0) {
        return Err(OpenError::TooSmall { path: path.into(), size });
    }
    start(path, target, options)
}

/// What an earlier process wrote may be in memory only, and reads would not tell. After this, they come from the
/// device.
///
/// The system tells of a flush that failed once, so no error may come between it and the owner: the disk opens, and
/// its first flush tells what was lost. What could not be dropped is then no matter, since that failure is final.
fn flush_cache(path: &Path, target: &mut Target, cache: &PageCache) -> Result<(), OpenError> {
    target.lost = (cache.flush)(&target.file);
    match (cache.drop)(&target.file) {
        Err(error) if target.lost.is_none() => {
            Err(OpenError::system(path, "drop the cache of")(error))
        }
        _ => Ok(()),
    }
}

/// An error of the flush is returned as its number: it is kept for the first flush of the owner, who has to note
/// that the device failed.
fn flush(file: &File) -> Option<i32> {
    rustix::fs::fdatasync(file).err().map(Errno::raw_os_error)
}

fn drop_cache(file: &File) -> rustix::io::Result<()> {
    rustix::fs::fadvise(file, 0, None, Advice::DontNeed)
}

fn start(path: &Path, target: Target, options: &OpenOptions) -> Result<Driver, OpenError> {
    let threads = |target| {
        ThreadDisk::new(target)
            .map(Driver::Threads)
            .map_err(OpenError::system(path, "start threads for"))
    };
    let calls = |target| {
        CallDisk::new(target, options.registered)
            .map(Driver::Calls)
            .map_err(OpenError::system(path, "make a bell for"))
    };
    match options.backend {
        Backend::Threads => threads(target),
        Backend::Calls => calls(target),
        // A device's node lies in memory as well; what it stands for does not.
        Backend::Auto if target.kind == Kind::File && is_in_memory(&target.file) => calls(target),
        Backend::Ring => RingDisk::new(target, options.depth, options.registered)
            .map(|disk| Driver::Ring(Box::new(disk)))
            .map_err(|(_, source)| OpenError::NoRing { source }),
        Backend::Auto => match RingDisk::new(target, options.depth, options.registered) {
            Ok(disk) => Ok(Driver::Ring(Box::new(disk))),
            Err((target, _)) => threads(target),
        },
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use block::{Disk, DiskErrorKind};

    use super::*;
    use crate::options::Direct;
    use crate::tests::{Scratch, perform};

    /// A page cache that lost something, and tells it to the first flush only.
    struct Lossy {
        untold: Cell<Option<i32>>,
        refuses_to_drop: bool,
    }

    impl Lossy {
        fn open(&self, path: &Path, options: &OpenOptions) -> Result<FileDisk, OpenError> {
            let flush = |_: &File| self.untold.take();
            let drop = |_: &File| match self.refuses_to_drop {
                true => Err(Errno::IO),
                false => Ok(()),
            };
            let file = open_existing(path, Kind::File, options.read_only)?;
            lock(path, &file, options)?;
            finish_with(path, file, options, &PageCache { flush: &flush, drop: &drop })
        }
    }

    fn lossy() -> Lossy {
        Lossy { untold: Cell::new(Some(libc::EIO)), refuses_to_drop: false }
    }

    fn buffered(backend: Backend) -> OpenOptions {
        OpenOptions { direct: Direct::Never, backend, ..OpenOptions::default() }
    }

    fn assert_tells_the_loss(disk: &mut FileDisk) {
        assert_eq!(disk.geometry().mode, IoMode::Buffered);
        let error = perform(disk, block::Io::Flush).expect_err("something was lost");
        assert_eq!(error.kind, DiskErrorKind::System(libc::EIO));
        assert!(perform(disk, block::Io::Flush).is_ok(), "once");
    }

    /// The kernel reports a lost write once. Protects from an opening that hears it, fails for another reason, and
    /// leaves nothing for the next one.
    #[test]
    fn an_opening_that_fails_leaves_the_report_of_a_lost_write_to_the_next_one() {
        for backend in [Backend::Threads, Backend::Calls] {
            let (scratch, cache) = (Scratch::file(100), lossy());
            let error = cache.open(scratch.path(), &buffered(backend)).expect_err("too small");
            assert!(matches!(error, OpenError::TooSmall { .. }), "{error}");
            scratch.set_len(1 << 20);
            // No ring has a depth of zero, and `open` is not there to refuse it.
            let no_ring = OpenOptions { depth: 0, ..buffered(Backend::Ring) };
            let error = cache.open(scratch.path(), &no_ring).expect_err("no such ring");
            assert!(matches!(error, OpenError::NoRing { .. }), "{error}");
            let mut disk = cache.open(scratch.path(), &buffered(backend)).expect("it opens now");
            assert_tells_the_loss(&mut disk);
        }
    }

    /// Protects from a loss that is forgotten because the step after it failed too.
    #[test]
    fn a_lost_write_is_told_also_if_the_page_cache_cannot_be_dropped() {
        let scratch = Scratch::file(1 << 20);
        let cache = Lossy { refuses_to_drop: true, ..lossy() };
        let options = buffered(Backend::Threads);
        let mut disk = cache.open(scratch.path(), &options).expect("it opens, to tell the loss");
        assert_tells_the_loss(&mut disk);
        drop(disk);
        // With nothing to tell, that reads would not come from the device is an error of its own.
        let error = cache.open(scratch.path(), &options).expect_err("the cache is still there");
        assert!(error.to_string().starts_with("cannot drop the cache of"), "{error}");
    }

    /// Protects from reading, or losing, what is not on the device: flushed first, then dropped.
    #[test]
    fn a_buffered_disk_is_flushed_before_its_page_cache_is_dropped() {
        let scratch = Scratch::file(1 << 20);
        let flushed = Cell::new(false);
        let flush = |_: &File| {
            flushed.set(true);
            None
        };
        let drop = |_: &File| {
            assert!(flushed.get(), "what is not flushed yet would be lost");
            Ok(())
        };
        let file = open_existing(scratch.path(), Kind::File, false).unwrap();
        let cache = PageCache { flush: &flush, drop: &drop };
        finish_with(scratch.path(), file, &buffered(Backend::Threads), &cache).unwrap();
        assert!(flushed.get());
    }
}
