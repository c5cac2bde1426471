//! One writer, or any number of readers: the lock that processes hold against each other.
//!
//! It is an "open file description" lock. Unlike flock it does not meet udev, which briefly takes
//! a flock on a device whenever somebody closed it; unlike plain POSIX locks it also holds within
//! a process, and is not lost when any other descriptor of the file is closed.
//!
//! It is on the very file that does the IO. The kernel keeps that file, and so the lock, until the
//! last IO is over, even after a process was killed: a successor cannot be overtaken by writes of
//! its predecessor. The price is that the lock of a killed process outlives it by a moment.
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

/// What the holder will do with the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    Shared,
    Exclusive,
}

/// Whether the lock was to be had.
pub(crate) fn take(file: &File, access: Access) -> io::Result<bool> {
    let kind = match access {
        Access::Shared => libc::F_RDLCK,
        Access::Exclusive => libc::F_WRLCK,
    };
    match set(file, kind) {
        Ok(()) => Ok(true),
        Err(error) => match error.raw_os_error() {
            Some(libc::EAGAIN | libc::EACCES) => Ok(false),
            _ => Err(error),
        },
    }
}

/// Closing the file would do it too, but not at once where a child between fork and exec has a
/// copy of the descriptor, or a ring of another thread still knows the file.
pub(crate) fn release(file: &File) {
    // There is nobody to tell of a failure, and the close follows anyway.
    let _ = set(file, libc::F_UNLCK);
}

fn set(file: &File, kind: libc::c_int) -> io::Result<()> {
    let narrow = |value| libc::c_short::try_from(value).expect("lock constants are small");
    let whole_file = libc::flock {
        l_type: narrow(kind),
        l_whence: narrow(libc::SEEK_SET),
        l_start: 0,
        l_len: 0,
        l_pid: 0,
    };
    // SAFETY: the descriptor is open for as long as `file` is borrowed, and the kernel only reads
    // the structure, which outlives the call.
    match unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &raw const whole_file) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}
