//! Protects from a wait that ends too early, or never.
use super::*;
use crate::commands::site::fake::{copy, volume};
use control::api::types::Health;

#[test]
fn a_volume_is_waited_for_until_it_is_healthy() {
    let mut volume = volume("db", Health::Pending);
    volume.copies = vec![copy("node-1", "Healthy", None), copy("node-2", "Rebuilding", Some(0.5))];
    let Some(Look::Under(share, line)) = look(Goal::Healthy, "db", Some(&volume)) else {
        panic!("it is not healthy");
    };
    assert_eq!(share, 0.5, "one of three and a half");
    assert!(line.contains("db is Pending") && line.contains("node-2: Rebuilding"), "{line}");
    assert!(!line.contains("node-1"), "{line}");
    volume.state.health = Health::Healthy;
    assert_eq!(look(Goal::Healthy, "db", Some(&volume)), Some(Look::Reached));
    assert_eq!(look(Goal::Healthy, "db", None), None, "it will never be");
}

#[test]
fn a_volume_has_grown_when_nothing_grows_any_more() {
    let mut volume = volume("db", Health::Healthy);
    volume.size = 2 << 30;
    let goal = Goal::Size(2 << 30);
    volume.wanted_size = Some(2 << 30);
    assert!(
        matches!(look(goal, "db", Some(&volume)), Some(Look::Under(_, line)) if line.contains("2 GiB"))
    );
    volume.wanted_size = None;
    assert_eq!(look(goal, "db", Some(&volume)), Some(Look::Reached));
    assert_ne!(look(Goal::Size(3 << 30), "db", Some(&volume)), Some(Look::Reached));
}

#[test]
fn replicas_are_there_when_all_are_in_order_and_none_is_left_over() {
    let mut volume = volume("db", Health::Healthy);
    volume.copies = vec![copy("node-1", "Healthy", None), copy("node-2", "Healthy", None)];
    assert_eq!(look(Goal::Replicas(2), "db", Some(&volume)), Some(Look::Reached));
    assert_ne!(look(Goal::Replicas(1), "db", Some(&volume)), Some(Look::Reached));
    assert_ne!(look(Goal::Replicas(3), "db", Some(&volume)), Some(Look::Reached));
    volume.copies[1].votes = false;
    assert_ne!(look(Goal::Replicas(2), "db", Some(&volume)), Some(Look::Reached));
}

#[test]
fn what_is_deleted_is_waited_for_until_it_is_gone() {
    let volume = volume("db", Health::Deleting);
    assert!(matches!(look(Goal::Gone, "db", Some(&volume)), Some(Look::Under(_, _))));
    assert_eq!(look(Goal::Gone, "db", None), Some(Look::Reached));
}
