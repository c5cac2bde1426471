//! Parameters of classes: one table of their names, values and meanings, from which they are read and
//! which the documentation shows.
//!
//! Keys are taken as they are written, capitals included. What is not in the table is refused by name, but
//! for the keys that Kubernetes adds of its own accord: those are kept and not looked into.
mod read;
#[cfg(test)]
mod tests;

use thiserror::Error;

use crate::api::types::Pairs;

/// Keys of Kubernetes begin with this: the claim's name, where secrets are, and so on.
pub const KUBERNETES: &str = "csi.storage.k8s.io/";
/// The file system of volumes that are mounted.
pub const FS_TYPE: &str = "csi.storage.k8s.io/fstype";
/// File systems that nodes make; the first unless another is asked for.
pub const FS_TYPES: [&str; 3] = ["ext4", "xfs", "btrfs"];
/// What a refusal repeats of a text that somebody sent.
const SHOWN_MAX: usize = 64;

/// A row of the table.
#[derive(Debug)]
pub struct Parameter {
    pub name: &'static str,
    /// As it would be written; empty: none.
    pub default: &'static str,
    pub values: &'static str,
    /// Can be changed while the volume exists.
    pub mutable: bool,
    pub meaning: &'static str,
    /// Puts a value into the class; nothing if it is none of `values`.
    read: fn(&mut Class, &str) -> Option<()>,
}

pub const TABLE: [Parameter; 9] = [
    Parameter {
        name: "replicas",
        default: "3",
        values: "1 to 7",
        mutable: true,
        meaning: "how many replicas are kept, each in a pool of another node",
        read: |class, text| read::number(text, 1, 7).map(|it| class.replicas = Some(it)),
    },
    Parameter {
        name: "blockSize",
        default: "4Ki",
        values: "a power of two from 512 to 128Ki, in bytes or with K, Ki or KiB",
        mutable: false,
        meaning: "the least that can be written to the volume",
        read: |class, text| read::block_size(text).map(|it| class.block_size = Some(it)),
    },
    Parameter {
        name: "compression",
        default: "off",
        values: "off, on, lz4, gzip, gzip-1 to gzip-9, zle, lzjb",
        mutable: false,
        meaning: "how data is made smaller before it is stored; on is lz4, gzip is gzip-6",
        read: |class, text| read::compression(text).map(|it| class.compression = Some(it)),
    },
    Parameter {
        name: "pools",
        default: "",
        values: "names with commas between them",
        mutable: false,
        meaning: "pools that replicas may be in; all unless given",
        read: |class, text| read::names(text).map(|them| class.pools = them),
    },
    Parameter {
        name: "spread",
        default: "",
        values: "a key of the topology",
        mutable: false,
        meaning: "replicas are spread over the values of this key",
        read: |class, text| read::word(text).map(|it| class.spread = Some(it)),
    },
    Parameter {
        name: "holdDeadline",
        default: "60s",
        values: "a number with ms, s, m or h, up to 24h",
        mutable: true,
        meaning: "how long IO waits for a quorum before it fails",
        read: |class, text| read::duration_ms(text).map(|it| class.hold_deadline_ms = Some(it)),
    },
    Parameter {
        name: "zvolWorkers",
        default: "0",
        values: "0 to 1024",
        mutable: true,
        meaning: "concurrent operations of a replica; 0: as many as its pool takes",
        read: |class, text| read::number(text, 0, 1024).map(|it| class.zvol_workers = Some(it)),
    },
    Parameter {
        name: "group",
        default: "",
        values: "the name of a volume group",
        mutable: false,
        meaning: "the group that the volume enters",
        read: |class, text| read::word(text).map(|it| class.group = Some(it)),
    },
    Parameter {
        name: FS_TYPE,
        default: "ext4",
        values: "ext4, xfs, btrfs",
        mutable: false,
        meaning: "the file system of volumes that are mounted",
        read: |class, text| read::fs_type(text).map(|it| class.fs_type = Some(it)),
    },
];

/// Why parameters are refused; asking again does not help.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ParameterError {
    #[error("there is no parameter `{name}`{}; there are: {}", did_you_mean(*near), names(|_| true))]
    Unknown { name: String, near: Option<&'static str> },
    #[error("parameter `{name}`: `{value}` is not possible; use {values}")]
    Value { name: &'static str, value: String, values: &'static str },
    #[error(
        "parameter `{name}` is fixed when a volume is made; these can be changed: {}",
        names(|row| row.mutable)
    )]
    Fixed { name: String },
    #[error("parameter `{name}`: snapshots have none but those of Kubernetes, `{KUBERNETES}*`")]
    OfSnapshot { name: String },
}

/// What a class asks for. What it does not say is not here.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Class {
    pub replicas: Option<u32>,
    pub block_size: Option<u32>,
    pub compression: Option<String>,
    pub pools: Vec<String>,
    pub spread: Option<String>,
    pub hold_deadline_ms: Option<u64>,
    pub zvol_workers: Option<u32>,
    pub group: Option<String>,
    pub fs_type: Option<&'static str>,
}

impl Class {
    /// Of a class, and of those that can be changed later, which count more.
    pub fn of(parameters: &Pairs, mutable: &Pairs) -> Result<Class, ParameterError> {
        let mut class = Class::default();
        for (name, value) in parameters {
            match row(name) {
                Some(row) => class.put(row, value)?,
                None if name.starts_with(KUBERNETES) => {}
                None => return Err(unknown(name)),
            }
        }
        class.change(mutable)?;
        Ok(class)
    }

    /// Those that change a volume.
    pub fn changes(mutable: &Pairs) -> Result<Class, ParameterError> {
        let mut class = Class::default();
        class.change(mutable)?;
        Ok(class)
    }

    /// The same, with the defaults for everything that it does not say.
    pub fn or_defaults(self) -> Class {
        let mut class = Class::default();
        for row in TABLE.iter().filter(|row| !row.default.is_empty()) {
            (row.read)(&mut class, row.default).expect("a test reads every default");
        }
        Class {
            replicas: self.replicas.or(class.replicas),
            block_size: self.block_size.or(class.block_size),
            compression: self.compression.or(class.compression),
            pools: self.pools,
            spread: self.spread,
            hold_deadline_ms: self.hold_deadline_ms.or(class.hold_deadline_ms),
            zvol_workers: self.zvol_workers.or(class.zvol_workers),
            group: self.group,
            fs_type: self.fs_type.or(class.fs_type),
        }
    }

    fn change(&mut self, mutable: &Pairs) -> Result<(), ParameterError> {
        for (name, value) in mutable {
            match row(name) {
                Some(row) if row.mutable => self.put(row, value)?,
                Some(row) => return Err(ParameterError::Fixed { name: row.name.into() }),
                None if name.starts_with(KUBERNETES) => {
                    return Err(ParameterError::Fixed { name: shown(name) });
                }
                None => return Err(unknown(name)),
            }
        }
        Ok(())
    }

    fn put(&mut self, row: &Parameter, value: &str) -> Result<(), ParameterError> {
        let Parameter { name, values, .. } = *row;
        let wrong = || ParameterError::Value { name, value: shown(value), values };
        (row.read)(self, value).ok_or_else(wrong)
    }
}

/// Parameters of a class of snapshots, or of group snapshots: all are kept, and none is understood.
pub fn of_snapshot(parameters: &Pairs) -> Result<(), ParameterError> {
    match parameters.keys().find(|name| !name.starts_with(KUBERNETES)) {
        Some(name) => Err(ParameterError::OfSnapshot { name: shown(name) }),
        None => Ok(()),
    }
}

/// The beginning of what somebody sent, for a message.
pub fn shown(text: &str) -> String {
    match text.char_indices().nth(SHOWN_MAX) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text.to_owned(),
    }
}

fn row(name: &str) -> Option<&'static Parameter> {
    TABLE.iter().find(|row| row.name == name)
}

fn unknown(name: &str) -> ParameterError {
    ParameterError::Unknown { name: shown(name), near: read::near(name) }
}

fn did_you_mean(near: Option<&'static str>) -> String {
    near.map(|name| format!(" (did you mean `{name}`?)")).unwrap_or_default()
}

fn names(which: impl Fn(&Parameter) -> bool) -> String {
    let named: Vec<&str> = TABLE.iter().filter(|row| which(row)).map(|row| row.name).collect();
    named.join(", ")
}
