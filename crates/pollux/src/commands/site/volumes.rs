//! `pollux volume`.
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use block::ByteLen;
use control::api::Client;
use control::api::types::{
    Attach, Credential, Detach, Modify, Move, NewVolume, Proof, Resize, Rollback, Source,
};

use super::wait::{self, Goal};
use super::{PAGE, credential, deleted, secret};
use crate::cli::site::{Volume, VolumeCreate, VolumeModify, WaitArgs};
use crate::render::{self, Output};

mod tables;

use tables::{One, Rows};
pub use tables::{nbd, percent};

pub async fn run(client: &Client, command: Volume, output: Output) -> Result<()> {
    let changed = match command {
        Volume::List => {
            let all = super::all(async |after| client.volumes(&after, PAGE).await).await?;
            return render::show(&Rows(all), output);
        }
        Volume::Get { name } => return render::show(&One(client.volume(&name).await?), output),
        Volume::Delete { name, chap, wait } => {
            let proof = Proof { credential: credential(&chap)? };
            // For the API what is not there is deleted. Whoever types a name means something.
            client.volume(&name).await?;
            wait::ask(wait, async || client.delete_volume(&name, &proof).await).await?;
            wait::until(client, &name, Goal::Gone, wait).await?;
            return deleted(name, output);
        }
        Volume::Create(wanted) => {
            let (wait, wanted) = (wanted.wait, wanted_volume(*wanted)?);
            return make(client, &wanted, wait, output).await;
        }
        Volume::Resize { name, size, chap, wait } => {
            let to = Resize { size: size.0, size_limit: None, credential: credential(&chap)? };
            let asked = wait::ask(wait, async || client.resize_volume(&name, &to).await).await?;
            wait::until(client, &name, Goal::Size(size.0), wait).await?.unwrap_or(asked)
        }
        Volume::Scale { name, replicas, chap, wait } => {
            let credential = credential(&chap)?;
            let to = Modify { replicas: Some(replicas), credential, ..Modify::default() };
            let asked = wait::ask(wait, async || client.modify_volume(&name, &to).await).await?;
            wait::until(client, &name, Goal::Replicas(replicas), wait).await?.unwrap_or(asked)
        }
        Volume::Modify(change) => {
            let to = modification(&change)?;
            client.modify_volume(&change.name, &to).await?
        }
        Volume::Attach { name, host, read_only, shared, chap } => {
            let credential = credential(&chap)?;
            let to = Attach { host, read_only, shared, credential, ..Attach::default() };
            client.attach_volume(&name, &to).await?
        }
        Volume::Detach { name, host, chap } => {
            let from = Detach { host: host.unwrap_or_default(), credential: credential(&chap)? };
            client.detach_volume(&name, &from).await?
        }
        Volume::Mount(_)
        | Volume::Unmount { .. }
        | Volume::Expand { .. }
        | Volume::Mounts { .. } => {
            unreachable!("what is done on this machine goes another way")
        }
        Volume::Move { name, to } => client.move_volume(&name, &Move { node: to }).await?,
        Volume::Rollback { name, to } => {
            client.roll_back_volume(&name, &Rollback { snapshot: to }).await?
        }
    };
    show(changed, output)
}

/// Makes a volume, and waits for it if that is wanted.
pub async fn make(
    client: &Client,
    wanted: &NewVolume,
    wait: WaitArgs,
    output: Output,
) -> Result<()> {
    let made = wait::ask(wait, async || client.create_volume(wanted).await).await?;
    let goal = Goal::Healthy;
    show(wait::until(client, &made.name, goal, wait).await?.unwrap_or(made), output)
}

/// One volume as a line for people; for programs it is one, and no list.
fn show(volume: control::api::types::Volume, output: Output) -> Result<()> {
    match output {
        Output::Table => render::show(&Rows(vec![volume]), output),
        Output::Json | Output::Yaml => render::show(&One(volume), output),
    }
}

fn wanted_volume(wanted: VolumeCreate) -> Result<NewVolume> {
    let block_size = wanted.block_size.map(|ByteLen(bytes)| u32::try_from(bytes)).transpose();
    let snapshot = wanted.from_snapshot.map(|id| Source::Snapshot { id });
    let source = snapshot.or(wanted.from_volume.map(|id| Source::Volume { id }));
    Ok(NewVolume {
        size: wanted.size.unwrap_or_default().0,
        block_size: block_size.context("the block size is too large")?,
        chap: chap(wanted.chap_user, wanted.chap_mutual_user)?,
        hold_deadline_ms: wanted.hold_deadline.map(milliseconds),
        name: wanted.name,
        compression: wanted.compression,
        replicas: wanted.replicas,
        zvol_workers: wanted.zvol_workers,
        pools: wanted.pools,
        accessible: wanted.accessible,
        preferred: wanted.preferred,
        spread: wanted.spread,
        source,
        attached_only: wanted.attached_only,
        group: wanted.group,
        ..NewVolume::default()
    })
}

fn modification(change: &VolumeModify) -> Result<Modify> {
    Ok(Modify {
        replicas: change.replicas,
        hold_deadline_ms: change.hold_deadline.map(milliseconds),
        zvol_workers: change.zvol_workers,
        credential: credential(&change.chap)?,
    })
}

fn milliseconds(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

fn chap(user: Option<String>, mutual_user: Option<String>) -> Result<Option<Credential>> {
    let Some(user) = user else { return Ok(None) };
    let mutual_secret = match &mutual_user {
        Some(_) => secret("POLLUX_CHAP_MUTUAL_SECRET")?,
        None => String::new(),
    };
    let secret = secret("POLLUX_CHAP_SECRET")?;
    // RFC 7143 asks for 96 bits at the least where the wire is not protected.
    ensure!(secret.len() >= 12, "a CHAP secret has at least 12 bytes");
    ensure!(secret != mutual_secret, "the two CHAP secrets must differ");
    let mutual_user = mutual_user.unwrap_or_default();
    Ok(Some(Credential { user, secret, mutual_user, mutual_secret }))
}
