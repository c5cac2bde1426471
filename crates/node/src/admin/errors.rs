//! Refusals as gRPC statuses. The only place that maps them.
use replication::client::CommandError;
use replication::store::StoreError;
use tonic::{Code, Status};

use crate::shard::Refusal;
use crate::store::Missing;

pub fn status_of(refusal: &Refusal) -> Status {
    Status::new(code(refusal), refusal.to_string())
}

fn code(refusal: &Refusal) -> Code {
    match refusal {
        Refusal::UnknownPool { .. } | Refusal::NoReplica => Code::NotFound,
        Refusal::ReplicaExists => Code::AlreadyExists,
        Refusal::TargetRuns | Refusal::Wipe(_) => Code::FailedPrecondition,
        Refusal::NoTarget => Code::NotFound,
        Refusal::Ending | Refusal::BeingMade | Refusal::OldRecord => Code::Unavailable,
        Refusal::Missing(Missing::Unknown { .. } | Missing::Elsewhere { .. }) => Code::NotFound,
        Refusal::Store(error) | Refusal::Missing(Missing::Store { error, .. }) => match error {
            StoreError::NoSpace => Code::ResourceExhausted,
            StoreError::Busy => Code::Unavailable,
            StoreError::UnknownSnapshot => Code::NotFound,
            StoreError::Refused { .. } => Code::FailedPrecondition,
            StoreError::Damaged { .. } | StoreError::OtherBytes => Code::DataLoss,
            StoreError::Gap | StoreError::Failed { .. } => Code::Internal,
        },
        Refusal::Command(error) => match error {
            CommandError::NotServing { .. } | CommandError::Busy => Code::Unavailable,
            CommandError::UnknownSnapshot(_) => Code::NotFound,
            CommandError::SnapshotExists => Code::AlreadyExists,
            CommandError::HasClones => Code::FailedPrecondition,
            CommandError::Shrink { .. } | CommandError::Invalid { .. } => Code::InvalidArgument,
            CommandError::HoldBroken | CommandError::AlreadyHeld => Code::Aborted,
            CommandError::NoSpace
            | CommandError::TooManyClones
            | CommandError::TooManySnapshots => Code::ResourceExhausted,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_go_away_by_itself_is_worth_another_try() {
        let busy = Refusal::Command(CommandError::Busy);
        assert_eq!(status_of(&busy).code(), Code::Unavailable);
        let full = Refusal::Store(StoreError::NoSpace);
        assert_eq!(status_of(&full).code(), Code::ResourceExhausted);
        let clones = status_of(&Refusal::Command(CommandError::TooManyClones));
        assert_eq!(clones.code(), Code::ResourceExhausted);
        assert!(clones.message().contains("at most 32 clones"), "{clones:?}");
        let pool = Refusal::UnknownPool { pool: "fast".into() };
        assert!(status_of(&pool).message().contains("`fast`"));
    }
}
