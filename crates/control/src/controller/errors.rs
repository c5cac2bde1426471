//! What went wrong in a step, as callers of the API are told.
use proto::catalog_client::CallError;
use tonic::Status;

use crate::api::{ApiError, Code};
use crate::steps::StepError;

impl From<StepError> for ApiError {
    fn from(error: StepError) -> ApiError {
        let code = match &error {
            StepError::Node(status) => return from_node(status),
            StepError::Catalog(error) => return from_catalog(error),
            StepError::Connect(_) => Code::Unavailable,
            StepError::NoVolume { .. }
            | StepError::NoSnapshot { .. }
            | StepError::NoReplica { .. }
            | StepError::NoNode { .. } => Code::NotFound,
            StepError::VolumeExists { .. } | StepError::ReplicaThere { .. } => Code::AlreadyExists,
            StepError::NotServed { .. }
            | StepError::NotServing { .. }
            | StepError::NoVotes { .. }
            | StepError::TooFewCopies { .. }
            | StepError::MarkLeft { .. } => Code::Unavailable,
            StepError::MadeTwice { .. }
            | StepError::Deleting { .. }
            | StepError::TooLong { .. } => Code::Busy,
            StepError::StillVotes { .. }
            | StepError::HasClones { .. }
            | StepError::OriginGone { .. } => Code::InUse,
            StepError::BadReplicas => Code::Invalid,
            StepError::Smaller { .. } => Code::OutOfRange,
        };
        ApiError::new(code, error.to_string())
    }
}

fn from_node(status: &Status) -> ApiError {
    let code = match status.code() {
        tonic::Code::InvalidArgument => Code::Invalid,
        tonic::Code::NotFound => Code::NotFound,
        tonic::Code::AlreadyExists => Code::AlreadyExists,
        tonic::Code::FailedPrecondition => Code::InUse,
        tonic::Code::Aborted => Code::Busy,
        tonic::Code::ResourceExhausted => Code::OutOfSpace,
        tonic::Code::OutOfRange => Code::OutOfRange,
        tonic::Code::DataLoss | tonic::Code::Unimplemented => Code::Internal,
        // `Internal` too: it is what a connection that was cut off looks like.
        // The connection was lost, or the node ends: whether it was done is found out by asking.
        _ => Code::Unavailable,
    };
    ApiError::new(code, format!("a node refused: {}", status.message()))
}

fn from_catalog(error: &CallError) -> ApiError {
    let code = match error {
        // It looks at more than we do, and names the field.
        CallError::Refused { code: tonic::Code::InvalidArgument, .. } => Code::Invalid,
        error if error.may_pass() => Code::Unavailable,
        _ => Code::Internal,
    };
    ApiError::new(code, format!("the catalog: {error}"))
}

impl From<CallError> for ApiError {
    fn from(error: CallError) -> ApiError {
        from_catalog(&error)
    }
}

impl From<Status> for ApiError {
    fn from(status: Status) -> ApiError {
        from_node(&status)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Protects from a limit that is met and not named.
    #[test]
    fn a_limit_that_a_node_names_reaches_the_caller_of_the_api_and_of_csi() {
        let why = "a volume has at most 32 clones; delete some of them";
        let error = ApiError::from(StepError::from(Status::resource_exhausted(why)));
        assert_eq!(error.code, Code::OutOfSpace);
        assert!(error.message.ends_with(why), "{}", error.message);
        let status = crate::csi::status::refused(error);
        assert_eq!(status.code(), tonic::Code::ResourceExhausted);
        assert!(status.message().ends_with(why), "{status:?}");
    }
}
