//! What a run over many seeds has to have seen: a path that no seed took is not tested.
use crate::workload::Paths;

use super::plan::FAULTS;

/// Bytes that catching up brought, and what had changed meanwhile: distinct granules.
pub const CAUGHT_UP: &str = "catch-up: bytes brought";
pub const CHANGED: &str = "catch-up: bytes changed";

/// Paths that a thousand seeds have to take, each at least this often.
pub const REQUIRED: &[(&str, u64)] = &[
    ("catalog brought back", 100),
    ("catalog confirmed by an operator", 5),
    ("catalog did not answer", 100),
    ("catalog lost an object", 100),
    ("catalog rebuilt", 50),
    ("catalog rolled back", 100),
    ("catch-up measured", 500),
    ("choice interrupted", 20),
    ("clone made", 20),
    ("copies compared with the sequence", 2_000),
    ("copy chosen", 50),
    ("copy lost with its device", 20),
    ("copy wiped", 100),
    ("entry: clone mark", 100),
    ("entries sent again", 500),
    ("entry: close", 100),
    ("entry: growth by a level", 8),
    ("entry: zeros of a large part", 100),
    ("entry: delete snapshot", 500),
    ("entry: membership", 500),
    ("entry: resize", 50),
    ("entry: rollback", 100),
    ("entry: snapshot", 1_000),
    ("entry: stages", 500),
    ("events taken together by a replica", 10_000),
    ("events taken together by a target", 10_000),
    ("extents done", 10_000),
    ("failed flush lost writes", 100),
    ("final copies compared", 2_000),
    ("flush failed in service", 300),
    ("flush failed while a pool opened", 300),
    ("gave up and came back as new", 10),
    ("granule rotted", 200),
    ("group cut broken", 100),
    ("group cut good", 100),
    ("group cut took too long", 20),
    ("heard of an older object", 500),
    ("holes told", 10_000),
    ("import failed", 50),
    ("io: no space", 5),
    ("left: damaged", 20),
    ("left: failed", 20),
    ("store: no space", 100),
    ("link noticed by silence", 1_000),
    ("losses told", 100),
    ("malformed message dropped a link", 100),
    ("membership: one less", 50),
    ("membership: one more", 50),
    ("membership: one replaced", 50),
    ("membership: vote given up", 10),
    ("need: relieve", 100),
    ("need: resume", 500),
    ("need: serve", 500),
    ("node resumes without the catalog", 50),
    ("power cut lost writes", 100),
    ("probe done", 200),
    ("quorum lost for good", 50),
    ("reads waited for the lease", 100),
    ("stalled in front of sending", 500),
    ("reconnects", 1_000),
    ("refused: promised", 100),
    ("repaired", 50),
    ("replicas closed cleanly", 100),
    ("round committed", 1_000),
    ("round ended at a user's snapshot", 500),
    ("short of space and judged", 50),
    ("sent: own changes (losing tail)", 20),
    ("sent: recovered", 100),
    ("stagings anew", 50),
    ("takeover", 500),
    ("target begins with what its node remembers", 50),
    ("those that will be left fall behind", 30),
    ("target started under its grant", 500),
    ("target superseded", 200),
    ("welcome: import can go on", 20),
    ("welcome: regressed", 200),
];

/// How many times what changed was brought by catching up, in percent.
pub fn catch_up_percent(paths: &Paths) -> u64 {
    let count = |name: &str| paths.counts.get(name).copied().unwrap_or(0);
    count(CAUGHT_UP) * 100 / count(CHANGED).max(1)
}

/// Those that were taken too rarely.
pub fn missing(paths: &Paths) -> Vec<(&'static str, u64)> {
    let faults = FAULTS.iter().map(|(_, name, _)| (*name, 1));
    let wanted = faults.chain(REQUIRED.iter().copied());
    let count = |name: &str| paths.counts.get(name).copied().unwrap_or(0);
    wanted.filter(|(name, least)| count(name) < *least).collect()
}

/// A table of all paths.
pub fn table(paths: &Paths) -> String {
    let lines = paths.counts.iter().map(|(name, count)| format!("{count:>12}  {name}\n"));
    lines.collect()
}
