//! What can be seen of a shard from outside.
use block::{ByteLen, IoMode, Position, SectorSize, Seq};
use engine::Compression;
use replication::client::ConnectionId;
use replication::membership::Membership;
use replication::state::{Promise, SnapshotEntry};
use replication::target::Status;
use replication::words::{ClientId, Incarnation, SnapshotUid, Span, StageNumber, VolumeUid};

use super::Shard;
use super::targets::{TargetRun, User};

#[derive(Clone, Debug)]
pub struct PoolStatus {
    pub name: String,
    pub path: String,
    pub uuid: [u8; 16],
    pub format_version: u32,
    pub sector: SectorSize,
    pub size: ByteLen,
    pub free: ByteLen,
    pub reserve: ByteLen,
    pub pending: ByteLen,
    pub reclaimable: ByteLen,
    pub mode: IoMode,
    pub backend: &'static str,
    pub failed: Option<String>,
    pub counters: engine::Counters,
    pub replicas: usize,
}

#[derive(Clone, Debug)]
pub struct ReplicaStatus {
    pub volume: VolumeUid,
    pub name: String,
    pub pool: String,
    pub incarnation: Incarnation,
    pub position: Position,
    pub durable: Seq,
    pub promise: Promise,
    pub dirty: bool,
    pub regressed: bool,
    pub membership_seen: u64,
    /// The one that it has applied.
    pub membership: Membership,
    pub size: ByteLen,
    pub block_size: ByteLen,
    pub compression: Compression,
    pub workers: Option<usize>,
    pub logical: ByteLen,
    pub stored: ByteLen,
    pub snapshots: Vec<SnapshotEntry>,
    pub links: usize,
    /// Why its pool does not work, if it does not.
    pub failed: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    Nbd,
    Iscsi,
}

/// A front end's connection that is logged in.
#[derive(Clone, Debug)]
pub struct ConnectionStatus {
    pub protocol: Protocol,
    /// As it calls itself; empty where the protocol has no name for it.
    pub initiator: String,
    pub address: String,
    pub client: ClientId,
    pub connection: ConnectionId,
    pub stage: Option<StageNumber>,
    pub up: Span,
    pub under_way: usize,
}

#[derive(Clone, Debug)]
pub struct TargetStatus {
    pub volume: VolumeUid,
    pub name: String,
    pub status: Status,
    pub snapshots: Vec<SnapshotEntry>,
    pub clones: Vec<(SnapshotUid, VolumeUid)>,
    pub connections: Vec<ConnectionStatus>,
    pub up: Span,
    /// How long too few voters have answered for a quorum.
    pub without_quorum: Option<Span>,
}

#[derive(Clone, Debug)]
pub struct ShardStatus {
    pub pools: Vec<PoolStatus>,
    pub replicas: Vec<ReplicaStatus>,
    pub targets: Vec<TargetStatus>,
    pub lines: usize,
}

/// What costs nearly nothing to tell, however many volumes there are.
#[derive(Clone, Debug)]
pub struct Pulse {
    pub pools: Vec<PoolStatus>,
    pub replicas: usize,
    pub targets: usize,
}

impl Shard {
    pub(super) fn pulse(&self) -> Pulse {
        let pools = self.pool_statuses();
        Pulse {
            replicas: pools.iter().map(|pool| pool.replicas).sum(),
            pools,
            targets: self.volumes.iter().filter(|(_, run)| run.target.is_some()).count(),
        }
    }

    fn pool_statuses(&self) -> Vec<PoolStatus> {
        let mut pools: Vec<PoolStatus> = self.pools.iter().map(pool_status).collect();
        for (_, run) in self.volumes.iter() {
            if let Some(replica) = &run.replica {
                pools[replica.pool].replicas += 1;
            }
        }
        pools
    }

    pub(super) fn status(&self) -> ShardStatus {
        ShardStatus {
            pools: self.pool_statuses(),
            replicas: self.replica_statuses(None),
            targets: self.target_statuses(None),
            lines: self.lines.len(),
        }
    }

    /// Of all volumes, or of one.
    pub(super) fn replica_statuses(&self, of: Option<VolumeUid>) -> Vec<ReplicaStatus> {
        let mut all = Vec::new();
        for (_, run) in self.volumes.iter().filter(|(_, run)| of.is_none_or(|of| run.uid == of)) {
            let Some(replica) = &run.replica else { continue };
            let pool = &self.pools[replica.pool];
            let Some(info) = pool.host.info(run.uid) else { continue };
            all.push(ReplicaStatus {
                volume: run.uid,
                name: info.name.clone(),
                pool: pool.place.name.clone(),
                incarnation: replica.machine.incarnation(),
                position: replica.machine.position(),
                durable: replica.machine.durable(),
                promise: replica.machine.promise(),
                dirty: replica.machine.is_dirty(),
                regressed: replica.machine.is_regressed(),
                membership_seen: replica.machine.state().membership_seen,
                membership: replica.machine.state().shared.membership.clone(),
                size: info.size,
                block_size: ByteLen(info.block_size.bytes()),
                compression: info.compression,
                workers: replica.workers.limit(),
                logical: info.logical,
                stored: info.stored,
                snapshots: replica.machine.snapshots().to_vec(),
                links: replica.links.len(),
                failed: pool.host.pool().info().failed,
            });
        }
        all
    }

    /// Of all volumes, or of one.
    pub(super) fn target_statuses(&self, of: Option<VolumeUid>) -> Vec<TargetStatus> {
        let runs = self.volumes.iter().filter(|(_, run)| of.is_none_or(|of| run.uid == of));
        let targets = runs.filter_map(|(_, run)| Some((run.uid, run.target.as_ref()?)));
        targets
            .map(|(volume, target)| TargetStatus {
                volume,
                name: target.record.name.clone(),
                status: target.machine.status(self.now),
                snapshots: target.machine.snapshots().to_vec(),
                clones: target.machine.clones().to_vec(),
                connections: self.connections_of(target),
                up: self.now.since(target.since),
                without_quorum: target.logged.without_quorum.map(|lost| self.now.since(lost)),
            })
            .collect()
    }
}

impl Shard {
    fn connections_of(&self, target: &TargetRun) -> Vec<ConnectionStatus> {
        let connection = |(connection, user): (&ConnectionId, &User)| ConnectionStatus {
            protocol: user.protocol,
            initiator: user.initiator.clone(),
            address: user.address.clone(),
            client: user.login.client,
            connection: *connection,
            stage: user.login.stage,
            up: self.now.since(user.since),
            under_way: user.under_way,
        };
        target.users.iter().map(connection).collect()
    }
}

fn pool_status(pool: &super::pools::PoolRun) -> PoolStatus {
    let info = pool.host.pool().info();
    PoolStatus {
        name: pool.place.name.clone(),
        path: pool.place.path.display().to_string(),
        uuid: info.uuid,
        format_version: info.format_version,
        sector: info.sector,
        size: info.size,
        free: info.free,
        reserve: info.reserve,
        pending: info.pending,
        reclaimable: info.reclaimable,
        mode: info.mode,
        backend: pool.host.pool().disk().backend(),
        failed: info.failed,
        counters: pool.host.pool().counters(),
        replicas: 0,
    }
}
