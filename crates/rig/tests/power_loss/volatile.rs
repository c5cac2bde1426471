//! A file whose writes are lost with the power unless they were flushed: a disk with a cache, by FUSE.
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, UNIX_EPOCH};

use fuser::{
    BackgroundSession, Config, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags,
    Generation, INodeNo, LockOwner, OpenFlags, ReplyAttr, ReplyData, ReplyEmpty, ReplyEntry,
    ReplyOpen, ReplyWrite, Request, Session, WriteFlags,
};

const NAME: &str = "pool";
const FOLDER: INodeNo = INodeNo(1);
const INSIDE: INodeNo = INodeNo(2);
const KEPT: Duration = Duration::from_secs(1);
const BLOCK: usize = 4096;
const BLOCK_LEN: u64 = 4096;

/// What was written since the last flush, by block.
type Cache = BTreeMap<u64, Vec<u8>>;

struct Disk {
    /// What outlives the power.
    below: File,
    size: u64,
    cache: Mutex<Cache>,
    /// The next flush fails, and what it should have made durable is gone.
    fails: AtomicBool,
}

impl Disk {
    fn cache(&self) -> MutexGuard<'_, Cache> {
        self.cache.lock().expect("nobody panics with it")
    }

    fn block(&self, cache: &Cache, number: u64) -> io::Result<Vec<u8>> {
        if let Some(block) = cache.get(&number) {
            return Ok(block.clone());
        }
        let mut block = vec![0; BLOCK];
        self.below.read_exact_at(&mut block, number * BLOCK_LEN)?;
        Ok(block)
    }

    fn read(&self, offset: u64, len: u32) -> io::Result<Vec<u8>> {
        let end = (offset + u64::from(len)).min(self.size);
        let (first, cache) = (offset / BLOCK_LEN, self.cache());
        let mut bytes = Vec::new();
        for number in first..end.div_ceil(BLOCK_LEN) {
            bytes.extend(self.block(&cache, number)?);
        }
        let skip = usize::try_from(offset - first * BLOCK_LEN).map_err(io::Error::other)?;
        let len = usize::try_from(end.saturating_sub(offset)).map_err(io::Error::other)?;
        bytes.drain(..skip.min(bytes.len()));
        bytes.truncate(len);
        Ok(bytes)
    }

    fn write(&self, mut offset: u64, mut data: &[u8]) -> io::Result<()> {
        let mut cache = self.cache();
        while !data.is_empty() {
            let number = offset / BLOCK_LEN;
            let skip = usize::try_from(offset % BLOCK_LEN).map_err(io::Error::other)?;
            let (now, rest) = data.split_at(data.len().min(BLOCK - skip));
            let mut block = self.block(&cache, number)?;
            block[skip..skip + now.len()].copy_from_slice(now);
            cache.insert(number, block);
            (offset, data) = (offset + now.len() as u64, rest);
        }
        Ok(())
    }

    fn flush(&self) -> io::Result<()> {
        let mut cache = self.cache();
        if self.fails.swap(false, Ordering::SeqCst) {
            cache.clear();
            return Err(io::Error::other("the flush was told to fail"));
        }
        while let Some((number, block)) = cache.pop_first() {
            self.below.write_all_at(&block, number * BLOCK_LEN)?;
        }
        Ok(())
    }
}

struct Door(Arc<Disk>);

fn answered(done: io::Result<()>, reply: ReplyEmpty) {
    match done {
        Ok(()) => reply.ok(),
        Err(_) => reply.error(Errno::EIO),
    }
}

impl Door {
    fn attributes(&self, inode: INodeNo) -> FileAttr {
        let (kind, perm, size) = match inode {
            FOLDER => (FileType::Directory, 0o700, 0),
            _ => (FileType::RegularFile, 0o600, self.0.size),
        };
        FileAttr {
            ino: inode,
            size,
            blocks: size / 512,
            atime: UNIX_EPOCH,
            mtime: UNIX_EPOCH,
            ctime: UNIX_EPOCH,
            crtime: UNIX_EPOCH,
            kind,
            perm,
            nlink: 1,
            uid: 0,
            gid: 0,
            rdev: 0,
            blksize: 4096,
            flags: 0,
        }
    }
}

impl Filesystem for Door {
    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        match parent == FOLDER && name == NAME {
            true => reply.entry(&KEPT, &self.attributes(INSIDE), Generation(0)),
            false => reply.error(Errno::ENOENT),
        }
    }

    fn getattr(&self, _: &Request, inode: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        reply.attr(&KEPT, &self.attributes(inode));
    }

    fn open(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        // The kernel keeps nothing: what is not flushed is here.
        reply.opened(FileHandle(0), FopenFlags::FOPEN_DIRECT_IO);
    }

    fn read(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        match self.0.read(offset, size) {
            Ok(bytes) => reply.data(&bytes),
            Err(_) => reply.error(Errno::EIO),
        }
    }

    fn write(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        data: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let written = self
            .0
            .write(offset, data)
            .and_then(|()| u32::try_from(data.len()).map_err(io::Error::other));
        match written {
            Ok(len) => reply.written(len),
            Err(_) => reply.error(Errno::EIO),
        }
    }

    fn fsync(&self, _: &Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        answered(self.0.flush(), reply);
    }

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        reply.ok();
    }
}

/// Such a file in a folder of its own; it is gone with this.
pub struct Volatile {
    disk: Arc<Disk>,
    pub path: PathBuf,
    _session: BackgroundSession,
}

impl Volatile {
    pub fn serve(below: &Path, folder: &Path) -> io::Result<Volatile> {
        fs::create_dir_all(folder)?;
        let file = OpenOptions::new().read(true).write(true).open(below)?;
        let size = file.metadata()?.len();
        let disk = Arc::new(Disk {
            below: file,
            size,
            cache: Mutex::default(),
            fails: AtomicBool::new(false),
        });
        let session = Session::new(Door(Arc::clone(&disk)), folder, &Config::default())?.spawn()?;
        Ok(Volatile { disk, path: folder.join(NAME), _session: session })
    }

    /// The power goes: how many blocks were lost.
    pub fn lose(&self) -> usize {
        std::mem::take(&mut *self.disk.cache()).len()
    }

    /// The next flush fails and loses what was written since the last one. The one behind it succeeds, as
    /// with a kernel that tells an error once.
    pub fn fail_next_flush(&self) {
        self.disk.fails.store(true, Ordering::SeqCst);
    }

    /// Whether the flush that was to fail has come.
    pub fn has_failed(&self) -> bool {
        !self.disk.fails.load(Ordering::SeqCst)
    }
}
