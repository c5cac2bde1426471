//! Copies of the whole catalog that a node keeps, for the day when the catalog is lost.
//!
//! Taken at intervals, the last few of them; each is whole, and only the owner of the process reads it: secrets are
//! among what it has. Invariant: a catalog that has lost something never replaces a copy that still has it.
use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use proto::v1::object::Body;
use proto::v1::{CatalogCopy, Object};
use tracing::{info, warn};

use crate::catalog::Books;

/// A copy that was taken while something went wrong is not the last one.
const KEPT_MAX: usize = 3;
const END: &str = ".copy";
const UNFINISHED: &str = ".new";

#[derive(Clone, Debug)]
pub struct Copies {
    folder: PathBuf,
}

impl Copies {
    pub fn open(state: &Path) -> io::Result<Copies> {
        let folder = state.join("catalog");
        DirBuilder::new().recursive(true).mode(0o700).create(&folder)?;
        fs::set_permissions(&folder, Permissions::from_mode(0o700))?;
        Ok(Copies { folder })
    }

    /// Those that are there, oldest first.
    fn files(&self) -> io::Result<Vec<PathBuf>> {
        let mut files = Vec::new();
        for entry in fs::read_dir(&self.folder)? {
            let path = entry?.path();
            if path.to_string_lossy().ends_with(END) {
                files.push(path);
            }
        }
        files.sort();
        Ok(files)
    }

    /// The newest that is whole.
    pub fn newest(&self) -> io::Result<Option<CatalogCopy>> {
        for path in self.files()?.iter().rev() {
            match proto::copy::decode(&fs::read(path)?, certs::sha256) {
                Ok(copy) => return Ok(Some(copy)),
                Err(error) => {
                    warn!(path = %path.display(), %error, "a copy of the catalog is of no use")
                }
            }
        }
        Ok(None)
    }

    /// Durable when it returns; the oldest go.
    pub fn keep(&self, copy: &CatalogCopy) -> io::Result<()> {
        // Names are in the order of time.
        let path = self.folder.join(format!("{:016}{END}", copy.taken_ms));
        let new = self.folder.join(format!("{:016}{UNFINISHED}", copy.taken_ms));
        let mut options = OpenOptions::new();
        let mut file = options.write(true).create(true).truncate(true).mode(0o600).open(&new)?;
        file.write_all(&proto::copy::encode(copy, certs::sha256))?;
        file.sync_all()?;
        fs::rename(&new, &path)?;
        let files = self.files()?;
        for old in files.iter().take(files.len().saturating_sub(KEPT_MAX)) {
            fs::remove_file(old)?;
        }
        File::open(&self.folder)?.sync_all()
    }
}

/// Takes copies for ever.
pub async fn keep_copies(books: Arc<Books>, copies: Copies, every: Duration) {
    books.current().await;
    let mut ticks = tokio::time::interval(every);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        match keep_one(&books, &copies).await {
            Ok(true) => info!("a copy of the catalog is kept"),
            Ok(false) => {}
            Err(error) => warn!(error, "no copy of the catalog is kept"),
        }
    }
}

/// Whether there was something new to keep.
async fn keep_one(books: &Books, copies: &Copies) -> Result<bool, String> {
    let (revision, objects) = books.client().backup().await.map_err(|error| error.to_string())?;
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let taken_ms = u64::try_from(since.as_millis()).unwrap_or(u64::MAX);
    let mut copy = CatalogCopy { revision, taken_ms, objects };
    if let Some(last) = copies.newest().map_err(|error| error.to_string())? {
        let lost = lost(&last, &copy);
        if let Some(name) = lost.first() {
            return Err(format!(
                "the catalog has lost {} volumes that the last copy has, `{name}` among them: the copy stays",
                lost.len()
            ));
        }
        keep_lost(&last, &mut copy);
        if last.objects == copy.objects {
            return Ok(false);
        }
    }
    copies.keep(&copy).map_err(|error| error.to_string())?;
    Ok(true)
}

/// Names of volumes that the later of two copies does not have, though nothing says that they were deleted.
fn lost<'a>(last: &'a CatalogCopy, next: &CatalogCopy) -> Vec<&'a str> {
    let uid_of = |object: &Object| match &object.body {
        Some(Body::Volume(volume)) => Some(volume.uid.clone()),
        _ => None,
    };
    let mut known: std::collections::BTreeSet<Vec<u8>> =
        next.objects.iter().filter_map(uid_of).collect();
    known.extend(next.objects.iter().flat_map(|object| object.deleted_uids.iter().cloned()));
    let volumes = last.objects.iter().filter_map(|object| match &object.body {
        Some(Body::Volume(volume)) => Some(volume),
        _ => None,
    });
    volumes.filter(|it| !known.contains(&it.uid)).map(|it| it.name.as_str()).collect()
}

/// A catalog keeps what is left of a deleted object. What it has no trace of it has lost, and the last copy that has it
/// may be all that there is: the next one takes it over.
fn keep_lost(last: &CatalogCopy, next: &mut CatalogCopy) {
    let place = |object: &Object| object.key.as_ref().map(|key| (key.kind, key.name.clone()));
    let told: std::collections::BTreeSet<_> = next.objects.iter().filter_map(place).collect();
    let is_lost = |object: &&Object| place(object).is_some_and(|it| !told.contains(&it));
    next.objects.extend(last.objects.iter().filter(is_lost).cloned());
    next.objects.sort_by_key(place);
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test that cannot go on says so by its line")]
    use proto::v1::{Key, Kind, Token, Volume};

    use super::*;

    fn volume(name: &str, uid: u8) -> Object {
        let volume = Volume { uid: vec![uid; 16], name: name.into(), ..Volume::default() };
        Object { version: 1, body: Some(Body::Volume(volume)), ..Object::default() }
    }

    fn copy(taken_ms: u64, objects: Vec<Object>) -> CatalogCopy {
        CatalogCopy { revision: taken_ms, taken_ms, objects }
    }

    /// Protects from disks that fill with copies, from secrets that others read, and from a copy that was cut short and is
    /// taken for the newest.
    #[test]
    fn the_last_few_copies_are_kept_and_closed() {
        let state = std::env::temp_dir().join(format!("pollux-copies-{}", std::process::id()));
        let copies = Copies::open(&state).unwrap();
        assert_eq!(copies.newest().unwrap(), None);
        for at in 1..=5 {
            copies.keep(&copy(at, vec![volume("db", 7)])).unwrap();
        }
        let files = copies.files().unwrap();
        assert_eq!(files.len(), KEPT_MAX);
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&state.join("catalog")), mode(&files[0])), (0o700, 0o600));
        assert_eq!(copies.newest().unwrap().unwrap().taken_ms, 5);
        fs::write(&files[KEPT_MAX - 1], b"pollux catalog copy 1\nhalf").unwrap();
        assert_eq!(copies.newest().unwrap().unwrap().taken_ms, 4);
        fs::remove_dir_all(&state).unwrap();
    }

    /// Protects from an empty catalog that pushes the good copies out one by one.
    #[test]
    fn a_catalog_that_lost_a_volume_is_not_copied_over_one_that_has_it() {
        let last = copy(1, vec![volume("db", 7), volume("web", 8)]);
        assert_eq!(lost(&last, &copy(2, Vec::new())), ["db", "web"]);
        assert_eq!(lost(&last, &copy(2, vec![volume("db", 9), volume("web", 8)])), ["db"]);
        let deleted = Object { deleted_uids: vec![vec![7; 16]], ..Object::default() };
        assert!(lost(&last, &copy(2, vec![deleted, volume("web", 8)])).is_empty());
    }

    /// Protects from tokens, hosts and groups that are gone from the last copy an hour after the catalog lost them.
    #[test]
    fn what_the_catalog_has_no_trace_of_stays_in_the_copies() {
        let token = |name: &str, body| Object {
            key: Some(Key { kind: Kind::Token.into(), name: name.into() }),
            version: 1,
            body,
            ..Object::default()
        };
        let there = |name| token(name, Some(Body::Token(Token::default())));
        let last = copy(1, vec![there("a"), there("b"), there("c")]);
        let mut next = copy(2, vec![token("b", None), there("a")]);
        keep_lost(&last, &mut next);
        assert_eq!(next.objects, [there("a"), token("b", None), there("c")]);
    }
}
