//! `pollux up`: a small site on this machine, as processes that end with this one.
mod child;
mod keeper;
mod lock;
mod ports;
mod prepare;
mod site;

use std::process::ExitCode;

use anyhow::{Context, Result};

use crate::cli::Up;
use crate::local::{Description, Folder};
use crate::render;

const SMALL: &str = "volume create db --size 1GiB --wait";

pub fn run(up: &Up) -> Result<ExitCode> {
    let usual = Folder::usual();
    let folder = match (&up.dir, &usual) {
        (Some(dir), _) => Folder::at(std::path::absolute(dir)?),
        (None, Some(usual)) => usual.clone(),
        (None, None) => anyhow::bail!("this user has no home: give a folder with --dir"),
    };
    let shown = folder.path().display();
    prepare::make_folders(&folder).with_context(|| format!("{shown} cannot be made"))?;
    let _lock = lock::take(&folder)?;
    let description = prepare::prepare(&folder, up.nodes, up.pool_size)?;
    let is_usual = usual.is_some_and(|usual| usual.path() == folder.path());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(site::run(&folder, &description, || {
        render::announce(&welcome(&folder, &description, is_usual));
        Ok(())
    }))?;
    Ok(ExitCode::SUCCESS)
}

fn welcome(folder: &Folder, description: &Description, is_usual: bool) -> String {
    let (shown, nodes) = (folder.path().display(), description.nodes.len());
    let plural = if nodes == 1 { "" } else { "s" };
    let first = description.nodes.first().map(|node| node.nbd.to_string()).unwrap_or_default();
    let export = match is_usual {
        true => String::new(),
        false => format!("  export POLLUX_SITE={shown}\n"),
    };
    format!(
        "The site runs: a controller and {nodes} node{plural}, with everything in {shown}.\n\
         Ctrl-C stops it; the same command brings it back.\n\n\
         Try, in another terminal:\n{export}  \
           pollux {SMALL}\n  \
           pollux volume get db                  # its replicas, and who serves it\n  \
           nbdinfo nbd://{first}/db       # the address is that of `nbd` above; qemu-io works as well"
    )
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use super::*;
    use crate::local::NodePorts;

    #[test]
    fn a_folder_of_ones_own_is_named_to_the_commands() {
        let at = |port| SocketAddr::from(([127, 0, 0, 1], port));
        let nodes = vec![NodePorts { id: 1, nbd: at(10801), iscsi: at(3261) }];
        let description = Description::new(at(7460), at(7470), nodes);
        let text = welcome(&Folder::at("/x"), &description, false);
        assert!(text.contains("export POLLUX_SITE=/x") && text.contains("1 node,"), "{text}");
        let text = welcome(&Folder::at("/x"), &description, true);
        assert!(!text.contains("export") && text.contains("nbd://127.0.0.1:10801/db"), "{text}");
    }
}
