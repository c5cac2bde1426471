//! What the controller service can do.
use proto::csi::ControllerServiceCapability;
use proto::csi::controller_service_capability::rpc::Type as Ability;
use proto::csi::controller_service_capability::{Rpc, Type};

/// Whether the nodes of a site refuse writes of a host that has a volume for reading only. Until they
/// do, nobody is promised it.
pub const READ_ONLY: bool = false;

pub fn all() -> Vec<ControllerServiceCapability> {
    let abilities = [
        Ability::CreateDeleteVolume,
        Ability::PublishUnpublishVolume,
        Ability::ListVolumes,
        Ability::GetCapacity,
        Ability::CreateDeleteSnapshot,
        Ability::ListSnapshots,
        Ability::CloneVolume,
        Ability::ExpandVolume,
        Ability::ListVolumesPublishedNodes,
        Ability::VolumeCondition,
        Ability::GetVolume,
        Ability::SingleNodeMultiWriter,
        Ability::ModifyVolume,
        Ability::GetSnapshot,
    ];
    let read_only = READ_ONLY.then_some(Ability::PublishReadonly);
    let told = |ability: Ability| ControllerServiceCapability {
        r#type: Some(Type::Rpc(Rpc { r#type: ability.into() })),
    };
    abilities.into_iter().chain(read_only).map(told).collect()
}
