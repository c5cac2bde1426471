//! Opening the file, and making it where there is none.
use std::fs::{self, File, OpenOptions};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::RwLock;

use redb::{Builder, Database, DatabaseError, ReadableTable, StorageError};
use thiserror::Error;

use crate::catalog::file::layout::{
    CHANGES, FORMAT, FORMAT_VERSION, META, OBJECTS, REVISION, SESSIONS,
};
use crate::catalog::file::space::Space;
use crate::catalog::file::{CatalogFile, FileError};
use crate::catalog::limits::{CACHE, SESSIONS_MAX};

#[derive(Debug, Error)]
pub enum OpenError {
    #[error(
        "{} is open in another process: a catalog has one owner; stop the other one (`fuser -v` tells \
         who it is), or give another file",
        path.display()
    )]
    InUse { path: PathBuf },
    #[error("{} is no catalog: give another path, or the file that the catalog made", path.display())]
    NotACatalog { path: PathBuf },
    #[error(
        "{} has format {found}, and this version knows {FORMAT_VERSION}: use the version of Pollux that \
         wrote it, or a newer one",
        path.display()
    )]
    OtherFormat { path: PathBuf, found: u64 },
    #[error("{} cannot be opened: {error}", path.display())]
    Io { path: PathBuf, error: io::Error },
    #[error("{} cannot be opened: {error}", path.display())]
    Broken { path: PathBuf, error: FileError },
}

impl CatalogFile {
    /// Opens the file, or makes it. Nobody else can open it until it is dropped.
    pub fn open(path: &Path) -> Result<CatalogFile, OpenError> {
        let io = |error| OpenError::Io { path: path.into(), error };
        if !path.try_exists().map_err(io)? {
            make(path)?;
        }
        read_from_disk(path).map_err(io)?;
        let database = builder().open(path).map_err(|error| explain(path, error))?;
        let broken = |error| OpenError::Broken { path: path.into(), error };
        match format_of(&database).map_err(broken)? {
            Some(FORMAT_VERSION) => {}
            Some(found) => return Err(OpenError::OtherFormat { path: path.into(), found }),
            None => return Err(OpenError::NotACatalog { path: path.into() }),
        }
        let session = begin_session(&database).map_err(broken)?;
        let space = Space::of(path).map_err(io)?;
        let database = RwLock::new(Some(database));
        Ok(CatalogFile { database, path: path.into(), space, session })
    }
}

/// What is read from now on is what the disk has. After a sync that failed, also one of an earlier process, the
/// page cache shows writes that the disk has lost; a database that goes on from them loses later ones too.
pub(super) fn read_from_disk(path: &Path) -> io::Result<()> {
    let file = OpenOptions::new().read(true).write(true).open(path)?;
    if let Err(error) = file.sync_data() {
        // The pages that could not be written are clean now, and are dropped with the others.
        tracing::error!(%error, file = %path.display(), "the disk has lost writes to the catalog's file");
    }
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed)?;
    Ok(())
}

pub(super) fn builder() -> Builder {
    let mut builder = Builder::new();
    builder.set_cache_size(CACHE);
    builder
}

fn explain(path: &Path, error: DatabaseError) -> OpenError {
    let path = path.to_path_buf();
    match error {
        DatabaseError::DatabaseAlreadyOpen => OpenError::InUse { path },
        DatabaseError::Storage(StorageError::Io(error))
            if error.kind() == io::ErrorKind::InvalidData =>
        {
            OpenError::NotACatalog { path }
        }
        DatabaseError::Storage(StorageError::Io(error)) => OpenError::Io { path, error },
        other => OpenError::Broken { path, error: other.into() },
    }
}

/// A process that dies while it makes a database leaves a file that is none. So it is made aside, and gets
/// its name when it is whole; and only if nobody else was faster.
fn make(path: &Path) -> Result<(), OpenError> {
    let io = |error| OpenError::Io { path: path.into(), error };
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    let parent = parent.unwrap_or(Path::new("."));
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let aside = parent.join(format!(".{name}.new-{}", std::process::id()));
    let made = fill(&aside).and_then(|()| match fs::hard_link(&aside, path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(io(error)),
        _ => Ok(()),
    });
    let removed = fs::remove_file(&aside).map_err(io);
    made.and(removed)?;
    File::open(parent).and_then(|parent| parent.sync_all()).map_err(io)
}

fn fill(path: &Path) -> Result<(), OpenError> {
    let io = |error| OpenError::Io { path: path.into(), error };
    match fs::remove_file(path) {
        // An earlier process of this number died over it.
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(io(error)),
    }
    // Credentials are among what it keeps.
    let mut options = OpenOptions::new();
    let file = options.read(true).write(true).create_new(true).mode(0o600).open(path);
    let database = builder().create_file(file.map_err(io)?);
    let database = database.map_err(|error| explain(path, error))?;
    tables(&database).map_err(|error| OpenError::Broken { path: path.into(), error })
}

fn tables(database: &Database) -> Result<(), FileError> {
    let writing = database.begin_write()?;
    {
        let mut meta = writing.open_table(META)?;
        meta.insert(FORMAT, FORMAT_VERSION)?;
        meta.insert(REVISION, 0)?;
        writing.open_table(OBJECTS)?;
        writing.open_table(CHANGES)?;
        writing.open_table(SESSIONS)?;
    }
    Ok(writing.commit()?)
}

fn format_of(database: &Database) -> Result<Option<u64>, FileError> {
    use redb::{ReadableDatabase, TableError};
    match database.begin_read()?.open_table(META) {
        Ok(meta) => Ok(meta.get(FORMAT)?.map(|format| format.value())),
        Err(TableError::Storage(error)) => Err(error.into()),
        Err(_) => Ok(None),
    }
}

fn begin_session(database: &Database) -> Result<u64, FileError> {
    let writing = database.begin_write()?;
    // Two openings must differ, also of copies of one file on two machines. The hasher's seed is random.
    let session = RandomState::new().build_hasher().finish().max(1);
    {
        let meta = writing.open_table(META)?;
        let mut sessions = writing.open_table(SESSIONS)?;
        let revision = meta.get(REVISION)?.map_or(0, |revision| revision.value());
        let next = sessions.last()?.map_or(0, |(number, _)| number.value() + 1);
        sessions.insert(next, (session, revision))?;
        sessions.retain_in(..next.saturating_sub(SESSIONS_MAX - 1), |_, _| false)?;
    }
    writing.commit()?;
    Ok(session)
}
