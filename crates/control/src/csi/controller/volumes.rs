//! Volumes: what is asked for in the words of the API, and what is there in those of CSI.
use proto::csi::controller_get_volume_response::VolumeStatus as OneStatus;
use proto::csi::list_volumes_response::{Entry, VolumeStatus as ListedStatus};
use proto::csi::volume_content_source::Type;
use proto::csi::{
    ControllerExpandVolumeRequest, ControllerExpandVolumeResponse, ControllerGetVolumeResponse,
    ControllerModifyVolumeRequest, CreateVolumeRequest, GetCapacityRequest, GetCapacityResponse,
    VolumeContentSource,
};
use tonic::Status;

use crate::api::types::{
    Capacity, CapacityQuery, Modify, NewVolume, Pairs, Resize, Source, Volume,
};
use crate::csi::answers;
use crate::csi::capability::{self, Access};
use crate::csi::capacity::{Range, range, signed};
use crate::csi::fields::{given, id, name};
use crate::csi::secrets::credential;
use crate::csi::status::{missing, not_yet};
use crate::csi::topology;
use crate::parameters::Class;

pub fn wanted(request: CreateVolumeRequest) -> Result<NewVolume, Status> {
    let name = name("name", &request.name)?;
    capability::uses("volume_capabilities", &request.volume_capabilities)?;
    let range = range(request.capacity_range)?;
    let parameters: Pairs = request.parameters.into_iter().collect();
    let said = Class::of(&parameters, &request.mutable_parameters.into_iter().collect())?;
    let places = topology::wanted(request.accessibility_requirements)?;
    let chap = credential(request.secrets)?;
    let source = request.volume_content_source.map(source).transpose()?;
    let class = said.clone().or_defaults();
    let (class, size) = match source {
        None => {
            let size = range.for_empty(class.block_size.unwrap_or_default());
            (class, size)
        }
        // What a clone is not told of these it has of its source, and the site knows that.
        Some(_) => {
            let Class { block_size, compression, .. } = said;
            (Class { block_size, compression, ..class }, range.least)
        }
    };
    Ok(NewVolume {
        name,
        size,
        size_limit: range.limit,
        block_size: class.block_size,
        compression: class.compression,
        replicas: class.replicas,
        hold_deadline_ms: class.hold_deadline_ms,
        zvol_workers: class.zvol_workers,
        pools: class.pools,
        accessible: places.accessible,
        preferred: places.preferred,
        spread: class.spread,
        source,
        attached_only: true,
        chap,
        group: class.group,
        parameters,
    })
}

fn source(of: VolumeContentSource) -> Result<Source, Status> {
    const SNAPSHOT: &str = "volume_content_source.snapshot.snapshot_id";
    const VOLUME: &str = "volume_content_source.volume.volume_id";
    match of.r#type {
        None => Err(missing("volume_content_source.type")),
        Some(Type::Snapshot(of)) => {
            Ok(Source::Snapshot { id: id("snapshot", SNAPSHOT, &of.snapshot_id)?.to_owned() })
        }
        Some(Type::Volume(of)) => {
            Ok(Source::Volume { id: id("volume", VOLUME, &of.volume_id)?.to_owned() })
        }
    }
}

/// A volume that is to be larger.
#[derive(Debug)]
pub struct Larger {
    pub uid: String,
    pub to: Resize,
    /// A file system on it has to follow. One whose use is not said may have one.
    by_node: bool,
}

pub fn resize(request: ControllerExpandVolumeRequest) -> Result<Larger, Status> {
    const RANGE: &str = "capacity_range.required_bytes or .limit_bytes";
    let ControllerExpandVolumeRequest { volume_id, capacity_range, secrets, volume_capability } =
        request;
    given("volume_id", &volume_id)?;
    let range = range(capacity_range)?;
    if range == Range::default() {
        return Err(missing(RANGE));
    }
    let by_node = match volume_capability.as_ref() {
        None => true,
        some => capability::one("volume_capability", some)?.access == Access::Mount,
    };
    let credential = credential(secrets)?;
    let to = Resize { size: range.least, size_limit: range.limit, credential };
    Ok(Larger { uid: id("volume", "volume_id", &volume_id)?.to_owned(), to, by_node })
}

impl Larger {
    pub fn told(&self, volume: &Volume) -> Result<ControllerExpandVolumeResponse, Status> {
        if volume.size < self.to.size {
            return Err(not_yet(format!("the volume {} is growing", volume.name)));
        }
        Ok(ControllerExpandVolumeResponse {
            capacity_bytes: signed(volume.size),
            node_expansion_required: self.by_node,
        })
    }
}

/// Nothing to change is no mistake: the volume has to be there all the same.
pub fn modify(request: ControllerModifyVolumeRequest) -> Result<(String, Modify), Status> {
    let ControllerModifyVolumeRequest { volume_id, secrets, mutable_parameters } = request;
    given("volume_id", &volume_id)?;
    let class = Class::changes(&mutable_parameters.into_iter().collect())?;
    let credential = credential(secrets)?;
    let Class { replicas, hold_deadline_ms, zvol_workers, .. } = class;
    let to = Modify { replicas, hold_deadline_ms, zvol_workers, credential };
    Ok((id("volume", "volume_id", &volume_id)?.to_owned(), to))
}

pub fn told(volume: &Volume) -> ControllerGetVolumeResponse {
    ControllerGetVolumeResponse {
        volume: Some(answers::volume(volume)),
        status: Some(OneStatus {
            published_node_ids: answers::hosts(volume),
            volume_condition: Some(answers::condition(&volume.state)),
        }),
    }
}

pub fn entry(volume: &Volume) -> Entry {
    Entry {
        volume: Some(answers::volume(volume)),
        status: Some(ListedStatus {
            published_node_ids: answers::hosts(volume),
            volume_condition: Some(answers::condition(&volume.state)),
        }),
    }
}

pub fn room(request: GetCapacityRequest) -> Result<CapacityQuery, Status> {
    let GetCapacityRequest { volume_capabilities, parameters, accessible_topology } = request;
    if !volume_capabilities.is_empty() {
        capability::uses("volume_capabilities", &volume_capabilities)?;
    }
    let class = Class::of(&parameters.into_iter().collect(), &Pairs::new())?.or_defaults();
    let place = accessible_topology.map(|place| topology::segment("accessible_topology", place));
    let accessible = topology::reach(place.transpose()?.into_iter().collect());
    Ok(CapacityQuery { replicas: class.replicas, pools: class.pools, accessible })
}

pub fn told_room(room: Capacity) -> GetCapacityResponse {
    GetCapacityResponse {
        available_capacity: signed(room.available),
        maximum_volume_size: Some(signed(room.largest)),
        minimum_volume_size: Some(signed(room.smallest)),
    }
}

#[cfg(test)]
mod tests;
