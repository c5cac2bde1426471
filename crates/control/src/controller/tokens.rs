//! Who may use the API. Of a token only its digest is kept.
use std::sync::Arc;

use proto::v1;

use super::books::Kept;
use super::{Answer, Controller, now_ms};
use crate::api::types::{Done, NewToken, Page, Role, Token};
use crate::api::{ApiError, Code};
use crate::{catalog, hex};

/// What every token begins with, so that one that leaked is recognised.
const PREFIX: &str = "pollux_";

fn role(of: v1::TokenRole) -> Option<Role> {
    match of {
        v1::TokenRole::Unspecified => None,
        v1::TokenRole::Viewer => Some(Role::Viewer),
        v1::TokenRole::Editor => Some(Role::Editor),
        v1::TokenRole::Admin => Some(Role::Admin),
    }
}

fn stored(role: Role) -> v1::TokenRole {
    match role {
        Role::Viewer => v1::TokenRole::Viewer,
        Role::Editor => v1::TokenRole::Editor,
        Role::Admin => v1::TokenRole::Admin,
    }
}

fn show(token: &v1::Token) -> Token {
    Token {
        name: token.name.clone(),
        role: role(token.role()).unwrap_or(Role::Viewer),
        created_ms: token.created_ms,
        expires_ms: Some(token.expires_ms).filter(|at| *at > 0),
        token: None,
    }
}

impl Controller {
    /// What the bearer of a token may do; `None`: it is nobody's, or has expired.
    pub fn role_of(&self, shown: &str) -> Option<Role> {
        // Found by its digest, so that the time tells nothing of other tokens.
        let digest = certs::sha256(shown.as_bytes());
        let tokens = self.books.all::<v1::Token>();
        let found = tokens.iter().find(|token| token.digest == digest)?;
        let is_valid = found.expires_ms == 0 || now_ms() < found.expires_ms;
        role(found.role()).filter(|_| is_valid)
    }

    pub fn tokens(&self) -> Page<Token> {
        let tokens = self.books.all::<v1::Token>();
        Page { items: tokens.iter().map(|token| show(token)).collect(), next: None }
    }

    /// The token itself is in the answer, and nowhere else.
    pub async fn create_token(self: &Arc<Self>, asked: NewToken) -> Answer<Token> {
        if !catalog::is_name(&asked.name) {
            return Err(ApiError::invalid("name", "use 1 to 63 of a-z, 0-9, '.' and '-'"));
        }
        let this = Arc::clone(self);
        self.run(vec![(v1::Kind::Token, asked.name.clone())], async move {
            let mut secret = [0; 32];
            certs::random(&mut secret);
            let text = format!("{PREFIX}{}", hex::encode(&secret));
            let created_ms = now_ms();
            let lasts = asked.lasts_seconds.map(|seconds| seconds.saturating_mul(1000));
            let token = v1::Token {
                name: asked.name.clone(),
                digest: certs::sha256(text.as_bytes()).into(),
                role: stored(asked.role).into(),
                created_ms,
                expires_ms: lasts.map_or(0, |lasts| created_ms.saturating_add(lasts)),
            };
            let shown = Token { token: Some(text), ..show(&token) };
            match this.swap(0, token).await? {
                Some(_) => Ok(shown),
                None => {
                    let message =
                        format!("there is a token `{}` already: delete it first", asked.name);
                    Err(ApiError::new(Code::AlreadyExists, message))
                }
            }
        })
        .await
    }

    pub async fn delete_token(self: &Arc<Self>, name: &str) -> Answer<Done> {
        let Some(found) = self.books.get::<v1::Token>(name) else { return Ok(Done {}) };
        let this = Arc::clone(self);
        self.run(vec![(v1::Kind::Token, found.name.clone())], async move {
            if let Some((version, token)) = this.fresh::<v1::Token>(&found.name).await? {
                this.remove::<v1::Token>(version, token.name()).await?;
            }
            Ok(Done {})
        })
        .await
    }
}
