//! Watchers: each goes its own pace, from the file to the news of the day.
//!
//! A watcher reads from the file what changed since it was last there, then follows the news in memory.
//! One that falls behind them goes back to the file, where it finds every object's last change; so
//! nothing is kept for the slow, nobody is cut off, and nobody misses the last change of anything.
use std::sync::Arc;

use proto::v1::event::Event as Told;
use proto::v1::{Begin, Current, Cursor, Event, Kind, Object};
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::{OwnedSemaphorePermit, broadcast, mpsc};
use tonic::Status;

use crate::catalog::file::{CatalogFile, FileError};
use crate::catalog::limits::PAGE;
use crate::catalog::writer::News;

/// What somebody wants to see.
#[derive(Clone, Debug)]
pub struct Interest {
    /// `None`: all kinds.
    pub kind: Option<Kind>,
    /// Empty: all names.
    pub name: String,
    /// Everything includes what is left of deleted objects.
    pub deleted: bool,
}

impl Interest {
    fn covers(&self, object: &Object) -> bool {
        object.key.as_ref().is_some_and(|key| {
            let kind = self.kind.is_none_or(|kind| i32::from(kind) == key.kind);
            kind && (self.name.is_empty() || self.name == key.name)
        })
    }
}

pub struct Watcher {
    pub file: Arc<CatalogFile>,
    pub news: broadcast::Receiver<News>,
    pub interest: Interest,
    pub out: mpsc::Sender<Result<Event, Status>>,
    /// One of the watches that there may be.
    pub _place: OwnedSemaphorePermit,
}

/// Why a watch ends.
enum End {
    /// The watcher is gone.
    Gone,
    Stopped,
    Failed(FileError),
}

impl From<FileError> for End {
    fn from(error: FileError) -> End {
        End::Failed(error)
    }
}

impl Watcher {
    pub async fn watch(mut self, after: Option<Cursor>) {
        let Err(end) = self.go_on(after).await;
        let why = match end {
            End::Gone => return,
            End::Stopped => "the catalog stops; watch again from where you are".to_string(),
            End::Failed(error) => error.to_string(),
        };
        // It may be gone by now.
        let _ = self.out.send(Err(Status::unavailable(why))).await;
    }

    async fn go_on(&mut self, after: Option<Cursor>) -> Result<std::convert::Infallible, End> {
        let after = match after {
            Some(cursor) if self.file.knows(&cursor)? => Some(cursor.revision),
            _ => None,
        };
        let session = self.file.session();
        self.send(Told::Begin(Begin { whole: after.is_none(), session })).await?;
        // What was deleted before a watch of everything began is told to watchers that ask for it.
        let untold = match after {
            None if !self.interest.deleted => self.file.revision()?,
            _ => 0,
        };
        let mut at = self.catch_up(after.unwrap_or(0), untold).await?;
        loop {
            let gone = self.out.clone();
            let news = tokio::select! {
                news = self.news.recv() => news,
                () = gone.closed() => return Err(End::Gone),
            };
            match news {
                Ok(news) => {
                    for object in news.iter().filter(|object| object.revision > at) {
                        self.tell(object).await?;
                    }
                    at = news.last().map_or(at, |last| last.revision.max(at));
                }
                Err(RecvError::Lagged(_)) => at = self.catch_up(at, 0).await?,
                Err(RecvError::Closed) => return Err(End::Stopped),
            }
        }
    }

    /// Tells what the file has after a revision, and up to which one that was.
    async fn catch_up(&mut self, after: u64, untold: u64) -> Result<u64, End> {
        let mut at = after;
        loop {
            let page = self.file.changed_after(at, PAGE)?;
            for object in &page.objects {
                if object.body.is_some() || object.revision > untold {
                    self.tell(object).await?;
                }
            }
            at = page.objects.last().map_or(at, |last| last.revision);
            if !page.more {
                self.send(Told::Current(Current { revision: at })).await?;
                return Ok(at);
            }
            // A page of which nothing is told would let nobody else have a turn.
            tokio::task::yield_now().await;
        }
    }

    async fn tell(&self, object: &Object) -> Result<(), End> {
        match self.interest.covers(object) {
            true => self.send(Told::Object(object.clone())).await,
            false => Ok(()),
        }
    }

    async fn send(&self, told: Told) -> Result<(), End> {
        let event = Event { event: Some(told) };
        self.out.send(Ok(event)).await.map_err(|_| End::Gone)
    }
}
