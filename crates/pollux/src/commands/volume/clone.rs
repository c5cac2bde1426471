//! Making a volume of a snapshot.
use anyhow::Result;
use control::direct::{NewClone, Site};
use proto::v1;

use super::list;
use crate::cli::VolumeClone;
use crate::render::Output;
use crate::uid;

pub async fn run(site: &Site, wanted: VolumeClone, output: Output) -> Result<()> {
    let clone = NewClone {
        name: wanted.name.clone(),
        uid: uid::fresh()?,
        source: wanted.source,
        snapshot: wanted.snapshot,
        size: wanted.size.map(|size| size.0),
    };
    site.clone_volume(&clone).await?;
    if let Some(node) = &wanted.serve_on {
        site.serve(&wanted.name, node).await?;
    }
    list::one(site, &wanted.name, output).await
}

/// `volume@snapshot`, as it is written everywhere.
pub fn origin(volume: &v1::Volume) -> Option<String> {
    let origin = volume.origin.as_ref()?;
    let of = origin.volume.as_ref().map(|of| of.name.as_str()).unwrap_or_default();
    Some(format!("{of}@{}", origin.snapshot_name))
}
