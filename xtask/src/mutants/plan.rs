//! Which suites count for which crate, cheapest first.
use std::time::Duration;

/// Crates whose mutants are judged.
pub const CRATES: [&str; 4] = ["replication", "engine", "node", "control"];

pub struct Suite {
    /// For cargo.
    pub words: &'static str,
    pub env: &'static [(&'static str, &'static str)],
    /// A mutant that makes a suite take longer is caught: it takes a small part of this otherwise,
    /// with everything to be built.
    pub limit: Duration,
}

const fn suite(words: &'static str, minutes: u64) -> Suite {
    Suite { words, env: &[], limit: Duration::from_secs(60 * minutes) }
}

/// Enough worlds to reach every path several times; a fifth of an ordinary test run.
const SOME_WORLDS: &[(&str, &str)] = &[("POLLUX_SIM_SEEDS", "300")];

static REPLICATION: [Suite; 4] = [
    suite("test --locked -p replication --lib --tests", 20),
    Suite { env: SOME_WORLDS, ..suite("test --locked -p sim --test quorum", 30) },
    suite("test --locked -p node --lib --tests", 30),
    suite("test --locked -p rig --test catch_up --test changes --test full_pool", 40),
];

static ENGINE: [Suite; 3] = [
    suite("test --locked -p engine --lib --tests", 20),
    Suite { env: SOME_WORLDS, ..suite("test --locked -p sim --test model --test power_cut", 30) },
    suite(
        "test --locked -p sim --test snapshots --test deltas --test credits --test scrub --test \
         compression --test refusals --test full_with_snapshots --test undone --test pipelined \
         --test bit_rot --test failed_device --test grow",
        30,
    ),
];

static NODE: [Suite; 4] = [
    suite("test --locked -p node --lib --tests", 30),
    Suite {
        env: SOME_WORLDS,
        ..suite("test --locked -p sim --test quorum --test store_adapter", 30)
    },
    suite("test --locked -p rig --test bad_input --test catch_up --test changes --test stale", 40),
    suite("test --locked -p rig --test full_pool --test failed_pool --test peers_tls", 40),
];

static CONTROL: [Suite; 3] = [
    suite("test --locked -p control --lib --tests", 30),
    suite("test --locked -p rig --test node_loss --test group_snapshots --test old_controller", 40),
    suite(
        "test --locked -p rig --test stranded --test catalog_loss --test crash_matrix --test \
         attach_bad_input",
        40,
    ),
];

/// How long a suite may take with a mutant that is built, if it takes so long without one.
pub fn limit(takes: Duration) -> Duration {
    takes * 3 + Duration::from_secs(60)
}

pub fn suites(of: &str) -> &'static [Suite] {
    match of {
        "replication" => &REPLICATION,
        "engine" => &ENGINE,
        "node" => &NODE,
        "control" => &CONTROL,
        _ => &[],
    }
}

impl Suite {
    /// Whether it starts the product's program, which its own build does not make.
    pub fn runs_processes(&self) -> bool {
        self.words.contains("-p rig")
    }

    /// Whether a crate builds at all.
    pub fn build_of(package: &str) -> Suite {
        match package {
            "replication" => suite("check --locked -p replication", 20),
            "engine" => suite("check --locked -p engine", 20),
            "node" => suite("check --locked -p node", 20),
            _ => suite("check --locked -p control", 20),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Protects from a mutant that nothing is run against.
    #[test]
    fn every_crate_has_suites_and_they_name_tests_that_are_there() {
        for name in CRATES {
            assert!(!suites(name).is_empty(), "{name}");
            for suite in suites(name) {
                let words: Vec<&str> = suite.words.split_whitespace().collect();
                let package = words[words.iter().position(|it| *it == "-p").expect("one") + 1];
                let named = words.windows(2).filter(|pair| pair[0] == "--test").map(|pair| pair[1]);
                for test in named {
                    let tests = crate::shell::root().join("crates").join(package).join("tests");
                    let file = tests.join(format!("{test}.rs"));
                    let folder = tests.join(test).join("main.rs");
                    assert!(file.exists() || folder.exists(), "{package} has no test {test}");
                }
            }
        }
    }
}
