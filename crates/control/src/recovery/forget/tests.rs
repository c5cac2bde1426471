//! Protects from the deletion of something that nobody meant.
use std::collections::BTreeMap;

use super::super::{Evidence, Source};
use super::*;

fn volume(version: u64, uid: u8) -> v1::Object {
    let volume = v1::Volume { uid: vec![uid; 16], name: "db".into(), ..v1::Volume::default() };
    let body = Some(Body::Volume(volume));
    v1::Object { key: Some(key("db")), version, body, ..v1::Object::default() }
}

fn gathered(objects: Vec<v1::Object>, replicas: &[u8]) -> Gathered {
    let evidence = |uid: &u8| {
        let volume = Some(v1::VolumeRef { name: "db".into(), uid: vec![*uid; 16] });
        let replica = v1::Replica { volume, incarnation: 5, ..v1::Replica::default() };
        let evidence = Evidence { replicas: vec![(2, replica)], targets: Vec::new() };
        (vec![*uid; 16], evidence)
    };
    Gathered {
        sources: vec![Source { what: "node-1".into(), objects }],
        evidence: replicas.iter().map(evidence).collect::<BTreeMap<_, _>>(),
        silent: Vec::new(),
    }
}

#[test]
fn only_a_volume_that_is_lost_and_is_the_only_one_is_forgotten() {
    let lost = find_lost(&[], &gathered(vec![volume(9, 7)], &[7]), "db").unwrap();
    let expected = Lost { name: "db".into(), uid: vec![7; 16], version: 9, replicas: vec![(2, 5)] };
    assert_eq!(lost, expected);
    let by_content = find_lost(&[], &gathered(Vec::new(), &[7]), "db").unwrap();
    assert_eq!((by_content.uid, by_content.version), (vec![7; 16], 0), "only a replica is left");

    let find = |present: &[v1::Object], known: Vec<v1::Object>, replicas: &[u8]| {
        find_lost(present, &gathered(known, replicas), "db").unwrap_err()
    };
    let listed = find(&[volume(9, 7)], vec![volume(9, 7)], &[7]);
    assert!(matches!(listed, ForgetError::Listed { .. }), "{listed}");
    let unknown = find(&[], Vec::new(), &[]);
    assert!(matches!(unknown, ForgetError::Unknown { .. }), "{unknown}");
    let several = find(&[], vec![volume(9, 7)], &[8]);
    assert!(matches!(&several, ForgetError::Several { uids, .. } if uids.len() == 2), "{several}");
    let taken = find(&[volume(1, 8)], vec![volume(9, 7)], &[7]);
    assert!(matches!(taken, ForgetError::Several { .. }), "another one has its name: {taken}");
}
