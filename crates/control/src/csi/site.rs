//! The way to the site: where its API is, and the token of this driver.
use std::fs;
use std::path::{Path, PathBuf};

use certs::Trust;
use thiserror::Error;
use tonic::Status;

use crate::api::{Client, Endpoint};

/// Far more than a token has.
const TOKEN_LEN_MAX: u64 = 4096;

#[derive(Clone, Debug)]
pub struct Site {
    /// host:port.
    pub api: String,
    /// Read for every call: a token that was exchanged counts at once.
    pub token_file: PathBuf,
    /// Whose certificate has to be shown there; `None`: it is on this machine, and speaks plainly.
    pub trust: Option<Trust>,
}

#[derive(Debug, Error)]
pub enum TokenError {
    #[error("the token of this driver cannot be read from {}: {reason}", path.display())]
    Read { path: PathBuf, reason: std::io::Error },
    #[error(
        "{} has no token of the API: it is to have one line, as `pollux token create` shows it",
        path.display()
    )]
    Strange { path: PathBuf },
    #[error("the site cannot be asked: {0}")]
    Unable(String),
}

impl From<TokenError> for Status {
    fn from(error: TokenError) -> Status {
        Status::unauthenticated(error.to_string())
    }
}

impl Site {
    pub fn client(&self) -> Result<Client, TokenError> {
        let token = token(&self.token_file)?;
        Ok(Client::new(Endpoint { address: self.api.clone(), token, trust: self.trust.clone() }))
    }
}

fn token(path: &Path) -> Result<String, TokenError> {
    let unread = |reason| TokenError::Read { path: path.into(), reason };
    let strange = || TokenError::Strange { path: path.into() };
    if fs::metadata(path).map_err(unread)?.len() > TOKEN_LEN_MAX {
        return Err(strange());
    }
    let bytes = fs::read(path).map_err(unread)?;
    let text = bytes.trim_ascii();
    let fits = !text.is_empty() && text.iter().all(u8::is_ascii_graphic);
    fits.then(|| String::from_utf8_lossy(text).into_owned()).ok_or_else(strange)
}
