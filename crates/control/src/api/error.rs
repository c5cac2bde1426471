//! Why the site did not do what it was asked for: one enum for the API, CSI and the command line.
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// What kind of trouble it is; says what a caller can do about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum Code {
    /// A field is wrong, and stays so.
    Invalid,
    NotFound,
    /// There is one of this name, and it is another.
    AlreadyExists,
    /// Another operation is under way for the same object, or this one still is: ask again.
    Busy,
    /// No room, or too many.
    OutOfSpace,
    /// A size that cannot be met.
    OutOfRange,
    /// Not in this state: something has to be done before.
    InUse,
    /// A part of the site is away: ask again.
    Unavailable,
    /// No token, or no credential, or a wrong one.
    Unauthenticated,
    /// The token's role is too low.
    Forbidden,
    /// A mistake of ours.
    Internal,
}

/// An answer that is not what was asked for.
#[derive(Clone, Debug, PartialEq, Eq, Error, Serialize, Deserialize, JsonSchema)]
#[error("{message}")]
#[serde(rename_all = "camelCase")]
pub struct ApiError {
    pub code: Code,
    /// What is wrong, and what to do.
    pub message: String,
    /// Which field of the request, if one is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub field: Option<String>,
}

impl ApiError {
    pub fn new(code: Code, message: impl Into<String>) -> ApiError {
        ApiError { code, message: message.into(), field: None }
    }

    pub fn invalid(field: impl Into<String>, problem: impl std::fmt::Display) -> ApiError {
        let field = field.into();
        let message = format!("{field}: {problem}");
        ApiError { code: Code::Invalid, message, field: Some(field) }
    }

    pub fn not_found(kind: &str, id: &str) -> ApiError {
        ApiError::new(Code::NotFound, format!("there is no {kind} `{id}`"))
    }

    pub fn busy(kind: &str, id: &str) -> ApiError {
        let message = format!("another operation is under way for the {kind} `{id}`: ask again");
        ApiError::new(Code::Busy, message)
    }

    /// The same request may well be done later.
    pub fn may_retry(&self) -> bool {
        matches!(self.code, Code::Busy | Code::Unavailable | Code::OutOfSpace)
    }
}
