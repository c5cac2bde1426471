//! How a node starts, resumes and restarts targets, and what it tells them of the catalog. No IO, no clock.
//!
//! A node learns of an object by watch and by get, and these overtake one another. What it knows of an object never
//! goes back: an older answer is not obeyed. Under its own grant it needs no catalog (Q1).
use crate::catalog::{CatalogAnswer, CatalogAsk, VolumeObject};
use crate::target::{Begin, Stopped};
use crate::words::{NodeId, Start};

/// What to do when a target is to start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Starting {
    /// A run is there already. `take_over`: it gets [`super::Event::TakeOver`], since it may still wait for the grant.
    Runs {
        take_over: bool,
    },
    /// The record is older than what was acted on before.
    OldRecord,
    Begin,
}

/// `known`: the newest object that was acted on; `asked`: the object of the record to start with.
pub fn start(
    runs: bool,
    known: Option<&VolumeObject>,
    asked: &VolumeObject,
    begin: Begin,
) -> Starting {
    match runs {
        true => Starting::Runs { take_over: begin == Begin::TakeOver },
        false if known.is_some_and(|known| asked.is_older_than(known)) => Starting::OldRecord,
        false => Starting::Begin,
    }
}

/// How a node that starts resumes a volume of which it knows this object; `None`: it does not have the grant.
pub fn resume(known: &VolumeObject, here: NodeId) -> Option<Begin> {
    has_grant(known, here).then_some(Begin::Granted)
}

/// Whether the object outlives the process: only volumes whose grant is here matter after a restart.
pub fn is_remembered(known: &VolumeObject, here: NodeId) -> bool {
    has_grant(known, here)
}

fn has_grant(known: &VolumeObject, here: NodeId) -> bool {
    known.holder == here
}

/// How a target that stopped is started again, and above which start; `None`: it is not.
pub fn restart(reason: &Stopped) -> Option<(Begin, Start)> {
    match reason {
        Stopped::Outnumbered { promised } => Some((Begin::Granted, Start::of(promised.term))),
        Stopped::Closed | Stopped::Superseded | Stopped::NoVolume => None,
    }
}

/// Whether an object that the catalog answers with is older than what was known *before* it was asked. Then the answer
/// was not overtaken by a later one: the catalog has lost its end.
pub fn is_lost(before: Option<&VolumeObject>, found: &VolumeObject) -> bool {
    before.is_some_and(|before| found.is_older_than(before))
}

/// Whether memory may answer in the catalog's place: only the first question of a run, and only a get.
pub fn may_remember(first: bool, ask: &CatalogAsk) -> bool {
    first && matches!(ask, CatalogAsk::Get)
}

/// What memory answers where the catalog does not answer, or has lost the volume.
pub fn from_memory(known: Option<&VolumeObject>, here: NodeId) -> Option<CatalogAnswer> {
    let own = known.filter(|known| has_grant(known, here));
    own.map(|own| CatalogAnswer::Object(Box::new(own.clone())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::Promise;
    use crate::words::{Boot, CatalogVersion, Grant};

    const HERE: NodeId = NodeId(1);
    const OTHER: NodeId = NodeId(2);

    fn object(grant: u64, version: u64, holder: NodeId) -> VolumeObject {
        let (grant, version) = (Grant(grant), CatalogVersion(version));
        VolumeObject { grant, version, holder, ..VolumeObject::default() }
    }

    /// Protects from two runs of a target on one node, and from a takeover that a waiting run does not hear of.
    #[test]
    fn a_run_that_is_there_stays_and_hears_of_a_takeover() {
        let old = object(1, 1, HERE);
        let known = object(2, 5, OTHER);
        let start = |runs, begin| start(runs, Some(&known), &old, begin);
        assert_eq!(start(true, Begin::TakeOver), Starting::Runs { take_over: true });
        assert_eq!(start(true, Begin::Granted), Starting::Runs { take_over: false });
        assert_eq!(start(false, Begin::TakeOver), Starting::OldRecord);
    }

    #[test]
    fn a_record_that_is_not_older_begins() {
        let known = object(2, 5, HERE);
        for asked in [&known, &object(2, 6, HERE), &object(3, 1, HERE)] {
            assert_eq!(start(false, Some(&known), asked, Begin::Granted), Starting::Begin);
        }
        assert_eq!(start(false, None, &known, Begin::Granted), Starting::Begin);
    }

    #[test]
    fn only_the_holder_resumes_and_remembers() {
        assert_eq!(resume(&object(2, 5, HERE), HERE), Some(Begin::Granted));
        assert_eq!(resume(&object(2, 5, OTHER), HERE), None);
        assert!(is_remembered(&object(2, 5, HERE), HERE));
        assert!(!is_remembered(&object(2, 5, OTHER), HERE));
        assert!(from_memory(Some(&object(2, 5, HERE)), HERE).is_some());
        assert_eq!(from_memory(Some(&object(2, 5, OTHER)), HERE), None);
        assert_eq!(from_memory(None, HERE), None);
        assert!(may_remember(true, &CatalogAsk::Get) && !may_remember(false, &CatalogAsk::Get));
    }

    #[test]
    fn only_a_run_that_was_outnumbered_starts_again_and_above_what_was_promised() {
        let term = Grant(4).term(Start(7));
        let promised = Promise { term, run: Boot(1) };
        assert_eq!(restart(&Stopped::Outnumbered { promised }), Some((Begin::Granted, Start(7))));
        for reason in [Stopped::Closed, Stopped::Superseded, Stopped::NoVolume] {
            assert_eq!(restart(&reason), None);
        }
    }

    /// Protects from a catalog that lost its end, or an answer that was overtaken, and is obeyed.
    #[test]
    fn an_answer_below_what_was_known_is_a_loss() {
        let (old, new) = (object(1, 9, OTHER), object(2, 5, HERE));
        assert!(is_lost(Some(&new), &old));
        assert!(!is_lost(Some(&old), &new) && !is_lost(None, &old) && !is_lost(Some(&old), &old));
    }
}
