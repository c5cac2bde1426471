//! What the caller may choose about an open disk.
use block::ByteLen;

/// The most IOs that a ring takes at once.
pub const DEPTH_MAX: u32 = 32_768;

const DEPTH_DEFAULT: u32 = 128;

/// Enough for a full ring of 128 KiB each. It is pinned, so it counts as used from the start.
const REGISTERED_DEFAULT: ByteLen = ByteLen(16 << 20);

/// Who does the IO.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Backend {
    /// Calls for a file in memory; else io_uring, or threads where the system refuses it.
    #[default]
    Auto,
    /// io_uring, or an error.
    Ring,
    Threads,
    /// The owner itself, which waits meanwhile.
    Calls,
}

/// Whether IO goes past the page cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Direct {
    /// Wherever the file system allows it.
    #[default]
    Auto,
    Never,
}

#[derive(Clone, Debug)]
pub struct OpenOptions {
    pub backend: Backend,
    /// Writes and trims are refused, and other readers may open the disk too.
    pub read_only: bool,
    /// The IOs that may be in the kernel at once; more than that wait in a queue. Only for rings.
    pub depth: u32,
    /// Makes a regular file of this size, which must not exist yet.
    pub create: Option<ByteLen>,
    /// Whether such a file takes its space only as it is used. Otherwise all of it is taken at once, where
    /// the file system can do that.
    pub sparse: bool,
    pub direct: Direct,
    /// Memory that is lent for IO, and registered with the ring where there is one. Zero for none;
    /// where the system refuses to register it, there is none either.
    pub registered: ByteLen,
}

impl Default for OpenOptions {
    fn default() -> OpenOptions {
        OpenOptions {
            backend: Backend::Auto,
            read_only: false,
            depth: DEPTH_DEFAULT,
            create: None,
            sparse: false,
            direct: Direct::Auto,
            registered: REGISTERED_DEFAULT,
        }
    }
}
