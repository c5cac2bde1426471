//! Our definitions of the container storage interface beside the public Go module.
//!
//! The program in `wire/` speaks for the module, `crates/proto/examples/csi_wire` for ours. The module comes by the
//! proxy of Go and stays in Go's own caches; whatever the two tell each other goes to a scratch folder.
use std::fs;

use anyhow::{Context, Result, ensure};

use super::tools;
use crate::shell;
use crate::totals::Totals;

pub fn run(log: &str) -> Result<Totals> {
    if tools::find("go").is_none() {
        println!(
            "SKIPPED: there is no `go` here, so our definitions of CSI were compared with nothing"
        );
        return Ok(Totals { skipped: 1, ..Totals::default() });
    }
    let scratch = shell::target().join("conformance/wire");
    fs::create_dir_all(&scratch).with_context(|| format!("making {}", scratch.display()))?;
    let public = scratch.join("public").display().to_string();
    let build =
        format!("{} go -C xtask/src/conformance/wire build -buildvcs=false -o", tools::GO_SECONDS);
    let built = shell::program("timeout", &build).arg(&public).arg(".").run(log)?.exited_well;
    ensure!(built, "the program of the public module could not be built");

    let compare = shell::cargo("run --quiet --locked -p proto --example csi_wire --");
    let compared = compare.arg(&public).arg(&scratch.display().to_string()).run(log)?;
    let totals =
        Totals::of_summary(&compared.stdout).context("the check did not come to its end")?;
    ensure!(compared.exited_well == (totals.failed == 0), "it exited otherwise than it counted");
    Ok(totals)
}
