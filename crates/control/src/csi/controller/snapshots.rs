//! Snapshots of single volumes, and those of groups as far as they are asked for one by one.
use proto::csi::list_snapshots_response::Entry;
use proto::csi::{CreateSnapshotRequest, ListSnapshotsRequest, ListSnapshotsResponse};
use tonic::Status;

use crate::api::types::{NewSnapshot, Page, Pairs, Snapshot};
use crate::api::{ApiError, Client, Code};
use crate::csi::answers;
use crate::csi::fields::{given, id, name, uid};
use crate::csi::paging::{List, part};
use crate::csi::secrets::credential;
use crate::csi::status::{invalid, unless_missing};
use crate::parameters::of_snapshot;

pub fn wanted(request: CreateSnapshotRequest) -> Result<NewSnapshot, Status> {
    let CreateSnapshotRequest { source_volume_id, name: title, secrets, parameters } = request;
    given("source_volume_id", &source_volume_id)?;
    let title = name("name", &title)?;
    let parameters: Pairs = parameters.into_iter().collect();
    of_snapshot(&parameters)?;
    let credential = credential(secrets)?;
    let volume = id("volume", "source_volume_id", &source_volume_id)?.to_owned();
    Ok(NewSnapshot { name: title, volume, credential, parameters })
}

/// A part of a group is deleted with its group.
pub fn stands_alone(snapshot: &Snapshot) -> Result<(), Status> {
    match &snapshot.group_snapshot_uid {
        None => Ok(()),
        Some(group) => Err(invalid(
            "snapshot_id",
            format!("{} is a part of the group snapshot {group}: delete that", snapshot.name),
        )),
    }
}

/// Those that are cut. An id that leads nowhere is a list without entries.
pub async fn list(
    client: &Client,
    request: ListSnapshotsRequest,
) -> Result<ListSnapshotsResponse, Status> {
    let ListSnapshotsRequest {
        max_entries,
        starting_token,
        source_volume_id,
        snapshot_id,
        secrets,
    } = request;
    let mut part = part(List::Snapshots, max_entries, &starting_token)?;
    credential(secrets)?;
    if !snapshot_id.is_empty() {
        let found = match uid(&snapshot_id) {
            Some(uid) => unless_missing(client.snapshot(uid).await)?,
            None => None,
        };
        let of_volume =
            |one: &Snapshot| source_volume_id.is_empty() || one.volume_uid == source_volume_id;
        let found = found.filter(|one| one.ready && of_volume(one));
        return Ok(told(found.as_slice(), String::new()));
    }
    let volume = match source_volume_id.as_str() {
        "" => None,
        other => match uid(other) {
            Some(uid) => Some(uid),
            None => return Ok(told(&[], String::new())),
        },
    };
    while let Some((after, limit)) = part.question() {
        let page = none_of_a_missing_volume(client.snapshots(volume, &after, limit).await);
        part.take(page, |one| one.ready)?;
    }
    let (found, next_token) = part.end();
    Ok(told(&found, next_token))
}

fn none_of_a_missing_volume(
    answer: Result<Page<Snapshot>, ApiError>,
) -> Result<Page<Snapshot>, ApiError> {
    match answer {
        Err(error) if error.code == Code::NotFound => Ok(Page { items: Vec::new(), next: None }),
        other => other,
    }
}

fn told(found: &[Snapshot], next_token: String) -> ListSnapshotsResponse {
    let entry = |one: &Snapshot| Entry { snapshot: Some(answers::snapshot(one)) };
    ListSnapshotsResponse { entries: found.iter().map(entry).collect(), next_token }
}

#[cfg(test)]
mod tests;
