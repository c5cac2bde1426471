//! The whole catalog: read at one moment, or brought back in one transaction.
use std::sync::PoisonError;

use prost::Message;
use proto::v1::{Kind, Object};
use redb::ReadableTable;

use super::layout::{CHANGES, META, OBJECTS, REVISION, kind_number};
use super::{CatalogFile, FileError, decode, id_taken, read};
use crate::catalog::check::Wrong;
use crate::catalog::judge::{Swap, change_of};
use crate::catalog::restore::{Restored, restore};

/// What became of objects that were brought back.
#[derive(Debug)]
pub enum Restoration {
    Done {
        /// In the order of their revisions.
        changed: Vec<Object>,
        kept: u64,
    },
    /// Nothing was changed.
    Refused(Wrong),
}

impl CatalogFile {
    /// Everything, deleted objects included, and the revision of that moment.
    pub fn everything(&self) -> Result<(u64, Vec<Object>), FileError> {
        let reading = self.begin_read()?;
        let (meta, objects) = (reading.open_table(META)?, reading.open_table(OBJECTS)?);
        let revision = meta.get(REVISION)?.map_or(0, |revision| revision.value());
        let mut all = Vec::new();
        for entry in objects.iter()? {
            all.push(decode(entry?.1.value())?);
        }
        Ok((revision, all))
    }

    /// All of these objects, or none.
    pub fn restore(&self, given: Vec<(Kind, String, Object)>) -> Result<Restoration, FileError> {
        let bytes = given.iter().map(|(_, name, object)| name.len() + object.encoded_len()).sum();
        self.write(bytes, || self.try_restore(given))
    }

    fn try_restore(&self, given: Vec<(Kind, String, Object)>) -> Result<Restoration, FileError> {
        let database = self.database.read().unwrap_or_else(PoisonError::into_inner);
        let writing = database.as_ref().ok_or(FileError::Reopening)?.begin_write()?;
        let (mut changed, mut kept, mut refused) = (Vec::new(), 0, None);
        {
            let mut meta = writing.open_table(META)?;
            let mut objects = writing.open_table(OBJECTS)?;
            let mut changes = writing.open_table(CHANGES)?;
            let mut revision = meta.get(REVISION)?.map_or(0, |revision| revision.value());
            for (kind, name, object) in given {
                let number = kind_number(kind);
                let present = read(&objects, number, &name)?;
                let is_new = present.object.as_ref().is_none_or(|there| there.body.is_none());
                if let Some(body) = object.body.clone().filter(|_| is_new) {
                    let (name, change) = (name.clone(), change_of(body));
                    let swap = Swap { kind, name, expected: 0, change, controller: None };
                    if let Some(wrong) = id_taken(&objects, &swap)? {
                        refused = Some(wrong);
                        break;
                    }
                }
                match restore(&present, object, revision + 1) {
                    Restored::Stored(object) => {
                        revision = object.revision;
                        if let Some(old) = &present.object {
                            changes.remove(old.revision)?;
                        }
                        changes.insert(revision, (number, name.as_str()))?;
                        let bytes = object.encode_to_vec();
                        objects.insert((number, name.as_str()), bytes.as_slice())?;
                        changed.push(*object);
                    }
                    Restored::Kept => kept += 1,
                    Restored::Refused(wrong) => {
                        refused = Some(wrong);
                        break;
                    }
                }
            }
            meta.insert(REVISION, revision)?;
        }
        if let Some(wrong) = refused {
            writing.abort()?;
            return Ok(Restoration::Refused(wrong));
        }
        match changed.is_empty() {
            true => writing.abort()?,
            false => writing.commit()?,
        }
        Ok(Restoration::Done { changed, kept })
    }
}
