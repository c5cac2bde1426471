//! Who may use the API. Of a token only its digest is kept.
use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Arc;

use proto::v1;

use super::books::Kept;
use super::{Answer, Controller, now_ms};
use crate::api::types::{Done, NewToken, Page, Role, Token};
use crate::api::{ApiError, Code};
use crate::{catalog, hex};

/// What every token begins with, so that one that leaked is recognised.
const PREFIX: &str = "pollux_";
/// The first one of a site.
const FIRST: &str = "admin";

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

/// Nobody can guess it.
fn new_text() -> String {
    let mut secret = [0; 32];
    certs::random(&mut secret);
    format!("{PREFIX}{}", hex::encode(&secret))
}

fn new_token(asked: &NewToken, text: &str) -> v1::Token {
    let created_ms = now_ms();
    let lasts = asked.lasts_seconds.map(|seconds| seconds.saturating_mul(1000));
    v1::Token {
        name: asked.name.clone(),
        digest: certs::sha256(text.as_bytes()).into(),
        role: stored(asked.role).into(),
        created_ms,
        expires_ms: lasts.map_or(0, |lasts| created_ms.saturating_add(lasts)),
    }
}

/// What is in the file, or what is written there now: durable before anybody trusts it.
fn kept_in(file: &Path) -> io::Result<String> {
    match fs::read_to_string(file) {
        Ok(text) if !text.trim().is_empty() => return Ok(text.trim().into()),
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    let text = new_text();
    let aside = file.with_extension("new");
    let mut options = fs::OpenOptions::new();
    let mut new = options.write(true).create(true).truncate(true).mode(0o600).open(&aside)?;
    writeln!(new, "{text}")?;
    new.sync_all()?;
    fs::rename(&aside, file)?;
    Ok(text)
}

impl Controller {
    /// A site that nobody may use yet gets its first token, in a file that only its owner reads.
    pub async fn ensure_admin(&self, file: &Path) -> Answer<()> {
        let tokens = self.books.all::<v1::Token>();
        if tokens.iter().any(|token| token.role() == v1::TokenRole::Admin) {
            return Ok(());
        }
        let unwritten = |error: io::Error| {
            let message = format!("the first token cannot be kept in {}: {error}", file.display());
            ApiError::new(Code::Internal, message)
        };
        let text = kept_in(file).map_err(unwritten)?;
        let asked = NewToken { name: FIRST.into(), role: Role::Admin, lasts_seconds: None };
        // Somebody else may have been faster: then there is one.
        self.swap(0, new_token(&asked, &text)).await?;
        Ok(())
    }

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
            let text = new_text();
            let token = new_token(&asked, &text);
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
