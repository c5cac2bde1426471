//! The catalog as its clients see it: calls that end, and a watch that does not.
//!
//! A call is tried once and has a deadline; whether to try again is its caller's to say. A swap that
//! failed may have been done: ask, or look at what the watch tells. A [`Watch`] reconnects by itself, goes
//! on where it was, and neither leaves out an object's last change nor tells one twice.
mod error;
mod progress;
mod watch;

use std::future::Future;
use std::time::Duration;

use prost::Message;
use tonic::transport::Channel;
use tonic::{Code, Request, Response, Status};

pub use error::CallError;
pub use watch::{News, Watch};

use crate::v1::catalog_client::CatalogClient;
use crate::v1::swap_request::Change;
use crate::v1::swap_response::Outcome;
use crate::v1::{
    BackupRequest, CatalogPart, GetRequest, Key, Kind, ListRequest, Object, RestoreResponse,
    SwapRequest, WatchRequest,
};

/// A catalog syncs its disk for every swap; one that takes longer than this does not work.
const CALL_MAX: Duration = Duration::from_secs(10);
/// A large catalog has some ten megabytes.
const WHOLE_MAX: Duration = Duration::from_secs(60);
/// Bytes of one part of a copy: half of the largest request that a catalog takes.
const PART_MAX: usize = 64 << 10;

/// Cheap to clone; clones share their connection.
#[derive(Clone, Debug)]
pub struct Client {
    grpc: CatalogClient<Channel>,
    /// Which controller swaps, if one does.
    controller: Option<u64>,
}

/// What a controller says its generation with, in the metadata of calls to nodes and to the catalog.
pub const CONTROLLER: &str = "pollux-controller";

/// What became of a swap.
#[derive(Clone, Debug, PartialEq)]
pub enum Swapped {
    /// The object with its new version; without a body if it was deleted.
    Done(Object),
    /// Nothing was changed, since this is what is there; `None`: nothing is.
    Conflict(Option<Object>),
}

/// What the catalog has under a name.
#[derive(Clone, Debug, PartialEq)]
pub enum Found {
    Object(Object),
    /// What is left of an object that was deleted.
    Deleted(Object),
    /// Nothing, and nothing was deleted: it never was, or the catalog has lost it.
    Nothing,
}

impl Client {
    pub fn new(channel: Channel) -> Client {
        Client { grpc: CatalogClient::new(channel), controller: None }
    }

    /// The same for a controller of this generation: its swaps are refused when there is a later one.
    pub fn controlled(self, generation: u64) -> Client {
        Client { controller: Some(generation), ..self }
    }

    pub async fn get(&self, key: &Key) -> Result<Option<Object>, CallError> {
        match self.find(key).await? {
            Found::Object(object) => Ok(Some(object)),
            Found::Deleted(_) | Found::Nothing => Ok(None),
        }
    }

    /// The same, and whether it was deleted. Absence by itself proves nothing.
    pub async fn find(&self, key: &Key) -> Result<Found, CallError> {
        let request = GetRequest { key: Some(key.clone()), deleted: true };
        match in_time(self.grpc.clone().get(request)).await {
            Ok(object) if object.body.is_some() => Ok(Found::Object(object)),
            Ok(object) => Ok(Found::Deleted(object)),
            Err(CallError::Refused { code: Code::NotFound, .. }) => Ok(Found::Nothing),
            Err(error) => Err(error),
        }
    }

    /// All objects of a kind. Those that change meanwhile may be seen before or after.
    pub async fn list(&self, kind: Kind) -> Result<Vec<Object>, CallError> {
        let mut all: Vec<Object> = Vec::new();
        loop {
            let after = all.last().map(name_of).unwrap_or_default();
            let request = ListRequest { kind: kind.into(), after: after.clone(), limit: 0 };
            let page = in_time(self.grpc.clone().list(request)).await?;
            let grows = page.objects.last().is_none_or(|last| name_of(last) > after);
            if !grows || page.more && page.objects.is_empty() {
                return Err(CallError::strange("a list that does not come to its end"));
            }
            all.extend(page.objects);
            if !page.more {
                return Ok(all);
            }
        }
    }

    /// Replaces what is there if its version is `expected`; 0: if nothing is there.
    pub async fn swap(
        &self,
        key: &Key,
        expected: u64,
        change: Change,
    ) -> Result<Swapped, CallError> {
        let (key, change) = (Some(key.clone()), Some(change));
        let mut request = Request::new(SwapRequest { key, expected_version: expected, change });
        if let Some(generation) = self.controller {
            request.metadata_mut().insert(CONTROLLER, generation.into());
        }
        let answer = in_time(self.grpc.clone().swap(request)).await?;
        match answer.outcome {
            Some(Outcome::Swapped(object)) => Ok(Swapped::Done(object)),
            Some(Outcome::Conflict(conflict)) => Ok(Swapped::Conflict(conflict.present)),
            None => Err(CallError::strange("a swap without an outcome")),
        }
    }

    /// Everything as of one moment, with its revision; deleted objects too.
    pub async fn backup(&self) -> Result<(u64, Vec<Object>), CallError> {
        let call = async {
            let mut parts = self.grpc.clone().backup(BackupRequest {}).await?.into_inner();
            let (mut revision, mut objects) = (0, Vec::new());
            while let Some(part) = parts.message().await? {
                revision = part.revision;
                objects.extend(part.objects);
            }
            Ok(Response::new((revision, objects)))
        };
        within(WHOLE_MAX, call).await
    }

    /// Brings objects back, all or none; what is newer stays.
    pub async fn restore(&self, objects: Vec<Object>) -> Result<RestoreResponse, CallError> {
        let parts = parts(0, objects);
        let call = async { self.grpc.clone().restore(tokio_stream::iter(parts)).await };
        within(WHOLE_MAX, call).await
    }

    /// Watches a kind, and of it one name if one is given. Runs on the runtime it is called on, until the
    /// watch is dropped.
    pub fn watch(&self, kind: Kind, name: Option<&str>) -> Watch {
        let (kind, name) = (kind.into(), name.unwrap_or_default().into());
        let request = WatchRequest { kind, name, after: None, deleted: false };
        Watch::begin(self.grpc.clone(), request)
    }

    /// Watches all kinds, and is told what was deleted before, too: what is then not told was lost.
    pub fn watch_history(&self) -> Watch {
        let request = WatchRequest { deleted: true, ..WatchRequest::default() };
        Watch::begin(self.grpc.clone(), request)
    }
}

fn name_of(object: &Object) -> String {
    object.key.as_ref().map(|key| key.name.clone()).unwrap_or_default()
}

async fn in_time<T>(
    call: impl Future<Output = Result<Response<T>, Status>>,
) -> Result<T, CallError> {
    within(CALL_MAX, call).await
}

async fn within<T>(
    patience: Duration,
    call: impl Future<Output = Result<Response<T>, Status>>,
) -> Result<T, CallError> {
    match tokio::time::timeout(patience, call).await {
        Ok(answer) => Ok(answer.map_err(|status| CallError::from(&status))?.into_inner()),
        Err(_) => Err(CallError::Silent { after: patience }),
    }
}

/// Objects in parts that a message can carry, at least one of them.
pub fn parts(revision: u64, objects: Vec<Object>) -> Vec<CatalogPart> {
    let (mut parts, mut bytes) = (vec![CatalogPart { revision, objects: Vec::new() }], 0);
    for object in objects {
        let len = object.encoded_len();
        let last = parts.last().expect("there is one from the beginning");
        if bytes + len > PART_MAX && !last.objects.is_empty() {
            parts.push(CatalogPart { revision, objects: Vec::new() });
            bytes = 0;
        }
        bytes += len;
        parts.last_mut().expect("there is one").objects.push(object);
    }
    parts
}
