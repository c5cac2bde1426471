use tonic::Code;

use super::*;

fn zone(name: &str) -> Topology {
    Topology { segments: [("zone".to_owned(), name.to_owned())].into() }
}

fn pairs(name: &str) -> Pairs {
    [("zone".to_owned(), name.to_owned())].into()
}

#[test]
fn what_is_requisite_binds_and_what_is_preferred_is_ordered() {
    assert_eq!(wanted(None).unwrap(), Wanted::default());
    let requisite = vec![zone("a"), zone("b"), zone("c")];
    let preferred = vec![zone("c"), zone("a")];
    let both = TopologyRequirement { requisite, preferred: preferred.clone() };
    let read = wanted(Some(both)).unwrap();
    assert_eq!(read.accessible, [pairs("a"), pairs("b"), pairs("c")]);
    assert_eq!(read.preferred, [pairs("c"), pairs("a")]);
    let free = wanted(Some(TopologyRequirement { requisite: vec![], preferred })).unwrap();
    assert!(free.accessible.is_empty() && free.preferred.len() == 2);
}

#[test]
fn a_node_is_where_a_replica_is_best_and_no_bound() {
    let node = |name: &str| Topology { segments: [(NODE_KEY.to_owned(), name.to_owned())].into() };
    let requisite = vec![node("a"), node("b")];
    let read = wanted(Some(TopologyRequirement { requisite, preferred: vec![node("b")] })).unwrap();
    assert!(read.accessible.is_empty(), "it is reached from everywhere");
    assert_eq!(read.preferred[0][NODE_KEY], "b");
    let mut both = zone("z");
    both.segments.insert(NODE_KEY.to_owned(), "a".to_owned());
    let requisite = vec![both.clone(), both];
    let read = wanted(Some(TopologyRequirement { requisite, preferred: vec![] })).unwrap();
    assert_eq!(read.accessible, [pairs("z")]);
}

#[test]
fn requirements_that_say_nothing_or_contradict_themselves_are_refused() {
    for (requisite, preferred, field) in [
        (vec![], vec![], "requisite"),
        (vec![Topology::default()], vec![], "requisite[0].segments"),
        (vec![zone("a")], vec![zone("a"), Topology::default()], "preferred[1].segments"),
        (vec![zone("a")], vec![zone("b")], "preferred"),
    ] {
        let status = wanted(Some(TopologyRequirement { requisite, preferred })).unwrap_err();
        assert_eq!(status.code(), Code::InvalidArgument);
        assert!(status.message().contains(field), "{status}");
    }
}

#[test]
fn a_node_is_where_its_operator_says() {
    let given = |of: &[(&str, &str)]| {
        place(of.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect())
    };
    let fine = given(&[("topology.pollux.io/zone", "Z1"), ("topology.pollux.io/rack", "r_3")]);
    assert_eq!(fine.unwrap().len(), 2);
    assert_eq!(given(&[]).unwrap(), Pairs::new());
    for key in ["", "/zone", "a/", "a/b/c", "-zone", "zone-", "Upper.io/zone", "ä"] {
        assert_eq!(given(&[(key, "a")]), Err(PlaceError::Key(key.into())), "{key}");
    }
    for value in ["", "-a", "a b", &"x".repeat(64)] {
        assert_eq!(given(&[("zone", value)]), Err(PlaceError::Value(value.into())), "{value}");
    }
    assert_eq!(given(&[("zone", "a"), ("Zone", "b")]), Err(PlaceError::Twice("Zone".into())));
    assert_eq!(given(&[(NODE_KEY, "b")]), Err(PlaceError::Twice(NODE_KEY.into())));
    assert_eq!(given(&[("a/x", "1"), ("b/y", "1")]), Err(PlaceError::Prefix("b/y".into())));
}
