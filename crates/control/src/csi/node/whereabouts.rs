//! Who serves a volume now: the site knows.
use std::sync::Mutex;
use std::time::Duration;

use attach::link::{Where, Whereabouts};
use attach::record::Record;
use certs::Trust;

use crate::api::types::Volume;
use crate::csi::site::{Site, TokenError};

/// A site that takes longer is as good as away.
const ANSWER_MAX: Duration = Duration::from_secs(3);

/// For the process of an attachment, which has no other use for the site.
pub struct SiteWhereabouts {
    site: Site,
    uid: String,
    /// Calls are made one after the other, on the caller's thread.
    runtime: Mutex<tokio::runtime::Runtime>,
    /// Where it was at last: while the site is away nothing moves, so that it is there still.
    last: Mutex<Option<Where>>,
}

impl SiteWhereabouts {
    pub fn new(record: &Record) -> Result<SiteWhereabouts, TokenError> {
        let trust = record.site.ca.as_deref().map(Trust::load).transpose();
        let trust = trust.map_err(|error| TokenError::Unable(error.to_string()))?;
        let (api, token_file) = (record.site.api.clone(), record.site.token_file.clone());
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| TokenError::Unable(error.to_string()))?;
        Ok(SiteWhereabouts {
            site: Site { api, token_file, trust },
            uid: record.uid.clone(),
            runtime: Mutex::new(runtime),
            last: Mutex::new(None),
        })
    }

    fn ask(&self) -> Result<Volume, String> {
        let client = self.site.client().map_err(|error| error.to_string())?;
        let runtime = self.runtime.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let asked = runtime
            .block_on(async { tokio::time::timeout(ANSWER_MAX, client.volume(&self.uid)).await });
        match asked {
            Ok(answer) => answer.map_err(|error| error.to_string()),
            Err(_) => Err(format!("the site does not answer at {}", self.site.api)),
        }
    }
}

impl Whereabouts for SiteWhereabouts {
    fn find(&self) -> Result<Where, String> {
        let found = self.ask();
        let mut last = self.last.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        match found {
            Ok(volume) => {
                let target = volume.target.ok_or_else(|| volume.state.message.clone())?;
                let found = Where { nbd: target.nbd, iscsi: target.iscsi };
                *last = Some(found.clone());
                Ok(found)
            }
            Err(reason) => last.clone().ok_or(reason),
        }
    }
}
