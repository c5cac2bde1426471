//! Protects from replicas that share a node, a full pool, or a place where they must not be.
use super::*;

fn pairs(zone: &str, node: u64) -> Pairs {
    Pairs::from([("zone".into(), zone.into()), (NODE_KEY.into(), format!("node-{node}"))])
}

fn candidate(node: u64, zone: &str, promised: u64) -> Candidate {
    let (room, free) = (100, 100);
    Candidate { node, pool: "main".into(), topology: pairs(zone, node), room, promised, free }
}

fn site() -> Vec<Candidate> {
    vec![candidate(1, "a", 50), candidate(2, "a", 10), candidate(3, "b", 20), candidate(4, "c", 90)]
}

fn nodes(chosen: Result<Vec<(u64, String)>, TooFew>) -> Vec<u64> {
    chosen.expect("there is room").into_iter().map(|(node, _)| node).collect()
}

#[test]
fn the_least_used_nodes_come_first_and_each_once() {
    let wanted = Wanted { count: 3, size: 10, ..Wanted::default() };
    assert_eq!(nodes(choose(&site(), &wanted)), [2, 3, 1]);
    let mut two_pools = site();
    two_pools.push(Candidate { pool: "other".into(), promised: 0, ..candidate(2, "a", 0) });
    let chosen = choose(&two_pools, &wanted).expect("there is room");
    assert_eq!(chosen[0], (2, "other".into()));
    assert_eq!(chosen.iter().filter(|(node, _)| *node == 2).count(), 1);
}

#[test]
fn replicas_are_spread_over_zones_as_far_as_there_are_some() {
    let spread = Some("zone".into());
    let wanted = Wanted { count: 3, size: 5, spread, ..Wanted::default() };
    assert_eq!(nodes(choose(&site(), &wanted)), [2, 3, 4]);
    let wanted = Wanted { count: 4, ..wanted };
    assert_eq!(nodes(choose(&site(), &wanted)), [2, 3, 4, 1]);
    let used_values = BTreeSet::from(["b".into()]);
    let wanted = Wanted { count: 1, used_values, taken: BTreeSet::from([2]), ..wanted };
    assert_eq!(nodes(choose(&site(), &wanted)), [1], "zone b is used, and 4 is fuller than 1");
}

#[test]
fn the_topology_and_the_pools_are_respected() {
    let only = |zone: &str| vec![Pairs::from([("zone".into(), zone.into())])];
    let wanted = Wanted { count: 1, size: 10, accessible: only("a"), ..Wanted::default() };
    assert_eq!(nodes(choose(&site(), &wanted)), [2]);
    let wanted = Wanted { count: 3, size: 10, accessible: only("a"), ..Wanted::default() };
    assert_eq!(choose(&site(), &wanted), Err(TooFew), "a has two nodes");
    let [.., third, _] = &site()[..] else { panic!("there are four") };
    assert_eq!(wanted.rejects(&[third]), Some(Unfit::Elsewhere));
    let wanted = Wanted { count: 2, size: 5, preferred: only("c"), ..Wanted::default() };
    assert_eq!(nodes(choose(&site(), &wanted)), [4, 2]);
    let wanted = Wanted { count: 1, pools: vec!["ssd".into()], ..Wanted::default() };
    assert!(choose(&site(), &wanted).is_err());
    assert_eq!(wanted.rejects(&[&site()[0]]), Some(Unfit::NoPool));
}

#[test]
fn a_pool_without_room_is_not_chosen_and_that_is_said() {
    let wanted = Wanted { count: 4, size: 20, ..Wanted::default() };
    assert_eq!(choose(&site(), &wanted), Err(TooFew), "node 4 has 10 left");
    assert_eq!(wanted.rejects(&[&site()[3]]), Some(Unfit::Full { left: 10 }));
    assert_eq!(wanted.rejects(&[&site()[2]]), None);
    let mut full = site();
    full[1].free = 0;
    let wanted = Wanted { count: 1, size: 1, ..Wanted::default() };
    assert_eq!(nodes(choose(&full, &wanted)), [3], "promises are kept with real space");
}

#[test]
fn capacity_is_what_could_be_made() {
    let wanted = |count| Wanted { count, ..Wanted::default() };
    assert_eq!(capacity(&site(), &wanted(1)), (90, 50 + 90 + 80 + 10));
    assert_eq!(capacity(&site(), &wanted(3)), (50, (50 + 60 + 60 + 10) / 3));
    assert_eq!(capacity(&site(), &wanted(5)), (0, 0));
    for count in 1..=4 {
        let (largest, _) = capacity(&site(), &wanted(count));
        let fits = |size| choose(&site(), &Wanted { size, ..wanted(count) }).is_ok();
        assert!(fits(largest) && !fits(largest + 1), "{count}");
    }
}
