//! Who this driver is, what all of it can do, and whether the site behind it is there.
use proto::csi::identity_server::Identity;
use proto::csi::plugin_capability::{Service, VolumeExpansion, service, volume_expansion};
use proto::csi::{
    GetPluginCapabilitiesRequest, GetPluginCapabilitiesResponse, GetPluginInfoRequest,
    GetPluginInfoResponse, PluginCapability, ProbeRequest, ProbeResponse, plugin_capability,
};
use tonic::{Request, Response, Status};

use super::site::Site;
use crate::api::types;
use crate::api::{ApiError, Code};

/// The name of the driver, as classes have it.
pub const DRIVER: &str = "csi.pollux.io";

pub struct IdentityService {
    /// Nothing: a node that needs no site to be ready.
    pub site: Option<Site>,
}

#[tonic::async_trait]
impl Identity for IdentityService {
    async fn get_plugin_info(
        &self,
        _: Request<GetPluginInfoRequest>,
    ) -> Result<Response<GetPluginInfoResponse>, Status> {
        Ok(Response::new(GetPluginInfoResponse {
            name: DRIVER.into(),
            vendor_version: env!("CARGO_PKG_VERSION").into(),
            ..GetPluginInfoResponse::default()
        }))
    }

    /// Of the driver as a whole: those of a node are the same as those of a controller.
    async fn get_plugin_capabilities(
        &self,
        _: Request<GetPluginCapabilitiesRequest>,
    ) -> Result<Response<GetPluginCapabilitiesResponse>, Status> {
        Ok(Response::new(GetPluginCapabilitiesResponse { capabilities: capabilities() }))
    }

    async fn probe(&self, _: Request<ProbeRequest>) -> Result<Response<ProbeResponse>, Status> {
        let ready = match &self.site {
            None => true,
            Some(site) => {
                let client = site.client();
                let client =
                    client.map_err(|error| Status::failed_precondition(error.to_string()))?;
                ready(client.site().await)?
            }
        };
        Ok(Response::new(ProbeResponse { ready: Some(ready) }))
    }
}

/// A site that is away comes back by itself, so this driver is not ready. It is not well if only
/// somebody else can help: with another token, or another address.
fn ready(answer: Result<types::Site, ApiError>) -> Result<bool, Status> {
    match answer {
        Ok(site) => Ok(site.ready),
        Err(error) => match error.code {
            Code::Unavailable | Code::Busy => Ok(false),
            Code::Invalid
            | Code::NotFound
            | Code::AlreadyExists
            | Code::OutOfSpace
            | Code::OutOfRange
            | Code::InUse
            | Code::Unauthenticated
            | Code::Forbidden
            | Code::Internal => Err(Status::failed_precondition(format!(
                "the site does not answer this driver (--api, --token-file): {error}"
            ))),
        },
    }
}

fn capabilities() -> Vec<PluginCapability> {
    let services = [
        service::Type::ControllerService,
        service::Type::VolumeAccessibilityConstraints,
        service::Type::GroupControllerService,
        service::Type::SnapshotMetadataService,
    ];
    let services =
        services.map(|kind| plugin_capability::Type::Service(Service { r#type: kind.into() }));
    let online = VolumeExpansion { r#type: volume_expansion::Type::Online.into() };
    let online = plugin_capability::Type::VolumeExpansion(online);
    let all = services.into_iter().chain([online]);
    all.map(|kind| PluginCapability { r#type: Some(kind) }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn site(ready: bool) -> types::Site {
        let version = String::new();
        types::Site { version, generation: 1, since_ms: 0, nodes: 3, volumes: 0, ready }
    }

    #[test]
    fn readiness_is_that_of_the_site() {
        assert!(ready(Ok(site(true))).unwrap());
        assert!(!ready(Ok(site(false))).unwrap());
        for (code, told) in [
            (Code::Unavailable, Ok(false)),
            (Code::Busy, Ok(false)),
            (Code::Unauthenticated, Err(tonic::Code::FailedPrecondition)),
            (Code::Forbidden, Err(tonic::Code::FailedPrecondition)),
            (Code::Internal, Err(tonic::Code::FailedPrecondition)),
        ] {
            let answer = ready(Err(ApiError::new(code, "so")));
            assert_eq!(answer.map_err(|status| status.code()), told, "{code:?}");
        }
    }

    #[tokio::test]
    async fn the_driver_says_who_it_is_and_what_it_can() {
        let service = IdentityService { site: None };
        let info = service
            .get_plugin_info(Request::new(GetPluginInfoRequest {}))
            .await
            .unwrap()
            .into_inner();
        assert_eq!(info.name, "csi.pollux.io");
        assert!(!info.vendor_version.is_empty());
        let told = service
            .get_plugin_capabilities(Request::new(GetPluginCapabilitiesRequest {}))
            .await
            .unwrap()
            .into_inner();
        assert_eq!(told.capabilities.len(), 5);
        let probe = service.probe(Request::new(ProbeRequest {})).await.unwrap().into_inner();
        assert_eq!(probe.ready, Some(true));
    }
}
