//! Who controls the site, and who may use its API.
use proto::v1::{Controller, Token, TokenRole};

use crate::catalog::check::{Checked, ensure, title};

/// The one object of its kind.
pub const CONTROLLER: &str = "controller";

pub fn controller(key: &str, controller: &Controller) -> Checked {
    ensure(key == CONTROLLER, "key.name", || format!("there is one, called {CONTROLLER}"))?;
    ensure(controller.generation > 0, "controller.generation", || "the first is 1".into())?;
    title("controller.host", &controller.host)
}

/// Two controllers of one generation would both be obeyed.
pub fn succession(old: &Controller, new: &Controller) -> Checked {
    ensure(new.generation > old.generation, "controller.generation", || {
        format!("{} is not above {}", new.generation, old.generation)
    })
}

pub fn token(key: &str, token: &Token) -> Checked {
    ensure(token.name == key, "token.name", || format!("the key says {key}"))?;
    ensure(token.digest.len() == 32, "token.digest", || "it has 32 bytes (SHA-256)".into())?;
    let role = TokenRole::try_from(token.role).unwrap_or_default();
    ensure(role != TokenRole::Unspecified, "token.role", || {
        "it is neither viewer, editor nor admin".into()
    })
}
