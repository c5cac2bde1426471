//! The engine's refusals as a replica understands them.
use block::ByteOffset;
use engine::{OpError, Retry};
use replication::store::StoreError;

/// `at`: where the operation began, for damage that the engine cannot place.
pub fn store_error(error: OpError, at: ByteOffset) -> StoreError {
    match error {
        OpError::NoSpace { .. } => StoreError::NoSpace,
        OpError::Busy => StoreError::Busy,
        OpError::Damaged { offset, .. } => StoreError::Damaged { offset },
        // What cannot be found cannot be read either: another replica has to answer.
        OpError::MapDamaged { .. } | OpError::Device(_) => StoreError::Damaged { offset: at },
        OpError::OtherBytes { .. } => StoreError::OtherBytes,
        OpError::Gap { .. } | OpError::NotAscending { .. } => StoreError::Gap,
        OpError::UnknownSnapshot { .. } | OpError::ForeignSnapshot { .. } => {
            StoreError::UnknownSnapshot
        }
        OpError::PoolFailed { reason } => StoreError::Failed { reason },
        other if other.retry() == Retry::PoolFailed => {
            StoreError::Failed { reason: other.to_string() }
        }
        other => StoreError::Refused { reason: other.to_string() },
    }
}
