//! Pools that fill up: on one node the volume goes on without it, and the reason is shown; on two
//! writes are refused, nothing that was acknowledged is lost, and discards bring it back.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on says so by its line")]
use std::ops::Range;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use proto::v1::{Standing, TargetStatus};
use rig::links::Network;
use rig::load::block::{self, Found, Version};
use rig::nbd::{ENOSPC, Nbd, NbdError};
use rig::operator::Operator;
use rig::site::{MIB, Rig, node_name};

const VOLUME: &str = "full";
const BLOCK: usize = 65536;
const SMALL: u64 = 96 * MIB;
const LARGE: u64 = 512 * MIB;
const BLOCKS: u64 = 192 * MIB / BLOCK as u64;
const PATIENCE: Duration = Duration::from_secs(60);

/// A volume that is larger than a small pool, and what was acknowledged of it.
struct Filling {
    operator: Operator,
    nbd: Nbd,
    sure: Vec<Version>,
    // Last: the rest speaks with its processes.
    _rig: Rig,
}

#[test]
fn one_full_pool_costs_a_replica() {
    let mut filling = Filling::start("full_one", &[LARGE, LARGE, SMALL]).unwrap();
    filling.one().unwrap();
}

#[test]
fn two_full_pools_refuse_writes_until_there_is_room() {
    let mut filling = Filling::start("full_two", &[LARGE, SMALL, SMALL]).unwrap();
    filling.two().unwrap();
}

/// Protects from a volume that stops for good: no pool has room for discards below a snapshot, and
/// what would help waits behind them.
#[test]
fn three_full_pools_below_a_snapshot_are_emptied_by_deleting_it() {
    let mut filling = Filling::start("full_three", &[SMALL, SMALL, SMALL]).unwrap();
    filling.three().unwrap();
}

impl Filling {
    fn start(name: &str, pools: &[u64]) -> Result<Filling> {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        let rig = Rig::start(&folder, pools, Network::loopback())?;
        let operator = rig.operator()?;
        operator.create(VOLUME, BLOCKS * BLOCK as u64, u32::try_from(BLOCK)?, &[1, 2, 3])?;
        let at = (rig.finder(VOLUME)?)().context("it is served")?;
        let nbd = Nbd::connect(at, VOLUME, Box::new(|| true))?;
        let sure = vec![Version(0); usize::try_from(BLOCKS)?];
        Ok(Filling { operator, nbd, sure, _rig: rig })
    }

    fn one(&mut self) -> Result<()> {
        let refused = self.fill(Version(1))?;
        ensure!(refused.is_none(), "block {refused:?} was refused, and two pools have room");
        self.verify()?;
        self.shown(3)?;
        // What is left fits into the small pool, but not beside what that still has.
        self.discard(0..BLOCKS * 3 / 4)?;
        self.empty(3)?;
        let took = self.operator.wait_healthy(VOLUME, 3, PATIENCE)?;
        println!("healthy {took:.1?} after it came back as new");
        self.verify()
    }

    /// What an operator does with a replica that gave up: its content goes, and it comes anew.
    fn empty(&self, node: u64) -> Result<()> {
        let name = node_name(node);
        let gave_up = |status: &TargetStatus| {
            let mut others = status.peers.iter().filter(|peer| !peer.votes);
            others.any(|peer| peer.member.is_some_and(|member| member.replica == node))
        };
        self.operator.wait_for(VOLUME, "the vote to be given up", PATIENCE, gave_up)?;
        self.operator.ask_within(PATIENCE, async |site| site.renew_replica(VOLUME, &name).await)
    }

    fn two(&mut self) -> Result<()> {
        let refused =
            self.fill(Version(1))?.context("two pools were filled, and nobody said so")?;
        println!("block {refused} was refused");
        ensure!(refused * BLOCK as u64 > SMALL / 2, "refused while half of the pools was free");
        self.verify()?;
        self.discard(0..BLOCKS * 7 / 8)?;
        self.verify()?;
        let took = self.operator.wait_healthy(VOLUME, 3, PATIENCE)?;
        println!("healthy {took:.1?} after there was room");
        for number in 0..refused / 2 {
            self.write(number, Version(2)).with_context(|| format!("block {number}, with room"))?;
        }
        self.verify()
    }

    fn three(&mut self) -> Result<()> {
        // One block in each of many leaves of the map, all of them in the snapshot.
        let spread: Vec<u64> = (0..BLOCKS).step_by(8).collect();
        for number in &spread {
            self.write(*number, Version(1))?;
        }
        let uid = self.operator.snapshot(VOLUME, "kept")?.uid;
        let refused = self.fill(Version(2))?.context("all pools were filled, and none said so")?;
        println!("block {refused} was refused");
        let mut trims = 0;
        for number in (0..BLOCKS).rev() {
            match self.nbd.trim(number * BLOCK as u64, BLOCK) {
                Ok(()) => self.sure[usize::try_from(number)?] = Version(0),
                Err(NbdError::Errno(ENOSPC)) => trims += 1,
                Err(error) => return Err(error).with_context(|| format!("trim of {number}")),
            }
            if trims > 3 {
                break;
            }
        }
        println!("{trims} discards below the snapshot were refused");
        ensure!(trims > 0, "all discards below a snapshot found room in full pools");
        self.nbd.flush()?;
        self.verify()?;
        let gone =
            async |site: &control::steps::Site| site.delete_snapshot(VOLUME, uid.clone()).await;
        self.operator.ask_within(PATIENCE, gone)?;
        // Replicas hear of it with the next renewal; until then discards still cost something.
        let begun = Instant::now();
        while let Err(error) = self.nbd.trim(0, BLOCK) {
            ensure!(matches!(error, NbdError::Errno(ENOSPC)) && begun.elapsed() < PATIENCE, error);
            std::thread::sleep(Duration::from_millis(50));
        }
        println!("discards free space {:.1?} after the snapshot was deleted", begun.elapsed());
        self.discard(0..BLOCKS)?;
        for number in 0..refused / 2 {
            self.write(number, Version(3)).with_context(|| format!("block {number}, with room"))?;
        }
        self.verify()?;
        self.operator.wait_healthy(VOLUME, 3, PATIENCE)?;
        Ok(())
    }

    /// Writes from the first block on; the one that was refused for want of space.
    fn fill(&mut self, version: Version) -> Result<Option<u64>> {
        for number in 0..BLOCKS {
            match self.write(number, version) {
                Ok(()) => {}
                Err(NbdError::Errno(ENOSPC)) => return Ok(Some(number)),
                Err(error) => return Err(error).with_context(|| format!("block {number}")),
            }
        }
        Ok(None)
    }

    fn write(&mut self, number: u64, version: Version) -> Result<(), NbdError> {
        let mut bytes = vec![0; BLOCK];
        block::write(block::tag(VOLUME), number, version, &mut bytes);
        self.nbd.write(number * BLOCK as u64, &bytes, number.is_multiple_of(64))?;
        self.sure[usize::try_from(number).expect("it is an index")] = version;
        Ok(())
    }

    fn discard(&mut self, blocks: Range<u64>) -> Result<()> {
        for number in blocks {
            self.nbd.zeroes(number * BLOCK as u64, BLOCK)?;
            self.sure[usize::try_from(number)?] = Version(0);
        }
        Ok(self.nbd.flush()?)
    }

    fn verify(&mut self) -> Result<()> {
        let mut bytes = vec![0; BLOCK];
        for (number, version) in (0..).zip(&self.sure) {
            self.nbd.read(number * BLOCK as u64, &mut bytes)?;
            let found = block::read(block::tag(VOLUME), number, &bytes);
            let is_it = match found {
                Found::Zeroes => *version == Version(0),
                Found::Written(found) => found == *version,
                Found::Garbage { .. } => false,
            };
            ensure!(is_it, "block {number}: {found:?}, and {version:?} was acknowledged");
        }
        Ok(())
    }

    /// The replica without room is not healthy, and its status says why.
    fn shown(&self, replica: u64) -> Result<()> {
        let is_shown = |status: &TargetStatus| {
            let is_it = |peer: &&proto::v1::PeerStatus| {
                peer.member.is_some_and(|member| member.replica == replica)
            };
            status.peers.iter().find(is_it).is_some_and(|peer| {
                peer.standing() != Standing::Healthy
                    && peer.reason.as_ref().is_some_and(|reason| reason.contains("space"))
            })
        };
        self.operator.wait_for(VOLUME, "the reason to be shown", PATIENCE, is_shown)?;
        let status = self.operator.target(VOLUME)?;
        for peer in &status.peers {
            println!(
                "{:?} {:?} votes {} {:?}",
                peer.member,
                peer.standing(),
                peer.votes,
                peer.reason
            );
        }
        Ok(())
    }
}
