//! A volume as one file: what a loop device is made of where the kernel has no other way.
//!
//! The file is as large as the volume. Reads and writes, flushes, and holes that are punched go to the target as
//! they come; nothing is kept here, neither data nor promises. Answers come from the threads of the link.
use std::ffi::OsStr;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, UNIX_EPOCH};

use block::{ByteLen, ByteOffset};
use fuser::{
    BackgroundSession, Config, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags,
    Generation, INodeNo, InitFlags, KernelConfig, LockOwner, MountOption, OpenFlags, ReplyAttr,
    ReplyData, ReplyEmpty, ReplyEntry, ReplyOpen, ReplyWrite, Request, Session, SessionACL,
    WriteFlags,
};

use crate::link::{Failure, Link, Work};

/// The name of the file within its folder.
pub const FILE: &str = "volume";

const FOLDER_INODE: INodeNo = INodeNo(1);
const FILE_INODE: INodeNo = INodeNo(2);
/// The kernel asks anew every time: the volume may have grown.
const KEPT: Duration = Duration::ZERO;
/// The largest write; also the largest that the kernel makes of a loop device's requests.
const WRITE_MAX: u32 = 1 << 20;
/// Requests that may be under way: what a loop device has at the most.
const UNDER_WAY: u16 = 128;
/// As much as one request of NBD can say, in whole blocks of any size.
const PIECE_MAX: u64 = 1 << 31;
const MODE: u16 = 0o600;

struct VolumeFile {
    link: Arc<Link>,
}

/// Mounts it; the file can be opened when this returns. It is unmounted when the session is dropped.
pub fn mount(link: Arc<Link>, folder: &Path) -> io::Result<BackgroundSession> {
    let mut config = Config::default();
    config.mount_options = vec![
        MountOption::FSName("pollux".into()),
        MountOption::Subtype("pollux".into()),
        MountOption::NoDev,
        MountOption::NoSuid,
        MountOption::NoExec,
    ];
    config.acl = SessionACL::Owner;
    Session::new(VolumeFile { link }, folder, &config)?.spawn()
}

impl VolumeFile {
    fn attributes(&self, inode: INodeNo) -> FileAttr {
        let (kind, perm, size) = match inode {
            FOLDER_INODE => (FileType::Directory, 0o700, 0),
            _ => (FileType::RegularFile, MODE, self.link.disk().size.0),
        };
        FileAttr {
            ino: inode,
            size,
            blocks: size.div_ceil(512),
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

    /// All pieces of a range; answered with the last of them. They are all handed in here: answers come on the
    /// thread that receives, and that must never send.
    fn pieces(&self, at: u64, len: u64, make: fn(ByteOffset, ByteLen) -> Work, done: ReplyEmpty) {
        if len == 0 {
            return done.ok();
        }
        let count = len.div_ceil(PIECE_MAX);
        let left = Arc::new(Mutex::new(Left { count, failure: None, done: Some(done) }));
        for piece in 0..count {
            let from = piece * PIECE_MAX;
            let work = make(ByteOffset(at + from), ByteLen(PIECE_MAX.min(len - from)));
            let left = Arc::clone(&left);
            let answer = move |result: Result<&[u8], Failure>| Left::answered(&left, result.err());
            self.link.submit(work, Box::new(answer));
        }
    }
}

/// Pieces without an answer.
struct Left {
    count: u64,
    failure: Option<Failure>,
    done: Option<ReplyEmpty>,
}

impl Left {
    fn answered(this: &Mutex<Left>, failure: Option<Failure>) {
        let mut left = this.lock().unwrap_or_else(PoisonError::into_inner);
        left.count -= 1;
        left.failure = left.failure.or(failure);
        if left.count > 0 {
            return;
        }
        match (left.done.take(), left.failure) {
            (Some(done), None) => done.ok(),
            (Some(done), Some(failure)) => done.error(errno(failure)),
            (None, _) => unreachable!("the last piece is answered once"),
        }
    }
}

fn errno(failure: Failure) -> Errno {
    Errno::from_i32(failure.errno())
}

impl Filesystem for VolumeFile {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        // A kernel without them is slower, and no less right.
        let wanted = [InitFlags::FUSE_ASYNC_DIO, InitFlags::FUSE_PARALLEL_DIROPS];
        for flag in wanted {
            let _ = config.add_capabilities(flag);
        }
        // Each answers with what it can be at the most if that is less.
        let _ = config.set_max_write(WRITE_MAX).or_else(|most| config.set_max_write(most));
        let _ = config.set_max_background(UNDER_WAY);
        Ok(())
    }

    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        match parent == FOLDER_INODE && name == FILE {
            true => reply.entry(&KEPT, &self.attributes(FILE_INODE), Generation(0)),
            false => reply.error(Errno::ENOENT),
        }
    }

    fn getattr(&self, _: &Request, inode: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        reply.attr(&KEPT, &self.attributes(inode));
    }

    fn open(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        // Without a cache: what is written is the target's when it is acknowledged.
        let how = FopenFlags::FOPEN_DIRECT_IO | FopenFlags::FOPEN_PARALLEL_DIRECT_WRITES;
        // This process has the file open itself: if it is killed, its end must not wait for its own answer.
        reply.opened(FileHandle(0), how | FopenFlags::FOPEN_NOFLUSH);
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
        let end = self.link.disk().size.0;
        let len = u64::from(size).min(end.saturating_sub(offset));
        if len == 0 {
            return reply.data(&[]);
        }
        let answer = move |result: Result<&[u8], Failure>| match result {
            Ok(data) => reply.data(data),
            Err(failure) => reply.error(errno(failure)),
        };
        self.link
            .submit(Work::Read { at: ByteOffset(offset), len: ByteLen(len) }, Box::new(answer));
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
        let Ok(len) = u32::try_from(data.len()) else { return reply.error(Errno::EINVAL) };
        let answer = move |result: Result<&[u8], Failure>| match result {
            Ok(_) => reply.written(len),
            Err(failure) => reply.error(errno(failure)),
        };
        let work = Work::Write { at: ByteOffset(offset), data: data.to_vec() };
        self.link.submit(work, Box::new(answer));
    }

    /// Of closing a file: nothing is promised by that.
    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        reply.ok();
    }

    fn fsync(&self, _: &Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        let answer = move |result: Result<&[u8], Failure>| match result {
            Ok(_) => reply.ok(),
            Err(failure) => reply.error(errno(failure)),
        };
        self.link.submit(Work::Flush, Box::new(answer));
    }

    fn fallocate(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        let keep = libc::FALLOC_FL_KEEP_SIZE;
        if mode == libc::FALLOC_FL_PUNCH_HOLE | keep {
            let make = |at, len| Work::Discard { at, len };
            self.pieces(offset, length, make, reply);
        } else if mode | keep == libc::FALLOC_FL_ZERO_RANGE | keep {
            let make = |at, len| Work::Zero { at, len };
            self.pieces(offset, length, make, reply);
        } else {
            reply.error(Errno::EOPNOTSUPP);
        }
    }
}
