//! Lists in parts: tokens that say where the next part begins, and the pages of the API behind them.
//!
//! A token is the kind of list and the last name of the part before. It stays good when that one is
//! deleted, since lists are in the order of names.
use tonic::Status;

use super::status::{invalid, refused};
use crate::api::ApiError;
use crate::api::types::Page;
use crate::catalog::limits::NAME_LEN_MAX;
use crate::parameters::shown;

/// Entries of one answer: with all that can be said of each, it is below the 4 MiB that clients take.
const ENTRIES_MAX: usize = 4000;
/// Entries of one question to the API.
const PAGE: usize = 500;

/// Which list a token is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum List {
    Volumes,
    Snapshots,
}

impl List {
    fn prefix(self) -> &'static str {
        match self {
            List::Volumes => "volumes-after:",
            List::Snapshots => "snapshots-after:",
        }
    }

    fn token(self, name: &str) -> String {
        format!("{}{name}", self.prefix())
    }
}

/// A part of a list that somebody asked for, and what of it is there.
#[derive(Debug)]
pub struct Part<T> {
    list: List,
    /// Everything up to this name was asked for; empty: nothing yet.
    after: String,
    max: usize,
    entries: Vec<T>,
    whole: bool,
}

pub fn part<T>(list: List, max_entries: i32, token: &str) -> Result<Part<T>, Status> {
    let max = usize::try_from(max_entries)
        .map_err(|_| invalid("max_entries", format!("{max_entries} is below zero")))?;
    let max = if max == 0 { ENTRIES_MAX } else { max.min(ENTRIES_MAX) };
    let begun = |after| Part { list, after, max, entries: Vec::new(), whole: false };
    if token.is_empty() {
        return Ok(begun(String::new()));
    }
    let letter = |byte: u8| {
        byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'.' | b'-')
    };
    let name = |name: &&str| (1..=NAME_LEN_MAX).contains(&name.len()) && name.bytes().all(letter);
    match token.strip_prefix(list.prefix()).filter(name) {
        Some(after) => Ok(begun(after.to_owned())),
        None => Err(Status::aborted(format!(
            "starting_token: `{}` is not from an answer to this list: begin again without one",
            shown(token)
        ))),
    }
}

impl<T> Part<T> {
    /// What is to be asked next: how many behind which name. Nothing: it is complete.
    pub fn question(&self) -> Option<(String, usize)> {
        let missing = self.max - self.entries.len();
        (!self.whole && missing > 0).then(|| (self.after.clone(), PAGE.min(missing)))
    }

    /// The answer to the last question. Entries that are not to be kept do not count.
    pub fn take(
        &mut self,
        answer: Result<Page<T>, ApiError>,
        keep: impl Fn(&T) -> bool,
    ) -> Result<(), Status> {
        let page = answer.map_err(refused)?;
        let limit = self.max - self.entries.len();
        if page.items.len() > limit {
            let text = format!("the site sent {} entries, not {limit}", page.items.len());
            return Err(Status::internal(text));
        }
        self.entries.extend(page.items.into_iter().filter(keep));
        match page.next {
            None => self.whole = true,
            // Whoever does not get further would be asked for ever.
            Some(next) if next <= self.after => {
                let text = format!("the site goes from {} to {next}", self.after);
                return Err(Status::internal(text));
            }
            Some(next) => self.after = next,
        }
        Ok(())
    }

    /// Entries, and the token of the next part; empty: that was all.
    pub fn end(self) -> (Vec<T>, String) {
        let token = if self.whole { String::new() } else { self.list.token(&self.after) };
        (self.entries, token)
    }
}

#[cfg(test)]
mod tests;
