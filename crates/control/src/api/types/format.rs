//! File systems that hosts make: what is noted of one that has not finished.
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Credential;

/// Making a file system that was begun and has not finished.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Format {
    pub file_system: String,
    /// The host that makes it.
    pub host: String,
    /// The newest stage of the volume, of a host that only mounts it.
    pub stage: u64,
    pub since_ms: u64,
    /// The volume was blank when this was noted, so it may be formatted again.
    pub verified: bool,
}

/// A host is about to make a file system.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct BeginFormat {
    /// To which the volume is attached, for writing.
    pub host: String,
    /// The newest stage of the host.
    pub stage: u64,
    /// ext4, xfs or btrfs.
    pub file_system: String,
    #[serde(default)]
    pub credential: Option<Credential>,
}

/// The file system is made and durable, or the volume is used in another way.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct EndFormat {
    pub host: String,
    /// The newest stage of the host.
    pub stage: u64,
    #[serde(default)]
    pub credential: Option<Credential>,
}
