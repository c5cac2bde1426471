//! The catalog: one object per volume, linearizable, and away at times.
use std::collections::BTreeMap;

use replication::catalog::{CatalogAsk, VolumeObject};
use replication::words::{CatalogVersion, Grant, NodeId};

use super::World;
use super::books::{Asked, Found};
use super::event::{RunAt, What};
use super::losses::{Lost, Past};
use crate::quorum::clients::{Time, VolumeNo};

#[derive(Default)]
pub(super) struct Catalog {
    pub objects: BTreeMap<VolumeNo, VolumeObject>,
    pub away: bool,
    /// Objects that it lost, or of which it has an older state.
    pub lost: BTreeMap<VolumeNo, Lost>,
    pub past: Past,
    /// Nodes that do not reach it, until when.
    pub exiles: BTreeMap<NodeId, Time>,
}

impl Catalog {
    /// What it has of a volume.
    pub fn find(&self, volume: VolumeNo) -> Option<&VolumeObject> {
        let is_hidden = self.lost.get(&volume).is_some_and(Lost::is_hidden);
        self.objects.get(&volume).filter(|_| !is_hidden)
    }

    /// Replaces an object if version and grant are the expected ones.
    pub fn swap(
        &mut self,
        volume: VolumeNo,
        expected: CatalogVersion,
        grant: Grant,
        object: &VolumeObject,
    ) -> Option<VolumeObject> {
        let present = self.objects.get_mut(&volume)?;
        if present.version != expected || present.grant != grant {
            return None;
        }
        let version = CatalogVersion(present.version.0 + 1);
        *present = VolumeObject { version, ..object.clone() };
        Some(present.clone())
    }
}

impl World {
    pub(super) fn catalog_asked(
        &mut self,
        volume: VolumeNo,
        from: RunAt,
        ask: CatalogAsk,
        asked: Asked,
    ) {
        let arrival = self.soon(5_000);
        if !self.reaches_catalog(from.node) {
            self.note("catalog did not answer");
            let found = Found::NoAnswer;
            return self.push(arrival, What::CatalogTold { volume, to: from, asked, found });
        }
        let found = match (self.catalog.find(volume).cloned(), ask) {
            (None, _) => Found::Nothing,
            (Some(present), CatalogAsk::Get) => Found::Object(Box::new(present)),
            (Some(before), CatalogAsk::Swap { expected, grant, object }) => {
                match self.catalog.swap(volume, expected, grant, &object) {
                    Some(swapped) => {
                        self.catalog_changed(volume, &before, &swapped);
                        Found::Swapped(Box::new(swapped))
                    }
                    None => {
                        self.note("swap came too late");
                        Found::Object(Box::new(before))
                    }
                }
            }
        };
        self.push(arrival, What::CatalogTold { volume, to: from, asked, found });
    }

    /// Looks at a change for what it means, and tells those who watch.
    pub(super) fn catalog_changed(
        &mut self,
        volume: VolumeNo,
        before: &VolumeObject,
        after: &VolumeObject,
    ) {
        self.say(|| format!("v{} catalog {after:?}", volume.0));
        if after.grant < before.grant {
            self.fail(format!("the grant went back: {before:?} {after:?}"));
        }
        let voters = |object: &VolumeObject| {
            (object.membership.voters.clone(), object.membership.next.clone())
        };
        let confirms =
            self.is_lost(volume) && after.grant > before.grant && voters(before) == voters(after);
        if after.membership != before.membership && confirms {
            self.note("catalog confirmed by an operator");
        } else if after.membership != before.membership {
            match after.chosen {
                true => self.choice_made(volume, before, after),
                false => self.judge_step(before, after),
            }
            self.control.note_voters(volume, &after.membership);
        }
        self.catalog.past.replaced(self.now, volume, before);
        self.tell_watchers(volume, after);
        self.settle_loss(volume);
    }

    /// Q8: one step at a time, through a state in which both quorums count.
    fn judge_step(&mut self, before: &VolumeObject, after: &VolumeObject) {
        let (old, new) = (&before.membership, &after.membership);
        if new.version != old.version + 1 {
            self.fail(format!("a membership's version leaps: {old:?} {new:?}"));
        }
        let lawful = match (&old.next, &new.next) {
            (None, Some(next)) => {
                let come = next.members.iter().filter(|m| !old.voters.has(**m)).count();
                let gone = old.voters.members.iter().filter(|m| !next.has(**m)).count();
                let slots = (next.rf as i32 - old.voters.rf as i32).abs();
                new.voters == old.voters && come <= 1 && gone <= 1 && slots <= 1
            }
            (Some(next), None) => new.voters == *next || new.voters == old.voters,
            _ => false,
        };
        if !lawful {
            self.fail(format!("not a step of a membership: {old:?} {new:?}"));
        }
        match (&old.next, &new.next) {
            (None, Some(next)) if next.members.len() > old.voters.members.len() => {
                self.note("membership: one more");
            }
            (None, Some(next)) if next.members.len() < old.voters.members.len() => {
                let gave_up = next.rf == old.voters.rf;
                self.note(if gave_up {
                    "membership: vote given up"
                } else {
                    "membership: one less"
                });
            }
            (None, Some(_)) => self.note("membership: one replaced"),
            _ => self.note("membership step finished"),
        }
    }

    /// Until when a node is cut off from the catalog.
    pub(super) fn exiled(&self, node: NodeId) -> Option<Time> {
        let until = self.catalog.exiles.get(&node).copied();
        until.filter(|until| *until > self.now)
    }

    pub(super) fn exile(&mut self, node: NodeId, until: Time) {
        let known = self.catalog.exiles.entry(node).or_default();
        *known = (*known).max(until);
    }

    /// Who is cut off is told afterwards.
    pub(super) fn catalog_told(&mut self, volume: VolumeNo, to: RunAt, asked: Asked, found: Found) {
        let until = self.exiled(to.node).filter(|_| !matches!(found, Found::NoAnswer));
        if let Some(until) = until {
            self.note("catalog's word came late");
            return self.push(until, What::CatalogTold { volume, to, asked, found });
        }
        if !self.is_running(to, volume) {
            return;
        }
        if let Some(answer) = self.judge_found(to, volume, &asked, found) {
            self.step_run(to, volume, replication::target::Event::Catalog(answer));
        }
    }
}
