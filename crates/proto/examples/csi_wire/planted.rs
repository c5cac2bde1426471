//! Definitions with one mistake each, which the checks have to find: one that cannot fail shows nothing.
use anyhow::{Context, Result};
use prost_reflect::DescriptorPool;
use prost_reflect::prost_types::field_descriptor_proto::Type;
use prost_reflect::prost_types::{DescriptorProto, FieldDescriptorProto, FileDescriptorSet};

use crate::definitions::{self, Definitions};
use crate::samples::Sample;
use crate::{Outcome, generated};

struct Mistake {
    what: &'static str,
    /// The name that has to be told.
    name: &'static str,
    /// Whether it changes what bytes mean.
    on_the_wire: bool,
    make: fn(&mut FileDescriptorSet) -> Option<()>,
}

const MISTAKES: [Mistake; 7] = [
    Mistake {
        what: "another number",
        name: "csi.v1.CreateVolumeRequest.name",
        on_the_wire: true,
        make: |files| field(files, "CreateVolumeRequest", "name").map(|it| it.number = Some(15)),
    },
    Mistake {
        what: "another type",
        name: "csi.v1.CapacityRange.limit_bytes",
        on_the_wire: true,
        make: |files| {
            field(files, "CapacityRange", "limit_bytes").map(|it| it.set_type(Type::Int32))
        },
    },
    Mistake {
        what: "a field less",
        name: "csi.v1.Volume.volume_id",
        on_the_wire: true,
        make: |files| {
            let fields = &mut message(files, "Volume")?.field;
            fields.retain(|field| field.name() != "volume_id");
            Some(())
        },
    },
    Mistake {
        what: "a field more",
        name: "csi.v1.Volume.colour",
        on_the_wire: false,
        make: |files| {
            let fields = &mut message(files, "Volume")?.field;
            let mut colour = fields.first()?.clone();
            colour.name = Some("colour".to_owned());
            colour.json_name = Some("colour".to_owned());
            colour.number = Some(20);
            fields.push(colour);
            Some(())
        },
    },
    Mistake {
        what: "a value by another name",
        name: "csi.v1.VolumeUsage.Unit.INODES",
        on_the_wire: true,
        make: |files| {
            let values = &mut message(files, "VolumeUsage")?.enum_type.first_mut()?.value;
            let inodes = values.iter_mut().find(|value| value.name() == "INODES")?;
            inodes.name = Some("NODES".to_owned());
            Some(())
        },
    },
    Mistake {
        what: "a method less",
        name: "csi.v1.Controller.ListVolumes",
        on_the_wire: false,
        make: |files| {
            let mut services = files.file.iter_mut().flat_map(|file| &mut file.service);
            let controller = services.find(|service| service.name() == "Controller")?;
            controller.method.retain(|method| method.name() != "ListVolumes");
            Some(())
        },
    },
    Mistake {
        what: "a method without its stream",
        name: "csi.v1.SnapshotMetadata.GetMetadataDelta",
        on_the_wire: false,
        make: |files| {
            let services = files.file.iter_mut().flat_map(|file| &mut file.service);
            let mut methods = services.flat_map(|service| &mut service.method);
            let delta = methods.find(|method| method.name() == "GetMetadataDelta")?;
            delta.server_streaming = Some(false);
            Some(())
        },
    },
];

fn message<'a>(files: &'a mut FileDescriptorSet, name: &str) -> Option<&'a mut DescriptorProto> {
    let files = files.file.iter_mut().filter(|file| file.package() == crate::PACKAGE);
    files.flat_map(|file| &mut file.message_type).find(|message| message.name() == name)
}

fn field<'a>(
    files: &'a mut FileDescriptorSet,
    of: &str,
    name: &str,
) -> Option<&'a mut FieldDescriptorProto> {
    message(files, of)?.field.iter_mut().find(|field| field.name() == name)
}

pub fn check(
    files: &FileDescriptorSet,
    public: &Definitions,
    samples: &[Sample],
) -> Result<Vec<Outcome>> {
    let ours = DescriptorPool::from_file_descriptor_set(files.clone())?;
    // A mistake that is really there must not be taken for one of these.
    let sound = samples.iter().filter(|sample| sample.misread_by(&ours).is_none());
    let sound: Vec<&Sample> = sound.collect();
    let mut outcomes = Vec::new();
    for mistake in MISTAKES {
        let mut files = files.clone();
        (mistake.make)(&mut files).with_context(|| format!("{} is not there", mistake.name))?;
        let pool = DescriptorPool::from_file_descriptor_set(files)?;
        let told = definitions::compare(public, &definitions::of(&pool));
        let mut told = told.iter().filter(|(_, wrong)| !wrong.is_empty()).map(|(name, _)| name);
        let mut wrong = Vec::new();
        if !told.any(|name| name == mistake.name) {
            wrong.push("it is not noticed among the definitions".to_owned());
        }
        let misread = sound.iter().any(|sample| sample.misread_by(&pool).is_some());
        if mistake.on_the_wire && !misread {
            wrong.push("it is not noticed in what is read".to_owned());
        }
        outcomes.push((format!("planted: {}, {}", mistake.what, mistake.name), wrong));
    }
    outcomes.push(("planted: a type that loses fields".to_owned(), lossy(&ours, samples)?));
    Ok(outcomes)
}

/// A type without fields in the place of one that has some.
fn lossy(ours: &DescriptorPool, samples: &[Sample]) -> Result<Vec<String>> {
    let without = generated::read("csi.v1.DeleteVolumeResponse").context("a type is missing")?;
    let mut samples = samples.iter().filter(|it| it.message == "csi.v1.DeleteVolumeRequest");
    let noticed = samples.any(|sample| generated::lost(ours, without, sample).is_some());
    Ok(if noticed { Vec::new() } else { vec!["it is not noticed".to_owned()] })
}
