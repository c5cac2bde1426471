//! The pools of a shard, and what their disks finished.
use std::collections::VecDeque;
use std::io;
use std::os::fd::AsRawFd;
use std::path::PathBuf;

use block::Buf;
use disk::FileDisk;
use engine::Pool;
use frontend::ask::Buffers;
use mio::unix::SourceFd;
use mio::{Interest, Token};
use replication::replica::Event;
use replication::store::{StoreError, StoreOp, StoreReply, StoreTag};
use replication::words::{Incarnation, Powered, VolumeUid};
use tracing::error;

use super::orders::{Refusal, Report};
use super::volumes::VolumeNo;
use super::{POOLS_FROM, Shard};
use crate::store::Host;

/// Tags from here on belong to the shard; below are the replicas' own.
const OWN_TAGS: u64 = 1 << 63;

/// A pool that a node is to serve.
#[derive(Clone, Debug)]
pub struct PoolPlace {
    pub name: String,
    pub path: PathBuf,
    /// Kernel and device, to tell whether a restart may have lost something.
    pub powered: Powered,
}

pub struct PoolRun {
    pub place: PoolPlace,
    pub host: Host<FileDisk>,
    /// It was told to the log that it has failed.
    mourned: bool,
    /// Something was asked of it since it was polled, or it is time to look.
    pub asked: bool,
    /// Answers since the last tick: a pool without any is idle.
    busy: bool,
    /// Creations, deletions and a question under way, by tag.
    pub own: Vec<(StoreTag, OwnWork)>,
    /// Questions that wait for their turn.
    pub looks: VecDeque<super::extents::Asked>,
}

impl PoolRun {
    /// Its disk has finished something for which nobody rings.
    pub fn is_ready(&self) -> bool {
        self.host.pool().disk().is_ready()
    }

    /// Its disk may finish something at any moment.
    pub fn is_waiting(&self) -> bool {
        self.host.pool().disk().is_waiting()
    }

    /// Whether polling it can bring anything.
    fn may_move(&self) -> bool {
        self.asked || self.is_ready() || self.is_waiting() || self.host.has_more()
    }
}

/// What the shard itself asked of a pool.
pub enum OwnWork {
    Create(super::replicas::Creation),
    /// What was created becomes durable, by this call or by an earlier one; then it is answered.
    Settle(super::orders::Answer<Incarnation>, Result<Incarnation, Refusal>),
    Delete(super::replicas::Deletion),
    Look(super::extents::Asked),
}

/// Memory for payloads, of the pool that they will be written to where there is one.
pub struct Payloads<'a>(pub Option<&'a mut Host<FileDisk>>);

impl Buffers for Payloads<'_> {
    fn take(&mut self, len: usize) -> Buf {
        match &mut self.0 {
            Some(host) => host.pool_mut().buffer(len),
            None => Buf::zeroed(len),
        }
    }
}

impl Shard {
    /// Takes a pool over. It must have been opened on the thread that runs the shard, since its
    /// ring is bound to that.
    pub fn add_pool(&mut self, place: PoolPlace, pool: Pool<FileDisk>) -> io::Result<()> {
        let number = self.pools.len();
        let mut host = Host::new(pool);
        let fd = host.pool_mut().disk_mut().bell()?.as_raw_fd();
        let token = Token(POOLS_FROM + number);
        self.poll.registry().register(&mut SourceFd(&fd), token, Interest::READABLE)?;
        let volumes = host.volumes();
        self.pools.push(PoolRun {
            place,
            host,
            mourned: false,
            asked: true,
            busy: false,
            own: Vec::new(),
            looks: VecDeque::new(),
        });
        for volume in volumes {
            self.open_replica(number, volume);
        }
        Ok(())
    }

    pub(super) fn own_tag(&mut self) -> StoreTag {
        StoreTag(OWN_TAGS | self.numbers.next())
    }

    pub(super) fn submit(&mut self, pool: usize, volume: VolumeUid, tag: StoreTag, op: StoreOp) {
        self.pools[pool].asked = true;
        self.pools[pool].host.submit(volume, tag, op);
    }

    /// Gives what the pools finished to the replicas; whether there was anything.
    pub(super) fn poll_pools(&mut self) -> bool {
        let mut any = false;
        for number in 0..self.pools.len() {
            if !self.pools[number].may_move() {
                continue;
            }
            self.pools[number].asked = false;
            let answers = self.pools[number].host.poll();
            // Before anything is told of what the pool answered.
            self.look_for_failure(number);
            if answers.is_empty() {
                continue;
            }
            any = true;
            self.pools[number].busy = true;
            for (uid, tag, result) in answers {
                self.stored(number, uid, tag, result);
            }
        }
        any
    }

    fn stored(
        &mut self,
        pool: usize,
        uid: VolumeUid,
        tag: StoreTag,
        result: Result<StoreReply, StoreError>,
    ) {
        if tag.0 >= OWN_TAGS {
            return self.own_work_done(pool, uid, tag, result);
        }
        let Some(number) = self.volumes.known(uid) else { return };
        let Some(replica) = self.volumes.replica(number) else { return };
        replica.answered();
        replica.events.push(Event::Stored { tag, result });
        self.submit_waiting(number);
        self.volumes.wake(number);
    }

    fn own_work_done(
        &mut self,
        pool: usize,
        uid: VolumeUid,
        tag: StoreTag,
        result: Result<StoreReply, StoreError>,
    ) {
        let own = &mut self.pools[pool].own;
        let Some(at) = own.iter().position(|(of, _)| *of == tag) else { return };
        match own.swap_remove(at).1 {
            OwnWork::Create(creation) => self.created(pool, uid, creation, result.map(drop)),
            OwnWork::Settle(answer, made) => {
                answer(result.map_err(Refusal::Store).and(made));
            }
            OwnWork::Delete(deletion) => self.deleted(pool, deletion, result.map(drop)),
            OwnWork::Look(asked) => self.looked(pool, asked, result),
        }
    }

    pub(super) fn tick_pools(&mut self) {
        for number in 0..self.pools.len() {
            let pool = &mut self.pools[number];
            pool.asked = true;
            if !std::mem::take(&mut pool.busy) {
                pool.host.pool_mut().idle();
            }
            self.look_for_failure(number);
        }
    }

    /// A pool that has failed is reported once, and the report has been noted when this returns.
    fn look_for_failure(&mut self, number: usize) {
        let pool = &mut self.pools[number];
        let Some(reason) = pool.host.pool().failed() else { return };
        if !std::mem::replace(&mut pool.mourned, true) {
            (self.report)(Report::PoolFailed { uuid: pool.host.pool().info().uuid });
            error!(pool = pool.place.name, %reason, "the pool has failed; its replicas are out");
        }
    }

    /// The pool in which payloads of a volume should lie.
    pub(super) fn payload_pool(&self, volume: Option<VolumeNo>) -> Option<usize> {
        let own = volume.and_then(|number| self.volumes.get(number).replica.as_ref());
        own.map(|replica| replica.pool).or((!self.pools.is_empty()).then_some(0))
    }
}

impl Shard {
    /// Closes all pools, which makes everything durable; one that cannot be closed does not keep the
    /// others from it. The loop must have ended.
    pub fn close_pools(&mut self) -> Result<(), engine::CheckpointError> {
        self.lines.clear();
        let mut closed = Ok(());
        for pool in self.pools.drain(..) {
            let (uuid, reported) = (pool.host.pool().info().uuid, pool.mourned);
            if let Err(error) = pool.host.into_pool().close() {
                if !reported {
                    (self.report)(Report::PoolFailed { uuid });
                    error!(pool = pool.place.name, %error, "the pool failed while it was closed");
                }
                closed = closed.and(Err(error));
            }
        }
        closed
    }
}
