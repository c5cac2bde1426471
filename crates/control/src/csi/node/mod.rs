//! The node's own part: volumes as file trees and devices of this machine.
//!
//! Requests are checked in [`requests`], and done by [`attach::Host`]: nothing is kept here, so that a driver that
//! was killed goes on where it was. What the site has to say (which volume, a new stage) is asked for here.
mod people;
mod permit;
mod requests;
mod whereabouts;

use std::sync::Arc;

use attach::host::{Claim, Current, HostError};
use attach::orders::Status as Attachment;
use attach::record::{Record, SiteAt};
use attach::ways::{self, Way};
use proto::csi::node_server::Node;
use proto::csi::node_service_capability::rpc::Type;
use proto::csi::node_service_capability::{self, Rpc};
use proto::csi::volume_usage::Unit;
use proto::csi::{
    NodeExpandVolumeRequest, NodeExpandVolumeResponse, NodeGetCapabilitiesRequest,
    NodeGetCapabilitiesResponse, NodeGetInfoRequest, NodeGetInfoResponse,
    NodeGetVolumeStatsRequest, NodeGetVolumeStatsResponse, NodePublishVolumeRequest,
    NodePublishVolumeResponse, NodeServiceCapability, NodeStageVolumeRequest,
    NodeStageVolumeResponse, NodeUnpublishVolumeRequest, NodeUnpublishVolumeResponse,
    NodeUnstageVolumeRequest, NodeUnstageVolumeResponse, VolumeCondition, VolumeUsage,
};
use replication::constants::HOLD_DEADLINE;
use tonic::{Request, Response, Status};

use super::answers::there;
use super::capacity::signed;
use super::site::Site;
use super::status::{refused, unable, unless_missing};
use super::topology;
use crate::api::types::{Credential, NewHost, NewStage, Pairs, Volume};
use crate::controller::{NODE_KEY, initiator};
use permit::SitePermit;
use requests::{Expand, Publish, Stage, Staged};

pub use people::Mounted;
pub use whereabouts::SiteWhereabouts;

/// A machine that volumes are attached to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Host {
    /// As the orchestrator calls it; the host of attachments.
    pub name: String,
    /// Beside its name, which is a place too.
    pub place: Pairs,
}

/// How this machine attaches volumes.
#[derive(Clone, Debug)]
pub struct Machine {
    pub host: attach::Host,
    /// The one to use; `None`: the best that the kernel has.
    pub way: Option<Way>,
    /// The site's certificate, as the processes of attachments read it.
    pub ca: Option<std::path::PathBuf>,
}

pub struct NodeService {
    pub host: Host,
    pub site: Site,
    pub machine: Machine,
}

type Answer<T> = Result<Response<T>, Status>;

#[tonic::async_trait]
impl Node for NodeService {
    async fn node_get_info(&self, _: Request<NodeGetInfoRequest>) -> Answer<NodeGetInfoResponse> {
        let mut place = self.host.place.clone();
        // So that a replica can be asked for where its volume is used.
        place.insert(NODE_KEY.into(), self.host.name.clone());
        // A machine without a disk for the site can have volumes attached too; but the site has to know it.
        let new = NewHost { name: self.host.name.clone(), topology: place.clone() };
        self.site.client()?.create_host(&new).await.map_err(refused)?;
        Ok(Response::new(NodeGetInfoResponse {
            node_id: self.host.name.clone(),
            max_volumes_per_node: 0,
            accessible_topology: Some(topology::told(&place)),
        }))
    }

    async fn node_get_capabilities(
        &self,
        _: Request<NodeGetCapabilitiesRequest>,
    ) -> Answer<NodeGetCapabilitiesResponse> {
        let of = |rpc: Type| NodeServiceCapability {
            r#type: Some(node_service_capability::Type::Rpc(Rpc { r#type: rpc.into() })),
        };
        let capabilities = [
            Type::StageUnstageVolume,
            Type::GetVolumeStats,
            Type::ExpandVolume,
            Type::VolumeCondition,
            Type::SingleNodeMultiWriter,
        ];
        let capabilities = capabilities.map(of).to_vec();
        Ok(Response::new(NodeGetCapabilitiesResponse { capabilities }))
    }

    async fn node_stage_volume(
        &self,
        request: Request<NodeStageVolumeRequest>,
    ) -> Answer<NodeStageVolumeResponse> {
        let wanted = requests::stage(request.into_inner())?;
        let volume = self.site.client()?.volume(&wanted.uid).await.map_err(refused)?;
        let volume = there(volume)?;
        self.stage(&volume, wanted).await?;
        Ok(Response::new(NodeStageVolumeResponse {}))
    }

    async fn node_unstage_volume(
        &self,
        request: Request<NodeUnstageVolumeRequest>,
    ) -> Answer<NodeUnstageVolumeResponse> {
        let request = request.into_inner();
        let staged = requests::unstage(&request)?;
        if let Some(Staged { uid, path }) = staged {
            self.claimed(uid, move |claim| claim.unstage_and_detach(&path)).await?;
        }
        Ok(Response::new(NodeUnstageVolumeResponse {}))
    }

    async fn node_publish_volume(
        &self,
        request: Request<NodePublishVolumeRequest>,
    ) -> Answer<NodePublishVolumeResponse> {
        let wanted = requests::publish(request.into_inner())?;
        self.claimed(wanted.uid.clone(), move |claim| {
            let Publish { staging, to, mounted, read_only, alone, .. } = &wanted;
            let (_, attached) = claim.live().map_err(|error| match error {
                HostError::NotAttached { .. } => HostError::NotStaged { path: staging.clone() },
                error => error,
            })?;
            let staged = mounted.then_some(&**staging);
            let publish =
                attach::host::Publish { staged, to, read_only: *read_only, alone: *alone };
            claim.publish(&attached, &publish)
        })
        .await?;
        Ok(Response::new(NodePublishVolumeResponse {}))
    }

    async fn node_unpublish_volume(
        &self,
        request: Request<NodeUnpublishVolumeRequest>,
    ) -> Answer<NodeUnpublishVolumeResponse> {
        let request = request.into_inner();
        if let Some(Staged { uid, path }) = requests::unpublish(&request)? {
            self.claimed(uid, move |claim| claim.unpublish(&path)).await?;
        }
        Ok(Response::new(NodeUnpublishVolumeResponse {}))
    }

    async fn node_get_volume_stats(
        &self,
        request: Request<NodeGetVolumeStatsRequest>,
    ) -> Answer<NodeGetVolumeStatsResponse> {
        let Staged { uid, path } = requests::stats(&request.into_inner())?;
        let usage = self.claimed(uid, move |claim| claim.usage(&path)).await?;
        let of = |figures: &attach::host::Figures, unit: Unit| VolumeUsage {
            available: signed(figures.available),
            total: signed(figures.total),
            used: signed(figures.used),
            unit: unit.into(),
        };
        let mut told = vec![of(&usage.bytes, Unit::Bytes)];
        told.extend(usage.inodes.iter().map(|inodes| of(inodes, Unit::Inodes)));
        let message = usage.trouble.clone().unwrap_or_else(|| "it is served".into());
        let condition = VolumeCondition { abnormal: usage.trouble.is_some(), message };
        Ok(Response::new(NodeGetVolumeStatsResponse {
            usage: told,
            volume_condition: Some(condition),
        }))
    }

    async fn node_expand_volume(
        &self,
        request: Request<NodeExpandVolumeRequest>,
    ) -> Answer<NodeExpandVolumeResponse> {
        let Expand { uid, path, required } = requests::expand(&request.into_inner())?;
        let size = self.claimed(uid, move |claim| claim.expand(&path)).await?;
        if size < required {
            let text = format!(
                "the volume has {size} bytes, and {required} are required: expand it first"
            );
            return Err(Status::out_of_range(text));
        }
        Ok(Response::new(NodeExpandVolumeResponse { capacity_bytes: signed(size) }))
    }
}

impl NodeService {
    /// Attaches it, and mounts it unless a device is all that is wanted.
    async fn stage(&self, volume: &Volume, wanted: Stage) -> Result<Attachment, Status> {
        let kind = requests::kind(&wanted, volume)?;
        // The target would say no, but only after it was asked for a while.
        if volume.chap_user.is_some() && wanted.credential.is_none() {
            return Err(Status::unauthenticated(
                "the volume has credentials, and there are no secrets",
            ));
        }
        // An orchestrator that has it attached for reading may still say that it is a writer's.
        let read_only = wanted.read_only || is_read_only(volume, &self.host.name);
        let wanted = Stage { read_only, ..wanted };
        let (claim, attached, is_new) = self.attached(volume, &wanted).await?;
        let permit = SitePermit {
            runtime: tokio::runtime::Handle::current(),
            client: self.site.client()?,
            uid: wanted.uid.clone(),
            host: self.host.name.clone(),
            stage: attached.stage,
            credential: wanted.credential.clone(),
        };
        if wanted.mount.is_none() && !is_new {
            // A stage before this one may have been cut off while it made a file system.
            permit.forget().await.map_err(refused)?;
        }
        blocking(move || {
            let staged = match wanted.mount {
                None => claim.stage_device(&wanted.path),
                Some(mount) => {
                    let (path, options) = (&*wanted.path, mount.flags);
                    let stage = attach::host::Stage { path, kind, read_only, options };
                    claim.stage(&attached, &stage, &permit)
                }
            };
            let staged = staged.inspect_err(|_| {
                if is_new {
                    // Nothing is left of what failed; the first error is the one to tell.
                    let _ = claim.detach();
                }
            });
            staged.map(|()| attached)
        })
        .await
    }

    /// The volume as a device, and whether it was attached just now.
    async fn attached(
        &self,
        volume: &Volume,
        wanted: &Stage,
    ) -> Result<(Claim, Attachment, bool), Status> {
        let (host, uid) = (self.machine.host.clone(), wanted.uid.clone());
        let (claim, current) = blocking(move || {
            let claim = host.claim(&uid)?;
            let current = claim.current()?;
            Ok((claim, current))
        })
        .await?;
        if let Current::Live(live) = current {
            let (record, attached) = *live;
            if record.read_only && !wanted.read_only {
                let difference = "it is attached for reading only";
                return Err(unable(HostError::Different { path: wanted.path.clone(), difference }));
            }
            return Ok((claim, attached, false));
        }
        let choice = choose(volume, self.machine.way).map_err(unable)?;
        let new = NewStage {
            host: self.host.name.clone(),
            mounts: wanted.mount.is_some(),
            credential: wanted.credential.clone(),
        };
        let client = self.site.client()?;
        let stage = client.new_stage(&wanted.uid, &new).await.map_err(refused)?.stage;
        let record = Record {
            volume: volume.name.clone(),
            uid: volume.uid.clone(),
            initiator: initiator(&self.host.name).map_err(refused)?,
            stage,
            way: choice.way,
            why: choice.why,
            read_only: wanted.read_only,
            patience_ms: patience_ms(volume),
            secret: wanted.credential.clone().map(secret),
            site: SiteAt {
                api: self.site.api.clone(),
                token_file: self.site.token_file.clone(),
                ca: self.machine.ca.clone(),
            },
        };
        blocking(move || {
            let attached = claim.attach(&record)?;
            Ok((claim, attached, true))
        })
        .await
    }

    async fn claimed<T: Send + 'static>(
        &self,
        uid: String,
        work: impl FnOnce(&Claim) -> Result<T, HostError> + Send + 'static,
    ) -> Result<T, Status> {
        let host = self.machine.host.clone();
        blocking(move || work(&host.claim(&uid)?)).await
    }
}

/// Mounting and waiting for processes would stop all other calls.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, HostError> + Send + 'static,
) -> Result<T, Status> {
    let done = tokio::task::spawn_blocking(work).await;
    let done = done.map_err(|error| Status::internal(format!("the driver failed: {error}")))?;
    done.map_err(unable)
}

/// The best way that both this kernel and the target have.
fn choose(volume: &Volume, wanted: Option<Way>) -> Result<ways::Choice, HostError> {
    let offers = |way| {
        let target = volume.target.as_ref();
        let offered = target.is_none_or(|target| match way {
            Way::Iscsi => !target.iscsi.is_empty(),
            Way::Nbd | Way::Fuse => !target.nbd.is_empty(),
        });
        if offered { Ok(()) } else { Err("the volume's node does not offer it".to_owned()) }
    };
    let choice = ways::choose(wanted, |way| offers(way).and_then(|()| ways::there(way)));
    choice.map_err(HostError::NoWay)
}

/// As long as the target holds requests itself (P6); 0 is its own default.
fn patience_ms(volume: &Volume) -> u64 {
    match volume.hold_deadline_ms {
        0 => HOLD_DEADLINE.0 / 1000,
        given => given,
    }
}

fn is_read_only(volume: &Volume, host: &str) -> bool {
    volume.attachments.iter().any(|attachment| attachment.host == host && attachment.read_only)
}

fn secret(of: Credential) -> attach::link::Secret {
    let Credential { user, secret, mutual_user, mutual_secret } = of;
    attach::link::Secret { user, secret, mutual_user, mutual_secret }
}

/// Who serves a volume, for the process of an attachment.
pub fn whereabouts(record: &Record) -> Result<SiteWhereabouts, super::TokenError> {
    SiteWhereabouts::new(record)
}

const _: fn() = || {
    fn shared<T: Send + Sync>() {}
    shared::<Arc<NodeService>>();
};

#[cfg(test)]
mod tests;
