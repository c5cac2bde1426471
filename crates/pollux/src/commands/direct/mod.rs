//! `pollux direct`: each step by hand, over the catalog of a site that runs.
mod clone;
mod create;
mod list;
mod recover;
mod replicas;
mod resource;
mod snapshots;
mod status;

use std::process::ExitCode;

use anyhow::{Context, Result};
use certs::Identity;
use control::steps::Site;

use crate::cli::{CatalogArgs, DirectCommand, DirectVolume};
use crate::render::{Output, say};

pub fn run(command: DirectCommand, catalog: &CatalogArgs, output: Output) -> Result<ExitCode> {
    let DirectCommand::Volume(command) = command;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let site = connect(catalog)?;
        obey(command, &site, output).await
    })?;
    Ok(ExitCode::SUCCESS)
}

fn connect(arguments: &CatalogArgs) -> Result<Site> {
    let identity = arguments.tls.as_deref().map(Identity::load).transpose()?;
    Site::new(&arguments.catalog, identity)
        .with_context(|| format!("the catalog at {}", arguments.catalog))
}

async fn obey(command: DirectVolume, site: &Site, output: Output) -> Result<()> {
    match command {
        DirectVolume::Create(wanted) => create::run(site, wanted, output).await,
        DirectVolume::Clone(wanted) => clone::run(site, wanted, output).await,
        DirectVolume::List => list::run(site, output).await,
        DirectVolume::Serve { name, on } => {
            site.serve(&name, &on).await?;
            say(&format!("{name} is served on {on}"))
        }
        DirectVolume::Stop { name } => match site.stop(&name).await? {
            true => say(&format!("the target of {name} ended cleanly")),
            false => say(&format!("the target of {name} had ended already")),
        },
        DirectVolume::Delete { name } => {
            site.delete(&name).await?;
            say(&format!("{name} is deleted"))
        }
        DirectVolume::Status { name } => status::run(site, &name, output).await,
        DirectVolume::VolumeStatus { name } => resource::run(site, name.as_deref()).await,
        DirectVolume::Resize { name, size } => {
            site.resize(&name, size.0).await?;
            status::run(site, &name, output).await
        }
        DirectVolume::Replica(command) => replicas::run(site, command).await,
        DirectVolume::Snapshot(command) => snapshots::run(site, command, output).await,
        DirectVolume::Recover { name, choose, yes } => {
            recover::run(site, &name, choose, yes, output).await
        }
        DirectVolume::TakeNote { name } => {
            site.take_note(&name).await?;
            say(&format!("initiators may use {name} again"))
        }
    }
}
