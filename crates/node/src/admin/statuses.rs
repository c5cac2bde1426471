//! What a shard shows, as messages.
use block::{IoMode, Position};
use proto::v1;
use replication::membership::{Member, Membership, Voters};
use replication::state::{SnapshotEntry, SnapshotSpec};
use replication::target::{PeerStatus, Progress, Standing};
use replication::words::{NodeId, ReplicaId, SnapshotUid, VolumeUid};

use crate::shard::{PoolStatus, ReplicaStatus, TargetStatus};

pub fn position(at: Position) -> v1::Position {
    v1::Position { term: at.term.0, seq: at.seq.0 }
}

fn volume(name: &str, uid: VolumeUid) -> Option<v1::VolumeRef> {
    Some(v1::VolumeRef { name: name.into(), uid: uid.0.to_vec() })
}

fn member(member: Member) -> v1::Member {
    v1::Member { replica: member.replica.0, incarnation: member.incarnation.0 }
}

fn voters(voters: &Voters) -> v1::Voters {
    let members = voters.members.iter().map(|it| member(*it)).collect();
    v1::Voters { members, rf: u32::from(voters.rf) }
}

pub fn membership(membership: &Membership) -> v1::Membership {
    v1::Membership {
        version: membership.version,
        voters: Some(voters(&membership.voters)),
        next: membership.next.as_ref().map(voters),
    }
}

pub fn new_snapshot(spec: &SnapshotSpec, at: Position) -> v1::Snapshot {
    v1::Snapshot {
        uid: spec.uid.0.to_vec(),
        name: spec.name.clone(),
        created_ms: spec.created,
        position: Some(position(at)),
        clones: Vec::new(),
    }
}

pub fn snapshot(entry: &SnapshotEntry, clones: &[(SnapshotUid, VolumeUid)]) -> v1::Snapshot {
    let own = clones.iter().filter(|(of, _)| *of == entry.uid);
    v1::Snapshot {
        uid: entry.uid.0.to_vec(),
        name: entry.name.clone(),
        created_ms: entry.created,
        position: Some(position(entry.position)),
        clones: own.map(|(_, clone)| clone.0.to_vec()).collect(),
    }
}

/// `id`: the catalog knows it.
pub fn replica(status: &ReplicaStatus, id: Option<ReplicaId>) -> v1::Replica {
    let durable = Position { seq: status.durable, ..status.position };
    v1::Replica {
        volume: volume(&status.name, status.volume),
        replica: id.map_or(0, |id| id.0),
        incarnation: status.incarnation.0,
        pool: status.pool.clone(),
        size: status.size.0,
        block_size: u32::try_from(status.block_size.0).unwrap_or(u32::MAX),
        compression: status.compression.to_string(),
        zvol_workers: u32::try_from(status.workers.unwrap_or(0)).unwrap_or(u32::MAX),
        held: Some(position(status.position)),
        durable: Some(position(durable)),
        promised_term: status.promise.term.0,
        membership_version: status.membership_seen,
        dirty: status.dirty,
        regressed: status.regressed,
        logical: status.logical.0,
        stored: status.stored.0,
        failed: status.failed.clone(),
        membership: (status.membership.version > 0).then(|| membership(&status.membership)),
    }
}

pub fn target(target: &TargetStatus, node: NodeId) -> v1::TargetStatus {
    let status = &target.status;
    v1::TargetStatus {
        volume: volume(&target.name, target.volume),
        node: node.0,
        term: status.term.0,
        serving: status.serving,
        last: Some(position(status.last)),
        committed: status.committed.0,
        settled: status.settled.0,
        size: status.size.0,
        membership: Some(membership(&status.membership)),
        stages: Some(v1::Stages {
            lowest: status.stages.lowest.0,
            last: status.stages.last.0,
            plain_refused: status.stages.plain_refused,
        }),
        peers: status.peers.iter().map(peer).collect(),
        queued: status.queued as u64,
        waiting_for_lease: status.waiting_for_lease,
        rounds: status.rounds,
        holds_broken: status.holds_broken,
        last_hold_us: status.last_hold.map(|hold| hold.0),
        held_because: status.held_because.clone(),
        catalog_lost: status.catalog_lost,
        sessions: target.connections.iter().map(session).collect(),
        up_ms: target.up.0 / 1000,
        without_quorum_ms: target.without_quorum.map(|lost| lost.0 / 1000),
    }
}

fn session(connection: &crate::shard::ConnectionStatus) -> v1::Session {
    v1::Session {
        protocol: match connection.protocol {
            crate::shard::Protocol::Nbd => v1::Protocol::Nbd,
            crate::shard::Protocol::Iscsi => v1::Protocol::Iscsi,
        }
        .into(),
        initiator: connection.initiator.clone(),
        address: connection.address.clone(),
        client: connection.client.0,
        connection: connection.connection.0,
        stage: connection.stage.map(|stage| stage.0),
        up_ms: connection.up.0 / 1000,
        inflight: connection.under_way as u64,
    }
}

pub fn standing(standing: Standing) -> v1::Standing {
    match standing {
        Standing::Healthy => v1::Standing::Healthy,
        Standing::Degraded => v1::Standing::Degraded,
        Standing::Rebuilding => v1::Standing::Rebuilding,
        Standing::NewReplicaDegraded => v1::Standing::NewReplicaDegraded,
        Standing::ReconstructingNewReplica => v1::Standing::ReconstructingNewReplica,
        Standing::Offline => v1::Standing::Offline,
        Standing::Error => v1::Standing::Error,
    }
}

fn peer(peer: &PeerStatus) -> v1::PeerStatus {
    let is_new =
        matches!(peer.standing, Standing::NewReplicaDegraded | Standing::ReconstructingNewReplica);
    v1::PeerStatus {
        member: Some(member(peer.member)),
        standing: standing(peer.standing).into(),
        votes: peer.votes,
        welcomed_at: peer.welcomed_at.map(position),
        regressed: peer.regressed,
        held: peer.held.0,
        durable: peer.durable.0,
        lag: peer.lag.0,
        progress: peer.progress.map(progress),
        reads: peer.reads as u64,
        headroom: peer.headroom.0,
        gives_up: peer.gives_up,
        reason: peer.reason.clone(),
        checkpointed_io_seq: peer.durable.0,
        inflight_read: peer.reads as u64,
        inflight_write: peer.writes,
        inflight_sync: peer.syncs,
        up_ms: peer.up.map_or(0, |up| up.0 / 1000),
        quorum: !is_new,
    }
}

fn progress(progress: Progress) -> v1::Progress {
    v1::Progress {
        brought: progress.brought.0,
        at: progress.at.0,
        of: progress.of.0,
        rate: progress.rate.0,
        left_us: progress.left.map(|left| left.0),
    }
}

pub fn pool(pool: &PoolStatus) -> v1::Pool {
    let state = match pool.failed {
        Some(_) => v1::PoolState::Failed,
        None => v1::PoolState::Open,
    };
    let mode = match pool.mode {
        IoMode::Direct => v1::IoMode::Direct,
        IoMode::Buffered => v1::IoMode::Buffered,
    };
    v1::Pool {
        name: pool.name.clone(),
        path: pool.path.clone(),
        uuid: pool.uuid.to_vec(),
        state: state.into(),
        failed: pool.failed.clone(),
        io_mode: mode.into(),
        size: pool.size.0,
        free: pool.free.0,
        reserved: pool.reserve.0,
        pending: pool.pending.0,
        reclaimable: pool.reclaimable.0,
        sector_size: u32::try_from(pool.sector.bytes()).unwrap_or(u32::MAX),
        format_version: pool.format_version,
        replicas: pool.replicas as u64,
    }
}
