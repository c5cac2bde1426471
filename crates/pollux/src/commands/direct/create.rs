//! Making a volume.
use std::env;

use anyhow::{Context, Result, ensure};
use control::steps::{NewVolume, Site};
use proto::v1;

use super::list;
use crate::cli::DirectCreate;
use crate::render::Output;
use crate::uid;

pub async fn run(site: &Site, wanted: DirectCreate, output: Output) -> Result<()> {
    let block_size = u32::try_from(wanted.block_size.0).context("the block size is too large")?;
    let chap = chap(&wanted)?;
    let hold_deadline_ms = wanted.hold_deadline.unwrap_or(0).saturating_mul(1000);
    // The same call again finds what it began.
    let uid = match site.volume(&wanted.name).await? {
        Some(found) => found.volume.uid.try_into().ok().context("the volume has an odd uid")?,
        None => uid::fresh()?,
    };
    let volume = NewVolume {
        name: wanted.name.clone(),
        uid,
        size: wanted.size.0,
        block_size,
        compression: wanted.compression,
        places: wanted.replicas,
        hold_deadline_ms,
        zvol_workers: wanted.zvol_workers,
        chap,
        allowed_initiators: wanted.initiators,
    };
    site.create(&volume).await?;
    if let Some(node) = &wanted.serve_on {
        site.serve(&wanted.name, node).await?;
    }
    list::one(site, &wanted.name, output).await
}

fn chap(wanted: &DirectCreate) -> Result<Option<v1::Chap>> {
    let Some(user) = &wanted.chap_user else { return Ok(None) };
    let secret = |name: &str| env::var(name).with_context(|| format!("{name} is not set"));
    let mutual_secret = match &wanted.chap_mutual_user {
        Some(_) => secret("POLLUX_CHAP_MUTUAL_SECRET")?,
        None => String::new(),
    };
    let secret = secret("POLLUX_CHAP_SECRET")?;
    // RFC 7143 asks for 96 bits at the least where the wire is not protected.
    ensure!(secret.len() >= 12, "a CHAP secret has at least 12 bytes");
    ensure!(secret != mutual_secret, "the two CHAP secrets must differ");
    Ok(Some(v1::Chap {
        user: user.clone(),
        secret,
        mutual_user: wanted.chap_mutual_user.clone().unwrap_or_default(),
        mutual_secret,
    }))
}
