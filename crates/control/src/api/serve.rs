//! The called end of the API: who asks, may he, and the answer.
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::header::AUTHORIZATION;
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use certs::Proof;
use hyper_util::service::TowerToHyperService;

use super::error::{ApiError, Code};
use super::openapi;
use super::routes::{Shared, table};
use super::types::Role;
use crate::controller::Controller;

/// The largest request: a group of all volumes that it may have.
const BODY_MAX: usize = 256 << 10;

/// One request and its answer: more than the site takes, and enough for a slow line.
const CONNECTION_MAX: Duration = Duration::from_secs(120);

/// All calls, each with its guard.
pub fn router(controller: &Arc<Controller>) -> Router {
    let mut router = Router::new();
    for route in table() {
        let guard = Guard { controller: Arc::clone(controller), role: route.role };
        let serve = route.serve.route_layer(middleware::from_fn_with_state(guard, let_in));
        router = router.route(route.path, serve);
    }
    let document = openapi::document().to_string();
    let json = [(axum::http::header::CONTENT_TYPE, "application/json")];
    router
        .route("/openapi.json", get(move || std::future::ready((json, document.clone()))))
        .route("/metrics", get(|| std::future::ready(super::metrics::render())))
        .fallback(nothing_here)
        .method_not_allowed_fallback(not_so)
        .layer(axum::extract::DefaultBodyLimit::max(BODY_MAX))
        .with_state(Shared::clone(controller))
}

async fn nothing_here(request: Request) -> ApiError {
    let path = request.uri().path().chars().take(100).collect::<String>();
    // Not `NotFound`: whoever deletes would take that for done.
    ApiError::new(Code::Invalid, format!("there is no call {path}: see /openapi.json"))
}

async fn not_so(request: Request) -> ApiError {
    let (method, path) = (request.method(), request.uri().path());
    ApiError::new(Code::Invalid, format!("{path} is no {method}: see /openapi.json"))
}

#[derive(Clone)]
struct Guard {
    controller: Arc<Controller>,
    role: Role,
}

async fn let_in(State(guard): State<Guard>, request: Request, next: Next) -> Response {
    let header = request.headers().get(AUTHORIZATION).and_then(|value| value.to_str().ok());
    let shown = header.and_then(|value| value.strip_prefix("Bearer ")).map(str::trim);
    let role = shown.and_then(|token| guard.controller.role_of(token));
    let refused = match (shown, role) {
        // From now on its connection is not one of those that the listener may evict.
        (_, Some(_)) if request.extensions().get::<Proof>().is_some_and(|it| !it.accept()) => {
            ApiError::new(Code::Unavailable, "too many connections are served: try again")
        }
        (_, Some(role)) if role >= guard.role => return next.run(request).await,
        (_, Some(role)) => {
            let needed = guard.role;
            ApiError::new(
                Code::Forbidden,
                format!("this needs the role {needed:?}, and the token has {role:?}"),
            )
        }
        (Some(_), None) => ApiError::new(
            Code::Unauthenticated,
            "the token is nobody's, or has expired: `pollux token create` makes one",
        ),
        (None, None) => ApiError::new(
            Code::Unauthenticated,
            "no token was shown: send `Authorization: Bearer TOKEN`",
        ),
    };
    refused.into_response()
}

/// Serves connections until there are no more.
pub async fn serve(router: Router, incoming: certs::http::Incoming) {
    certs::http::serve(incoming, CONNECTION_MAX, TowerToHyperService::new(router)).await;
}
