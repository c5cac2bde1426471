//! The one thread that writes. Swaps that arrive while the disk is synced wait, and share the next sync.
use std::io;
use std::sync::Arc;
use std::thread;

use proto::v1::{Kind, Object};
use thiserror::Error;
use tokio::sync::{broadcast, mpsc, oneshot};
use tracing::{info, warn};

use crate::catalog::check::Wrong;
use crate::catalog::file::{CatalogFile, FileError, Restoration};
use crate::catalog::judge::{Swap, Verdict};
use crate::catalog::limits::{BATCH_MAX, FEED_MAX, PAGE, QUEUE_MAX};

/// What one transaction changed, in the order of revisions.
pub type News = Arc<[Object]>;

enum Ask {
    Swap {
        swap: Box<Swap>,
        answer: oneshot::Sender<Result<Verdict, NotStored>>,
    },
    /// Objects that are brought back.
    Restore {
        objects: Vec<(Kind, String, Object)>,
        answer: oneshot::Sender<Restored>,
    },
    /// Nothing is taken after this.
    Stop,
}

/// Why a swap was not judged. It may be asked again in any case.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum NotStored {
    #[error("the catalog stops: whether this was stored is not known, so ask again")]
    Stopped,
    #[error("{0}")]
    NoSpace(String),
}

/// How to reach the writer.
#[derive(Clone, Debug)]
pub struct Writer {
    asks: mpsc::Sender<Ask>,
}

/// What its owner has of a running writer. News end when it does.
pub struct Running {
    pub writer: Writer,
    pub news: broadcast::Receiver<News>,
    /// How it ended, when it did.
    pub ended: oneshot::Receiver<Result<(), FileError>>,
}

pub fn start(file: Arc<CatalogFile>) -> io::Result<Running> {
    let (asks, asked) = mpsc::channel(QUEUE_MAX);
    let (tell, news) = broadcast::channel(FEED_MAX);
    let (over, ended) = oneshot::channel();
    thread::Builder::new().name("catalog-writer".into()).spawn(move || {
        let end = write_all(&file, asked, &tell);
        // Whoever learns that it is over may want to open the file.
        drop((file, tell));
        // Whoever started it may be gone.
        let _ = over.send(end);
    })?;
    Ok(Running { writer: Writer { asks }, news, ended })
}

impl Writer {
    /// Answered when it is durable, or when nothing was changed.
    pub async fn swap(&self, swap: Swap) -> Result<Verdict, NotStored> {
        let (answer, verdict) = oneshot::channel();
        let ask = Ask::Swap { swap: Box::new(swap), answer };
        self.asks.send(ask).await.map_err(|_| NotStored::Stopped)?;
        verdict.await.map_err(|_| NotStored::Stopped)?
    }

    /// Brings objects back: how many were stored, and how many were there already.
    pub async fn restore(&self, objects: Vec<(Kind, String, Object)>) -> Restored {
        let (answer, restored) = oneshot::channel();
        let ask = Ask::Restore { objects, answer };
        self.asks.send(ask).await.map_err(|_| NotStored::Stopped)?;
        restored.await.map_err(|_| NotStored::Stopped)?
    }

    /// Whatever was asked before is done first.
    pub async fn stop(&self) {
        // One that has ended already needs no telling.
        let _ = self.asks.send(Ask::Stop).await;
    }
}

fn write_all(
    file: &CatalogFile,
    mut asked: mpsc::Receiver<Ask>,
    tell: &broadcast::Sender<News>,
) -> Result<(), FileError> {
    let mut stops = false;
    let mut feed = Feed { tell, told: file.revision()?, full: false };
    while !stops && let Some(first) = asked.blocking_recv() {
        let (mut swaps, mut answers, mut restoring) = (Vec::new(), Vec::new(), None);
        let mut next = Some(first);
        while let Some(ask) = next {
            match ask {
                Ask::Swap { swap, answer } => {
                    swaps.push(*swap);
                    answers.push(answer);
                }
                Ask::Restore { objects, answer } => restoring = Some((objects, answer)),
                Ask::Stop => stops = true,
            }
            let full = stops || restoring.is_some() || swaps.len() == BATCH_MAX;
            next = if full { None } else { asked.try_recv().ok() };
        }
        if swaps.is_empty() {
            restore(file, restoring, &mut feed)?;
            continue;
        }
        // Answers also tell what swaps before them in this transaction left, so all of them wait for it.
        match file.commit(swaps) {
            Ok(committed) => {
                feed.stored(file, committed.changed)?;
                for (answer, verdict) in answers.into_iter().zip(committed.verdicts) {
                    // Whoever asked may be gone.
                    let _ = answer.send(Ok(verdict));
                }
            }
            Err(error) if error.is_full() => {
                feed.became_full(&error);
                for answer in answers {
                    let _ = answer.send(Err(NotStored::NoSpace(error.to_string())));
                }
            }
            Err(error) => return Err(error),
        }
        restore(file, restoring, &mut feed)?;
    }
    Ok(())
}

/// What watchers are told. A watcher takes no revision below one that it was told, so nothing is told before what came
/// before it.
struct Feed<'a> {
    tell: &'a broadcast::Sender<News>,
    /// Everything up to this revision was told.
    told: u64,
    /// The last change failed for want of space. It may have been stored all the same.
    full: bool,
}

impl Feed<'_> {
    /// A transaction is durable.
    fn stored(&mut self, file: &CatalogFile, changed: Vec<Object>) -> Result<(), FileError> {
        if std::mem::take(&mut self.full) {
            info!("the catalog has space again, and takes changes");
            return self.tell_changes(file);
        }
        if let Some(last) = changed.last() {
            self.told = last.revision;
            // Nobody may be watching.
            let _ = self.tell.send(changed.into());
        }
        Ok(())
    }

    fn became_full(&mut self, error: &FileError) {
        if !std::mem::replace(&mut self.full, true) {
            warn!("{error}");
        }
    }

    /// Tells everything that was not told yet, as the file has it.
    fn tell_changes(&mut self, file: &CatalogFile) -> Result<(), FileError> {
        loop {
            let page = file.changed_after(self.told, PAGE)?;
            self.told = page.objects.last().map_or(self.told, |last| last.revision);
            if !page.objects.is_empty() {
                let _ = self.tell.send(page.objects.into());
            }
            if !page.more {
                return Ok(());
            }
        }
    }
}

/// How many objects were stored and how many were there already, or what is wrong with one of them.
type Restored = Result<Result<(u64, u64), Wrong>, NotStored>;
type Restoring = (Vec<(Kind, String, Object)>, oneshot::Sender<Restored>);

fn restore(
    file: &CatalogFile,
    restoring: Option<Restoring>,
    feed: &mut Feed,
) -> Result<(), FileError> {
    let Some((objects, answer)) = restoring else { return Ok(()) };
    let restored = match file.restore(objects) {
        Err(error) if error.is_full() => {
            feed.became_full(&error);
            Err(NotStored::NoSpace(error.to_string()))
        }
        Err(error) => return Err(error),
        Ok(Restoration::Done { changed, kept }) => {
            let stored = changed.len() as u64;
            feed.stored(file, changed)?;
            Ok(Ok((stored, kept)))
        }
        Ok(Restoration::Refused(wrong)) => Ok(Err(wrong)),
    };
    // The caller may be gone.
    let _ = answer.send(restored);
    Ok(())
}

#[cfg(test)]
mod tests;
