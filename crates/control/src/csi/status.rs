//! What the site refuses, in the codes of gRPC; and the refusals of this layer.
use std::io::ErrorKind;

use attach::filesystem::FileSystemError;
use attach::host::{HostError, PermitError};
use attach::orders::OrderError;
use attach::ways::WayError;
use tonic::{Code, Status};

use crate::api::{self, ApiError};
use crate::parameters::{ParameterError, shown};

/// The field by which the API says that the caller's secrets are meant, not the token of this driver.
const CREDENTIAL: &str = "credential";

/// The one place where codes of the API become codes of gRPC.
fn code(code: api::Code) -> Code {
    match code {
        api::Code::Invalid => Code::InvalidArgument,
        api::Code::NotFound => Code::NotFound,
        api::Code::AlreadyExists => Code::AlreadyExists,
        api::Code::Busy => Code::Aborted,
        api::Code::OutOfSpace => Code::ResourceExhausted,
        api::Code::OutOfRange => Code::OutOfRange,
        api::Code::InUse => Code::FailedPrecondition,
        api::Code::Unavailable => Code::Unavailable,
        api::Code::Unauthenticated => Code::Unauthenticated,
        api::Code::Forbidden => Code::PermissionDenied,
        api::Code::Internal => Code::Internal,
    }
}

/// The answer of the API that is not what was asked for.
pub fn refused(error: ApiError) -> Status {
    let text = match error.code {
        api::Code::Unauthenticated if error.field.as_deref() != Some(CREDENTIAL) => {
            format!("the site does not take the token of this driver (--token-file): {error}")
        }
        api::Code::Forbidden => {
            format!("the token of this driver (--token-file) has too low a role: {error}")
        }
        _ => error.message,
    };
    Status::new(code(error.code), text)
}

/// The same; what is not there is nothing to complain about.
pub fn unless_missing<T>(answer: Result<T, ApiError>) -> Result<Option<T>, Status> {
    match answer {
        Ok(found) => Ok(Some(found)),
        Err(error) if error.code == api::Code::NotFound => Ok(None),
        Err(error) => Err(refused(error)),
    }
}

pub fn missing(field: &str) -> Status {
    Status::invalid_argument(format!("{field} is missing"))
}

pub fn invalid(field: &str, problem: impl std::fmt::Display) -> Status {
    Status::invalid_argument(format!("{field}: {problem}"))
}

pub fn not_found(kind: &str, id: &str) -> Status {
    Status::not_found(format!("there is no {kind} `{}`", shown(id)))
}

/// It is under way: the caller asks again.
pub fn not_yet(what: impl std::fmt::Display) -> Status {
    Status::aborted(format!("{what}: ask again"))
}

/// The one place where troubles of this machine become codes of gRPC.
pub fn unable(error: HostError) -> Status {
    let code = match &error {
        HostError::Busy { .. }
        | HostError::Permit(PermitError::Busy(_))
        | HostError::Order(OrderError::Slow) => Code::Aborted,
        // A tool of a driver that was killed has it still: it comes to its end.
        HostError::FileSystem(FileSystemError::Device { error, .. })
            if error.kind() == ErrorKind::ResourceBusy =>
        {
            Code::Aborted
        }
        HostError::Path { .. } | HostError::Options { .. } => Code::InvalidArgument,
        HostError::NotAttached { .. } | HostError::NotThere { .. } => Code::NotFound,
        HostError::Different { .. } => Code::AlreadyExists,
        HostError::Lost { .. }
        | HostError::Used { .. }
        | HostError::Worked { .. }
        // What was written is lost, and only a person may say that it does not matter.
        | HostError::Unwritten { .. }
        | HostError::NotEmpty { .. }
        | HostError::Occupied { .. }
        | HostError::NotStaged { .. }
        | HostError::SingleWriter { .. }
        | HostError::Foreign { .. }
        | HostError::BlankReadOnly
        | HostError::Permit(PermitError::Refused(_))
        | HostError::WritableDevice
        | HostError::Twin { .. }
        | HostError::NoWay(_)
        // Nothing here can mend it: somebody has to look at it.
        | HostError::FileSystem(FileSystemError::Damaged { .. }) => Code::FailedPrecondition,
        HostError::Start(_)
        | HostError::Permit(PermitError::Unavailable(_))
        // Nothing is lost, and its target has to come back.
        | HostError::Order(OrderError::NotDurable(_))
        | HostError::Way(WayError::NotDurable { .. }) => Code::Unavailable,
        HostError::System { .. }
        | HostError::Permit(PermitError::Failed(_))
        | HostError::FileSystem(FileSystemError::Device { .. } | FileSystemError::Tool(_))
        | HostError::Record(_)
        | HostError::Order(_)
        | HostError::Way(_)
        | HostError::Loop(_) => Code::Internal,
    };
    Status::new(code, error.to_string())
}

impl From<ParameterError> for Status {
    fn from(error: ParameterError) -> Status {
        Status::invalid_argument(error.to_string())
    }
}

#[cfg(test)]
mod tests;
