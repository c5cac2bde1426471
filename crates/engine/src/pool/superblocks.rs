//! Finding the newest superblock, and making whole what a power cut left of a pair.
use block::{Buf, ByteLen, Wait};

use crate::error::OpenError;
use crate::format::{FORMAT_VERSION, Malformed, SUPERBLOCK_LEN, Superblock, SuperblockProblem};
use crate::limits::{JOURNAL_AT, JOURNAL_BLOCK, JOURNAL_MAX, JOURNAL_MIN, POOL_MIN, SESSION_MAX};
use crate::pool::{OpenOptions, blocking};
use crate::space::Layout;
use crate::units::{Epoch, Extent};

type Found = Result<Superblock, SuperblockProblem>;

/// Both copies of the pair that an epoch lives in.
fn pair<D: Wait>(disk: &mut D, pair: Epoch) -> [Found; 2] {
    let size = disk.geometry().size;
    [0, 1].map(|copy| {
        let at = Layout::superblock(pair, copy);
        if at.0 + SUPERBLOCK_LEN as u64 > size.0 {
            return Err(SuperblockProblem::Foreign);
        }
        // A copy that cannot be read is as bad as one whose checksum fails.
        match blocking::read(disk, at, SUPERBLOCK_LEN) {
            Ok(bytes) => Superblock::decode(&bytes),
            Err(_) => Err(SuperblockProblem::Checksum),
        }
    })
}

/// The newer of two copies.
fn newer(found: [Found; 2]) -> Option<Superblock> {
    found.into_iter().flatten().max_by_key(|superblock| superblock.epoch)
}

/// The newest superblock. At most one copy of a pair is bad after a power cut, so two are damage.
pub fn newest_superblock<D: Wait>(
    disk: &mut D,
    options: &OpenOptions,
) -> Result<Superblock, OpenError> {
    let pairs = [pair(disk, Epoch(0)), pair(disk, Epoch(1))];
    let problems: Vec<&SuperblockProblem> =
        pairs.iter().flatten().filter_map(|found| found.as_ref().err()).collect();
    for problem in &problems {
        if let SuperblockProblem::Version { found } = problem {
            return Err(OpenError::Version { found: *found, known: FORMAT_VERSION });
        }
    }
    if problems.len() == 4 && problems.iter().all(|p| **p == SuperblockProblem::Foreign) {
        return Err(OpenError::NotAPool);
    }
    let ruined = pairs.iter().any(|pair| pair.iter().all(Result::is_err));
    let newest = pairs.into_iter().filter_map(newer).max_by_key(|superblock| superblock.epoch);
    match newest {
        None => Err(OpenError::SuperblockDamaged { other: Epoch(0) }),
        Some(newest) if ruined && !options.has_fault_open_older_epoch() => {
            Err(OpenError::SuperblockDamaged { other: newest.epoch })
        }
        Some(newest) => check_device(disk, newest),
    }
}

/// Which pool is on a device. Nothing is written. Where that cannot be told, nobody opens the pool, whose first
/// flush would tell of one that failed before: so it is asked for here, and is the error then.
pub fn pool_uuid<D: Wait>(disk: &mut D) -> Result<[u8; 16], OpenError> {
    match newest_superblock(disk, &OpenOptions::default()) {
        Ok(superblock) => Ok(superblock.uuid),
        Err(error) => {
            blocking::flush(disk)?;
            Err(error)
        }
    }
}

/// Makes both copies of each pair the same. A pair that was torn once and is torn again would
/// have no good copy left; and an epoch counts only when both of its copies are there.
pub fn mend_superblocks<D: Wait>(disk: &mut D) -> Result<(), OpenError> {
    for epoch in [Epoch(0), Epoch(1)] {
        let found = pair(disk, epoch);
        let Some(good) = newer(found.clone()) else { continue };
        for (copy, found) in (0..).zip(&found) {
            if found.as_ref() == Ok(&good) {
                continue;
            }
            // The good copy may be in the device's cache alone. It must be durable before the
            // other one is touched, or a power cut could tear both.
            blocking::flush(disk)?;
            let mut bytes = Buf::zeroed(SUPERBLOCK_LEN);
            good.encode(&mut bytes);
            blocking::write(disk, Layout::superblock(epoch, copy), bytes.into_data())?;
            blocking::flush(disk)?;
        }
    }
    Ok(())
}

fn check_device<D: Wait>(disk: &D, superblock: Superblock) -> Result<Superblock, OpenError> {
    if let Some(what) = contradiction(&superblock) {
        return Err(Malformed { what, at: 0 }.into());
    }
    let geometry = disk.geometry();
    let needs = ByteLen(superblock.sectors * superblock.sector.bytes());
    if geometry.size < needs {
        return Err(OpenError::Truncated { has: geometry.size, needs });
    }
    let (pool, device) = (superblock.sector.bytes(), geometry.sector.bytes());
    if pool < device {
        return Err(OpenError::Sector { pool, device });
    }
    Ok(superblock)
}

/// Which field cannot be, if any: everything behind relies on these.
fn contradiction(superblock: &Superblock) -> Option<&'static str> {
    let s = superblock;
    let per = |bytes: u64| bytes / s.sector.bytes();
    let journal = (JOURNAL_MIN..=JOURNAL_MAX).contains(&(s.journal_blocks.saturating_mul(4096)));
    if s.sectors >> 48 != 0 || s.sectors < per(POOL_MIN) {
        return Some("size of the pool");
    }
    if !journal || s.journal_at.0 != per(JOURNAL_AT) {
        return Some("place of the journal");
    }
    let behind = s.journal_at.0 + per(s.journal_blocks * JOURNAL_BLOCK as u64);
    let layout = Layout::of(s);
    if s.regions_at.0 != behind || behind >= s.sectors || layout.regions() == 0 {
        return Some("place of the regions");
    }
    let roots = s.space.iter().zip(0..).all(|(root, index)| {
        root.epoch <= s.epoch && root.free <= layout.virgin_free_below(2, index)
    });
    if s.space.len() as u64 != layout.roots() || !roots {
        return Some("space roots");
    }
    if s.epoch.0 >> 38 != 0 || s.session.0 >= SESSION_MAX || s.next_object >> 48 != 0 {
        return Some("epoch, session or volume number");
    }
    if s.replay_from.0 == 0 || s.replay_from.0 >> 60 != 0 || s.durable.0 >> 60 != 0 {
        return Some("start of the journal");
    }
    let holds = |start| layout.holds(Extent { start, sectors: layout.page() });
    match s.directory {
        Some(root) if !root.places.into_iter().all(holds) => Some("place of the directory"),
        Some(_) if !(1..=7).contains(&s.directory_height) => Some("height of the directory"),
        _ if s.reserve > s.sectors => Some("reserve"),
        _ => None,
    }
}
