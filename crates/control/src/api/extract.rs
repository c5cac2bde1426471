//! What a request has, with errors of ours when it has something else.
use axum::extract::rejection::{JsonRejection, PathRejection, QueryRejection};
use axum::extract::{FromRequest, FromRequestParts, Json, Path, Query, Request};
use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::response::{IntoResponse, Response};
use serde::de::DeserializeOwned;

use super::error::{ApiError, Code};

/// The name or uid in the path.
pub struct Id(pub String);

/// The body, as JSON. None at all is an empty one.
pub struct Body<T>(pub T);

/// The query.
pub struct Params<T>(pub T);

impl<S: Send + Sync> FromRequestParts<S> for Id {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Id, ApiError> {
        let wrong = |error: PathRejection| ApiError::invalid("id", error.body_text());
        let Path(id) = Path::<String>::from_request_parts(parts, state).await.map_err(wrong)?;
        Ok(Id(id))
    }
}

impl<T: DeserializeOwned, S: Send + Sync> FromRequestParts<S> for Params<T> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Params<T>, ApiError> {
        let wrong = |error: QueryRejection| ApiError::invalid("query", error.body_text());
        let Query(query) = Query::<T>::from_request_parts(parts, state).await.map_err(wrong)?;
        Ok(Params(query))
    }
}

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for Body<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, state: &S) -> Result<Body<T>, ApiError> {
        let wrong = |error: JsonRejection| ApiError::invalid("body", error.body_text());
        let Json(body) = Json::<T>::from_request(request, state).await.map_err(wrong)?;
        Ok(Body(body))
    }
}

impl Code {
    pub fn status(self) -> StatusCode {
        match self {
            Code::Invalid | Code::OutOfRange => StatusCode::BAD_REQUEST,
            Code::NotFound => StatusCode::NOT_FOUND,
            Code::AlreadyExists | Code::Busy | Code::InUse => StatusCode::CONFLICT,
            Code::OutOfSpace => StatusCode::INSUFFICIENT_STORAGE,
            Code::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
            Code::Unauthenticated => StatusCode::UNAUTHORIZED,
            Code::Forbidden => StatusCode::FORBIDDEN,
            Code::Internal => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        (self.code.status(), Json(self)).into_response()
    }
}
