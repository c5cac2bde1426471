//! A target whose catalog has lost its volume, or deleted it.
use crate::catalog::{CatalogAnswer, VolumeObject};
use crate::target::Stopped;
use crate::target::tests::served;
use crate::target::tests::stage::{Stage, members, write};
use crate::words::{CatalogVersion, Grant, NodeId, Span};

/// Protects from a catalog that was restored, or begins anew: a volume whose replicas are all there is served on, and
/// nothing about it is changed.
#[test]
fn a_volume_that_the_catalog_has_lost_is_served_on() {
    let mut stage = served(3);
    stage.answer_always(Some(CatalogAnswer::Missing));
    stage.step(crate::target::Event::Catalog(CatalogAnswer::Missing));
    stage.pass(Span::secs(20));
    assert_eq!(stage.stopped(), None);
    assert!(stage.is_serving() && stage.target.status(stage.now).catalog_lost);
    stage.ask(1, 10, write(0));
    assert_eq!(stage.answer(10).as_deref(), Some("ok"));

    stage.answer_always(None);
    stage.pass(Span::secs(2));
    assert!(!stage.target.status(stage.now).catalog_lost, "it is back, and that is noticed");
}

/// Protects from a target that floods a catalog which has nothing for it, and from one that never makes the step which
/// it wanted to make.
#[test]
fn a_step_waits_until_the_volume_is_in_the_catalog_again() {
    let mut stage = served(1);
    stage.answer_always(Some(CatalogAnswer::Missing));
    stage.change_desired(members(3));
    let asked = stage.asked;
    stage.pass(Span::secs(10));
    assert!(stage.asked - asked <= 12, "{} questions in ten seconds", stage.asked - asked);
    assert_eq!(stage.catalog.membership.voters.members, members(1));
    stage.answer_always(None);
    stage.pass(Span::secs(5));
    assert_eq!(stage.catalog.membership.voters.members, members(3));
}

#[test]
fn a_deleted_volume_is_served_no_more() {
    let mut stage = served(3);
    stage.answer_always(Some(CatalogAnswer::Deleted));
    stage.pass(Span::secs(20));
    assert_eq!(stage.stopped(), Some(Stopped::NoVolume));
}

/// Absence permits nothing, so a target that has not begun does not begin.
#[test]
fn a_target_does_not_begin_with_a_volume_that_is_missing() {
    let mut stage = Stage::new(3);
    stage.answer_always(Some(CatalogAnswer::Missing));
    stage.take_over(2);
    assert_eq!(stage.stopped(), Some(Stopped::NoVolume));
}

/// Protects from a target that ignores the grant of another because the versions of a rebuilt catalog begin again.
#[test]
fn a_higher_grant_counts_whatever_its_version() {
    let mut stage = served(3);
    let elsewhere = VolumeObject {
        version: CatalogVersion(1),
        grant: Grant(stage.catalog.grant.0 + 1),
        holder: NodeId(2),
        ..stage.catalog.clone()
    };
    assert!(stage.catalog.version > elsewhere.version);
    stage.step(crate::target::Event::Catalog(CatalogAnswer::Object(Box::new(elsewhere))));
    assert_eq!(stage.stopped(), Some(Stopped::Superseded));
}
