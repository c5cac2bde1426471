use super::*;

/// Protects from a controller that grows with every object that ever was.
#[test]
fn nothing_is_remembered_of_objects_that_are_gone() {
    let (now, mut worries) = (Instant::now(), Worries::default());
    let thing = |kind: v1::Kind, name: &str| (kind, name.to_owned());
    let kept = thing(v1::Kind::Volume, "kept");
    for gone in [thing(v1::Kind::Volume, "gone"), thing(v1::Kind::Snapshot, "gone"), kept.clone()] {
        worries.done(&gone, now);
        worries.failed(&gone, "no room".into(), now);
        worries.relieved(&gone.1, now);
    }
    let mut peer = v1::PeerStatus { member: Some(v1::Member::default()), ..Default::default() };
    peer.set_standing(v1::Standing::Offline);
    let target = v1::TargetStatus { serving: true, peers: vec![peer], ..Default::default() };
    worries.ill_of(&[7; 16], Some(&target), now);
    worries.keep(|id| id == "kept", |_, name| name == "kept");
    assert_eq!(worries.of.keys().collect::<Vec<_>>(), [&key(&kept)]);
    assert_eq!(worries.touched.keys().collect::<Vec<_>>(), ["kept"]);
    assert_eq!(worries.reliefs.keys().collect::<Vec<_>>(), ["kept"]);
    assert!(worries.ill.is_empty());
}
