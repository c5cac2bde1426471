//! What the controller service can do.
use proto::csi::ControllerServiceCapability;
use proto::csi::controller_service_capability::rpc::Type as Ability;
use proto::csi::controller_service_capability::{Rpc, Type};

pub fn all() -> Vec<ControllerServiceCapability> {
    let abilities = [
        Ability::CreateDeleteVolume,
        Ability::PublishUnpublishVolume,
        Ability::ListVolumes,
        Ability::GetCapacity,
        Ability::CreateDeleteSnapshot,
        Ability::ListSnapshots,
        Ability::CloneVolume,
        Ability::PublishReadonly,
        Ability::ExpandVolume,
        Ability::ListVolumesPublishedNodes,
        Ability::VolumeCondition,
        Ability::GetVolume,
        Ability::SingleNodeMultiWriter,
        Ability::ModifyVolume,
        Ability::GetSnapshot,
    ];
    let told = |ability: Ability| ControllerServiceCapability {
        r#type: Some(Type::Rpc(Rpc { r#type: ability.into() })),
    };
    abilities.into_iter().map(told).collect()
}
