//! What the API speaks: JSON with camelCase names.
//!
//! Sizes are bytes, times are milliseconds since 1970 unless a suffix says otherwise, uids are 32 hex
//! digits. Wherever something is asked for by `id`, both its name and its uid will do.
use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

mod format;

pub use format::{BeginFormat, EndFormat, Format};

/// Keys and values: parameters of a class, or where something is.
pub type Pairs = BTreeMap<String, String>;

/// A part of a list, in the order of names.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Page<T> {
    pub items: Vec<T>,
    /// There are more: ask for those behind this name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Volume {
    pub name: String,
    pub uid: String,
    /// As whoever asked for it called it; the name is made of that.
    pub title: String,
    pub size: u64,
    /// It is growing to this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wanted_size: Option<u64>,
    pub block_size: u32,
    pub compression: String,
    /// How many replicas are kept. 0: that is an operator's own affair.
    pub replicas: u32,
    pub hold_deadline_ms: u64,
    pub zvol_workers: u32,
    pub created_ms: u64,
    /// What it began as.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<Source>,
    #[serde(default)]
    pub parameters: Pairs,
    /// Where it may be used from; none: everywhere.
    #[serde(default)]
    pub accessible: Vec<Pairs>,
    /// Who initiators have to be; the secret is not told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chap_user: Option<String>,
    /// Only hosts that it is attached to may use it.
    pub attached_only: bool,
    #[serde(default)]
    pub attachments: Vec<Attachment>,
    /// A file system is being made, or its making was cut off: nobody has used the volume since.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub format: Option<Format>,
    pub state: State,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<Target>,
    #[serde(default)]
    pub copies: Vec<Copy>,
}

/// How something is, and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct State {
    pub health: Health,
    /// One word for programs, such as `QuorumLost`.
    pub reason: String,
    /// A sentence for people.
    pub message: String,
    pub since_ms: u64,
    /// What happens by itself.
    pub next: String,
    /// What to do; empty: nothing.
    pub advice: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Health {
    /// It does what it is for, with everything that it is to have.
    Healthy,
    /// It works, and something is missing.
    Degraded,
    /// It does not work.
    Offline,
    /// It is being made.
    Pending,
    /// It is on its way out.
    Deleting,
}

/// Who serves a volume, and where.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Target {
    pub node: String,
    pub serving: bool,
    pub iqn: String,
    /// host:port; empty: not offered.
    pub iscsi: String,
    pub nbd: String,
}

/// A replica as the target knows it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Copy {
    pub replica: u64,
    pub node: String,
    pub pool: String,
    /// `Healthy`, `Degraded`, `Rebuilding`, ... as in the replica resource.
    pub mode: String,
    pub votes: bool,
    /// Bytes that it has still to get.
    pub lag: u64,
    /// Of its catching up, from 0 to 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progress: Option<f64>,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Attachment {
    pub host: String,
    /// The name that the host logs in with.
    pub initiator: String,
    pub read_only: bool,
    pub since_ms: u64,
}

/// What a volume begins as. By name or uid when it is asked for; both are told.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", tag = "kind")]
pub enum Source {
    #[serde(rename_all = "camelCase")]
    Snapshot { id: String },
    /// As it is at that moment.
    #[serde(rename_all = "camelCase")]
    Volume { id: String },
}

#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct NewVolume {
    /// Up to 128 bytes. What is no name of ours becomes the title, and a name is made of it.
    pub name: String,
    /// At least so large; rounded up to whole blocks. 0: as its source, or 1 GiB.
    #[serde(default)]
    pub size: u64,
    /// And no larger than this.
    #[serde(default)]
    pub size_limit: Option<u64>,
    #[serde(default)]
    pub block_size: Option<u32>,
    #[serde(default)]
    pub compression: Option<String>,
    #[serde(default)]
    pub replicas: Option<u32>,
    #[serde(default)]
    pub hold_deadline_ms: Option<u64>,
    #[serde(default)]
    pub zvol_workers: Option<u32>,
    /// Names of pools that will do; none: all.
    #[serde(default)]
    pub pools: Vec<String>,
    /// Replicas only on nodes that have all pairs of one of these; none: everywhere.
    #[serde(default)]
    pub accessible: Vec<Pairs>,
    /// And of those rather on these, the first first.
    #[serde(default)]
    pub preferred: Vec<Pairs>,
    /// A key of the topology over whose values replicas are spread.
    #[serde(default)]
    pub spread: Option<String>,
    #[serde(default)]
    pub source: Option<Source>,
    #[serde(default)]
    pub attached_only: bool,
    #[serde(default)]
    pub chap: Option<Credential>,
    /// The group that it enters.
    #[serde(default)]
    pub group: Option<String>,
    /// Kept with it, as they were given.
    #[serde(default)]
    pub parameters: Pairs,
}

/// Names and secrets of CHAP. Never logged, never told.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Credential {
    pub user: String,
    pub secret: String,
    #[serde(default)]
    pub mutual_user: String,
    #[serde(default)]
    pub mutual_secret: String,
}

impl std::fmt::Debug for Credential {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Credential").field("user", &self.user).finish_non_exhaustive()
    }
}

/// Something that is done to a volume by somebody who may have to know its credential.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Proof {
    #[serde(default)]
    pub credential: Option<Credential>,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Resize {
    pub size: u64,
    #[serde(default)]
    pub size_limit: Option<u64>,
    #[serde(default)]
    pub credential: Option<Credential>,
}

/// What can be changed later. What is not said stays.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Modify {
    #[serde(default)]
    pub replicas: Option<u32>,
    #[serde(default)]
    pub hold_deadline_ms: Option<u64>,
    #[serde(default)]
    pub zvol_workers: Option<u32>,
    #[serde(default)]
    pub credential: Option<Credential>,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Attach {
    pub host: String,
    #[serde(default)]
    pub read_only: bool,
    /// Other hosts may have it at the same time.
    #[serde(default)]
    pub shared: bool,
    /// And none but one of them may write.
    #[serde(default)]
    pub single_writer: bool,
    #[serde(default)]
    pub credential: Option<Credential>,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Detach {
    /// Empty: from all of them.
    #[serde(default)]
    pub host: String,
    #[serde(default)]
    pub credential: Option<Credential>,
}

/// A host is about to use a volume, of which it has nothing mounted.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct NewStage {
    /// To which the volume is attached.
    pub host: String,
    /// It only mounts the file system, and lets nobody write to the device. Otherwise the site forgets that a
    /// file system was not finished: it cannot know what is on the volume afterwards.
    #[serde(default)]
    pub mounts: bool,
    #[serde(default)]
    pub credential: Option<Credential>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Stage {
    /// The host names it with the volume whenever it logs in: `<volume>:stage.<number>`.
    pub stage: u64,
}

/// Where the target is to be.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Move {
    pub node: String,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Rollback {
    /// By name or uid; one of this volume.
    pub snapshot: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Snapshot {
    pub name: String,
    pub uid: String,
    pub title: String,
    pub volume: String,
    pub volume_uid: String,
    pub created_ms: u64,
    /// It can be restored from.
    pub ready: bool,
    /// Of the volume at that moment; 0 until it is ready.
    pub size: u64,
    pub block_size: u32,
    /// The group snapshot that it is a part of, by name and uid.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group_snapshot: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group_snapshot_uid: Option<String>,
    #[serde(default)]
    pub parameters: Pairs,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct NewSnapshot {
    pub name: String,
    pub volume: String,
    #[serde(default)]
    pub credential: Option<Credential>,
    #[serde(default)]
    pub parameters: Pairs,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Group {
    pub name: String,
    pub uid: String,
    pub title: String,
    pub created_ms: u64,
    pub members: Vec<Reference>,
    #[serde(default)]
    pub parameters: Pairs,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Reference {
    pub name: String,
    pub uid: String,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct NewGroup {
    pub name: String,
    /// Volumes by name or uid.
    #[serde(default)]
    pub members: Vec<String>,
    #[serde(default)]
    pub parameters: Pairs,
}

/// All members that a group is to have.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Members {
    pub members: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GroupSnapshot {
    pub name: String,
    pub uid: String,
    pub title: String,
    pub created_ms: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// One of each volume, of the same instant.
    pub snapshots: Vec<Snapshot>,
    pub ready: bool,
    /// How long writes waited for it.
    pub hold_us: u64,
    #[serde(default)]
    pub parameters: Pairs,
}

/// Of a group, or of volumes that are named.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct NewGroupSnapshot {
    pub name: String,
    #[serde(default)]
    pub group: Option<String>,
    #[serde(default)]
    pub volumes: Vec<String>,
    #[serde(default)]
    pub credential: Option<Credential>,
    #[serde(default)]
    pub parameters: Pairs,
}

/// What a snapshot has, or what changed since an earlier one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Extents {
    pub extents: Vec<Extent>,
    /// Of the volume at the snapshot.
    pub size: u64,
    /// Where to go on; absent: that was all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Extent {
    pub offset: u64,
    pub len: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Node {
    pub name: String,
    pub id: u64,
    pub state: State,
    pub topology: Pairs,
    pub cordoned: bool,
    pub admin: String,
    pub peers: String,
    pub iscsi: String,
    pub nbd: String,
    pub replicas: u64,
    pub targets: u64,
    /// Volumes that this node knows and that the catalog has lost; at most 64.
    #[serde(default)]
    pub lost_volumes: Vec<String>,
}

/// A machine that uses volumes and is no node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Host {
    pub name: String,
    /// The name that it logs in with.
    pub initiator: String,
    #[serde(default)]
    pub topology: Pairs,
    pub created_ms: u64,
    /// When it last said that it is there.
    pub seen_ms: u64,
    /// Those that are attached to it.
    #[serde(default)]
    pub volumes: Vec<String>,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct NewHost {
    pub name: String,
    /// Where it is; all of it, each time.
    #[serde(default)]
    pub topology: Pairs,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Pool {
    pub node: String,
    pub name: String,
    pub uuid: String,
    pub path: String,
    pub state: State,
    pub size: u64,
    pub free: u64,
    /// A part of `free` that only deletes and discards may use.
    pub reserved: u64,
    pub reclaimable: u64,
    pub replicas: u64,
    pub direct_io: bool,
}

/// Which room is asked for.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CapacityQuery {
    #[serde(default)]
    pub replicas: Option<u32>,
    #[serde(default)]
    pub pools: Vec<String>,
    #[serde(default)]
    pub accessible: Vec<Pairs>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Capacity {
    /// What volumes with so many replicas may take together.
    pub available: u64,
    /// The largest one that can be made.
    pub largest: u64,
    pub smallest: u64,
}

#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "camelCase")]
pub enum Role {
    /// Sees everything but secrets.
    Viewer,
    /// Makes, changes and deletes volumes, snapshots and groups.
    Editor,
    /// Everything: nodes and tokens too.
    Admin,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Token {
    pub name: String,
    pub role: Role,
    pub created_ms: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_ms: Option<u64>,
    /// Told once, when it is made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct NewToken {
    pub name: String,
    pub role: Role,
    #[serde(default)]
    pub lasts_seconds: Option<u64>,
}

/// Who controls the site.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Site {
    pub version: String,
    pub generation: u64,
    pub since_ms: u64,
    pub nodes: u64,
    pub volumes: u64,
    /// It has heard of every node, and can answer for the site.
    pub ready: bool,
}

/// It is done, and there is nothing to tell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Done {}
