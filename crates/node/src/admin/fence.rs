//! Who controls the site: a controller that another one followed does nothing here any more.
//!
//! Controllers have generations, and say theirs with every call that changes something. The node keeps the
//! highest that it heard of, from controllers and from the catalog, and refuses lower ones. That is kept in
//! memory only, since the catalog has it for good: before something is destroyed or taken over, the catalog
//! is asked. Who says no generation is an operator, and does as he likes.
use std::sync::atomic::{AtomicU64, Ordering};

use thiserror::Error;
use tonic::metadata::MetadataMap;
use tonic::{Request, Status};

use super::Admin;

/// Where a controller says its generation.
pub const HEADER: &str = "pollux-controller";

/// From 1 on; grows with every controller that begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Generation(pub u64);

#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Fenced {
    #[error(
        "generation {} of the controller does nothing here: generation {} controls the site",
        given.0, known.0
    )]
    Superseded { given: Generation, known: Generation },
    #[error("`{HEADER}` is {found:?}: it has to be one decimal number from 1 on")]
    Malformed { found: String },
}

impl From<Fenced> for Status {
    fn from(fenced: Fenced) -> Status {
        match fenced {
            Fenced::Superseded { .. } => Status::aborted(fenced.to_string()),
            Fenced::Malformed { .. } => Status::invalid_argument(fenced.to_string()),
        }
    }
}

/// The highest generation that was heard of; 0: none.
#[derive(Debug, Default)]
pub struct Fence(AtomicU64);

impl Fence {
    /// A controller wants something. Whoever comes behind it must not be older.
    pub fn pass(&self, given: Generation) -> Result<(), Fenced> {
        let known = Generation(self.0.fetch_max(given.0, Ordering::AcqRel));
        match known > given {
            true => Err(Fenced::Superseded { given, known }),
            false => Ok(()),
        }
    }

    /// The catalog says who controls the site.
    pub fn learn(&self, generation: Generation) {
        self.0.fetch_max(generation.0, Ordering::AcqRel);
    }
}

/// The generation that a call carries; `None`: it is an operator's.
pub fn caller(metadata: &MetadataMap) -> Result<Option<Generation>, Fenced> {
    let mut values = metadata.get_all(HEADER).iter();
    let Some(value) = values.next() else { return Ok(None) };
    let malformed = || Fenced::Malformed { found: format!("{value:?}") };
    if values.next().is_some() {
        return Err(Fenced::Malformed { found: "there several times".into() });
    }
    let text = value.to_str().map_err(|_| malformed())?;
    // Parsing alone would take a sign as well.
    let digits = text.bytes().all(|byte| byte.is_ascii_digit());
    match text.parse() {
        Ok(generation) if digits && generation > 0 => Ok(Some(Generation(generation))),
        _ => Err(Fenced::Malformed { found: text.into() }),
    }
}

impl Admin {
    /// What is asked, if the caller may change something.
    pub(super) fn fenced<T>(&self, request: Request<T>) -> Result<T, Status> {
        if let Some(generation) = caller(request.metadata())? {
            self.fence.pass(generation)?;
        }
        Ok(request.into_inner())
    }

    /// The same for what cannot be undone: a controller must be the one that the catalog has now, also
    /// if no other one has been heard of.
    pub(super) async fn fenced_anew<T>(&self, request: Request<T>) -> Result<T, Status> {
        if let Some(generation) = caller(request.metadata())? {
            self.fence.pass(generation)?;
            if let Some(known) = self.books.controller().await? {
                self.fence.learn(known);
            }
            self.fence.pass(generation)?;
        }
        Ok(request.into_inner())
    }

    /// A beat is no change, but tells who controls the site. Without a generation it does not.
    pub(super) fn heard(&self, beat: &proto::v1::BeatRequest) -> Result<(), Status> {
        match beat.controller {
            0 => Ok(()),
            generation => Ok(self.fence.pass(Generation(generation))?),
        }
    }
}

#[cfg(test)]
mod tests {
    use tonic::Code;

    use super::*;

    fn said(values: &[&str]) -> Result<Option<Generation>, Fenced> {
        let mut metadata = MetadataMap::new();
        for value in values {
            metadata.append(HEADER, value.parse().unwrap());
        }
        caller(&metadata)
    }

    #[test]
    fn who_came_before_is_refused_and_told_who_controls() {
        let fence = Fence::default();
        fence.pass(Generation(3)).unwrap();
        fence.pass(Generation(3)).unwrap();
        fence.pass(Generation(5)).unwrap();
        let (given, known) = (Generation(3), Generation(5));
        let refused = fence.pass(given).unwrap_err();
        assert_eq!(refused, Fenced::Superseded { given, known });
        let status = Status::from(refused);
        assert_eq!(status.code(), Code::Aborted);
        assert!(status.message().contains("generation 5 controls the site"), "{status:?}");
        fence.pass(known).unwrap();
    }

    #[test]
    fn what_the_catalog_says_only_raises() {
        let fence = Fence::default();
        fence.learn(Generation(7));
        fence.learn(Generation(2));
        assert!(fence.pass(Generation(6)).is_err());
        fence.pass(Generation(7)).unwrap();
    }

    #[test]
    fn an_operator_says_nothing_and_a_controller_one_number() {
        assert_eq!(said(&[]), Ok(None));
        assert_eq!(said(&["17"]), Ok(Some(Generation(17))));
        let max = u64::MAX.to_string();
        assert_eq!(said(&[&max]), Ok(Some(Generation(u64::MAX))));
        for bad in [&[""][..], &["0"], &["+1"], &["-1"], &["1 "], &["0x1"], &["1", "2"]] {
            let refused = Status::from(said(bad).unwrap_err());
            assert_eq!(refused.code(), Code::InvalidArgument, "{bad:?}");
        }
        assert!(said(&["18446744073709551616"]).is_err(), "more than a number holds");
    }
}
