//! Faults of the catalog itself: it goes back to an older state, or loses an object for a while. Nodes notice and do
//! not obey; an operator confirms the catalog, or brings it back from what nodes know, as `pollux site rebuild` does.
use std::collections::BTreeMap;

use control::recovery::{self, Evidence, Gathered, Source};
use proto::v1;
use proto::v1::object::Body;
use replication::catalog::VolumeObject;
use replication::client::{Command, RequestId};
use replication::words::{CatalogVersion, NodeId};

use super::World;
use super::clients::COORDINATOR;
use super::event::{RunAt, What};
use crate::quorum::clients::{Time, VolumeNo};

/// How far back a catalog goes at most, and how long it takes until an operator acts.
const BACK: u64 = 10_000_000;
const NOTICED: u64 = 4_000_000;
const AGAIN: u64 = 2_000_000;

/// What the catalog has lost of a volume.
pub(super) struct Lost {
    /// The object as it was.
    pub truth: VolumeObject,
    /// The run that served when it was lost: it goes on.
    serves: Option<RunAt>,
    /// The object is not there at all, and comes back by itself.
    hidden: bool,
    /// How often an operator did something about it.
    tries: u64,
}

impl Lost {
    pub fn is_hidden(&self) -> bool {
        self.hidden
    }
}

/// What a catalog may go back to: objects as they were before a moment.
#[derive(Default)]
pub(super) struct Past {
    replaced: Vec<(Time, VolumeNo, VolumeObject)>,
}

impl Past {
    pub fn replaced(&mut self, now: Time, volume: VolumeNo, object: &VolumeObject) {
        self.replaced.push((now, volume, object.clone()));
    }

    fn at(&self, then: Time, volume: VolumeNo) -> Option<VolumeObject> {
        let mut later = self.replaced.iter().filter(|(at, of, _)| *of == volume && *at > then);
        later.next().map(|(_, _, object)| object.clone())
    }

    fn forget(&mut self, volume: VolumeNo) {
        self.replaced.retain(|(_, of, _)| *of != volume);
    }
}

impl World {
    /// The object that holds: what the catalog has, or had before it lost it.
    pub(super) fn truth(&self, volume: VolumeNo) -> &VolumeObject {
        let lost = self.catalog.lost.get(&volume).map(|lost| &lost.truth);
        lost.unwrap_or(&self.catalog.objects[&volume])
    }

    pub(super) fn is_lost(&self, volume: VolumeNo) -> bool {
        self.catalog.lost.contains_key(&volume)
    }

    /// The node whose run has to serve, as far as the catalog matters: the holder; where the catalog has lost the volume,
    /// only the run that served then, and only while no other run claims the volume.
    pub(super) fn rightful(&self, volume: VolumeNo) -> Option<NodeId> {
        let Some(lost) = self.catalog.lost.get(&volume) else {
            return Some(self.catalog.objects[&volume].holder);
        };
        let serves = lost.serves.filter(|run| self.is_running(*run, volume))?;
        let runs = self.runs(volume);
        let mut rivals = runs.iter().filter(|run| **run != serves);
        rivals.all(|run| self.term_of(*run, volume).is_none()).then_some(serves.node)
    }

    /// The run that serves a volume now.
    fn serving_run(&self, volume: VolumeNo) -> Option<RunAt> {
        let serves = |run: &RunAt| {
            let status = self.target_status(run.node, volume);
            status.is_some_and(|status| status.serving) && run.node == self.truth(volume).holder
        };
        self.runs(volume).into_iter().find(serves)
    }

    /// The whole catalog, or one object, is as it was some seconds ago.
    pub(super) fn roll_back(&mut self, volume: VolumeNo) {
        let then = Time(self.now.0.saturating_sub(1 + self.rng.below(BACK)));
        let volumes: Vec<VolumeNo> = match self.rng.chance(1, 2) {
            true => self.volumes().collect(),
            false => vec![volume],
        };
        for volume in volumes {
            let older = self.catalog.past.at(then, volume).filter(|_| self.may_be_lost(volume));
            if let Some(older) = older {
                self.roll_back_to(volume, older);
            }
        }
    }

    fn roll_back_to(&mut self, volume: VolumeNo, older: VolumeObject) {
        self.note("catalog rolled back");
        self.say(|| format!("v{} catalog rolled back to {older:?}", volume.0));
        let (truth, serves) = (self.truth(volume).clone(), self.serving_run(volume));
        let nodes = [older.holder, truth.holder];
        let lost = Lost { truth, serves, hidden: false, tries: 0 };
        self.catalog.lost.insert(volume, lost);
        self.catalog.past.forget(volume);
        self.tell_watchers(volume, &older);
        self.catalog.objects.insert(volume, older);
        // Who starts again behind it has forgotten what it had not to remember.
        if self.rng.chance(1, 3) {
            for node in nodes {
                self.kill_for_a_while(node);
            }
        }
        let at = self.soon(NOTICED).after(AGAIN);
        self.push(at, What::Operator { volume });
    }

    /// The catalog does not have the object for a while.
    /// One loss at a time: what an operator chose after a quorum was lost is not taken back by a second disaster.
    fn may_be_lost(&self, volume: VolumeNo) -> bool {
        !self.is_lost(volume) && !self.losses.contains_key(&volume)
    }

    pub(super) fn hide(&mut self, volume: VolumeNo) {
        if !self.may_be_lost(volume) {
            return;
        }
        let (truth, serves) = (self.truth(volume).clone(), self.serving_run(volume));
        self.say(|| format!("v{} the catalog loses the object", volume.0));
        self.catalog.lost.insert(volume, Lost { truth, serves, hidden: true, tries: 0 });
        let at = self.soon(20_000_000).after(2_000_000);
        self.push(at, What::ObjectBack { volume });
    }

    pub(super) fn object_back(&mut self, volume: VolumeNo) {
        if self.catalog.lost.get(&volume).is_some_and(Lost::is_hidden) {
            self.catalog.lost.remove(&volume);
            self.disturb_volume(volume);
            let object = self.catalog.objects[&volume].clone();
            self.tell_watchers(volume, &object);
        }
    }

    /// Whether the catalog is again where it was, or further.
    pub(super) fn settle_loss(&mut self, volume: VolumeNo) {
        let present = &self.catalog.objects[&volume];
        let is_back = self.catalog.lost.get(&volume).is_some_and(|lost| {
            !lost.hidden
                && !present.is_older_than(&lost.truth)
                && present.membership.version >= lost.truth.membership.version
        });
        if is_back {
            self.catalog.lost.remove(&volume);
            self.disturb_volume(volume);
            self.note("catalog brought back");
        }
    }

    /// An operator looks at a volume whose catalog went back.
    pub(super) fn operate(&mut self, volume: VolumeNo) {
        let Some(lost) = self.catalog.lost.get_mut(&volume).filter(|lost| !lost.hidden) else {
            return;
        };
        lost.tries += 1;
        let (tries, truth) = (lost.tries, lost.truth.membership.clone());
        self.push(self.now.after(AGAIN), What::Operator { volume });
        let present = self.catalog.objects[&volume].clone();
        // Confirmed is only what is right: where others vote by now, the object is rebuilt from what nodes know.
        let is_right =
            (&present.membership.voters, &present.membership.next) == (&truth.voters, &truth.next);
        let waits = self.runs(volume).into_iter().find(|run| {
            let status = self.target_status(run.node, volume);
            run.node == present.holder && status.is_some_and(|it| !it.serving && it.term > 0)
        });
        match waits.filter(|_| is_right && tries % 2 == 1) {
            Some(to) => {
                let id = RequestId(COORDINATOR - 1 - self.number());
                let command = Command::ConfirmCatalog;
                let at = self.soon(3_000);
                self.push(at, What::Commanded { volume, to, id, command });
            }
            None => self.rebuild(volume, &present),
        }
    }

    /// What `pollux site rebuild` does: asks all nodes, and stores what follows from their answers.
    fn rebuild(&mut self, volume: VolumeNo, present: &VolumeObject) {
        if self.catalog.away {
            return;
        }
        let gathered = self.gather(volume);
        let there = self.stored(volume, present);
        let plan = recovery::plan(std::slice::from_ref(&there), &[], &gathered);
        let Some(object) = plan.objects.first() else {
            self.say(|| format!("v{} rebuild: {:?}", volume.0, plan.steps));
            return self.note("rebuild brought nothing back");
        };
        let known = node::catalog::convert::known(object).expect("it was made of one");
        let version = CatalogVersion(object.version.max(present.version.0 + 1));
        let object = VolumeObject { version, ..known.record.object };
        self.note("catalog rebuilt");
        self.say(|| format!("v{} rebuilt {object:?}", volume.0));
        if object.grant < present.grant {
            self.fail(format!("the grant went back: {present:?} {object:?}"));
        }
        self.catalog.objects.insert(volume, object.clone());
        self.control.note_voters(volume, &object.membership);
        self.tell_watchers(volume, &object);
        self.settle_loss(volume);
    }

    fn gather(&self, volume: VolumeNo) -> Gathered {
        let (mut sources, mut evidence) = (Vec::new(), Evidence::default());
        let up = self.nodes.iter().filter(|(id, node)| {
            node.life == super::nodes::Life::Up && self.exiled(**id).is_none()
        });
        let mut uid = Vec::new();
        for (id, node) in up {
            let known = node.books.get(&volume).map(|known| self.stored(volume, known));
            sources.push(Source { what: id.to_string(), objects: known.into_iter().collect() });
            evidence.targets.extend(self.target_status(*id, volume));
            uid = super::decide::uid(volume).0.to_vec();
            if let Some(replica) = node.replicas.get(&volume) {
                let state = replica.state();
                let applied = &state.shared.membership;
                let told = v1::Replica {
                    replica: super::replica_id(*id, volume).0,
                    incarnation: replica.incarnation().0,
                    pool: super::decide::POOL.into(),
                    promised_term: replica.promise().term.0,
                    membership_version: state.membership_seen,
                    membership: (applied.version > 0).then(|| node::admin::membership(applied)),
                    ..Default::default()
                };
                evidence.replicas.push((id.0, told));
            }
        }
        Gathered { sources, evidence: BTreeMap::from([(uid, evidence)]), silent: Vec::new() }
    }

    /// An object as the catalog stores it.
    fn stored(&self, volume: VolumeNo, object: &VolumeObject) -> v1::Object {
        let name = volume.0.to_string();
        v1::Object {
            key: Some(v1::Key { kind: v1::Kind::Volume.into(), name }),
            version: object.version.0,
            body: Some(Body::Volume(self.as_volume(volume, object))),
            ..Default::default()
        }
    }
}
