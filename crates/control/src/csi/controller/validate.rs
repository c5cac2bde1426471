//! Whether a volume is what somebody thinks it is.
use std::collections::HashMap;

use proto::csi::validate_volume_capabilities_response::Confirmed;
use proto::csi::{ValidateVolumeCapabilitiesRequest, ValidateVolumeCapabilitiesResponse};
use tonic::Status;

use crate::api::types::{Pairs, Volume};
use crate::csi::capability::{self, Misfit};
use crate::csi::fields::{given, id};
use crate::csi::secrets::credential;
use crate::parameters::{Class, shown};

/// Keys that orchestrators add to a volume's context.
const FOREIGN: &str = "storage.kubernetes.io/";

/// What is to be confirmed of a volume, or why it cannot be of any.
#[derive(Debug)]
pub struct Asked {
    pub uid: String,
    confirmed: Confirmed,
    /// What the class asks for, if it is one.
    class: Result<Class, String>,
}

/// Refuses what makes no sense. What makes sense and is not possible is an answer, not an error.
pub fn read(request: ValidateVolumeCapabilitiesRequest) -> Result<Asked, Status> {
    let ValidateVolumeCapabilitiesRequest {
        volume_id,
        volume_context,
        volume_capabilities,
        parameters,
        secrets,
        mutable_parameters,
    } = request;
    given("volume_id", &volume_id)?;
    let uses = match capability::uses("volume_capabilities", &volume_capabilities) {
        Ok(_) => Ok(()),
        Err(misfit @ Misfit::Missing { .. }) => return Err(misfit.into()),
        Err(Misfit::Unsupported { field, problem }) => Err(format!("{field}: {problem}")),
    };
    credential(secrets)?;
    let class = uses.and_then(|()| context(&volume_context)).and_then(|()| {
        Class::of(&pairs(&parameters), &pairs(&mutable_parameters)).map_err(|it| it.to_string())
    });
    let uid = id("volume", "volume_id", &volume_id)?.to_owned();
    let confirmed =
        Confirmed { volume_context, volume_capabilities, parameters, mutable_parameters };
    Ok(Asked { uid, confirmed, class })
}

impl Asked {
    pub fn judge(self, volume: &Volume) -> ValidateVolumeCapabilitiesResponse {
        let parameters = &self.confirmed.parameters;
        let judged = self
            .class
            .and_then(|class| matches(&class, volume))
            .and_then(|()| kept(parameters, volume));
        let (confirmed, message) = match judged {
            Ok(()) => (Some(self.confirmed), String::new()),
            Err(why) => (None, why),
        };
        ValidateVolumeCapabilitiesResponse { confirmed, message }
    }
}

/// Ours is empty.
fn context(given: &HashMap<String, String>) -> Result<(), String> {
    match given.keys().find(|key| !key.starts_with(FOREIGN)) {
        Some(key) => Err(format!("volume_context: `{}` is not from this driver", shown(key))),
        None => Ok(()),
    }
}

/// What can be seen of the volume itself.
fn matches(class: &Class, volume: &Volume) -> Result<(), String> {
    fn same<T: PartialEq + std::fmt::Display>(
        name: &str,
        wanted: Option<T>,
        has: T,
    ) -> Result<(), String> {
        match wanted {
            Some(wanted) if wanted != has => Err(format!("{name} is {has}, not {wanted}")),
            _ => Ok(()),
        }
    }
    same("replicas", class.replicas, volume.replicas)?;
    same("blockSize", class.block_size, volume.block_size)?;
    same("holdDeadline (ms)", class.hold_deadline_ms, volume.hold_deadline_ms)?;
    same("zvolWorkers", class.zvol_workers, volume.zvol_workers)?;
    same("compression", class.compression.as_deref().map(meant), meant(&volume.compression))
}

/// Two words for the same.
fn meant(compression: &str) -> &str {
    match compression {
        "on" => "lz4",
        "gzip" => "gzip-6",
        other => other,
    }
}

/// What only the volume's parameters remember.
fn kept(parameters: &HashMap<String, String>, volume: &Volume) -> Result<(), String> {
    for name in ["pools", "spread", "group"] {
        let (wanted, has) = (parameters.get(name), volume.parameters.get(name));
        if wanted.is_some() && wanted != has {
            let has = has.map_or("not given", String::as_str);
            return Err(format!("{name} is {has}, not {}", shown(&parameters[name])));
        }
    }
    Ok(())
}

fn pairs(of: &HashMap<String, String>) -> Pairs {
    of.clone().into_iter().collect()
}

#[cfg(test)]
mod tests;
