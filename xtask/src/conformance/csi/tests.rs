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
    specs.extend(EXCUSED.map(|(name, _)| spec(&format!("{name} and more"), "skipped")));
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
    let totals = judge(&sound()).unwrap();
    assert_eq!((totals.passed, totals.failed, totals.skipped), (1, 0, EXCUSED.len() as u64));
}

#[test]
fn what_is_skipped_without_an_excuse_has_failed() {
    for state in ["skipped", "pending", "failed", "panicked", "interrupted"] {
        let mut specs = sound();
        specs.push(spec("CreateSnapshot [Controller Server] should fail", state));
        assert_eq!(judge(&specs).unwrap().failed, 1, "{state}");
    }
}

#[test]
fn an_excuse_for_nothing_has_failed() {
    for gone in 1..sound().len() {
        let mut specs = sound();
        specs.remove(gone);
        assert_eq!(judge(&specs).unwrap().failed, 1);
    }
}

#[test]
fn a_run_without_a_spec_is_an_error() {
    assert!(judge(&sound()[1..]).is_err());
}

#[test]
fn a_name_is_matched_as_it_is() {
    assert_eq!(literal("Get [It] a-b (c)."), r"Get \[It\] a\-b \(c\)\.");
}
