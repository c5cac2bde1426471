//! A target whose catalog has lost its volume, or deleted it.
use crate::catalog::{CatalogAnswer, VolumeObject};
use crate::client::{Command, CommandError};
use crate::target::Stopped;
use crate::target::tests::served;
use crate::target::tests::stage::{Stage, members, write};
use crate::words::{CatalogVersion, Grant, NodeId, ReplicaId, Span};

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

/// A target that does not serve, since its replicas have seen a newer catalog.
fn behind_a_restored_catalog() -> Stage {
    let mut stage = served(3);
    for replica in 1..=3 {
        stage.fake(replica).seen = 7;
    }
    stage.take_over(2);
    stage.pass(Span::secs(8));
    assert!(!stage.is_serving());
    stage
}

/// Protects from an operator who waits for ever: somebody changed the object at the same time, so the swap that confirms it
/// came too late.
#[test]
fn a_confirmation_whose_swap_conflicts_is_sent_again() {
    let mut stage = behind_a_restored_catalog();
    stage.catalog.version = CatalogVersion(stage.catalog.version.0 + 1);
    stage.command(90, Command::ConfirmCatalog);
    assert_eq!(stage.catalog.membership.version, 8, "the highest seen plus one");
    assert_eq!(stage.command_answer(90), Some(Ok(())));
    assert_eq!(stage.stopped(), Some(Stopped::Superseded), "by the grant that confirms it");
}

#[test]
fn a_confirmation_that_did_not_reach_the_catalog_is_sent_again() {
    let mut stage = behind_a_restored_catalog();
    stage.catalog_is_away = true;
    stage.command(90, Command::ConfirmCatalog);
    stage.pass(Span::secs(3));
    assert_eq!(stage.command_answer(90), None);
    stage.catalog_is_away = false;
    stage.pass(Span::secs(2));
    assert_eq!(stage.catalog.membership.version, 8);
    assert_eq!(stage.command_answer(90), Some(Ok(())));
}

/// Somebody else has brought the catalog up to date while the confirmation was on its way.
#[test]
fn a_confirmation_that_is_not_needed_any_more_is_refused() {
    let mut stage = behind_a_restored_catalog();
    stage.catalog.version = CatalogVersion(stage.catalog.version.0 + 1);
    stage.catalog.membership.version = 7;
    stage.command(90, Command::ConfirmCatalog);
    let answer = stage.command_answer(90);
    assert!(matches!(answer, Some(Err(CommandError::Invalid { .. }))), "{answer:?}");
    stage.pass(Span::secs(4));
    assert_eq!(stage.catalog.membership.version, 7, "nothing was swapped");
}

#[test]
fn a_second_confirmation_takes_the_place_of_the_first() {
    let mut stage = behind_a_restored_catalog();
    stage.catalog_is_away = true;
    stage.command(90, Command::ConfirmCatalog);
    stage.command(91, Command::ConfirmCatalog);
    assert_eq!(stage.command_answer(90), Some(Err(CommandError::Busy)));
    stage.catalog_is_away = false;
    stage.pass(Span::secs(2));
    assert_eq!(stage.command_answer(91), Some(Ok(())));
}

/// A choice makes a grant and a version above all that was seen: then there is nothing left to confirm.
#[test]
fn a_choice_and_a_confirmation_at_once_are_both_answered() {
    let mut stage = served(3);
    stage.fake(2).seen = 7;
    stage.cut_off(3);
    stage.take_over(2);
    stage.pass(Span::secs(8));
    stage.catalog_is_away = true;
    stage.command(90, Command::ConfirmCatalog);
    stage.command(91, Command::Choose { replica: ReplicaId(1) });
    stage.catalog_is_away = false;
    stage.pass(Span::secs(4));
    assert_eq!(stage.command_answer(91), Some(Ok(())));
    let answer = stage.command_answer(90);
    assert!(matches!(answer, Some(Err(CommandError::Invalid { .. }))), "{answer:?}");
    assert!(stage.is_serving());
}

/// Protects a volume whose catalog was brought back to what its replicas have seen: they refused this target before.
#[test]
fn a_catalog_that_is_brought_back_lets_a_waiting_target_serve() {
    let mut stage = behind_a_restored_catalog();
    stage.catalog.version = CatalogVersion(stage.catalog.version.0 + 1);
    stage.catalog.membership.version = 7;
    stage.pass(Span::secs(6));
    assert!(stage.is_serving(), "{:?}", stage.target.status(stage.now));
}
