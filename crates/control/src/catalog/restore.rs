//! What becomes of an object that is brought back into the catalog, given what is there. No file, no clock.
//!
//! Invariants: versions never go back; a newer object is never replaced by an older one; what was deleted stays deleted;
//! and a name that another object has by now is not taken from it. An object that is there goes by its own mark only. That
//! a mark must have been dropped keeps an object from being brought back, and no more.
use proto::deletion::mark_was_dropped;
use proto::v1::object::Body;
use proto::v1::{Kind, Object};

use crate::catalog::check::{self, Wrong};
use crate::catalog::judge::{Present, change_of, uid};
use crate::catalog::limits::DELETED_UIDS_MAX;

#[derive(Clone, Debug, PartialEq)]
pub enum Restored {
    /// The object as it is from now on.
    Stored(Box<Object>),
    /// What is there is newer, or the same.
    Kept,
    Refused(Wrong),
}

/// Whether an object that is to be brought back makes sense by itself.
pub fn check(object: &Object) -> Result<(Kind, String), Wrong> {
    let (kind, name) = check::key(object.key.clone())?;
    if let Some(body) = object.body.clone() {
        check::change(kind, &name, object.version, &change_of(body))?;
    }
    match object.version {
        0 => Err(Wrong { field: "version".into(), problem: "an object has one from 1 on".into() }),
        _ => Ok((kind, name)),
    }
}

/// Judges an object that would get this revision.
pub fn restore(present: &Present, given: Object, revision: u64) -> Restored {
    let Some(there) = &present.object else {
        return Restored::Stored(Box::new(Object { revision, ..given }));
    };
    let deleted_uids = match given.version > there.version {
        true => together(&there.deleted_uids, &given.deleted_uids),
        false => together(&given.deleted_uids, &there.deleted_uids),
    };
    let is_newer = match (&there.body, &given.body) {
        (Some(old), Some(new)) => match (uid(old), uid(new)) {
            (Some(old_uid), Some(new_uid)) if old_uid != new_uid => {
                if has_mark(there, new_uid) {
                    false
                } else if has_mark(&given, old_uid) {
                    true
                } else if was_deleted_before(&given, there) {
                    false
                } else {
                    return Restored::Refused(other(there));
                }
            }
            _ => order(new, given.version) > order(old, there.version),
        },
        (Some(old), None) => is_deleted(&given, old, there.version),
        (None, Some(new)) => {
            !is_deleted(there, new, given.version) && !was_deleted_before(&given, there)
        }
        (None, None) => given.version > there.version,
    };
    let stored = |object: Object, version| {
        let deleted_uids = deleted_uids.clone();
        Restored::Stored(Box::new(Object { version, revision, deleted_uids, ..object }))
    };
    let version = given.version.max(there.version + 1);
    match is_newer {
        true => stored(given, version),
        // What was deleted under this name is not forgotten, though the rest is older.
        false if deleted_uids.iter().any(|uid| !has_mark(there, uid)) => {
            stored(there.clone(), there.version + 1)
        }
        false => Restored::Kept,
    }
}

fn has_mark(object: &Object, uid: &[u8]) -> bool {
    object.deleted_uids.iter().any(|deleted| deleted == uid)
}

/// Whether what is left under a name says that this object, last seen in this version, was deleted. What has no uid, and
/// what catalogs of earlier versions deleted, has no mark: there a later version says so.
fn is_deleted(left: &Object, body: &Body, seen: u64) -> bool {
    match uid(body) {
        Some(uid) if !left.deleted_uids.is_empty() => has_mark(left, uid),
        _ => left.version > seen,
    }
}

/// Whether an object was deleted so long before a later state of its name that its mark was dropped.
pub fn was_deleted_before(object: &Object, later: &Object) -> bool {
    let uid_of = |object: &Object| object.body.as_ref().and_then(uid).map(<[u8]>::to_vec);
    let own = uid_of(object);
    own.is_some() && own != uid_of(later) && mark_was_dropped(object, later)
}

fn other(there: &Object) -> Wrong {
    let name = there.key.as_ref().map(|key| key.name.clone()).unwrap_or_default();
    let problem = format!(
        "another object has the name `{name}` by now, and nothing says that either was deleted: delete the new one, or leave \
         the old one out"
    );
    Wrong { field: "key.name".into(), problem }
}

/// What makes one state of an object newer than another. Grants, memberships and generations never go back, while versions
/// of a catalog that lost its end began again. A catalog that went back may have given the same grant twice: the one that an
/// operator confirmed has the later membership, whatever its version.
fn order(body: &Body, version: u64) -> (u64, u64, u64) {
    match body {
        Body::Volume(volume) => {
            let quorum = volume.quorum.as_ref();
            let membership = quorum.and_then(|it| it.membership.as_ref());
            let later = membership.map_or(0, |it| it.version);
            (quorum.map_or(0, |it| it.grant), later, version)
        }
        Body::Controller(controller) => (controller.generation, 0, version),
        Body::Node(_)
        | Body::Snapshot(_)
        | Body::Group(_)
        | Body::GroupSnapshot(_)
        | Body::Token(_)
        | Body::Host(_) => (0, 0, version),
    }
}

/// The marks of both states of a name. Those of the older one go first where there are too many.
fn together(older: &[Vec<u8>], newer: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let mut all: Vec<Vec<u8>> = older.iter().filter(|uid| !newer.contains(uid)).cloned().collect();
    all.extend_from_slice(newer);
    let excess = all.len().saturating_sub(DELETED_UIDS_MAX);
    all.drain(..excess);
    all
}

#[cfg(test)]
mod tests;
