use super::*;

fn attached(host: &str, stage: u64) -> v1::Attachment {
    v1::Attachment { host: host.into(), stage, ..v1::Attachment::default() }
}

fn mark(host: &str, stage: u64) -> v1::FormatMark {
    v1::FormatMark {
        file_system: "ext4".into(),
        host: host.into(),
        stage,
        since_ms: 1,
        verified: true,
    }
}

fn volume(attachments: Vec<v1::Attachment>, format: Option<v1::FormatMark>) -> v1::Volume {
    v1::Volume { name: "db".into(), attachments, format, ..v1::Volume::default() }
}

#[test]
fn only_the_newest_stage_of_a_host_that_writes_may_format() {
    let wanted = mark("a", 7);
    assert_eq!(may_format_again(&volume(vec![attached("a", 7)], None), &wanted), Ok(false));
    let reader = v1::Attachment { read_only: true, ..attached("b", 0) };
    let beside_reader = volume(vec![attached("a", 7), reader.clone()], None);
    assert_eq!(may_format_again(&beside_reader, &wanted), Ok(false));
    for (attachments, words) in [
        (vec![], "not attached to `a`"),
        (vec![attached("b", 7)], "not attached to `a`"),
        (vec![attached("a", 8)], "not the newest"),
        (vec![attached("a", 0)], "not the newest"),
        (vec![v1::Attachment { host: "a".into(), stage: 7, ..reader }], "for reading only"),
        (vec![attached("a", 7), attached("b", 6)], "attached to `b` too"),
    ] {
        // Also with the mark: it is no permission for somebody else.
        for format in [None, Some(mark("a", 7))] {
            let refused = may_format_again(&volume(attachments.clone(), format), &wanted);
            let refused = refused.expect_err(words);
            assert_eq!(refused.code, Code::InUse);
            assert!(refused.message.contains(words), "{refused}");
        }
    }
    let never = may_format_again(&volume(vec![attached("a", 0)], None), &mark("a", 0));
    assert!(never.is_err(), "a host without a stage does not use the volume");
}

#[test]
fn a_verified_mark_of_the_newest_stage_allows_it_again() {
    let again = |format| {
        let volume = volume(vec![attached("b", 8)], Some(format));
        may_format_again(&volume, &mark("b", 8)).expect("it is attached")
    };
    // The host that was lost had an earlier stage: the mark went on with the stage that the next one got.
    assert!(again(mark("a", 8)));
    assert!(!again(v1::FormatMark { verified: false, ..mark("a", 8) }));
    assert!(!again(mark("a", 7)));
}

/// Protects the data of whoever had the volume between a mkfs that was cut off and the next mount.
#[test]
fn a_mark_does_not_outlive_any_other_use() {
    let after = |mark, last, mounts| mark_after_stage(Some(mark), last, 9, mounts);
    assert_eq!(after(mark("a", 7), 7, true), Some(mark("a", 9)));
    assert_eq!(after(mark("a", 7), 7, false), None, "as a device");
    assert_eq!(after(mark("a", 7), 8, true), None, "a stage that the catalog does not know of");
    let unverified = v1::FormatMark { verified: false, ..mark("a", 7) };
    assert_eq!(after(unverified, 7, true), None);
    assert_eq!(mark_after_stage(None, 7, 8, true), None);
}
