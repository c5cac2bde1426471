//! `csi-sanity`, the public suite of the container storage interface, against a plugin of ours and a site: once
//! with volumes that are mounted, once with volumes as devices.
//!
//! Whatever it skips is told by name. A spec that is skipped without an excuse fails the suite: a capability that
//! is lost would be skipped in silence otherwise. After each run nothing may be left on this machine.
mod remains;

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use serde::Deserialize;

use super::site::Site;
use super::tools;
use crate::shell;
use crate::totals::Totals;

/// Its definitions are those of CSI 1.13, which has all of 1.12 that it asks for.
const MODULE: &str = "github.com/kubernetes-csi/csi-test/v5/cmd/csi-sanity";
const VERSION: &str = "v5.6.0";

const SECONDS_MAX: u64 = 600;

/// Small, so that pools of a site have room for all that are there at a time.
const VOLUME_BYTES: u64 = 64 << 20;

/// Each run passes 94 of them; fewer than this, and the suite has lost a part.
const PASSED_MIN: u64 = 90;

/// How the suite asks for its volumes.
const ACCESS_TYPES: [&str; 2] = ["mount", "block"];

const NEWER: &str = "of CSI 1.13, and ours is 1.12";

/// Specs that are not run, by how their names begin, and why. One that nothing begins with is an error: the
/// suite has changed, or the excuse is no longer needed.
type Excuse = (&'static str, &'static str);

const ALWAYS: [Excuse; 7] = [
    ("Node Service NodeGetVolumeHealth", NEWER),
    ("Node Service NodeGetStorageHealth", NEWER),
    ("ControllerGetVolumeHealth", NEWER),
    ("ControllerListVolumeHealth", NEWER),
    (
        "CreateSnapshot [Controller Server] should succeed when creating a snapshot with accessibility requirements",
        NEWER,
    ),
    (
        "Controller Service [Controller Server] ControllerPublishVolume should fail when publishing more volumes than",
        "a node has no limit of attachments",
    ),
    (
        "Controller Service [Controller Server] ListVolumes pagination should detect volumes added between pages",
        "the suite has turned it off itself",
    ),
];

/// What needs a device, and so cannot be run on every machine.
const DEVICES: [&str; 8] = [
    "Node Service NodePublishVolume",
    "Node Service NodeUnpublishVolume should remove target path",
    "Node Service NodeStageVolume",
    "Node Service NodeUnstageVolume",
    "Node Service NodeGetVolumeStats",
    "Node Service NodeExpandVolume",
    "Node Service should work",
    "Node Service should be idempotent",
];

/// `lacking`: what this machine has not, and devices need.
fn excuses(lacking: Option<&'static str>) -> Vec<Excuse> {
    let devices = lacking.into_iter().flat_map(|why| DEVICES.map(|spec| (spec, why)));
    ALWAYS.into_iter().chain(devices).collect()
}

/// What a machine needs so that the driver can make devices of volumes, and this one has not.
fn lacking() -> Option<&'static str> {
    // Whose process it is: a file of `/proc` belongs to who runs.
    let is_root =
        fs::metadata("/proc/self").is_ok_and(|it| std::os::unix::fs::MetadataExt::uid(&it) == 0);
    if !is_root {
        return Some("it needs root");
    }
    let devices = [
        ("/dev/fuse", "there is no /dev/fuse"),
        ("/dev/loop-control", "there is no /dev/loop-control"),
    ];
    devices.into_iter().find(|(path, _)| !Path::new(path).exists()).map(|(_, why)| why)
}

/// Where a plugin is reached.
struct Plugin {
    controller: String,
    node: String,
}

/// Controller and node in one process, as a small site has them.
fn start_plugin(site: &mut Site, api: &str) -> Result<Plugin> {
    let text = |name: &str| site.folder().join(name).display().to_string();
    let (path, token, state) = (text("csi.sock"), text("admin.token"), text(remains::STATE));
    let words = ["serve", "csi", "--mode", "all", "--node", "node-1", "--socket", &path];
    let words = [&words[..], &["--api", api, "--token-file", &token, "--state", &state]].concat();
    site.spawn("csi", &words)?;
    site.wait_for_socket(Path::new(&path))?;
    // Also in specs of controllers the suite asks for a node, and unpublishes what it deletes.
    Ok(Plugin { controller: format!("unix://{path}"), node: format!("unix://{path}") })
}

/// What a class's secrets would be, with every call that takes one: the credential of the volume.
const SECRETS: [&str; 11] = [
    "CreateVolumeSecret",
    "DeleteVolumeSecret",
    "ControllerPublishVolumeSecret",
    "ControllerUnpublishVolumeSecret",
    "ControllerValidateVolumeCapabilitiesSecret",
    "NodeStageVolumeSecret",
    "NodePublishVolumeSecret",
    "CreateSnapshotSecret",
    "DeleteSnapshotSecret",
    "ControllerExpandVolumeSecret",
    "ListSnapshotsSecret",
];

fn write_secrets(path: &Path) -> Result<()> {
    let pair =
        "  node.session.auth.username: sanity\n  node.session.auth.password: not-a-real-secret\n";
    let text: String = SECRETS.iter().map(|call| format!("{call}:\n{pair}")).collect();
    Ok(fs::write(path, text)?)
}

pub fn run(log: &str) -> Result<Totals> {
    if tools::find("go").is_none() {
        println!("SKIPPED: there is no `go` here, so csi-sanity could not be installed");
        return Ok(Totals { skipped: 1, ..Totals::default() });
    }
    let sanity = tools::install_go(MODULE, VERSION, log)?;
    let lacking = lacking();
    if let Some(why) = lacking {
        println!(
            "SKIPPED: {why}, so no volume becomes a device: all specs that begin with one of these"
        );
        DEVICES.iter().for_each(|spec| println!("SKIPPED: {spec}"));
    }
    let (mut site, api) = Site::start_controlled("csi")?;
    site.wait_for_nodes(&api)?;
    let plugin = start_plugin(&mut site, &api)?;
    write_secrets(&site.folder().join("secrets.yaml"))?;
    let totals = both_runs(&sanity, &plugin, site.folder(), lacking, log);
    if totals.as_ref().map_or(true, |totals| totals.failed > 0) {
        // Also where the suite was cut short: the folder is about to be removed, with all that is mounted in it.
        remains::sweep(site.folder())?;
        site.show_logs();
    }
    totals
}

fn both_runs(
    sanity: &Path,
    plugin: &Plugin,
    folder: &Path,
    lacking: Option<&'static str>,
    log: &str,
) -> Result<Totals> {
    let mut totals = Totals::default();
    for access in ACCESS_TYPES {
        let excuses = excuses(lacking);
        let report = sanity_run(sanity, plugin, folder, (access, &excuses), log)?;
        let run = judge(&specs(&report)?, &excuses);
        println!("csi-sanity {VERSION}, {access}: {run}");
        totals += run;
        totals += enough(run, lacking);
        totals += nothing_left(folder, access)?;
    }
    Ok(totals)
}

/// What the suite reports.
fn sanity_run(
    sanity: &Path,
    plugin: &Plugin,
    folder: &Path,
    (access, excuses): (&str, &[Excuse]),
    log: &str,
) -> Result<String> {
    let junit = shell::reports()?.join(format!("csi-sanity-{access}.xml"));
    let report = folder.join(format!("csi-sanity-{access}.json"));
    let mut command = shell::program("timeout", &SECONDS_MAX.to_string())
        .arg(&sanity.display().to_string())
        .arg(&format!("--csi.endpoint={}", plugin.node))
        .arg(&format!("--csi.controllerendpoint={}", plugin.controller))
        .arg(&format!("--csi.mountdir={}", folder.join("mount").display()))
        .arg(&format!("--csi.stagingdir={}", folder.join("staging").display()))
        .arg(&format!("--csi.secrets={}", folder.join("secrets.yaml").display()))
        .arg(&format!("--csi.testvolumeaccesstype={access}"))
        .arg(&format!("--csi.testvolumesize={VOLUME_BYTES}"))
        .arg(&format!("--csi.testvolumeexpandsize={}", 2 * VOLUME_BYTES))
        .arg("--ginkgo.no-color")
        .arg(&format!("--ginkgo.junit-report={}", junit.display()))
        .arg(&format!("--ginkgo.json-report={}", report.display()));
    for (spec, _) in excuses {
        command = command.arg(&format!("--ginkgo.skip={}", literal(spec)));
    }
    // How it exits tells only that something failed, which its report tells better.
    command.run(log)?;
    fs::read_to_string(&report).context("the suite did not come to its end")
}

/// A suite that runs few specs passes easily.
fn enough(run: Totals, lacking: Option<&str>) -> Totals {
    let least = if lacking.is_some() { 1 } else { PASSED_MIN };
    if run.passed < least {
        println!("failed: {} specs passed, and {least} are the least", run.passed);
    }
    Totals::of_check(run.passed >= least)
}

/// Everything that was attached was given back.
fn nothing_left(folder: &Path, access: &str) -> Result<Totals> {
    let left = remains::below(folder)?;
    left.iter().for_each(|what| println!("failed: {access}: left behind: {what}"));
    Ok(Totals::of_check(left.is_empty()))
}

/// A regular expression for just this text.
fn literal(text: &str) -> String {
    let escaped = |c: char| if c.is_alphanumeric() || c == ' ' { vec![c] } else { vec!['\\', c] };
    text.chars().flat_map(escaped).collect()
}

struct Spec {
    name: String,
    state: String,
    /// What the suite says of a failure or a skip.
    message: String,
}

/// What the suite reports, of all that we read.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Suite {
    spec_reports: Vec<SpecReport>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct SpecReport {
    /// Absent for what runs before and behind all specs.
    container_hierarchy_texts: Option<Vec<String>>,
    leaf_node_text: String,
    leaf_node_type: String,
    state: String,
    failure: Option<Failure>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Failure {
    message: Option<String>,
}

fn specs(report: &str) -> Result<Vec<Spec>> {
    let suites: Vec<Suite> = serde_json::from_str(report).context("the report of the suite")?;
    let reports = suites.into_iter().flat_map(|suite| suite.spec_reports);
    // Steps around the specs matter only if they fail.
    let reports =
        reports.filter(|report| report.leaf_node_type == "It" || report.state != "passed");
    let specs = reports.map(|report| {
        let mut name = report.container_hierarchy_texts.unwrap_or_default();
        name.push(report.leaf_node_text);
        let message = report.failure.and_then(|failure| failure.message).unwrap_or_default();
        Spec { name: name.join(" "), state: report.state, message }
    });
    Ok(specs.collect())
}

fn judge(specs: &[Spec], excuses: &[Excuse]) -> Totals {
    let mut totals = Totals::default();
    for Spec { name, state, message } in specs {
        let excuse = excuses.iter().find(|(spec, _)| name.starts_with(spec));
        match (state.as_str(), excuse) {
            ("passed", _) => totals.passed += 1,
            ("skipped" | "pending", Some((_, why))) => {
                println!("skipped: {name}: {why}");
                totals.skipped += 1;
            }
            ("skipped" | "pending", None) => {
                println!("failed: {name}: skipped without an excuse: {message}");
                totals.failed += 1;
            }
            (state, _) => {
                println!("failed: {name}: {state}: {message}");
                totals.failed += 1;
            }
        }
    }
    for (spec, _) in excuses {
        let skipped = |it: &Spec| it.name.starts_with(spec) && it.state != "passed";
        if !specs.iter().any(skipped) {
            println!("failed: {spec}: it is excused, and no such spec was skipped");
            totals.failed += 1;
        }
    }
    totals
}

#[cfg(test)]
mod tests;
