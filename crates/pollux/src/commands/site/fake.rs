//! Objects for tests.
use control::api::types::{Copy, Health, State, Target, Volume};

pub fn state(health: Health) -> State {
    State {
        health,
        reason: "Because".into(),
        message: "this is how it is".into(),
        since_ms: 1_700_000_000_000,
        next: "it goes on".into(),
        advice: "wait".into(),
    }
}

pub fn volume(name: &str, health: Health) -> Volume {
    Volume {
        name: name.into(),
        uid: "00".repeat(16),
        title: name.into(),
        size: 1 << 30,
        wanted_size: None,
        block_size: 4096,
        compression: "off".into(),
        replicas: 3,
        hold_deadline_ms: 60_000,
        zvol_workers: 0,
        created_ms: 1_700_000_000_000,
        source: None,
        parameters: [].into(),
        accessible: Vec::new(),
        chap_user: None,
        attached_only: false,
        attachments: Vec::new(),
        format: None,
        state: state(health),
        target: Some(Target {
            node: "node-1".into(),
            serving: true,
            iqn: format!("iqn.2026-11.io.pollux:{name}"),
            iscsi: "127.0.0.1:3261".into(),
            nbd: "127.0.0.1:10801".into(),
        }),
        copies: ["node-1", "node-2", "node-3"].map(|node| copy(node, "Healthy", None)).into(),
    }
}

pub fn copy(node: &str, mode: &str, progress: Option<f64>) -> Copy {
    Copy {
        replica: 1,
        node: node.into(),
        pool: "main".into(),
        mode: mode.into(),
        votes: mode == "Healthy",
        lag: if mode == "Healthy" { 0 } else { 3 << 20 },
        progress,
        reason: String::new(),
    }
}
