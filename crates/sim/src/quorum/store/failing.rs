//! Flushes that fail, of a pool in service and of one that is being opened.
//!
//! The machine runs on. What the device had not made durable by then may be gone when the pool is
//! opened again, as the system drops pages that it could not write.
use block::{Position, SectorSize};
use engine::{OpenOptions, Pool};

use super::EnginePool;
use super::engine_pool::{limits, volume_of};
use crate::quorum::clients::VolumeNo;
use crate::{Budget, CrashDisk, Delivery};
use replication::words::VolumeUid;

/// A pool that did not open: its device, and what its copies held before.
pub(super) struct Closed {
    pub(super) disk: CrashDisk,
    pub(super) held: Vec<(VolumeNo, Position)>,
}

/// Flushes of an opening: one before it begins, and those of its checkpoint.
const FLUSHES_OF_OPENING: u64 = 3;

impl EnginePool {
    pub fn is_open(&self) -> bool {
        self.host.is_some()
    }

    /// The next flush that reaches the device fails.
    pub fn fail_next_flush(&mut self) {
        self.host().pool_mut().disk_mut().fail_next_flush();
    }

    /// No flush is to fail any more.
    pub fn spare_flushes(&mut self) {
        if let Some(host) = &mut self.host {
            host.pool_mut().disk_mut().heal();
        }
    }

    /// Whether the engine has given its device up.
    pub fn has_failed(&self) -> bool {
        self.host.as_ref().is_some_and(|host| host.pool().info().failed.is_some())
    }

    /// The failures that the pool itself tells of.
    pub fn marked_failures(&self) -> u64 {
        self.host.as_ref().map_or(0, |host| host.pool().info().failures)
    }

    /// The process is killed, and a flush fails while the next one opens the pool. False: it opened
    /// with fewer flushes than that, and is in service.
    pub fn kill_and_fail_opening(&mut self) -> bool {
        let Some(Closed { disk, held }) = self.give_up() else { return false };
        let disk = disk.after_kill(self.rng.next_u64());
        !self.try_opening(disk, held)
    }

    /// Opens the pool after a failure, on what the device kept. False: a flush failed once more.
    /// Tells which copies lost something.
    pub fn open_after_failure(&mut self) -> Option<Vec<VolumeNo>> {
        let Some(Closed { disk, held }) = self.give_up() else { return Some(Vec::new()) };
        let disk = self.after_power_cut(&disk);
        if self.rng.chance(1, 5) && !self.try_opening(disk.after_kill(0), held.clone()) {
            return None;
        }
        if !self.is_open() {
            self.reopen(disk);
        }
        Some(self.lost_since(&held))
    }

    /// Takes the device from the process that had it, or that could not open it.
    pub(super) fn give_up(&mut self) -> Option<Closed> {
        if let Some(closed) = self.closed.take() {
            return Some(closed);
        }
        let held = self.replicas().map(|info| (volume_of(VolumeUid(info.uid)), info.held));
        let held = held.collect();
        let disk = self.host.take()?.into_pool().abandon();
        Some(Closed { disk, held })
    }

    /// What a device has behind the loss of some of what it did not make durable.
    pub(super) fn after_power_cut(&mut self, disk: &CrashDisk) -> CrashDisk {
        let tear = *self.rng.pick(&[SectorSize::B512, SectorSize::B4096]);
        let nothing = disk.outstanding().is_empty();
        let samples = if nothing { 1 } else { 1 + self.rng.below(8) };
        let budget = Budget { every_up_to: 0, combinations: 0, samples };
        let image = disk.crash_images(tear, budget, &mut self.rng).last().expect("at least one");
        CrashDisk::from_image(image, self.rng.next_u64()).with_delivery(Delivery::Random)
    }

    pub(super) fn lost_since(&self, held: &[(VolumeNo, Position)]) -> Vec<VolumeNo> {
        let lost = held.iter().filter(|(volume, held)| self.held(*volume) < Some(*held));
        lost.map(|(volume, _)| *volume).collect()
    }

    /// Opens the pool while one flush of the opening fails, if it has that many. A process whose
    /// pool did not open ends.
    fn try_opening(&mut self, mut disk: CrashDisk, held: Vec<(VolumeNo, Position)>) -> bool {
        let nth = self.rng.below(FLUSHES_OF_OPENING);
        disk.fail_flush_at(disk.counters().flushes + nth);
        let opened = match Pool::open(&mut disk, OpenOptions::with(limits())) {
            Ok(pool) => {
                pool.abandon();
                true
            }
            Err(error) if error.device_failed() => false,
            Err(error) => panic!("a pool does not open: {error}"),
        };
        let disk = disk.after_kill(self.rng.next_u64());
        match opened {
            true => self.reopen(disk),
            false => self.closed = Some(Closed { disk, held }),
        }
        opened
    }
}
