//! The catalog: one object per volume, linearizable, and away at times.
use std::collections::BTreeMap;

use replication::catalog::{CatalogAnswer, CatalogAsk, VolumeObject};
use replication::words::{CatalogVersion, Grant, NodeId};

use super::World;
use super::event::{RunAt, What};
use crate::quorum::clients::{Time, VolumeNo};

#[derive(Default)]
pub(super) struct Catalog {
    pub objects: BTreeMap<VolumeNo, VolumeObject>,
    pub away: bool,
    /// Nodes that do not reach it, until when.
    pub exiles: BTreeMap<NodeId, Time>,
}

impl Catalog {
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
    pub(super) fn catalog_asked(&mut self, volume: VolumeNo, from: RunAt, ask: CatalogAsk) {
        if self.catalog.away || self.exiled(from.node).is_some() {
            self.note("catalog did not answer");
            return;
        }
        let before = self.catalog.objects[&volume].clone();
        let answer = match ask {
            CatalogAsk::Get => CatalogAnswer::Object(Box::new(before)),
            CatalogAsk::Swap { expected, grant, object } => {
                match self.catalog.swap(volume, expected, grant, &object) {
                    Some(swapped) => {
                        self.catalog_changed(volume, &before, &swapped);
                        CatalogAnswer::Swapped(Box::new(swapped))
                    }
                    None => {
                        self.note("swap came too late");
                        CatalogAnswer::Object(Box::new(before))
                    }
                }
            }
        };
        let arrival = self.soon(5_000);
        self.push(arrival, What::CatalogTold { volume, to: from, answer });
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
        if after.membership != before.membership {
            self.judge_step(before, after);
            self.control.note_voters(volume, &after.membership);
        }
        for run in self.runs(volume) {
            for _ in 0..1 + u64::from(self.rng.chance(1, 10)) {
                let arrival = self.soon(20_000);
                let answer = CatalogAnswer::Object(Box::new(after.clone()));
                self.push(arrival, What::CatalogTold { volume, to: run, answer });
            }
        }
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
    fn exiled(&self, node: NodeId) -> Option<Time> {
        let until = self.catalog.exiles.get(&node).copied();
        until.filter(|until| *until > self.now)
    }

    pub(super) fn exile(&mut self, node: NodeId, until: Time) {
        let known = self.catalog.exiles.entry(node).or_default();
        *known = (*known).max(until);
    }

    /// Who is cut off is told afterwards.
    pub(super) fn catalog_told(&mut self, volume: VolumeNo, to: RunAt, answer: CatalogAnswer) {
        if let Some(until) = self.exiled(to.node) {
            self.note("catalog's word came late");
            self.push(until, What::CatalogTold { volume, to, answer });
            return;
        }
        self.step_run(to, volume, replication::target::Event::Catalog(answer));
    }
}
