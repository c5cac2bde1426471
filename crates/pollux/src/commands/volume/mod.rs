//! `pollux volume`: volumes of a site that runs.
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

use crate::cli::{SiteArgs, SiteVolume};
use crate::render::{Output, say};

pub fn run(command: SiteVolume, site: &SiteArgs, output: Output) -> Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let site = connect(site)?;
        obey(command, &site, output).await
    })?;
    Ok(ExitCode::SUCCESS)
}

pub fn connect(arguments: &SiteArgs) -> Result<Site> {
    let identity = arguments.tls.as_deref().map(Identity::load).transpose()?;
    Site::new(&arguments.catalog, identity)
        .with_context(|| format!("the catalog at {}", arguments.catalog))
}

async fn obey(command: SiteVolume, site: &Site, output: Output) -> Result<()> {
    match command {
        SiteVolume::Create(wanted) => create::run(site, wanted, output).await,
        SiteVolume::Clone(wanted) => clone::run(site, wanted, output).await,
        SiteVolume::List => list::run(site, output).await,
        SiteVolume::Serve { name, on } => {
            site.serve(&name, &on).await?;
            say(&format!("{name} is served on {on}"))
        }
        SiteVolume::Stop { name } => match site.stop(&name).await? {
            true => say(&format!("the target of {name} ended cleanly")),
            false => say(&format!("the target of {name} had ended already")),
        },
        SiteVolume::Delete { name } => {
            site.delete(&name).await?;
            say(&format!("{name} is deleted"))
        }
        SiteVolume::Status { name } => status::run(site, &name, output).await,
        SiteVolume::VolumeStatus { name } => resource::run(site, name.as_deref()).await,
        SiteVolume::Resize { name, size } => {
            site.resize(&name, size.0).await?;
            status::run(site, &name, output).await
        }
        SiteVolume::Replica(command) => replicas::run(site, command).await,
        SiteVolume::Snapshot(command) => snapshots::run(site, command, output).await,
        SiteVolume::Recover { name, choose, yes } => {
            recover::run(site, &name, choose, yes, output).await
        }
        SiteVolume::TakeNote { name } => {
            site.take_note(&name).await?;
            say(&format!("initiators may use {name} again"))
        }
    }
}
