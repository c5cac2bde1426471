//! Whether what a client wants to store makes sense: by itself, and after what is there.
//!
//! The catalog cannot know whether a membership is wise. It refuses what would be believed by everybody
//! and can only be a mistake.
mod group;
mod host;
mod node;
pub mod people;
mod quorum;
mod snapshot;
#[cfg(test)]
mod tests;
mod volume;

use std::collections::BTreeMap;

use proto::v1::swap_request::Change;
use proto::v1::{Key, Kind, VolumeRef, object::Body};
use thiserror::Error;

use crate::catalog::limits::{NAME_LEN_MAX, PAIR_LEN_MAX, PAIRS_MAX, TITLE_LEN_MAX};

/// A field that must not be so.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{field}: {problem}")]
pub struct Wrong {
    pub field: String,
    pub problem: String,
}

type Checked = Result<(), Wrong>;

fn wrong<T>(field: impl Into<String>, problem: impl Into<String>) -> Result<T, Wrong> {
    Err(Wrong { field: field.into(), problem: problem.into() })
}

fn ensure(holds: bool, field: &str, problem: impl FnOnce() -> String) -> Checked {
    if holds { Ok(()) } else { wrong(field, problem()) }
}

/// The kind and name that a request speaks of.
pub fn key(key: Option<Key>) -> Result<(Kind, String), Wrong> {
    let Some(key) = key else { return wrong("key", "it is missing") };
    let kind = kind("key.kind", key.kind)?;
    name("key.name", &key.name)?;
    Ok((kind, key.name))
}

pub fn kind(field: &str, number: i32) -> Result<Kind, Wrong> {
    match Kind::try_from(number) {
        Ok(Kind::Unspecified) => wrong(field, "it is missing"),
        Ok(kind) => Ok(kind),
        Err(_) => wrong(field, format!("{number} is unknown to this catalog: is it older?")),
    }
}

pub fn name(field: &str, name: &str) -> Checked {
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let fits = (1..=NAME_LEN_MAX).contains(&name.len())
        && name.bytes().all(|byte| plain(byte) || byte == b'.' || byte == b'-')
        && name.bytes().next().is_some_and(plain);
    ensure(fits, field, || {
        let shown: String = name.chars().take(NAME_LEN_MAX).collect();
        format!(
            "{shown:?} is no name: use 1 to {NAME_LEN_MAX} of a-z, 0-9, '.' and '-', beginning with a \
             letter or a digit"
        )
    })
}

/// A change by itself, without looking at what is there.
pub fn change(kind: Kind, name: &str, expected: u64, change: &Change) -> Checked {
    match (kind, change) {
        (Kind::Volume, Change::Volume(volume)) => volume::check(name, volume),
        (Kind::Node, Change::Node(node)) => node::check(name, node),
        (Kind::Snapshot, Change::Snapshot(snapshot)) => snapshot::check(name, snapshot),
        (Kind::Group, Change::Group(group)) => group::check(name, group),
        (Kind::GroupSnapshot, Change::GroupSnapshot(cut)) => group::check_snapshot(name, cut),
        (Kind::Controller, Change::Controller(controller)) => people::controller(name, controller),
        (Kind::Token, Change::Token(token)) => people::token(name, token),
        (Kind::Host, Change::Host(host)) => host::check(name, host),
        (_, Change::Delete(_)) => ensure(expected > 0, "expected_version", || {
            "what is deleted exists, so it has a version".into()
        }),
        (kind, other) => wrong(arm(other), format!("the key says {}", kind.as_str_name())),
    }
}

/// The field of a request that a change is in.
fn arm(change: &Change) -> &'static str {
    match change {
        Change::Volume(_) => "volume",
        Change::Node(_) => "node",
        Change::Snapshot(_) => "snapshot",
        Change::Group(_) => "group",
        Change::GroupSnapshot(_) => "group_snapshot",
        Change::Controller(_) => "controller",
        Change::Token(_) => "token",
        Change::Host(_) => "host",
        Change::Delete(_) => "delete",
    }
}

/// A body in the place of an older one of the same kind.
pub fn step(old: &Body, new: &Body) -> Checked {
    match (old, new) {
        (Body::Volume(old), Body::Volume(new)) => volume::step(old, new),
        (Body::Node(old), Body::Node(new)) => node::step(old, new),
        (Body::Snapshot(old), Body::Snapshot(new)) => snapshot::step(old, new),
        (Body::Group(old), Body::Group(new)) => group::step(old, new),
        (Body::GroupSnapshot(old), Body::GroupSnapshot(new)) => group::step_snapshot(old, new),
        (Body::Controller(old), Body::Controller(new)) => people::succession(old, new),
        (Body::Token(_), Body::Token(_)) | (Body::Host(_), Body::Host(_)) => Ok(()),
        _ => wrong("change", "there is something of another kind"),
    }
}

fn len(field: &str, what: &str, len: usize, max: usize) -> Checked {
    ensure(len <= max, field, || format!("{len} {what} are more than {max}"))
}

/// Sixteen bytes, and not nothing.
fn uid(field: &str, uid: &[u8]) -> Checked {
    ensure(uid.len() == 16, field, || "it has 16 bytes".into())?;
    ensure(uid.iter().any(|byte| *byte != 0), field, || "it is all zeros".into())
}

/// A volume by both its name and its uid.
fn reference(field: &str, of: Option<&VolumeRef>) -> Checked {
    let Some(of) = of else { return wrong(field, "it is missing") };
    name(&format!("{field}.name"), &of.name)?;
    uid(&format!("{field}.uid"), &of.uid)
}

fn title(field: &str, title: &str) -> Checked {
    let control = |c: char| c.is_control() && !matches!(c, '\t' | '\n' | '\r');
    let fits = title.len() <= TITLE_LEN_MAX && !title.contains(control);
    ensure(fits, field, || format!("it has at most {TITLE_LEN_MAX} bytes of text"))
}

fn pairs(field: &str, pairs: &BTreeMap<String, String>) -> Checked {
    len(field, "pairs", pairs.len(), PAIRS_MAX)?;
    let fits = |text: &str| text.len() <= PAIR_LEN_MAX && !text.contains(char::is_control);
    for (key, value) in pairs {
        ensure(!key.is_empty() && fits(key) && fits(value), field, || {
            let shown: String = key.chars().take(NAME_LEN_MAX).collect();
            format!("{shown:?} or its value is no text of up to {PAIR_LEN_MAX} bytes")
        })?;
    }
    Ok(())
}
