//! What becomes of a swap, given what is there. No file, no clock.
use proto::v1::object::Body;
use proto::v1::swap_request::Change;
use proto::v1::{Key, Kind, Object};

use crate::catalog::check::{self, Wrong};
use crate::catalog::limits::DELETED_UIDS_MAX;

/// A swap that makes sense by itself.
#[derive(Clone, Debug)]
pub struct Swap {
    pub kind: Kind,
    pub name: String,
    pub expected: u64,
    pub change: Change,
    /// Which controller asks, if one does.
    pub controller: Option<u64>,
}

impl Swap {
    /// What it brings to be stored, nearly.
    pub fn bytes(&self) -> usize {
        self.name.len() + self.change.encoded_len()
    }
}

#[derive(Clone, Debug, PartialEq)]
pub enum Verdict {
    /// The object as it is from now on.
    Done(Box<Object>),
    /// Another version is there, or nothing.
    Conflict(Option<Box<Object>>),
    Refused(Wrong),
    /// A later controller has taken over.
    Superseded {
        by: u64,
    },
}

/// What is stored under a name: an object, or what is left of one that was deleted.
#[derive(Clone, Debug, Default)]
pub struct Present {
    pub object: Option<Object>,
}

impl Present {
    fn alive(&self) -> Option<&Object> {
        self.object.as_ref().filter(|object| object.body.is_some())
    }

    /// A name goes on with higher versions after a deletion: a swap that was sent before it must never
    /// fit what came after it.
    fn last_version(&self) -> u64 {
        self.object.as_ref().map_or(0, |object| object.version)
    }

    /// What was deleted under this name, once its body is replaced by this one.
    fn deleted_uids(&self, next: Option<&Body>) -> Vec<Vec<u8>> {
        let mut uids = self.object.as_ref().map(|it| it.deleted_uids.clone()).unwrap_or_default();
        let present = self.alive().and_then(|object| object.body.as_ref());
        if next.is_none()
            && let Some(uid) = present.and_then(uid)
        {
            uids.push(uid.to_vec());
        }
        let excess = uids.len().saturating_sub(DELETED_UIDS_MAX);
        uids.drain(..excess);
        uids
    }
}

/// What tells an object from a later one of the same name.
pub fn uid(body: &Body) -> Option<&[u8]> {
    match body {
        Body::Volume(volume) => Some(&volume.uid),
        Body::Snapshot(snapshot) => Some(&snapshot.uid),
        Body::Group(group) => Some(&group.uid),
        Body::GroupSnapshot(snapshot) => Some(&snapshot.uid),
        // A token is never changed: another digest is another token.
        Body::Token(token) => Some(&token.digest),
        Body::Node(_) | Body::Controller(_) | Body::Host(_) => None,
    }
}

fn body(change: Change) -> Option<Body> {
    match change {
        Change::Volume(volume) => Some(Body::Volume(volume)),
        Change::Node(node) => Some(Body::Node(node)),
        Change::Snapshot(snapshot) => Some(Body::Snapshot(snapshot)),
        Change::Group(group) => Some(Body::Group(group)),
        Change::GroupSnapshot(snapshot) => Some(Body::GroupSnapshot(snapshot)),
        Change::Controller(controller) => Some(Body::Controller(controller)),
        Change::Token(token) => Some(Body::Token(token)),
        Change::Host(host) => Some(Body::Host(host)),
        Change::Delete(_) => None,
    }
}

/// What stores a body.
pub fn change_of(body: Body) -> Change {
    match body {
        Body::Volume(volume) => Change::Volume(volume),
        Body::Node(node) => Change::Node(node),
        Body::Snapshot(snapshot) => Change::Snapshot(snapshot),
        Body::Group(group) => Change::Group(group),
        Body::GroupSnapshot(snapshot) => Change::GroupSnapshot(snapshot),
        Body::Controller(controller) => Change::Controller(controller),
        Body::Token(token) => Change::Token(token),
        Body::Host(host) => Change::Host(host),
    }
}

/// Judges a swap that would get this revision.
pub fn judge(present: &Present, swap: Swap, revision: u64) -> Verdict {
    let alive = present.alive();
    if alive.map_or(0, |object| object.version) != swap.expected {
        return Verdict::Conflict(alive.cloned().map(Box::new));
    }
    let body = body(swap.change);
    if let (Some(old), Some(new)) = (alive.and_then(|object| object.body.as_ref()), &body)
        && let Err(wrong) = check::step(old, new)
    {
        return Verdict::Refused(wrong);
    }
    let key = Some(Key { kind: swap.kind.into(), name: swap.name });
    let version = present.last_version() + 1;
    let deleted_uids = present.deleted_uids(body.as_ref());
    Verdict::Done(Box::new(Object { key, version, revision, body, deleted_uids }))
}
