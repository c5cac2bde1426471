//! The file of the catalog: objects, in which order they changed, and who had it open.
//!
//! Invariants: the revision grows by one with every object that changes; `changes` has each object once,
//! under the revision of its last change, deleted ones included. So whatever happened after a revision is read
//! from there, however long ago that was.
mod layout;
mod open;
mod space;
#[cfg(test)]
mod tests;
mod whole;

use std::io;
use std::path::PathBuf;
use std::sync::{PoisonError, RwLock};

use prost::Message;
use proto::v1::object::Body;
use proto::v1::swap_request::Change;
use proto::v1::{Cursor, Kind, Object};
use redb::{Database, ReadTransaction, ReadableDatabase, ReadableTable};
use thiserror::Error;

use crate::catalog::check::Wrong;
use crate::catalog::check::people::CONTROLLER;
use crate::catalog::judge::{Present, Swap, Verdict, judge};
use crate::catalog::limits::{LIST_BYTES_MAX, LIST_MAX};
use layout::{CHANGES, META, OBJECTS, REVISION, SESSIONS, kind_number};
use space::Space;

pub use open::OpenError;
pub use whole::Restoration;

/// What went wrong with the file. But for a lack of space it cannot be used any more: what was under way may
/// be in it or not, and whoever opens it again finds it whole.
#[derive(Debug, Error)]
pub enum FileError {
    #[error(
        "the catalog takes no changes, since there is no space where its file is ({0}): make some, and it \
         goes on by itself"
    )]
    NoSpace(io::Error),
    #[error("the catalog's file is opened again, since there was no space for a change; try again")]
    Reopening,
    #[error("the catalog's file failed: {0}")]
    Failed(redb::Error),
    #[error("the catalog's file holds an object that cannot be read: {0}")]
    Unreadable(prost::DecodeError),
}

macro_rules! failed {
    ($($error:ident),*) => {
        $(impl From<redb::$error> for FileError {
            fn from(error: redb::$error) -> FileError {
                FileError::Failed(error.into())
            }
        })*
    };
}

failed!(CommitError, DatabaseError, StorageError, TableError, TransactionError);

impl FileError {
    /// Whether it goes on when there is space again.
    pub fn is_full(&self) -> bool {
        match self {
            FileError::NoSpace(_) | FileError::Reopening => true,
            FileError::Failed(redb::Error::Io(error)) => space::is_full(error),
            FileError::Failed(_) | FileError::Unreadable(_) => false,
        }
    }
}

#[derive(Debug)]
pub struct CatalogFile {
    /// `None` while it has to be opened again.
    database: RwLock<Option<Database>>,
    path: PathBuf,
    /// Behind the database, which is closed first.
    space: Space,
    /// Names this opening; of the next one's watchers those go on who know it.
    session: u64,
}

/// A part of a list, or of what changed.
#[derive(Debug, Default)]
pub struct Page {
    pub objects: Vec<Object>,
    pub more: bool,
}

/// One transaction: what became of each swap, and what is new.
#[derive(Debug)]
pub struct Committed {
    pub verdicts: Vec<Verdict>,
    /// In the order of their revisions.
    pub changed: Vec<Object>,
}

impl CatalogFile {
    pub fn session(&self) -> u64 {
        self.session
    }

    fn begin_read(&self) -> Result<ReadTransaction, FileError> {
        self.reopen()?;
        let database = self.database.read().unwrap_or_else(PoisonError::into_inner);
        Ok(database.as_ref().ok_or(FileError::Reopening)?.begin_read()?)
    }

    /// Opens the database again, which a full disk has left unusable; otherwise does nothing.
    fn reopen(&self) -> Result<(), FileError> {
        if self.database.read().unwrap_or_else(PoisonError::into_inner).is_some() {
            return Ok(());
        }
        let mut database = self.database.write().unwrap_or_else(PoisonError::into_inner);
        if database.is_none() {
            let failed = |error| FileError::Failed(redb::Error::Io(error));
            open::read_from_disk(&self.path).map_err(failed)?;
            *database = Some(match open::builder().open(&self.path) {
                Ok(opened) => opened,
                // Somebody still reads from the one that was given up.
                Err(redb::DatabaseError::DatabaseAlreadyOpen) => return Err(FileError::Reopening),
                Err(error) => return Err(error.into()),
            });
        }
        Ok(())
    }

    pub fn revision(&self) -> Result<u64, FileError> {
        let meta = self.begin_read()?.open_table(META)?;
        Ok(meta.get(REVISION)?.map_or(0, |revision| revision.value()))
    }

    pub fn get(&self, kind: Kind, name: &str) -> Result<Option<Object>, FileError> {
        Ok(self.find(kind, name)?.filter(|object| object.body.is_some()))
    }

    /// What is left of a deleted object too.
    pub fn find(&self, kind: Kind, name: &str) -> Result<Option<Object>, FileError> {
        let objects = self.begin_read()?.open_table(OBJECTS)?;
        Ok(read(&objects, kind_number(kind), name)?.object)
    }

    /// Objects of a kind behind a name.
    pub fn list(&self, kind: Kind, after: &str, limit: usize) -> Result<Page, FileError> {
        let objects = self.begin_read()?.open_table(OBJECTS)?;
        let limit = limit.clamp(1, LIST_MAX);
        let (mut page, mut bytes) = (Page::default(), 0);
        let kind = kind_number(kind);
        for entry in objects.range((kind, after)..(kind + 1, ""))? {
            let (key, value) = entry?;
            let object = decode(value.value())?;
            if object.body.is_none() || key.value().1 == after {
                continue;
            }
            bytes += value.value().len();
            let full = page.objects.len() == limit || bytes > LIST_BYTES_MAX;
            if full && !page.objects.is_empty() {
                page.more = true;
                break;
            }
            page.objects.push(object);
        }
        Ok(page)
    }

    /// What changed after a revision, in order, each object once and as it is now; deleted ones without
    /// a body.
    pub fn changed_after(&self, revision: u64, limit: usize) -> Result<Page, FileError> {
        let reading = self.begin_read()?;
        let (changes, objects) = (reading.open_table(CHANGES)?, reading.open_table(OBJECTS)?);
        let mut page = Page::default();
        for entry in changes.range(revision.saturating_add(1)..)? {
            if page.objects.len() == limit {
                page.more = true;
                break;
            }
            let (_, key) = entry?;
            let (kind, name) = key.value();
            page.objects.extend(read(&objects, kind, name)?.object);
        }
        Ok(page)
    }

    /// Whether what a watcher has seen is a part of this file's history. One that was restored from a
    /// backup has forgotten the end of it.
    pub fn knows(&self, cursor: &Cursor) -> Result<bool, FileError> {
        let reading = self.begin_read()?;
        let sessions = reading.open_table(SESSIONS)?;
        let mut sessions = sessions.iter()?;
        while let Some(entry) = sessions.next() {
            if entry?.1.value().0 != cursor.session {
                continue;
            }
            // Its last revision is the one that the next session began with.
            let end = match sessions.next() {
                Some(next) => next?.1.value().1,
                None => self.revision()?,
            };
            return Ok(cursor.revision <= end);
        }
        Ok(false)
    }

    /// Judges swaps one after the other, each by what those before it left, and makes what they changed
    /// durable together. Without space for it nothing is changed, or it is not known what was, and the file
    /// can be used in any case.
    pub fn commit(&self, swaps: Vec<Swap>) -> Result<Committed, FileError> {
        let bytes: usize = swaps.iter().map(Swap::bytes).sum();
        self.write(bytes, || self.try_commit(swaps))
    }

    /// Carries out a transaction of about so many bytes, if there is space for it.
    fn write<T>(
        &self,
        bytes: usize,
        transaction: impl FnOnce() -> Result<T, FileError>,
    ) -> Result<T, FileError> {
        self.reopen()?;
        self.space.ensure(bytes as u64).map_err(|error| match space::is_full(&error) {
            true => FileError::NoSpace(error),
            false => FileError::Failed(redb::Error::Io(error)),
        })?;
        let done = transaction();
        if done.as_ref().is_err_and(FileError::is_full) {
            // It takes no more calls, and nothing is lost by it: what was committed is durable.
            *self.database.write().unwrap_or_else(PoisonError::into_inner) = None;
        }
        done
    }

    fn try_commit(&self, swaps: Vec<Swap>) -> Result<Committed, FileError> {
        let database = self.database.read().unwrap_or_else(PoisonError::into_inner);
        let writing = database.as_ref().ok_or(FileError::Reopening)?.begin_write()?;
        let mut committed = Committed { verdicts: Vec::new(), changed: Vec::new() };
        {
            let mut meta = writing.open_table(META)?;
            let mut objects = writing.open_table(OBJECTS)?;
            let mut changes = writing.open_table(CHANGES)?;
            let mut revision = meta.get(REVISION)?.map_or(0, |revision| revision.value());
            for swap in swaps {
                let (kind, name) = (kind_number(swap.kind), swap.name.clone());
                let present = read(&objects, kind, &name)?;
                let verdict = match (id_taken(&objects, &swap)?, later(&objects, &swap)?) {
                    (Some(wrong), _) => Verdict::Refused(wrong),
                    (None, Some(by)) => Verdict::Superseded { by },
                    (None, None) => judge(&present, swap, revision + 1),
                };
                if let Verdict::Done(object) = &verdict {
                    revision = object.revision;
                    if let Some(old) = &present.object {
                        changes.remove(old.revision)?;
                    }
                    changes.insert(revision, (kind, name.as_str()))?;
                    objects.insert((kind, name.as_str()), object.encode_to_vec().as_slice())?;
                    committed.changed.push(Object::clone(object));
                }
                committed.verdicts.push(verdict);
            }
            meta.insert(REVISION, revision)?;
        }
        match committed.changed.is_empty() {
            true => writing.abort()?,
            false => writing.commit()?,
        }
        Ok(committed)
    }
}

/// The table of objects, of a transaction that reads or of one that writes.
trait Objects: ReadableTable<(u8, &'static str), &'static [u8]> {}

impl<T: ReadableTable<(u8, &'static str), &'static [u8]>> Objects for T {}

fn read(objects: &impl Objects, kind: u8, name: &str) -> Result<Present, FileError> {
    let object = objects.get((kind, name))?.map(|value| decode(value.value())).transpose()?;
    Ok(Present { object })
}

fn decode(bytes: &[u8]) -> Result<Object, FileError> {
    Object::decode(bytes).map_err(FileError::Unreadable)
}

/// The controller that came after the one that asks.
fn later(objects: &impl Objects, swap: &Swap) -> Result<Option<u64>, FileError> {
    let Some(asks) = swap.controller else { return Ok(None) };
    let found = read(objects, kind_number(Kind::Controller), CONTROLLER)?.object;
    let last = match found.and_then(|object| object.body) {
        Some(Body::Controller(controller)) => controller.generation,
        _ => 0,
    };
    Ok(Some(last).filter(|last| *last > asks))
}

/// Two nodes with one number would both believe that they hold what was granted to one. Looked at when a
/// node comes; later its number stays.
fn id_taken(objects: &impl Objects, swap: &Swap) -> Result<Option<Wrong>, FileError> {
    let Change::Node(new) = &swap.change else { return Ok(None) };
    if swap.expected != 0 {
        return Ok(None);
    }
    let kind = kind_number(Kind::Node);
    for entry in objects.range((kind, "")..(kind + 1, ""))? {
        let object = decode(entry?.1.value())?;
        if let Some(Body::Node(other)) = &object.body
            && other.id == new.id
            && other.name != new.name
        {
            let problem = format!("node {} has {} already", other.name, other.id);
            return Ok(Some(Wrong { field: "node.id".into(), problem }));
        }
    }
    Ok(None)
}
