//! Makes a ring, as modern as the kernel has it, and enters it.
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::Duration;

use crate::arena::Arena;
use io_uring::types::{SubmitArgs, Timespec};
use io_uring::{IoUring, Probe, opcode, squeue};

/// How completions get from the kernel to the owner's thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Delivery {
    /// When the owner asks, in its own time. Binds the ring to one thread. Linux 6.1.
    Deferred,
    /// At the owner's next system call. Linux 5.19.
    Cooperative,
    /// By interrupting the owner.
    Plain,
}

impl Delivery {
    pub(super) const BEST_FIRST: [Delivery; 3] =
        [Delivery::Deferred, Delivery::Cooperative, Delivery::Plain];
}

pub(super) struct Uring {
    ring: IoUring,
    enabled: bool,
    /// Whether the arena is buffer number 0.
    pub(super) registered: bool,
}

impl Uring {
    /// A ring of the first kind that the kernel knows, with the file as its file number 0.
    ///
    /// Memory of the arena becomes its buffer number 0, where the system allows to pin it.
    pub(super) fn new(
        file: &File,
        depth: u32,
        choice: &[Delivery],
        arena: Option<&Arena>,
    ) -> io::Result<Uring> {
        let mut refusal = io::Error::from_raw_os_error(libc::EINVAL);
        for delivery in choice {
            match build(depth, *delivery) {
                Ok(ring) => {
                    check(&ring)?;
                    ring.submitter().register_files(&[file.as_raw_fd()])?;
                    let enabled = *delivery != Delivery::Deferred;
                    let registered = arena.is_some_and(|arena| {
                        // SAFETY: the caller keeps the arena at least as long as the ring.
                        unsafe { ring.submitter().register_buffers(&[arena.region()]) }.is_ok()
                    });
                    return Ok(Uring { ring, enabled, registered });
                }
                Err(error) if error.raw_os_error() == Some(libc::EINVAL) => refusal = error,
                Err(error) => return Err(error),
            }
        }
        Err(refusal)
    }

    pub(super) fn ring_for_results(&self, bell: &OwnedFd) -> io::Result<()> {
        self.ring.submitter().register_eventfd(bell.as_raw_fd())
    }

    pub(super) fn entries(&self) -> usize {
        self.ring.params().sq_entries() as usize
    }

    /// Entries that the kernel has not taken yet.
    pub(super) fn unsent(&mut self) -> usize {
        self.ring.submission().len()
    }

    /// # Safety
    ///
    /// The memory that the entry names must stay valid, and be nobody else's to write (or, where
    /// the kernel writes to it, to read), until its completion is seen or the ring is gone before
    /// having been entered again.
    pub(super) unsafe fn push(&mut self, entry: &squeue::Entry) -> bool {
        // SAFETY: the caller's promise is the one that is asked for here.
        unsafe { self.ring.submission().push(entry) }.is_ok()
    }

    /// The results that can be seen without entering the kernel.
    pub(super) fn visible(&mut self) -> impl Iterator<Item = (u64, i32)> {
        self.ring.completion().map(|entry| (entry.user_data(), entry.result()))
    }

    /// Whether entering the kernel would bring something to light, or on its way.
    pub(super) fn wants_entering(&mut self) -> bool {
        let queue = self.ring.submission();
        queue.taskrun() || queue.cq_overflow() || !queue.is_empty()
    }

    /// Sends what was pushed, and waits for this many completions, though no longer than that.
    pub(super) fn enter(&mut self, want: usize, at_most: Option<Duration>) -> io::Result<()> {
        if !self.enabled {
            self.ring.submitter().register_enable_rings()?;
            self.enabled = true;
        }
        match at_most {
            None => self.ring.submit_and_wait(want)?,
            Some(at_most) => {
                let time = Timespec::from(at_most);
                let args = SubmitArgs::new().timespec(&time);
                self.ring.submitter().submit_with_args(want, &args)?
            }
        };
        Ok(())
    }

    /// Lets go of the file now: left alone, the kernel does it some time after the ring is closed.
    pub(super) fn release_file(&self) {
        // A failure leaves it to the kernel.
        let _ = self.ring.submitter().unregister_files();
    }
}

fn build(depth: u32, delivery: Delivery) -> io::Result<IoUring> {
    let mut builder = IoUring::builder();
    match delivery {
        // Disabled at first: the thread that enables the ring is the one that it is bound to, and
        // that need not be the one that opens the disk.
        Delivery::Deferred => builder
            .setup_single_issuer()
            .setup_defer_taskrun()
            .setup_taskrun_flag()
            .setup_submit_all()
            .setup_r_disabled(),
        Delivery::Cooperative => {
            builder.setup_coop_taskrun().setup_taskrun_flag().setup_submit_all()
        }
        Delivery::Plain => &mut builder,
    };
    builder.build(depth)
}

/// Kernels before 5.11 lack something of this, and the threads serve them better than a third
/// way of doing things would.
fn check(ring: &IoUring) -> io::Result<()> {
    let unsupported = || io::Error::from_raw_os_error(libc::EOPNOTSUPP);
    let params = ring.params();
    if !params.is_feature_ext_arg() || !params.is_feature_nodrop() {
        return Err(unsupported());
    }
    let mut probe = Probe::new();
    ring.submitter().register_probe(&mut probe)?;
    let needed = [
        opcode::Read::CODE,
        opcode::Write::CODE,
        opcode::Fsync::CODE,
        opcode::Fallocate::CODE,
        opcode::PollAdd::CODE,
    ];
    match needed.into_iter().all(|code| probe.is_supported(code)) {
        true => Ok(()),
        false => Err(unsupported()),
    }
}

impl std::fmt::Debug for Uring {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let entries = self.entries();
        write!(f, "Uring({entries} entries, enabled: {})", self.enabled)
    }
}
