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
