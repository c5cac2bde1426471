//! Making a volume of a snapshot.
use std::io::{self, Write};

use anyhow::Result;
use control::steps::{NewClone, Site};
use proto::v1;

use super::list;
use crate::cli::DirectClone;
use crate::render::Output;
use crate::uid;

pub async fn run(site: &Site, wanted: DirectClone, output: Output) -> Result<()> {
    let clone = NewClone {
        name: wanted.name.clone(),
        uid: uid::fresh()?,
        source: wanted.source,
        snapshot: wanted.snapshot,
        size: wanted.size.map(|size| size.0),
    };
    let made = site.clone_volume(&clone).await?.volume;
    let replicas = made.quorum.as_ref().map_or(0, |quorum| quorum.desired.len());
    if replicas < made.places.len() {
        let (name, places) = (&wanted.name, made.places.len());
        let mut out = io::stderr();
        writeln!(
            out,
            "{name} has {replicas} of {places} replicas, since nodes did not answer. When they are back: \
             pollux direct volume replica add {name} --on NODE"
        )?;
    }
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
