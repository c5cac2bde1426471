use super::*;

fn pairs(of: &[(&str, &str)]) -> Pairs {
    of.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

fn read(name: &str, value: &str) -> Result<Class, ParameterError> {
    Class::of(&pairs(&[(name, value)]), &Pairs::new())
}

#[test]
fn values_are_read_as_the_table_says() {
    let full = Class {
        replicas: Some(5),
        block_size: Some(16384),
        compression: Some("gzip-9".into()),
        pools: vec!["fast".into(), "slow".into()],
        spread: Some("topology.kubernetes.io/zone".into()),
        hold_deadline_ms: Some(300_000),
        zvol_workers: Some(8),
        group: Some("shop".into()),
        fs_type: Some("xfs"),
    };
    let parameters = pairs(&[
        ("replicas", "5"),
        ("blockSize", "16Ki"),
        ("compression", "gzip-9"),
        ("pools", "fast, slow"),
        ("spread", "topology.kubernetes.io/zone"),
        ("holdDeadline", "5m"),
        ("zvolWorkers", "8"),
        ("group", "shop"),
        ("csi.storage.k8s.io/fstype", "xfs"),
        ("csi.storage.k8s.io/pvc/name", "claim"),
    ]);
    assert_eq!(Class::of(&parameters, &Pairs::new()), Ok(full));
}

#[test]
fn sizes_and_durations_are_written_in_several_ways() {
    for (text, bytes) in [("512", 512), ("4096", 4096), ("4K", 4096), ("128KiB", 128 << 10)] {
        assert_eq!(read("blockSize", text).unwrap().block_size, Some(bytes), "{text}");
    }
    for (text, ms) in [("500ms", 500), ("60s", 60_000), ("24h", 86_400_000)] {
        assert_eq!(read("holdDeadline", text).unwrap().hold_deadline_ms, Some(ms), "{text}");
    }
    for text in ["off", "on", "lz4", "gzip", "gzip-1", "gzip-9", "zle", "lzjb"] {
        assert_eq!(read("compression", text).unwrap().compression.as_deref(), Some(text));
    }
}

#[test]
fn what_is_no_value_is_refused_with_those_that_are() {
    for (name, values) in [
        ("replicas", &["0", "8", "", "-1", "+3", "3.0", " 3", "three"][..]),
        ("blockSize", &["0", "256", "256Ki", "4000", "4Gi", "4k", "Ki", "99999999999Ki"]),
        ("compression", &["", "LZ4", "gzip-0", "gzip-10", "gzip-", "gzip-01", "zstd"]),
        ("pools", &["", ",", "fast,", "fast slow"]),
        ("spread", &["", "a key"]),
        ("holdDeadline", &["", "60", "0s", "25h", "-1s", "s", "1d", "99999999999999999999s"]),
        ("zvolWorkers", &["1025", "-1", ""]),
        ("group", &["", "a\n"]),
        ("csi.storage.k8s.io/fstype", &["", "ext3", "EXT4", "ntfs"]),
    ] {
        for value in values {
            let error = read(name, value).unwrap_err();
            let told = row(name).unwrap();
            let wrong =
                ParameterError::Value { name: told.name, value: shown(value), values: told.values };
            assert_eq!(error, wrong, "{name}: {value}");
            assert!(error.to_string().contains(told.values), "{error}");
        }
    }
}

#[test]
fn an_unknown_parameter_is_named_with_the_known_and_a_near_one() {
    for (name, near) in [
        ("replica", Some("replicas")),
        ("Replicas", Some("replicas")),
        ("blocksize", Some("blockSize")),
        ("holdDeadlines", Some("holdDeadline")),
        ("pool", Some("pools")),
        ("csi.storage.k8s.io.fstype", Some("csi.storage.k8s.io/fstype")),
        ("thinProvision", None),
        ("", None),
    ] {
        let error = read(name, "1").unwrap_err();
        assert_eq!(error, ParameterError::Unknown { name: name.into(), near });
        let text = error.to_string();
        assert!(text.contains(&format!("`{name}`")) && text.contains("zvolWorkers"), "{text}");
        assert_eq!(text.contains("did you mean"), near.is_some(), "{text}");
    }
}

/// Protects from a message that is as long as whatever somebody sent.
#[test]
fn only_the_beginning_of_a_long_text_is_repeated() {
    for text in ["x".repeat(5000), "ü".repeat(5000)] {
        assert!(read(&text, "1").unwrap_err().to_string().len() < 400);
        assert!(read("replicas", &text).unwrap_err().to_string().len() < 300);
    }
}

#[test]
fn what_can_be_changed_counts_more_and_nothing_else_can_be_changed() {
    let class = Class::of(&pairs(&[("replicas", "3")]), &pairs(&[("replicas", "2")]));
    assert_eq!(class.unwrap().replicas, Some(2));
    for (name, value) in
        [("blockSize", "4Ki"), ("pools", "fast"), ("csi.storage.k8s.io/fstype", "xfs")]
    {
        let mutable = pairs(&[(name, value)]);
        let fixed = ParameterError::Fixed { name: name.into() };
        assert_eq!(Class::of(&Pairs::new(), &mutable), Err(fixed.clone()));
        assert_eq!(Class::changes(&mutable), Err(fixed.clone()));
        assert!(fixed.to_string().contains("replicas, holdDeadline, zvolWorkers"), "{fixed}");
    }
    let strange = Class::changes(&pairs(&[("XXX_FakeKey", "x")]));
    assert!(matches!(strange, Err(ParameterError::Unknown { .. })), "{strange:?}");
}

#[test]
fn defaults_are_values_and_fill_what_is_not_said() {
    let class = Class { replicas: Some(2), ..Class::default() }.or_defaults();
    let wanted = Class {
        replicas: Some(2),
        block_size: Some(4096),
        compression: Some("off".into()),
        hold_deadline_ms: Some(60_000),
        zvol_workers: Some(0),
        fs_type: Some("ext4"),
        ..Class::default()
    };
    assert_eq!(class, wanted);
}

#[test]
fn snapshots_keep_what_kubernetes_says_and_take_nothing_else() {
    assert_eq!(of_snapshot(&pairs(&[("csi.storage.k8s.io/volumesnapshot/name", "s")])), Ok(()));
    let error = of_snapshot(&pairs(&[("replicas", "2")])).unwrap_err();
    assert_eq!(error, ParameterError::OfSnapshot { name: "replicas".into() });
}

/// Protects from a page that promises what the code does not do.
#[test]
fn the_documentation_has_this_table() {
    let page = include_str!("../../../../docs/csi.md");
    let rows = TABLE.iter().map(|row| {
        let Parameter { name, default, values, mutable, meaning, .. } = row;
        let (default, mutable) = match (*default, *mutable) {
            ("", mutable) => (String::new(), mutable),
            (default, mutable) => (format!("`{default}`"), mutable),
        };
        let mutable = if mutable { "yes" } else { "no" };
        format!("| `{name}` | {default} | {values} | {mutable} | {meaning} |\n")
    });
    let table: String = rows.collect();
    assert!(page.contains(&table), "docs/csi.md is to have:\n{table}");
}
