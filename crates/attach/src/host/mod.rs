//! What a plugin or a person does with volumes on this machine.
//!
//! All of it goes through a [`Claim`]: one operation at a time for each volume, among all processes of the
//! machine. Everything can be asked for again, and is done once. Nothing is kept in memory.
mod claim;
mod errors;
mod flush;
mod permit;
mod publish;
mod stage;
mod start;
mod usage;

use std::path::{Path, PathBuf};

pub use claim::{Claim, Current};
pub use errors::HostError;
pub use flush::Unwritten;
pub use permit::{Permit, PermitError};
pub use publish::Publish;
pub use stage::Stage;
pub use start::Wanted;
pub use usage::{Figures, Usage};

use crate::orders::{self, Order, Status};
use crate::record::{self, Record};

/// This machine.
#[derive(Clone, Debug)]
pub struct Host {
    /// Where attachments are kept: a place that is empty after a boot.
    pub state: PathBuf,
    /// What is run for an attachment: this program, as a rule.
    pub program: PathBuf,
}

impl Host {
    /// `Busy` while somebody else does something with this volume here.
    pub fn claim(&self, uid: &str) -> Result<Claim, HostError> {
        Claim::new(self, uid)
    }

    /// Everything that is attached, with what its process says; `None`: it does not answer.
    pub fn attachments(&self) -> Result<Vec<(Record, Option<Status>)>, HostError> {
        let all = record::all(&self.state)?;
        let asked = |(folder, record): (record::Folder, Record)| {
            (record, orders::tell(&folder.orders(), Order::Status).ok())
        };
        Ok(all.into_iter().map(asked).collect())
    }
}

/// Without links, as the kernel tells of mounts. Of the last part of it nothing is assumed: it need not be there.
fn resolved(path: &Path) -> PathBuf {
    let whole = |(folder, name): (&Path, _)| Some(folder.canonicalize().ok()?.join(name));
    // A folder that does not exist has nothing mounted, by any name.
    path.parent().zip(path.file_name()).and_then(whole).unwrap_or_else(|| path.to_owned())
}

/// Paths of an orchestrator are absolute and plain: others would mean one place now and another one later.
pub fn checked<'a>(field: &'static str, path: &'a str) -> Result<&'a Path, HostError> {
    let problem = |problem| HostError::Path { field, path: path.into(), problem };
    if path.contains('\0') {
        return Err(problem("it has a zero byte, which no path has"));
    }
    let path = Path::new(path);
    if !path.is_absolute() {
        return Err(problem("it is not absolute"));
    }
    let plain = |part| {
        use std::path::Component::{Normal, RootDir};
        matches!(part, RootDir | Normal(_))
    };
    if !path.components().all(plain) || path.parent().is_none() {
        return Err(problem("it has to be plain, without `..`, and not the root"));
    }
    Ok(path)
}
