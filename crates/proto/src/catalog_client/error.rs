//! Why a call to the catalog did not work out, and whether to try again.
use std::error::Error;
use std::time::Duration;

use thiserror::Error;
use tonic::{Code, Status};

/// More would be a loop, not a cause.
const CAUSES_MAX: usize = 8;

#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum CallError {
    #[error("the catalog cannot be reached: {reason}")]
    Unreachable { reason: String },
    #[error("the catalog did not answer within {} s", after.as_secs())]
    Silent { after: Duration },
    #[error("the catalog refused: {reason}")]
    Refused { code: Code, reason: String },
    /// It is of another version, or no catalog at all.
    #[error("the catalog gave an answer that makes no sense: {what}")]
    Strange { what: &'static str },
}

impl CallError {
    pub(super) fn strange(what: &'static str) -> CallError {
        CallError::Strange { what }
    }

    /// Whether the same call may succeed later.
    pub fn may_pass(&self) -> bool {
        match self {
            CallError::Unreachable { .. } | CallError::Silent { .. } => true,
            CallError::Refused { code, .. } => *code == Code::ResourceExhausted,
            CallError::Strange { .. } => false,
        }
    }
}

impl From<&Status> for CallError {
    fn from(status: &Status) -> CallError {
        let reason = with_causes(status);
        match status.code() {
            Code::Unavailable | Code::Cancelled | Code::DeadlineExceeded => {
                CallError::Unreachable { reason }
            }
            // Nobody says these but the transport, when it does not understand the other side.
            Code::Unknown | Code::Internal => CallError::Unreachable { reason },
            code => CallError::Refused { code, reason },
        }
    }
}

/// A status of a broken connection says little; what caused it says why.
fn with_causes(status: &Status) -> String {
    let mut text = status.message().to_owned();
    let mut cause = status.source();
    for _ in 0..CAUSES_MAX {
        let Some(error) = cause else { break };
        let next = error.to_string();
        // That it was a transport says nothing.
        if !text.contains(&next) && next != "transport error" {
            let colon = if text.is_empty() { "" } else { ": " };
            text = format!("{text}{colon}{next}");
        }
        cause = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_caused_a_broken_connection_is_told_once() {
        let inner = std::io::Error::other("received fatal alert: CertificateRequired");
        let status = Status::from_error(Box::new(std::io::Error::other(inner)));
        let error = CallError::from(&status);
        assert_eq!(error.to_string().matches("CertificateRequired").count(), 1, "{error}");
        assert!(error.may_pass());
    }

    #[test]
    fn what_was_refused_stays_refused() {
        let error = CallError::from(&Status::invalid_argument("volume.size: 7"));
        assert_eq!(error.to_string(), "the catalog refused: volume.size: 7");
        assert!(!error.may_pass());
    }
}
