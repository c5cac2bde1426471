//! A volume and a snapshot as the site would tell of them, for tests.
use std::collections::HashMap;

use proto::csi::VolumeCapability;
use proto::csi::volume_capability::access_mode::Mode;
use proto::csi::volume_capability::{AccessMode, AccessType, BlockVolume, MountVolume};

use crate::api::types::{GroupSnapshot, Health, Pairs, Snapshot, State, Target, Volume};

pub const VOLUME: &str = "00000000000000000000000000000a01";
pub const OTHER: &str = "00000000000000000000000000000a02";
pub const SNAPSHOT: &str = "00000000000000000000000000000b01";
pub const LATER: &str = "00000000000000000000000000000b02";
pub const GROUP: &str = "00000000000000000000000000000c01";

pub fn state(health: Health) -> State {
    State {
        health,
        reason: "ReplicaAway".into(),
        message: "The replica on node-2 is away.".into(),
        since_ms: 1,
        next: "It is replaced in 10 minutes.".into(),
        advice: String::new(),
    }
}

pub fn volume() -> Volume {
    Volume {
        name: "pvc-1".into(),
        uid: VOLUME.into(),
        title: "pvc-1".into(),
        size: 1 << 30,
        wanted_size: None,
        block_size: 4096,
        compression: "off".into(),
        replicas: 3,
        hold_deadline_ms: 60_000,
        zvol_workers: 0,
        created_ms: 1_700_000_000_123,
        source: None,
        parameters: Pairs::new(),
        accessible: Vec::new(),
        chap_user: None,
        attached_only: true,
        attachments: Vec::new(),
        format: None,
        state: state(Health::Healthy),
        target: Some(Target {
            node: "node-1".into(),
            serving: true,
            iqn: "iqn.2024-01.io.pollux:pvc-1".into(),
            iscsi: "10.0.0.1:3260".into(),
            nbd: String::new(),
        }),
        copies: Vec::new(),
    }
}

pub fn snapshot() -> Snapshot {
    Snapshot {
        name: "s-1".into(),
        uid: SNAPSHOT.into(),
        title: "s-1".into(),
        volume: "pvc-1".into(),
        volume_uid: VOLUME.into(),
        created_ms: 1_700_000_000_123,
        ready: true,
        size: 1 << 20,
        block_size: 4096,
        group_snapshot: None,
        group_snapshot_uid: None,
        parameters: Pairs::new(),
    }
}

pub fn group_snapshot() -> GroupSnapshot {
    let later = Snapshot { uid: LATER.into(), volume_uid: OTHER.into(), ..snapshot() };
    GroupSnapshot {
        name: "g-1".into(),
        uid: GROUP.into(),
        title: "g-1".into(),
        created_ms: 1_700_000_000_123,
        group: None,
        snapshots: vec![snapshot(), later],
        ready: true,
        hold_us: 900,
        parameters: Pairs::new(),
    }
}

pub fn block(mode: Mode) -> VolumeCapability {
    let access_type = Some(AccessType::Block(BlockVolume {}));
    VolumeCapability { access_type, access_mode: Some(AccessMode { mode: mode.into() }) }
}

pub fn mount(mode: Mode) -> VolumeCapability {
    let access_type = Some(AccessType::Mount(MountVolume::default()));
    VolumeCapability { access_type, access_mode: Some(AccessMode { mode: mode.into() }) }
}

/// As messages of gRPC have them.
pub fn map(of: &[(&str, &str)]) -> HashMap<String, String> {
    of.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

/// A name and a password that fit.
pub fn secrets() -> HashMap<String, String> {
    map(&[
        ("node.session.auth.username", "ann"),
        ("node.session.auth.password", "open sesame open"),
    ])
}
