//! The catalog as gRPC: requests are checked, carried to the file or the writer, and answered.
use std::sync::Arc;

use prost::Message;
use proto::catalog_client::{CONTROLLER, parts};
use proto::v1::catalog_server::Catalog;
use proto::v1::swap_response::Outcome;
use proto::v1::{
    BackupRequest, CatalogPart, Conflict, Event, GetRequest, Kind, ListRequest, ListResponse,
    Object, RestoreResponse, SwapRequest, SwapResponse, WatchRequest,
};
use tokio::sync::{Semaphore, broadcast, mpsc};
use tokio_stream::wrappers::ReceiverStream;
use tonic::metadata::MetadataMap;
use tonic::{Request, Response, Status, Streaming};

use crate::catalog::check::{self, Wrong};
use crate::catalog::file::{CatalogFile, FileError};
use crate::catalog::judge::{Swap, Verdict};
use crate::catalog::limits::{LIST_MAX, READY_MAX, RESTORE_MAX, WATCHES_MAX};
use crate::catalog::restore;
use crate::catalog::watch::{Interest, Watcher};
use crate::catalog::writer::{News, NotStored, Writer};

pub struct Service {
    file: Arc<CatalogFile>,
    writer: Writer,
    news: broadcast::Receiver<News>,
    watches: Arc<Semaphore>,
}

impl Service {
    pub fn new(file: Arc<CatalogFile>, writer: Writer, news: broadcast::Receiver<News>) -> Service {
        Service { file, writer, news, watches: Arc::new(Semaphore::new(WATCHES_MAX)) }
    }
}

fn refuse(wrong: Wrong) -> Status {
    Status::invalid_argument(wrong.to_string())
}

fn failed(error: FileError) -> Status {
    Status::unavailable(error.to_string())
}

fn not_stored(why: NotStored) -> Status {
    Status::unavailable(why.to_string())
}

#[tonic::async_trait]
impl Catalog for Service {
    async fn get(&self, request: Request<GetRequest>) -> Result<Response<Object>, Status> {
        let GetRequest { key, deleted } = request.into_inner();
        let (kind, name) = check::key(key).map_err(refuse)?;
        let found = match deleted {
            true => self.file.find(kind, &name),
            false => self.file.get(kind, &name),
        };
        let found = found.map_err(failed)?;
        let missing = || Status::not_found(format!("there is no {} {name}", noun(kind)));
        Ok(Response::new(found.ok_or_else(missing)?))
    }

    async fn list(&self, request: Request<ListRequest>) -> Result<Response<ListResponse>, Status> {
        let ListRequest { kind, after, limit } = request.into_inner();
        let kind = check::kind("kind", kind).map_err(refuse)?;
        let limit = match usize::try_from(limit) {
            Ok(limit @ 1..) => limit,
            _ => LIST_MAX,
        };
        let page = self.file.list(kind, &after, limit).map_err(failed)?;
        Ok(Response::new(ListResponse { objects: page.objects, more: page.more }))
    }

    async fn swap(&self, request: Request<SwapRequest>) -> Result<Response<SwapResponse>, Status> {
        let controller = generation(request.metadata())?;
        let SwapRequest { key, expected_version: expected, change } = request.into_inner();
        let (kind, name) = check::key(key).map_err(refuse)?;
        let missing =
            || Wrong { field: "change".into(), problem: "say what to store, or delete".into() };
        let change = change.ok_or_else(missing).map_err(refuse)?;
        check::change(kind, &name, expected, &change).map_err(refuse)?;
        let swap = Swap { kind, name, expected, change, controller };
        let outcome = match self.writer.swap(swap).await.map_err(not_stored)? {
            Verdict::Done(object) => Outcome::Swapped(*object),
            Verdict::Conflict(present) => {
                Outcome::Conflict(Conflict { present: present.map(|object| *object) })
            }
            Verdict::Refused(wrong) => return Err(refuse(wrong)),
            Verdict::Superseded { by } => return Err(superseded(by)),
        };
        Ok(Response::new(SwapResponse { outcome: Some(outcome) }))
    }

    type BackupStream = tokio_stream::Iter<std::vec::IntoIter<Result<CatalogPart, Status>>>;

    async fn backup(
        &self,
        _: Request<BackupRequest>,
    ) -> Result<Response<Self::BackupStream>, Status> {
        let file = self.file.clone();
        // A large catalog takes a moment to read.
        let read = tokio::task::spawn_blocking(move || file.everything()).await;
        let read = read.map_err(|error| Status::internal(error.to_string()))?;
        let (revision, objects) = read.map_err(failed)?;
        let parts: Vec<_> = parts(revision, objects).into_iter().map(Ok).collect();
        Ok(Response::new(tokio_stream::iter(parts)))
    }

    async fn restore(
        &self,
        request: Request<Streaming<CatalogPart>>,
    ) -> Result<Response<RestoreResponse>, Status> {
        let mut parts = request.into_inner();
        let (mut objects, mut bytes) = (Vec::new(), 0);
        while let Some(part) = parts.message().await? {
            bytes += part.encoded_len();
            if bytes > RESTORE_MAX {
                let text = format!("the objects have more than {RESTORE_MAX} bytes");
                return Err(Status::invalid_argument(text));
            }
            for object in part.objects {
                let (kind, name) =
                    restore::check(&object).map_err(|wrong| of_object(&object, &wrong))?;
                objects.push((kind, name, object));
            }
        }
        let (stored, kept) =
            self.writer.restore(objects).await.map_err(not_stored)?.map_err(|wrong| {
                Status::failed_precondition(format!("{wrong}; nothing was changed"))
            })?;
        Ok(Response::new(RestoreResponse { stored, kept }))
    }

    type WatchStream = ReceiverStream<Result<Event, Status>>;

    async fn watch(
        &self,
        request: Request<WatchRequest>,
    ) -> Result<Response<Self::WatchStream>, Status> {
        let WatchRequest { kind, name, after, deleted } = request.into_inner();
        let all = i32::from(Kind::Unspecified);
        let kind = match kind {
            kind if kind == all => None,
            kind => Some(check::kind("kind", kind).map_err(refuse)?),
        };
        if !name.is_empty() {
            check::name("name", &name).map_err(refuse)?;
        }
        let place = self.watches.clone().try_acquire_owned().map_err(|_| {
            let text = format!("{WATCHES_MAX} watches are under way: end some, or try again later");
            Status::resource_exhausted(text)
        })?;
        let (out, events) = mpsc::channel(READY_MAX);
        // Subscribed before the file is read: what changes in between is in one of them, or in both.
        let news = self.news.resubscribe();
        let interest = Interest { kind, name, deleted };
        let watcher = Watcher { file: self.file.clone(), news, interest, out, _place: place };
        tokio::spawn(watcher.watch(after));
        Ok(Response::new(ReceiverStream::new(events)))
    }
}

fn of_object(object: &Object, wrong: &Wrong) -> Status {
    let name = object.key.as_ref().map(|key| key.name.as_str()).unwrap_or_default();
    Status::invalid_argument(format!("`{name}`: {wrong}; nothing was changed"))
}

/// Which controller asks; none for everybody else.
fn generation(metadata: &MetadataMap) -> Result<Option<u64>, Status> {
    let Some(value) = metadata.get(CONTROLLER) else { return Ok(None) };
    let number = value.to_str().ok().and_then(|text| text.parse().ok());
    let wrong = || Status::invalid_argument(format!("{CONTROLLER}: it is no generation"));
    number.map(Some).ok_or_else(wrong)
}

fn superseded(by: u64) -> Status {
    Status::aborted(format!("controller {by} has taken the site over: nothing was changed"))
}

fn noun(kind: Kind) -> &'static str {
    match kind {
        Kind::Volume => "volume",
        Kind::Node => "node",
        Kind::Snapshot => "snapshot",
        Kind::Group => "group",
        Kind::GroupSnapshot => "group snapshot",
        Kind::Controller => "controller",
        Kind::Token => "token",
        Kind::Host => "host",
        Kind::Unspecified => "object",
    }
}
