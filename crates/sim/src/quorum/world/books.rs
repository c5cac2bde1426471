//! What a node knows of the catalog: by watch and by get, in any order. Some of it outlives the process.
//!
//! The rules are those of `replication::target::starting`, which a node's books go by.
use replication::catalog::{CatalogAnswer, VolumeObject};
use replication::target::{Event, starting};
use replication::words::{Boot, NodeId, Start};

use super::World;
use super::event::{RunAt, What};
use crate::quorum::clients::VolumeNo;

/// A node that starts waits for the catalog this many times, and then goes on with what it remembers.
const PATIENCE_TRIES: u32 = 4;
const TRY_EVERY: u64 = 500_000;

/// How late an event of a watch is at most: most of them, and some.
const WATCH: u64 = 20_000;
const LATE_WATCH: u64 = 3_000_000;

/// What the catalog said to a question of a target.
#[derive(Debug)]
pub(super) enum Found {
    NoAnswer,
    Nothing,
    Object(Box<VolumeObject>),
    Swapped(Box<VolumeObject>),
}

/// A question of a target, as its node keeps it in mind.
#[derive(Debug)]
pub(super) struct Asked {
    /// What the node knew when the question left.
    pub before: Option<Box<VolumeObject>>,
    pub may_remember: bool,
}

impl World {
    /// Whether a node reaches the catalog now.
    pub(super) fn reaches_catalog(&self, id: NodeId) -> bool {
        !self.catalog.away && self.exiled(id).is_none()
    }

    /// What the node knows after it heard of an object: the newer of both.
    pub(super) fn learn(
        &mut self,
        id: NodeId,
        volume: VolumeNo,
        heard: &VolumeObject,
    ) -> VolumeObject {
        let books = &mut self.nodes.get_mut(&id).expect("a node").books;
        let known = books.entry(volume).or_insert_with(|| heard.clone());
        let is_older = heard.is_older_than(known);
        if !is_older {
            *known = heard.clone();
        }
        let newest = known.clone();
        self.paths.add("heard of an older object", u64::from(is_older));
        newest
    }

    /// A target's question is answered.
    pub(super) fn judge_found(
        &mut self,
        at: RunAt,
        volume: VolumeNo,
        asked: &Asked,
        found: Found,
    ) -> Option<CatalogAnswer> {
        let answer = match found {
            Found::NoAnswer => None,
            Found::Nothing => Some(CatalogAnswer::Missing),
            Found::Swapped(object) => {
                Some(CatalogAnswer::Swapped(Box::new(self.learn(at.node, volume, &object))))
            }
            Found::Object(object) => {
                let newest = self.learn(at.node, volume, &object);
                Some(match starting::is_lost(asked.before.as_deref(), &object) {
                    true => CatalogAnswer::Missing,
                    false => CatalogAnswer::Object(Box::new(newest)),
                })
            }
        };
        if answer == Some(CatalogAnswer::Missing) {
            self.note("catalog lost an object");
        }
        let is_answered = !matches!(answer, None | Some(CatalogAnswer::Missing));
        if is_answered || !asked.may_remember {
            return answer;
        }
        let known = self.nodes[&at.node].books.get(&volume);
        let own = starting::from_memory(known, at.node);
        if own.is_some() {
            self.note("target begins with what its node remembers");
        }
        own.or(answer)
    }

    /// All nodes watch; each hears of a change at its own time, some of them twice, some late.
    pub(super) fn tell_watchers(&mut self, volume: VolumeNo, object: &VolumeObject) {
        for node in self.node_ids() {
            for _ in 0..1 + u64::from(self.rng.chance(1, 10)) {
                self.tell_watcher(node, volume, object);
            }
        }
    }

    fn tell_watcher(&mut self, node: NodeId, volume: VolumeNo, object: &VolumeObject) {
        let late = self.rng.chance(1, 20);
        let arrival = self.soon(if late { LATE_WATCH } else { WATCH });
        let (boot, object) = (self.nodes[&node].boot, Box::new(object.clone()));
        self.push(arrival, What::Watched { node, boot, volume, object });
    }

    pub(super) fn watched(
        &mut self,
        id: NodeId,
        boot: Boot,
        volume: VolumeNo,
        object: Box<VolumeObject>,
    ) {
        let node = &self.nodes[&id];
        if node.boot != boot || !node.is_up() {
            return;
        }
        if let Some(until) = self.exiled(id) {
            self.note("catalog's word came late");
            return self.push(until, What::Watched { node: id, boot, volume, object });
        }
        let newest = self.learn(id, volume, &object);
        let answer = CatalogAnswer::Object(Box::new(newest));
        self.step_target(id, volume, Event::Catalog(answer));
    }

    /// A process that started hears of everything that the catalog has; if that takes too long it goes on without.
    pub(super) fn listen(&mut self, id: NodeId, boot: Boot, tries: u32) {
        let node = &self.nodes[&id];
        if node.boot != boot || !node.is_up() {
            return;
        }
        if self.reaches_catalog(id) {
            for volume in self.volumes() {
                if let Some(object) = self.catalog.find(volume).cloned() {
                    self.tell_watcher(id, volume, &object);
                }
            }
            if tries < PATIENCE_TRIES {
                self.push(self.now.after(WATCH), What::Resume { node: id, boot });
            }
            return;
        }
        if tries == PATIENCE_TRIES {
            self.note("node resumes without the catalog");
            self.resume_targets(id, boot);
        }
        self.push(self.now.after(TRY_EVERY), What::Listen { node: id, boot, tries: tries + 1 });
    }

    /// Targets that the node has the grant for, as far as it knows, start again by themselves.
    pub(super) fn resume_targets(&mut self, id: NodeId, boot: Boot) {
        let node = &self.nodes[&id];
        if node.boot != boot || !node.is_up() {
            return;
        }
        let begins = node.books.iter().filter_map(|(volume, known)| {
            starting::resume(known, id).map(|begin| (*volume, begin))
        });
        for (volume, begin) in begins.collect::<Vec<_>>() {
            let at = self.soon(1_000);
            let (above, fetch) = (Start(0), false);
            self.push(at, What::StartTarget { node: id, volume, begin, above, fetch });
        }
    }

    /// What outlives the process.
    pub(super) fn forget_books(&mut self, id: NodeId) {
        let books = &mut self.nodes.get_mut(&id).expect("a node").books;
        books.retain(|_, known| starting::is_remembered(known, id));
    }
}
