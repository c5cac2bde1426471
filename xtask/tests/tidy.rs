//! The rules of the house that a machine can check.
//!
//! Each rule is a plain function from text to complaints. One test applies it to the tree, and
//! one shows that it would complain: a rule that cannot fail protects from nothing.
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

const LINES_MAX: usize = 600;

/// A long file says why within its first lines.
const LONG: &str = "// long:";
const LONG_WITHIN: usize = 5;

/// Words that name no duty.
const VAGUE: [&str; 8] =
    ["common", "helper", "helpers", "manager", "managers", "misc", "util", "utils"];

/// The crates whose duty is what needs `unsafe`: rings, aligned memory, system calls.
const UNSAFE_CRATES: [&str; 2] = ["attach", "disk"];

/// Doors that the engine must not open itself: it sees the world only through `block::Disk`.
const ENGINE_BANNED: [&str; 6] =
    ["std::fs", "std::net", "Instant::now", "SystemTime::now", "thread::sleep", "tokio"];

/// What a crate may depend on, tests aside.
struct Reach {
    name: &'static str,
    /// Our own crates; `None` is all of them.
    ours: Option<&'static [&'static str]>,
    /// Everybody else's; `None` is what the workspace has.
    others: Option<&'static [&'static str]>,
}

/// Names beyond these, in a crate that is held to them, need a decision record.
const FEW: Option<&[&str]> =
    Some(&["bytes", "crc-fast", "flate2", "lz4_flex", "thiserror", "zerocopy"]);

const REACH: [Reach; 16] = [
    reach("block", Some(&[]), FEW),
    reach("disk", Some(&["block"]), None),
    reach("engine", Some(&["block"]), FEW),
    reach("replication", Some(&["block"]), Some(&["crc-fast", "thiserror"])),
    reach("frontend", Some(&["block"]), Some(&["crc-fast", "md-5", "thiserror"])),
    reach("logging", Some(&[]), None),
    reach("proto", Some(&[]), None),
    reach("certs", Some(&[]), None),
    reach("attach", Some(&["block", "certs", "frontend"]), None),
    reach("control", Some(&["attach", "block", "certs", "logging", "proto", "replication"]), None),
    reach(
        "node",
        Some(&["block", "certs", "disk", "engine", "frontend", "logging", "proto", "replication"]),
        None,
    ),
    reach("sim", Some(&["block", "control", "engine", "node", "proto", "replication"]), None),
    reach(
        "bench",
        Some(&[
            "block",
            "certs",
            "control",
            "disk",
            "engine",
            "proto",
            "replication",
            "rig",
            "sim",
        ]),
        None,
    ),
    reach("rig", Some(&["block", "certs", "control", "proto"]), None),
    reach("pollux", None, None),
    reach("xtask", Some(&[]), None),
];

const fn reach(
    name: &'static str,
    ours: Option<&'static [&'static str]>,
    others: Option<&'static [&'static str]>,
) -> Reach {
    Reach { name, ours, others }
}

// The rules.

fn too_long(text: &str) -> Option<String> {
    let lines = text.lines().count();
    let excused = text
        .lines()
        .take(LONG_WITHIN)
        .filter_map(|line| line.strip_prefix(LONG))
        .any(|reason| !reason.trim().is_empty());
    (lines > LINES_MAX && !excused)
        .then(|| format!("{lines} lines: split it by duty, or begin it with `{LONG} <reason>`"))
}

fn vague_name(path: &Path) -> Option<String> {
    let names = path.iter().map(|part| part.to_string_lossy().to_lowercase());
    let mut words = names.flat_map(|name| {
        let stem = name.strip_suffix(".rs").unwrap_or(&name);
        stem.split(['_', '-']).map(str::to_owned).collect::<Vec<_>>()
    });
    let word = words.find(|word| VAGUE.contains(&word.as_str()))?;
    Some(format!("`{word}` in a name says nothing: name the duty"))
}

fn allows_unsafe(crate_root: &str) -> Option<String> {
    let forbids = crate_root.lines().any(|line| line.trim() == "#![forbid(unsafe_code)]");
    (!forbids).then(|| "lacks #![forbid(unsafe_code)]".into())
}

fn unfinished(text: &str) -> Option<String> {
    // Put together here, so that this file passes its own rule.
    let mark = concat!("todo", "!(");
    text.contains(mark).then(|| format!("has a {mark}..)"))
}

/// Code without its line comments: a comment may well say what is not done.
fn code(text: &str) -> impl Iterator<Item = &str> {
    text.lines().map(|line| line.split_once("//").map_or(line, |(code, _)| code))
}

fn opens_a_door(text: &str) -> Vec<String> {
    let code: String = code(text).flat_map(|line| [line.trim(), " "]).collect();
    let mut found: Vec<String> = ENGINE_BANNED
        .iter()
        .filter(|banned| code.contains(**banned))
        .map(|banned| format!("uses `{banned}`"))
        .collect();
    // `use std::{fs, net::TcpStream}` names the same doors.
    for group in code.split("use std::{").skip(1) {
        let group = group.split(';').next().unwrap_or(group);
        let words: BTreeSet<&str> = group.split(|c: char| !c.is_alphanumeric()).collect();
        for door in ["fs", "net"] {
            if words.contains(door) {
                found.push(format!("uses `std::{door}`"));
            }
        }
    }
    found
}

/// Complaints about the packages of `cargo metadata --no-deps`.
fn wrong_direction(metadata: &Value) -> Vec<String> {
    let none = Vec::new();
    let list = |value: &Value| value.as_array().unwrap_or(&none).clone();
    let packages = list(&metadata["packages"]);
    let mut found = Vec::new();
    for package in &packages {
        let name = package["name"].as_str().unwrap_or_default();
        let Some(reach) = REACH.iter().find(|reach| reach.name == name) else {
            found.push(format!("{name}: say in REACH what this crate may know"));
            continue;
        };
        for dependency in list(&package["dependencies"]) {
            if dependency["kind"] == "dev" {
                continue;
            }
            let on = dependency["name"].as_str().unwrap_or_default();
            let is_ours = packages.iter().any(|package| package["name"] == on);
            let allowed = if is_ours { reach.ours } else { reach.others };
            if allowed.is_some_and(|allowed| !allowed.contains(&on)) {
                found.push(format!("{name} must not depend on {on}"));
            }
        }
    }
    found
}

fn undecided(record: &str) -> Option<String> {
    let known = ["proposed", "accepted", "superseded by "];
    let decided = record
        .lines()
        .filter_map(|line| line.strip_prefix("Status: "))
        .any(|status| known.iter().any(|known| status.starts_with(known)));
    (!decided).then(|| "lacks a line `Status: proposed | accepted | superseded by NNNN`".into())
}

// The tree.

fn root() -> PathBuf {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
    manifest.parent().expect("xtask lies in the workspace").into()
}

/// Every file below a folder whose name ends so, relative to the root, with its text.
fn files(folder: &str, suffix: &str) -> Vec<(PathBuf, String)> {
    let root = root();
    let mut folders = vec![root.join(folder)];
    let mut found = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("the folder can be read") {
            let path = entry.expect("the entry can be read").path();
            if path.is_dir() && !path.ends_with("target") {
                folders.push(path);
            } else if path.to_string_lossy().ends_with(suffix) {
                let text = fs::read_to_string(&path).expect("the file is text");
                let path = path.strip_prefix(&root).expect("it is below").into();
                found.push((path, text));
            }
        }
    }
    assert!(!found.is_empty(), "no *{suffix} below {folder}");
    found.sort();
    found
}

fn sources() -> Vec<(PathBuf, String)> {
    let mut sources = files("crates", ".rs");
    sources.extend(files("xtask", ".rs"));
    sources
}

fn complaints<C: IntoIterator<Item = String>>(
    files: &[(PathBuf, String)],
    rule: impl Fn(&Path, &str) -> C,
) -> Vec<String> {
    let complaints = files.iter().flat_map(|(path, text)| {
        rule(path, text)
            .into_iter()
            .map(move |complaint| format!("{}: {complaint}", path.display()))
    });
    complaints.collect()
}

#[track_caller]
fn assert_none(complaints: &[String]) {
    assert!(complaints.is_empty(), "\n{}\n", complaints.join("\n"));
}

#[test]
fn no_file_is_long_without_a_reason() {
    assert_none(&complaints(&sources(), |_, text| too_long(text)));
}

#[test]
fn no_name_is_vague() {
    assert_none(&complaints(&sources(), |path, _| vague_name(path)));
}

#[test]
fn nothing_is_left_unfinished() {
    assert_none(&complaints(&sources(), |_, text| unfinished(text)));
}

#[test]
fn every_crate_but_two_forbids_unsafe_code() {
    let mut roots = sources();
    roots.retain(|(path, _)| {
        let is_root = path.ends_with("src/lib.rs") || path.ends_with("src/main.rs");
        let may = |name: &&str| path.starts_with(Path::new("crates").join(name));
        is_root && !UNSAFE_CRATES.iter().any(may)
    });
    assert!(roots.len() > 2, "the roots of the crates were not found");
    assert_none(&complaints(&roots, |_, text| allows_unsafe(text)));
}

#[test]
fn the_engine_sees_the_world_only_through_its_doors() {
    let engine = files("crates/engine/src", ".rs");
    assert_none(&complaints(&engine, |_, text| opens_a_door(text)));
}

#[test]
fn dependencies_point_downwards() {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(["metadata", "--no-deps", "--offline", "--format-version", "1"])
        .current_dir(root())
        .output()
        .expect("cargo runs");
    assert!(output.status.success(), "cargo metadata failed");
    let metadata = serde_json::from_slice(&output.stdout).expect("cargo speaks JSON");
    assert_none(&wrong_direction(&metadata));
}

#[test]
fn every_decision_has_a_status() {
    let records = files("docs/decisions", ".md");
    assert_none(&complaints(&records, |_, text| undecided(text)));
}

mod would_complain {
    use super::*;

    #[test]
    fn about_a_long_file_without_a_reason() {
        let long = "x\n".repeat(LINES_MAX + 1);
        assert!(too_long(&long).is_some());
        assert!(too_long(&long[2..]).is_none());
        assert!(too_long(&format!("//! Doc.\n// long: one table\n{long}")).is_none());
        assert!(too_long(&format!("// long:\n{long}")).is_some(), "no reason");
        assert!(too_long(&format!("{long}// long: too late")).is_some());
    }

    #[test]
    fn about_a_vague_name() {
        for bad in ["disk/src/utils.rs", "sim/src/io_helper.rs", "a/common/mod.rs"] {
            assert!(vague_name(Path::new(bad)).is_some(), "{bad}");
        }
        assert!(vague_name(Path::new("engine/src/journal/commons.rs")).is_none());
    }

    #[test]
    fn about_a_crate_that_allows_unsafe_code() {
        assert!(allows_unsafe("//! Says forbid(unsafe_code).\nmod a;\n").is_some());
        assert!(allows_unsafe("// #![forbid(unsafe_code)]\n").is_some());
        assert!(allows_unsafe("//! Doc.\n#![forbid(unsafe_code)]\n").is_none());
    }

    #[test]
    fn about_unfinished_code() {
        assert!(unfinished(&["fn f() { todo", "!() }"].concat()).is_some());
        assert!(unfinished("fn f() { done() }").is_none());
    }

    #[test]
    fn about_an_engine_that_opens_a_door() {
        for bad in [
            "use std::fs::File;",
            "let now = std::time::Instant::now();",
            "let now = SystemTime::now();",
            "std::thread::sleep(a);",
            "std::net::TcpStream::connect(a)",
            "use std::{fmt, fs};",
            "use std::{\n    collections::BTreeMap,\n    net::{IpAddr, TcpStream},\n};",
            "tokio::spawn(a);",
        ] {
            assert!(!opens_a_door(bad).is_empty(), "{bad}");
        }
        for good in [
            "// Never std::fs in here.",
            "use std::{fmt, mem};\nfn offset(fs: u64) {}",
            "let deadline: Instant = now + lease;",
        ] {
            assert_eq!(opens_a_door(good), Vec::<String>::new(), "{good}");
        }
    }

    /// The metadata of the packages, each with its dependencies as (kind, name).
    fn metadata(packages: &[(&str, &[(Value, &str)])]) -> Value {
        let package = |(name, on): &(&str, &[(Value, &str)])| {
            let on = on.iter().map(|(kind, on)| serde_json::json!({ "name": on, "kind": kind }));
            serde_json::json!({ "name": name, "dependencies": on.collect::<Vec<_>>() })
        };
        let packages: Vec<Value> = packages.iter().map(package).collect();
        serde_json::json!({ "packages": packages })
    }

    fn ours(name: &'static str, on: &[(Value, &'static str)]) -> Vec<String> {
        let mut packages: Vec<(&str, &[(Value, &str)])> = vec![(name, on)];
        for other in ["block", "disk", "engine", "node", "replication", "sim"] {
            if other != name {
                packages.push((other, &[]));
            }
        }
        wrong_direction(&metadata(&packages))
    }

    #[test]
    fn about_a_dependency_that_points_upwards_or_sideways() {
        let normal = Value::Null;
        for (name, on) in [
            ("block", "disk"),
            ("disk", "engine"),
            ("engine", "disk"),
            ("engine", "sim"),
            ("engine", "tokio"),
            ("engine", "replication"),
            ("replication", "engine"),
            ("replication", "node"),
            ("replication", "flate2"),
            ("node", "sim"),
            ("sim", "disk"),
            ("xtask", "engine"),
        ] {
            let found = ours(name, &[(normal.clone(), on)]);
            assert_eq!(found, [format!("{name} must not depend on {on}")]);
            let build = ours(name, &[(Value::from("build"), on)]);
            assert_eq!(build, found, "build scripts are no way around");
        }
        let allowed = [
            (normal.clone(), "block"),
            (normal.clone(), "crc-fast"),
            (Value::from("dev"), "proptest"),
        ];
        assert_eq!(ours("engine", &allowed), Vec::<String>::new());
        assert_eq!(ours("pollux", &[(normal, "sim")]), Vec::<String>::new());
    }

    #[test]
    fn about_a_crate_that_nobody_placed() {
        assert_eq!(wrong_direction(&metadata(&[("newcomer", &[])])).len(), 1);
    }

    #[test]
    fn about_a_decision_without_a_status() {
        assert!(undecided("# 7. A title\n").is_some());
        assert!(undecided("# 7. A title\n\nStatus: maybe\n").is_some());
        assert!(undecided("# 7. A title\n\nStatus: superseded by 0009\n").is_none());
    }
}
