//! A volume that the catalog has lost, and that an operator does not want back: it is marked as deleted, and its content goes.
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use proto::v1;
use proto::v1::object::Body;
use thiserror::Error;
use tonic::Code;

use super::Gathered;
use crate::hex;
use crate::steps::{Site, StepError, key};

/// A target learns within a second that its volume was deleted; then the node lets the content go.
const WIPE_PATIENCE: Duration = Duration::from_secs(20);
const PAUSE: Duration = Duration::from_millis(200);

#[derive(Debug, Error)]
pub enum ForgetError {
    #[error(
        "the catalog has the volume `{name}`, so it is not lost: `pollux volume delete {name}`"
    )]
    Listed { name: String },
    #[error("no node that answers knows a volume `{name}`, or has replicas of one")]
    Unknown { name: String },
    #[error("nodes know several volumes `{name}` ({}): bring back the one that you want first, and delete it then", uids.join(", "))]
    Several { name: String, uids: Vec<String> },
    #[error("the replica on {node} is not wiped yet: {why}; say it again")]
    NotWiped { node: u64, why: String },
    #[error(transparent)]
    Step(#[from] StepError),
}

/// What is to be forgotten.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lost {
    pub name: String,
    pub uid: Vec<u8>,
    /// The highest version that was seen.
    version: u64,
    /// Its content: node and incarnation.
    pub replicas: Vec<(u64, u64)>,
}

/// The volume of this name that nodes know and the catalog does not have.
pub fn find_lost(
    present: &[v1::Object],
    gathered: &Gathered,
    name: &str,
) -> Result<Lost, ForgetError> {
    let named = |object: &&v1::Object| {
        object.key.as_ref().is_some_and(|it| it.name == name && it.kind() == v1::Kind::Volume)
    };
    let there = present.iter().find(named);
    let mut uids: BTreeSet<Vec<u8>> = BTreeSet::new();
    let mut version = there.map_or(0, |object| object.version);
    let known = gathered.sources.iter().flat_map(|source| &source.objects).filter(named);
    for object in known {
        if let Some(Body::Volume(volume)) = &object.body {
            version = version.max(object.version);
            uids.insert(volume.uid.clone());
        }
    }
    let of_name = |it: &v1::Replica| it.volume.as_ref().is_some_and(|it| it.name == name);
    let kept =
        gathered.evidence.iter().filter(|(_, it)| it.replicas.iter().any(|(_, it)| of_name(it)));
    uids.extend(kept.map(|(uid, _)| uid.clone()));
    if let Some(Body::Volume(volume)) = there.and_then(|object| object.body.as_ref()) {
        if uids.remove(&volume.uid) && uids.is_empty() {
            return Err(ForgetError::Listed { name: name.into() });
        }
        return Err(ForgetError::Several { name: name.into(), uids: shown(&uids) });
    }
    let uid = uids.first().cloned().ok_or_else(|| ForgetError::Unknown { name: name.into() })?;
    if uids.len() > 1 {
        return Err(ForgetError::Several { name: name.into(), uids: shown(&uids) });
    }
    let evidence = gathered.evidence.get(&uid);
    let replicas = evidence.iter().flat_map(|it| &it.replicas);
    let replicas = replicas.map(|(node, it)| (*node, it.incarnation)).collect();
    Ok(Lost { name: name.into(), uid, version, replicas })
}

fn shown(uids: &BTreeSet<Vec<u8>>) -> Vec<String> {
    uids.iter().map(|uid| hex::encode(uid)).collect()
}

/// Marks it as deleted, and then wipes what nodes have of it: nodes do so by the mark alone.
pub async fn forget(site: &Site, lost: &Lost) -> Result<(), ForgetError> {
    let left = v1::Object {
        key: Some(key(&lost.name)),
        version: lost.version + 1,
        deleted_uids: vec![lost.uid.clone()],
        ..v1::Object::default()
    };
    site.client().restore(vec![left]).await.map_err(StepError::from)?;
    for (node, incarnation) in &lost.replicas {
        wipe(site, lost, *node, *incarnation).await?;
    }
    Ok(())
}

async fn wipe(site: &Site, lost: &Lost, node: u64, incarnation: u64) -> Result<(), ForgetError> {
    let mut admin = site.admin(&site.node_of_id(node).await?)?;
    let volume = Some(v1::VolumeRef { name: lost.name.clone(), uid: lost.uid.clone() });
    let request = v1::DeleteReplicaRequest { volume, replica: 0, incarnation, catalog_version: 0 };
    let begun = Instant::now();
    loop {
        match admin.delete_replica(request.clone()).await {
            Ok(_) => return Ok(()),
            Err(status) if status.code() == Code::NotFound => return Ok(()),
            Err(status) if begun.elapsed() > WIPE_PATIENCE => {
                return Err(ForgetError::NotWiped { node, why: status.message().into() });
            }
            Err(_) => tokio::time::sleep(PAUSE).await,
        }
    }
}

#[cfg(test)]
mod tests;
