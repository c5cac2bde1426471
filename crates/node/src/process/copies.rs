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

use proto::deletion::mark_was_dropped;
use proto::v1::object::Body;
use proto::v1::{CatalogCopy, Object};
use tracing::{info, warn};

use crate::catalog::Books;

/// A copy that was taken while something went wrong is not the last one.
const KEPT_MAX: usize = 3;
const END: &str = ".copy";
/// Ends the names of files that are not whole yet. Earlier versions had many names for them.
const UNFINISHED: &str = ".new";
/// Always the same name: a disk that is full has at most one such file.
const NEW: &str = "copy.new";

#[derive(Clone, Debug)]
pub struct Copies {
    folder: PathBuf,
}

impl Copies {
    /// Removes what an earlier process did not finish.
    pub fn open(state: &Path) -> io::Result<Copies> {
        let folder = state.join("catalog");
        DirBuilder::new().recursive(true).mode(0o700).create(&folder)?;
        fs::set_permissions(&folder, Permissions::from_mode(0o700))?;
        for entry in fs::read_dir(&folder)? {
            let path = entry?.path();
            if path.to_string_lossy().ends_with(UNFINISHED)
                && let Err(error) = fs::remove_file(&path)
            {
                warn!(path = %path.display(), %error, "an unfinished copy of the catalog stays");
            }
        }
        Ok(Copies { folder })
    }

    /// Those that are there, oldest first.
    fn files(&self) -> io::Result<Vec<PathBuf>> {
        let mut files = Vec::new();
        for entry in fs::read_dir(&self.folder)? {
            let path = entry?.path();
            if stamp(&path).is_some() {
                files.push(path);
            }
        }
        files.sort_by_key(|path| stamp(path));
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

    /// Durable when it returns; the oldest go. Leaves nothing behind if it fails.
    pub fn keep(&self, copy: &CatalogCopy) -> io::Result<()> {
        // Behind all that are there, readable or not: a clock that went back must not make the copy taken last the
        // oldest one.
        let files = self.files()?;
        let last = files.last().and_then(|path| stamp(path));
        let stamp = last.map_or(0, |last| last.saturating_add(1)).max(copy.taken_ms);
        let path = self.folder.join(format!("{stamp:016}{END}"));
        let new = self.folder.join(NEW);
        let written = write(&new, &proto::copy::encode(copy, certs::sha256));
        if let Err(error) = written.and_then(|()| fs::rename(&new, &path)) {
            // The first error is the one that says why.
            let _ = remove(&new);
            return Err(error);
        }
        let files = self.files()?;
        for old in files.iter().take(files.len().saturating_sub(KEPT_MAX)) {
            fs::remove_file(old)?;
        }
        File::open(&self.folder)?.sync_all()
    }
}

/// The number in a copy's name. Copies are in its order; it is the time at which a copy was taken, or later.
fn stamp(path: &Path) -> Option<u64> {
    path.file_name()?.to_str()?.strip_suffix(END)?.parse().ok()
}

fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    remove(path)?;
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}

/// Also if it is not there.
fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
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
    // A name keeps a few marks only.
    let is_long_gone = |earlier: &Object| {
        let later = next.objects.iter().find(|it| earlier.key.is_some() && it.key == earlier.key);
        later.is_some_and(|later| mark_was_dropped(earlier, later))
    };
    let missing = last.objects.iter().filter_map(|object| match &object.body {
        Some(Body::Volume(volume)) if !known.contains(&volume.uid) => Some((object, volume)),
        _ => None,
    });
    let lost = missing.filter(|(object, _)| !is_long_gone(object));
    lost.map(|(_, volume)| volume.name.as_str()).collect()
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

    fn names(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).unwrap();
        let name = |entry: io::Result<fs::DirEntry>| entry.unwrap().file_name();
        let mut names: Vec<_> = entries.map(|it| name(it).into_string().unwrap()).collect();
        names.sort();
        names
    }

    fn state(name: &str) -> PathBuf {
        let state = std::env::temp_dir().join(format!("pollux-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&state);
        state
    }

    /// Protects from unfinished copies that fill the disk, one for each start on which it was full.
    #[test]
    fn unfinished_copies_are_gone_after_a_start() {
        let state = state("copies-unfinished");
        Copies::open(&state).unwrap().keep(&copy(7, vec![volume("db", 7)])).unwrap();
        let folder = state.join("catalog");
        for stamp in [8, 9] {
            fs::write(folder.join(format!("{stamp:016}.new")), b"half").unwrap();
        }
        let copies = Copies::open(&state).unwrap();
        assert_eq!(names(&folder), ["0000000000000007.copy"]);
        assert_eq!(copies.newest().unwrap().unwrap().taken_ms, 7);
        fs::remove_dir_all(&state).unwrap();
    }

    /// Protects from a full disk that is filled further by every try to keep a copy.
    #[test]
    fn a_copy_that_could_not_be_kept_leaves_no_file() {
        let state = state("copies-failed");
        let copies = Copies::open(&state).unwrap();
        // No file takes the place of a folder, and no stamp is higher than this one.
        let folder = state.join("catalog");
        fs::create_dir(folder.join(format!("{}{END}", u64::MAX))).unwrap();
        let before = names(&folder);
        copies.keep(&copy(u64::MAX, vec![volume("db", 7)])).unwrap_err();
        assert_eq!(names(&folder), before);
        fs::remove_dir_all(&state).unwrap();
    }

    /// Protects from a clock that was ahead: until it is reached again, every new copy would be the oldest and be deleted.
    #[test]
    fn the_copy_taken_last_is_the_newest_also_after_the_clock_went_back() {
        let state = state("copies-clock");
        let copies = Copies::open(&state).unwrap();
        for at in [10, 11, 12, 5] {
            copies.keep(&copy(at, vec![volume("db", 7)])).unwrap();
        }
        assert_eq!(copies.newest().unwrap().unwrap().taken_ms, 5);
        assert_eq!(copies.files().unwrap().len(), KEPT_MAX);

        fs::write(copies.files().unwrap().last().unwrap(), b"damaged").unwrap();
        copies.keep(&copy(4, vec![volume("db", 7)])).unwrap();
        assert_eq!(copies.newest().unwrap().unwrap().taken_ms, 4, "behind one that is damaged");
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

    /// Protects from a node that never takes a copy again, since a volume of its last one was deleted so long ago that its
    /// mark was dropped.
    #[test]
    fn a_volume_whose_name_saw_sixteen_later_deletions_is_not_lost() {
        let at = |version, marks: std::ops::RangeInclusive<u8>, uid: Option<u8>| Object {
            key: Some(Key { kind: Kind::Volume.into(), name: "db".into() }),
            version,
            deleted_uids: marks.map(|uid| vec![uid; 16]).collect(),
            body: uid.and_then(|uid| volume("db", uid).body),
            ..Object::default()
        };
        let last = copy(1, vec![at(5, 1..=1, Some(7))]);
        let next = |object| copy(2, vec![object]);
        // Seven, and sixteen more: each was made and deleted.
        assert!(lost(&last, &next(at(38, 101..=116, None))).is_empty());
        assert!(lost(&last, &next(at(39, 101..=116, Some(117)))).is_empty());
        assert_eq!(lost(&last, &next(at(38, 101..=115, None))), ["db"], "its mark would be there");
        assert_eq!(lost(&last, &next(at(4, 101..=116, None))), ["db"], "the catalog went back");
        let often = copy(1, vec![at(40, 101..=116, Some(7))]);
        assert_eq!(lost(&often, &next(at(60, 101..=116, None))), ["db"], "these were before it");
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
