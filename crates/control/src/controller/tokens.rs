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

fn is_valid(token: &v1::Token) -> bool {
    token.expires_ms == 0 || now_ms() < token.expires_ms
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

/// Durable before anybody trusts it, and read by its owner only.
fn keep(file: &Path, text: &str) -> io::Result<()> {
    let aside = file.with_extension("new");
    match fs::remove_file(&aside) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut new = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&aside)?;
    writeln!(new, "{text}")?;
    new.sync_all()?;
    fs::rename(&aside, file)?;
    let folder = file.parent().filter(|it| !it.as_os_str().is_empty()).unwrap_or(Path::new("."));
    fs::File::open(folder)?.sync_all()
}

impl Controller {
    /// A site that nobody may use yet gets its first token, in a file that only its owner reads.
    pub async fn ensure_admin(&self, file: &Path) -> Answer<()> {
        let tokens = self.books.all::<v1::Token>();
        let is_admin = |token: &v1::Token| token.role() == v1::TokenRole::Admin && is_valid(token);
        if tokens.iter().any(|token| is_admin(token)) {
            return Ok(());
        }
        let unwritten = |error: io::Error| {
            let message = format!("the first token cannot be kept in {}: {error}", file.display());
            ApiError::new(Code::Internal, message)
        };
        // A new one each time: what is in the file may have been deleted for good reasons.
        let text = new_text();
        keep(file, &text).map_err(unwritten)?;
        let asked = NewToken { name: FIRST.into(), role: Role::Admin, lasts_seconds: None };
        let present = tokens.iter().find(|token| token.name == FIRST);
        let version = present.map_or(0, |token| token.version());
        let stored = self.swap(version, new_token(&asked, &text)).await?;
        stored.map(|_| ()).ok_or_else(|| ApiError::busy("token", FIRST))
    }

    /// What the bearer of a token may do; `None`: it is nobody's, or has expired.
    pub fn role_of(&self, shown: &str) -> Option<Role> {
        // Found by its digest, so that the time tells nothing of other tokens.
        let digest = certs::sha256(shown.as_bytes());
        let tokens = self.books.all::<v1::Token>();
        let found = tokens.iter().find(|token| token.digest == digest)?;
        role(found.role()).filter(|_| is_valid(found))
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
