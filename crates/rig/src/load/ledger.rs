//! What must be in a block, and what may be.
//!
//! An attempt is in doubt until it is answered, and for ever if it never is. Attempts of one block
//! follow one another, so whatever was acknowledged is newer than all doubts before it.
use super::block::{Found, Version};

/// The state of a block that somebody asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    Zeroes,
    Written(Version),
}

#[derive(Clone, Debug)]
pub struct Entry {
    /// What was acknowledged last; zeroes in the beginning.
    sure: Content,
    /// What was asked for since, in order, and not acknowledged.
    doubts: Vec<Content>,
    last: Version,
}

impl Default for Entry {
    fn default() -> Entry {
        Entry { sure: Content::Zeroes, doubts: Vec::new(), last: Version(0) }
    }
}

impl Entry {
    /// Before a write is sent.
    pub fn writing(&mut self) -> Version {
        self.last = Version(self.last.0 + 1);
        self.doubts.push(Content::Written(self.last));
        self.last
    }

    /// Before zeroes are sent.
    pub fn zeroing(&mut self) {
        self.doubts.push(Content::Zeroes);
    }

    /// The attempt that was begun last was acknowledged.
    pub fn acknowledged(&mut self) {
        if let Some(last) = self.doubts.pop() {
            self.sure = last;
            self.doubts.clear();
        }
    }

    /// A trim may do nothing, acknowledged or not.
    pub fn trimming(&mut self) {
        if self.sure != Content::Zeroes {
            self.doubts.push(Content::Zeroes);
        }
    }

    /// What was read counts as acknowledged: it must not vanish. Doubts that are older than what
    /// was found cannot come any more.
    pub fn saw(&mut self, found: Found) -> Result<(), String> {
        let content = match found {
            Found::Zeroes => Content::Zeroes,
            Found::Written(version) => Content::Written(version),
            Found::Garbage { .. } => return Err(format!("{found:?} where {self:?}")),
        };
        if let Some(at) = self.doubts.iter().rposition(|doubt| *doubt == content) {
            self.sure = content;
            self.doubts.drain(..=at);
            return Ok(());
        }
        if self.sure == content {
            return Ok(());
        }
        Err(format!("{found:?} where {self:?}"))
    }

    /// The volume went back to what it was; versions are not given twice all the same.
    pub fn back_to(&mut self, then: &Entry) {
        *self = Entry { last: self.last, ..then.clone() };
    }

    pub fn is_in_doubt(&self) -> bool {
        !self.doubts.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn acknowledged_content_must_be_there_and_newer_doubts_may() {
        let mut entry = Entry::default();
        assert_eq!(entry.saw(Found::Zeroes), Ok(()));
        let first = entry.writing();
        entry.acknowledged();
        assert!(entry.saw(Found::Zeroes).is_err(), "it was written");
        let second = entry.writing();
        let third = entry.writing();
        assert_eq!(entry.saw(Found::Written(first)), Ok(()), "both may have been dropped");
        assert_eq!(entry.saw(Found::Written(second)), Ok(()));
        assert!(entry.saw(Found::Written(first)).is_err(), "what was read must not vanish");
        assert_eq!(entry.saw(Found::Written(third)), Ok(()));
        assert!(!entry.is_in_doubt());
    }

    #[test]
    fn a_trim_leaves_what_was_there_or_zeroes() {
        let mut entry = Entry::default();
        let version = entry.writing();
        entry.acknowledged();
        entry.trimming();
        assert_eq!(entry.saw(Found::Written(version)), Ok(()));
        assert_eq!(entry.saw(Found::Zeroes), Ok(()));
        assert!(entry.saw(Found::Written(version)).is_err());
    }
}
