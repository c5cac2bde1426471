//! The pool that the proof works on: small, so that all of it can be read after every crash.
use anyhow::{Context, Result, bail};
use block::{ByteLen, Wait};
use engine::{BlockSize, CreateOptions, Limits, Op, OpenOptions, Pool, Reply, VolumeSpec};

/// Names and block sizes of the volumes: below, at and above the smallest granule.
pub const VOLUMES: [(&str, u64); 3] = [("fine", 512), ("plain", 4096), ("coarse", 16 << 10)];

/// The smallest journal, so that it goes round often.
const JOURNAL: ByteLen = ByteLen(256 << 10);

/// For a pool on a real disk: a checkpoint after some eighty steps, so that crashes meet them.
pub fn limits() -> Limits {
    Limits { overlay_entries: 256, ..Limits::default() }
}

/// Makes a pool with its volumes, all durable, and opens it.
pub fn format<D: Wait>(
    mut disk: D,
    uuid: [u8; 16],
    volume_size: ByteLen,
    limits: Limits,
) -> Result<Pool<D>> {
    let journal = Some(JOURNAL);
    let options = CreateOptions { uuid, journal, ..CreateOptions::default() };
    engine::create(&mut disk, &options).context("the pool could not be made")?;
    let mut pool = open(disk, limits)?;
    for (name, block_size) in VOLUMES {
        let block_size =
            BlockSize::new(block_size).context("a block size of the proof is wrong")?;
        let (name, size) = (name.into(), volume_size);
        let spec = VolumeSpec { name, size, block_size, uid: uuid, ..VolumeSpec::default() };
        match pool.run(Op::Create { spec })? {
            Reply::Created(_) => {}
            other => bail!("creating a volume was answered by {other:?}"),
        }
    }
    // A power cut may come at once, and must not take the volumes.
    pool.run(Op::Flush)?;
    Ok(pool)
}

pub fn open<D: Wait>(disk: D, limits: Limits) -> Result<Pool<D>> {
    Pool::open(disk, OpenOptions::with(limits)).context("the pool could not be opened")
}
