use super::*;

const REPORT: &str = r#"[{"SuiteDescription": "CSI", "SpecReports": [
    {"ContainerHierarchyTexts": ["Identity Service", "Probe"], "LeafNodeText": "should answer",
     "LeafNodeType": "It", "State": "passed"},
    {"ContainerHierarchyTexts": ["Identity Service"], "LeafNodeText": "should tell",
     "LeafNodeType": "It", "State": "skipped", "Failure": {"Message": "not supported"}},
    {"ContainerHierarchyTexts": null, "LeafNodeText": "", "LeafNodeType": "BeforeSuite", "State": "passed"},
    {"ContainerHierarchyTexts": null, "LeafNodeText": "", "LeafNodeType": "AfterSuite", "State": "panicked"}
]}]"#;

fn spec(name: &str, state: &str) -> Spec {
    Spec { name: name.to_owned(), state: state.to_owned(), message: String::new() }
}

/// A run in which everything is as it should be.
fn sound() -> Vec<Spec> {
    let mut specs = vec![spec("Identity Service Probe should answer", "passed")];
    specs.extend(ALWAYS.map(|(name, _)| spec(&format!("{name} and more"), "skipped")));
    specs
}

#[test]
fn specs_are_found_with_what_was_said_of_them() {
    let found = specs(REPORT).unwrap();
    let found: Vec<_> = found.iter().map(|it| (&*it.name, &*it.state, &*it.message)).collect();
    let expected = [
        ("Identity Service Probe should answer", "passed", ""),
        ("Identity Service should tell", "skipped", "not supported"),
        ("", "panicked", ""),
    ];
    assert_eq!(found, expected);
}

#[test]
fn what_is_excused_is_skipped() {
    let totals = judge(&sound(), &ALWAYS);
    assert_eq!((totals.passed, totals.failed, totals.skipped), (1, 0, ALWAYS.len() as u64));
}

#[test]
fn what_is_skipped_without_an_excuse_has_failed() {
    for state in ["skipped", "pending", "failed", "panicked", "interrupted"] {
        let mut specs = sound();
        specs.push(spec("CreateSnapshot [Controller Server] should fail", state));
        assert_eq!(judge(&specs, &ALWAYS).failed, 1, "{state}");
    }
}

#[test]
fn an_excuse_for_nothing_has_failed() {
    for gone in 1..sound().len() {
        let mut specs = sound();
        specs.remove(gone);
        assert_eq!(judge(&specs, &ALWAYS).failed, 1);
    }
}

/// Protects from a suite that shrinks: what is not run does not fail.
#[test]
fn a_run_of_few_specs_has_failed() {
    let of = |passed| Totals { passed, ..Totals::default() };
    assert_eq!(enough(of(PASSED_MIN), None).failed, 0);
    assert_eq!(enough(of(PASSED_MIN - 1), None).failed, 1);
    assert_eq!(enough(of(1), Some("it needs root")).failed, 0);
    assert_eq!(enough(of(0), Some("it needs root")).failed, 1);
}

#[test]
fn specs_of_devices_are_excused_only_where_there_can_be_none() {
    let stage = spec("Node Service NodeStageVolume should fail", "skipped");
    let named = |excuses: &[Excuse]| excuses.iter().any(|(spec, _)| stage.name.starts_with(spec));
    assert!(!named(&excuses(None)));
    assert!(named(&excuses(Some("it needs root"))));
}

#[test]
fn a_name_is_matched_as_it_is() {
    assert_eq!(literal("Get [It] a-b (c)."), r"Get \[It\] a\-b \(c\)\.");
}
