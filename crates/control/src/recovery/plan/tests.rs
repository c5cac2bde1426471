use super::*;

fn volume(version: u64, format: Option<v1::FormatMark>) -> v1::Object {
    let key = Some(v1::Key { kind: v1::Kind::Volume.into(), name: "db".into() });
    let (uid, name) = (vec![7; 16], "db".to_owned());
    let volume = v1::Volume { uid, name, format, ..v1::Volume::default() };
    v1::Object { key, version, body: Some(Body::Volume(volume)), ..v1::Object::default() }
}

/// Protects what was written after a mkfs that a copy of the catalog takes for unfinished.
#[test]
fn what_is_brought_back_has_no_format_mark() {
    let mark = v1::FormatMark { stage: 7, verified: true, ..v1::FormatMark::default() };
    let marked = volume(4, Some(mark));
    let copy = [Source { what: "a copy".into(), objects: vec![marked.clone()] }];
    let plan_over = |present: &[v1::Object]| plan(present, &copy, &BTreeMap::new(), 1);
    for present in [&[][..], &[volume(3, None)]] {
        let planned = plan_over(present);
        let Some(Body::Volume(restored)) = &planned.objects[0].body else { panic!("no volume") };
        assert_eq!(restored.format, None);
        assert_eq!(planned.objects[0].version, 5, "it is another state than the one with the mark");
        assert!(planned.steps[0].notes.iter().any(|note| note.contains("format mark")));
    }
    let unchanged = plan_over(&[marked]);
    assert!(unchanged.objects.is_empty(), "a mkfs under way is left alone");
    assert_eq!(unchanged.steps[0].action, Action::Keep);
}

fn token(name: &str, digest: u8, version: u64) -> v1::Object {
    let key = Some(v1::Key { kind: v1::Kind::Token.into(), name: name.into() });
    let (name, digest) = (name.to_owned(), vec![digest; 32]);
    let role = v1::TokenRole::Admin.into();
    let body = Some(Body::Token(v1::Token { name, digest, role, ..v1::Token::default() }));
    v1::Object { key, version, body, ..v1::Object::default() }
}

/// Protects the operator's scripts from a site whose first token was made anew, and the new token from the old one.
#[test]
fn a_token_whose_name_is_taken_comes_back_under_another() {
    let copy = [Source { what: "a copy".into(), objects: vec![token("admin", 7, 5)] }];
    let plan_over = |present: &[v1::Object]| plan(present, &copy, &BTreeMap::new(), 1);
    let planned = plan_over(&[token("admin", 8, 1)]);
    assert_eq!(planned.objects, [token("admin.old", 7, 5)]);
    assert_eq!(planned.steps[0].action, Action::Restore);
    let again = plan_over(&[token("admin", 8, 1), token("admin.old", 7, 5)]);
    assert!(again.objects.is_empty(), "once is enough");
    let mut taken_away = token("admin", 8, 2);
    taken_away.deleted_uids = vec![vec![7; 32]];
    assert!(plan_over(&[taken_away]).objects.is_empty(), "it was deleted before");
}

/// Protects from a volume that was deleted after a copy was taken, whichever source is read first.
#[test]
fn what_a_node_knows_to_be_deleted_does_not_come_back_from_a_copy() {
    let left = v1::Object { body: None, deleted_uids: vec![vec![7; 16]], ..volume(5, None) };
    let source = |what: &str, object| Source { what: what.into(), objects: vec![object] };
    let (copy, node) = (source("a copy", volume(4, None)), source("a node", left));
    for sources in [[copy.clone(), node.clone()], [node, copy]] {
        let planned = plan(&[], &sources, &BTreeMap::new(), 1);
        assert!(planned.steps.is_empty(), "{:?}", planned.steps);
        assert!(planned.objects.iter().all(|object| object.body.is_none()));
    }
}
