//! How somebody wants to use a volume, and whether that is possible.
use proto::csi::VolumeCapability;
use proto::csi::volume_capability::access_mode::Mode;
use proto::csi::volume_capability::{AccessType, MountVolume};
use tonic::Status;

use super::status::{invalid, missing};
use crate::parameters::{FS_TYPES, shown};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// As a device.
    Block,
    /// Through a file system.
    Mount,
}

/// A use that is possible.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Use {
    pub access: Access,
    /// Nobody writes.
    pub read_only: bool,
    /// On several nodes at the same time.
    pub shared: bool,
    /// And one of them writes at the most.
    pub single_writer: bool,
}

/// Why a capability is none of ours.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Misfit {
    /// It does not say what it must say.
    Missing { field: String },
    /// It asks for what there is not.
    Unsupported { field: String, problem: String },
}

impl From<Misfit> for Status {
    fn from(misfit: Misfit) -> Status {
        match misfit {
            Misfit::Missing { field } => missing(&field),
            Misfit::Unsupported { field, problem } => invalid(&field, problem),
        }
    }
}

/// Each of them, and one at least.
pub fn uses(field: &str, of: &[VolumeCapability]) -> Result<Vec<Use>, Misfit> {
    if of.is_empty() {
        return Err(Misfit::Missing { field: field.into() });
    }
    of.iter().enumerate().map(|(at, one)| read(&format!("{field}[{at}]"), one)).collect()
}

/// One that has to be there.
pub fn one(field: &str, of: Option<&VolumeCapability>) -> Result<Use, Misfit> {
    let missing = || Misfit::Missing { field: field.into() };
    read(field, of.ok_or_else(missing)?)
}

fn read(field: &str, capability: &VolumeCapability) -> Result<Use, Misfit> {
    let part = |name: &str| format!("{field}.{name}");
    let missing = |name: &str| Misfit::Missing { field: part(name) };
    let access = match capability.access_type.as_ref() {
        None => return Err(missing("access_type")),
        Some(AccessType::Block(_)) => Access::Block,
        Some(AccessType::Mount(mount)) => mounted(part("mount.fs_type"), mount)?,
    };
    let number = capability.access_mode.ok_or_else(|| missing("access_mode"))?.mode;
    let unsupported = |problem| Misfit::Unsupported { field: part("access_mode.mode"), problem };
    let mode = Mode::try_from(number)
        .map_err(|_| unsupported(format!("{number} is not known; {}", possible(access))))?;
    let (read_only, shared) = match (mode, access) {
        (Mode::Unknown, _) => return Err(missing("access_mode.mode")),
        (Mode::SingleNodeReaderOnly, _) => (true, false),
        (
            Mode::SingleNodeWriter | Mode::SingleNodeSingleWriter | Mode::SingleNodeMultiWriter,
            _,
        ) => (false, false),
        (Mode::MultiNodeReaderOnly, _) => (true, true),
        (Mode::MultiNodeSingleWriter | Mode::MultiNodeMultiWriter, Access::Block) => (false, true),
        // No file system that nodes make stands two writers, or a reader beside one.
        (Mode::MultiNodeSingleWriter | Mode::MultiNodeMultiWriter, Access::Mount) => {
            let name = mode.as_str_name();
            return Err(unsupported(format!("no {name} with a mount; {}", possible(access))));
        }
    };
    let single_writer = mode == Mode::MultiNodeSingleWriter;
    Ok(Use { access, read_only, shared, single_writer })
}

fn mounted(field: String, mount: &MountVolume) -> Result<Access, Misfit> {
    let fs_type = mount.fs_type.as_str();
    if fs_type.is_empty() || FS_TYPES.contains(&fs_type) {
        return Ok(Access::Mount);
    }
    let known = FS_TYPES.join(", ");
    Err(Misfit::Unsupported { field, problem: format!("`{}` is none of: {known}", shown(fs_type)) })
}

fn possible(access: Access) -> &'static str {
    match access {
        Access::Block => "a device can have all of them",
        Access::Mount => "a mount can have those of a single node, and MULTI_NODE_READER_ONLY",
    }
}

#[cfg(test)]
mod tests;
