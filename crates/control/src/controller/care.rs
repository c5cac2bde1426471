//! Level-triggered care: every object is looked at once a second, and after every change; what it needs is
//! done, whoever began it. Whatever fails is tried again, later and later.
use std::collections::BTreeMap;
use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use proto::v1;
use tokio::task::JoinSet;
use tracing::{info, warn};

use super::books::Known;
use super::busy::{Claim, Thing};
use super::need::{Need, RENEWING, RESUMING, View, need};
use super::relief::{RESTS, Relief};
use super::room::wanted_of;
use super::{Answer, Controller};
use crate::api::{ApiError, Code};
use crate::steps::{Left, Manner};

mod sweep;

/// Between two looks at everything, and between two after changes.
const EVERY: Duration = Duration::from_secs(1);
const AT_MOST_EVERY: Duration = Duration::from_millis(100);
/// Objects that are taken care of at the same time.
const AT_ONCE: usize = 16;
/// With those that nobody serves.
const URGENT_AT_ONCE: usize = 256;
/// What one object may take: more than a lease and a slow node, and less than for ever.
const AT_MOST: Duration = Duration::from_secs(60);
/// The first pause after a failure; doubled up to the last.
const PAUSE: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(30);

/// What could not be done, and when it is tried again.
#[derive(Debug)]
struct Worry {
    why: String,
    pause: Duration,
    again: Instant,
}

/// All of these.
#[derive(Debug, Default)]
pub struct Worries {
    of: BTreeMap<(i32, String), Worry>,
    /// When something was last done for a volume.
    touched: BTreeMap<String, Instant>,
    /// When targets were last moved for want of a quorum.
    reliefs: BTreeMap<String, Relief>,
    /// Replicas of volumes that their target does not have, and since when.
    ill: BTreeMap<Vec<u8>, Vec<(u64, Instant)>>,
}

impl Worries {
    fn is_due(&self, thing: &Thing, now: Instant) -> bool {
        self.of.get(&key(thing)).is_none_or(|worry| now >= worry.again)
    }

    /// Replicas that the target cannot reach or use, and since when that has been so.
    fn ill_of(
        &mut self,
        volume: &[u8],
        target: Option<&v1::TargetStatus>,
        now: Instant,
    ) -> Vec<(u64, Instant)> {
        let Some(target) = target.filter(|target| target.serving) else { return Vec::new() };
        let is_ill = |peer: &&v1::PeerStatus| {
            matches!(peer.standing(), v1::Standing::Offline | v1::Standing::Error)
        };
        let before = self.ill.remove(volume).unwrap_or_default();
        let ill = target.peers.iter().filter(is_ill).filter_map(|peer| peer.member);
        let since = |replica: u64| before.iter().find(|(it, _)| *it == replica).map(|(_, at)| *at);
        let ill: Vec<(u64, Instant)> =
            ill.map(|it| (it.replica, since(it.replica).unwrap_or(now))).collect();
        if !ill.is_empty() {
            self.ill.insert(volume.to_vec(), ill.clone());
        }
        ill
    }

    fn failed(&mut self, thing: &Thing, why: String, now: Instant) {
        let worry = self.of.entry(key(thing)).or_insert_with(|| Worry {
            why: String::new(),
            pause: PAUSE / 2,
            again: now,
        });
        worry.pause = (worry.pause * 2).min(PAUSE_MAX);
        (worry.why, worry.again) = (why, now + worry.pause);
    }

    /// Nothing is done for an object, and why. It is looked at again as soon as the reason is gone.
    fn waits(&mut self, thing: &Thing, why: String, now: Instant) {
        self.of.insert(key(thing), Worry { why, pause: PAUSE / 2, again: now });
    }

    /// Forgets everything about objects that are gone.
    fn keep(
        &mut self,
        is_volume: impl Fn(&str) -> bool,
        is_there: impl Fn(v1::Kind, &str) -> bool,
    ) {
        self.of.retain(|(kind, name), _| {
            v1::Kind::try_from(*kind).is_ok_and(|kind| is_there(kind, name))
        });
        self.touched.retain(|name, _| is_volume(name));
        self.reliefs.retain(|name, _| is_volume(name));
        self.ill.retain(|uid, _| is_volume(&crate::hex::encode(uid)));
    }

    fn relieved(&mut self, volume: &str, now: Instant) {
        let relief = Relief::after(self.reliefs.get(volume).copied(), now, RESTS);
        self.reliefs.insert(volume.into(), relief);
    }

    fn done(&mut self, thing: &Thing, now: Instant) {
        self.of.remove(&key(thing));
        self.touched.insert(thing.1.clone(), now);
    }
}

fn key((kind, name): &Thing) -> (i32, String) {
    (i32::from(*kind), name.clone())
}

/// Goes on until another controller takes over.
pub async fn take(controller: Arc<Controller>) {
    let mut changes = controller.books.changes();
    let mut working = JoinSet::new();
    let mut sweep = sweep::Sweep::default();
    let mut last = Instant::now();
    while !controller.is_superseded() {
        while working.try_join_next().is_some() {}
        // A process that slept takes all nodes for away until it has heard of them again.
        if last.elapsed() > controller.settings.away_after / 2 {
            tokio::time::sleep(2 * controller.settings.beat).await;
        }
        last = Instant::now();
        controller.look_at_all(&mut working);
        sweep.look(&controller, &mut working);
        tokio::time::sleep(AT_MOST_EVERY).await;
        // Whether it was a change or the time: everything is looked at.
        let _ = tokio::time::timeout(EVERY, changes.changed()).await;
    }
    warn!("another controller has taken the site over: this one does nothing more");
}

impl Controller {
    fn worries(&self) -> MutexGuard<'_, Worries> {
        self.worries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Why something could not be done for an object.
    pub(super) fn trouble(&self, kind: v1::Kind, name: &str) -> Option<String> {
        self.worries().of.get(&(i32::from(kind), name.into())).map(|worry| worry.why.clone())
    }

    /// Nothing is remembered of objects that the catalog does not have any more.
    fn forget_what_is_gone(&self) {
        let is_volume = |id: &str| self.books.get::<v1::Volume>(id).is_some();
        let is_node = |id: &str| self.books.get::<v1::Node>(id).is_some();
        let mut chronicle = self.chronicle.lock().unwrap_or_else(PoisonError::into_inner);
        chronicle.forget("volume", is_volume);
        chronicle.forget("node", is_node);
        chronicle.forget("pool", |id| id.split_once('/').is_some_and(|(node, _)| is_node(node)));
        drop(chronicle);
        self.worries().keep(is_volume, |kind, name| match kind {
            v1::Kind::Volume => is_volume(name),
            v1::Kind::Snapshot => self.books.get::<v1::VolumeSnapshot>(name).is_some(),
            v1::Kind::Group => self.books.get::<v1::VolumeGroup>(name).is_some(),
            v1::Kind::GroupSnapshot => self.books.get::<v1::VolumeGroupSnapshot>(name).is_some(),
            _ => false,
        });
    }

    fn look_at_all(self: &Arc<Self>, working: &mut JoinSet<()>) {
        self.forget_what_is_gone();
        for volume in self.books.all::<v1::Volume>() {
            if let Err(error) = self.uid_not_lost(&volume.name, &volume.uid) {
                // A change would make the older object that the catalog has the newest one (Q1).
                let thing = (v1::Kind::Volume, volume.name.clone());
                self.worries().waits(&thing, error.message, Instant::now());
                continue;
            }
            if volume.format.as_ref().is_some_and(|mark| !mark.verified) {
                // Of a controller that ended while it looked: whoever looks now has claimed the volume.
                let (thing, of) = ((v1::Kind::Volume, volume.name.clone()), volume.clone());
                self.care_for(working, thing, move |this| async move {
                    this.drop_unverified_mark(&of).await
                });
            }
            let Some(need) = self.need_of(&volume) else {
                // What it could not get before it does not need any more.
                self.worries().of.remove(&key(&(v1::Kind::Volume, volume.name.clone())));
                continue;
            };
            let thing = (v1::Kind::Volume, volume.name.clone());
            // Whoever waits for IO does not wait for other work.
            let is_urgent = matches!(need, Need::Serve | Need::Relieve | Need::Resume { .. });
            let at_once = if is_urgent { URGENT_AT_ONCE } else { AT_ONCE };
            self.care_within(at_once, working, thing, move |this| async move {
                // Whoever had it until now may have met the need.
                let volume = this.books.get::<v1::Volume>(&volume.name);
                match volume.and_then(|volume| Some((this.need_of(&volume)?, volume))) {
                    Some((now, volume)) if now == need => this.meet(&now, &volume).await,
                    _ => Ok(()),
                }
            });
        }
        for snapshot in self.books.all::<v1::VolumeSnapshot>() {
            self.look_at_snapshot(working, snapshot);
        }
        for snapshot in self.books.all::<v1::VolumeGroupSnapshot>() {
            self.look_at_cut(working, snapshot);
        }
        for group in self.books.all::<v1::VolumeGroup>() {
            if group.members.iter().any(|member| !self.exists(member)) {
                let thing = (v1::Kind::Group, group.name.clone());
                self.care_for(working, thing, move |this| async move {
                    this.drop_members(&group).await
                });
            }
        }
    }

    /// Whether the pool of a place has failed, as far as its node said.
    pub(super) fn has_failed(&self, place: &v1::Place) -> bool {
        let beat = self.pulse.beat(place.node);
        beat.is_some_and(|beat| {
            let pool = beat.pools.iter().find(|pool| pool.name == place.pool);
            pool.is_some_and(|pool| pool.state() == v1::PoolState::Failed)
        })
    }

    /// What a volume needs now.
    fn need_of(&self, volume: &v1::Volume) -> Option<Need> {
        let now = Instant::now();
        let holder = volume.quorum.as_ref().map_or(0, |quorum| quorum.holder);
        let targets = self.pulse.targets(holder);
        let target = targets.as_ref().map(|(told, all)| (*told, all.get(&volume.uid)));
        let grace = self.settings.grace;
        let ill = self.worries().ill_of(&volume.uid, target.and_then(|(_, it)| it), now);
        let is_ill = |replica: u64| {
            let since = ill.iter().find(|(it, _)| *it == replica).map(|(_, since)| *since);
            since.is_some_and(|since| now.duration_since(since) >= grace)
        };
        let relief = self.worries().reliefs.get(&volume.name).copied();
        let view = View {
            now,
            grace: self.settings.grace,
            away_after: self.settings.away_after,
            resuming: RESUMING,
            renewing: RENEWING,
            may_relieve: relief.is_none_or(|relief| relief.is_over(now)),
            presence: &|node| self.pulse.presence(node, now),
            is_failed: &|place| self.has_failed(place),
            is_ill: &is_ill,
            target,
            touched: self.worries().touched.get(&volume.name).copied(),
        };
        need(volume, &view)
    }

    /// Does something for an object if nobody else works on it, and keeps in mind what came of it.
    fn care_for<W: Future<Output = Answer<()>> + Send + 'static>(
        self: &Arc<Self>,
        working: &mut JoinSet<()>,
        thing: Thing,
        work: impl FnOnce(Arc<Controller>) -> W,
    ) {
        self.care_within(AT_ONCE, working, thing, work);
    }

    fn care_within<W: Future<Output = Answer<()>> + Send + 'static>(
        self: &Arc<Self>,
        at_once: usize,
        working: &mut JoinSet<()>,
        thing: Thing,
        work: impl FnOnce(Arc<Controller>) -> W,
    ) {
        let is_due = self.worries().is_due(&thing, Instant::now());
        if working.len() >= at_once || !is_due {
            return;
        }
        let Some(claim) = self.busy.claim_for_care(thing.clone()) else { return };
        let (this, work) = (Arc::clone(self), work(Arc::clone(self)));
        working.spawn(async move {
            let _claim: Claim = claim;
            let late = |_| ApiError::new(Code::Unavailable, "it took too long: a node does not answer");
            let done = tokio::time::timeout(AT_MOST, work).await.map_err(late).flatten();
            let mut worries = this.worries();
            match done {
                Ok(()) => worries.done(&thing, Instant::now()),
                Err(error) => {
                    let known = worries.of.get(&key(&thing)).is_some_and(|it| it.why == error.message);
                    if !known {
                        warn!(kind = thing.0.as_str_name(), name = thing.1, %error, "tried again later");
                    }
                    worries.failed(&thing, error.message, Instant::now());
                }
            }
        });
    }

    async fn meet(&self, need: &Need, volume: &Known<v1::Volume>) -> Answer<()> {
        let name = &volume.name;
        info!(volume = name, ?need, "taking care");
        match need {
            Need::Make => match self.finish(volume).await {
                Ok(_) => Ok(()),
                // Whoever asked has been told something else, and asks again or does not.
                Err(error) => Err(self.undo(volume, error).await),
            },
            Need::Serve => {
                let holder = volume.quorum.as_ref().map(|quorum| quorum.holder);
                let on = self.server_for(volume, holder)?;
                self.serve_on(volume, &on).await
            }
            Need::Relieve => {
                let on = self.relief_for(volume).await?;
                self.worries().relieved(name, Instant::now());
                self.serve_on(volume, &on).await
            }
            Need::Resume { node } => match self.books.node(*node) {
                Some(node) => self.serve_on(volume, &node).await,
                None => Ok(()),
            },
            Need::Grow => self.grow(name).await,
            Need::Add => {
                let (node, pool) = self.another_place(volume)?;
                Ok(self.site.add_replica(name, &node, &pool).await?)
            }
            Need::Replace { replica } => {
                let (node, pool) = self.another_place(volume)?;
                Ok(self.site.begin_replacing(volume, *replica, &node, &pool).await?)
            }
            Need::Remove { replica } => Ok(self.site.unwant_replica(volume, *replica).await?),
            Need::TakeBack { replica, successor } => {
                Ok(self.site.want_instead(volume, *replica, *successor).await?)
            }
            Need::Renew { replica } => {
                let place = volume.places.iter().find(|place| place.replica == *replica);
                let node = place.map_or(0, |place| place.node);
                Ok(self.site.renew_replica(name, &self.node_name(node)).await?)
            }
            Need::Wipe { replica } => Ok(self.site.clear_place(volume, *replica).await?),
            Need::Delete => self.go_on_deleting(volume).await,
        }
    }

    async fn go_on_deleting(&self, volume: &v1::Volume) -> Answer<()> {
        let away = |node| self.presence(node).is_away() && self.books.node(node).is_some();
        match self.site.delete_this(volume, Manner::Controlled { away: &away }).await? {
            Left::Nothing | Left::Changed => Ok(()),
            Left::Replicas { nodes } => {
                let names: Vec<String> = nodes.iter().map(|node| self.node_name(*node)).collect();
                let message = format!("the rest is on {}, which is away", names.join(", "));
                Err(ApiError::new(Code::Unavailable, message))
            }
        }
    }

    /// Where one more replica may be.
    fn another_place(&self, volume: &v1::Volume) -> Answer<(String, String)> {
        let mut wanted = wanted_of(volume, 1);
        if let Some(key) = &wanted.spread {
            let nodes = volume.places.iter().filter_map(|place| self.books.node(place.node));
            wanted.used_values = nodes.filter_map(|node| node.topology.get(key).cloned()).collect();
        }
        let chosen = self.choose(&wanted)?;
        let (node, pool) = chosen.into_iter().next().expect("one was asked for");
        Ok((self.node_name(node), pool))
    }

    fn look_at_snapshot(
        self: &Arc<Self>,
        working: &mut JoinSet<()>,
        of: Known<v1::VolumeSnapshot>,
    ) {
        let source = of.volume.as_ref().map(|it| it.name.clone()).unwrap_or_default();
        // One that is only marked may come back.
        let has_source = of.volume.as_ref().is_some_and(|it| self.exists(it));
        if of.deleting || !has_source {
            if has_source && self.has_clones(&of) {
                return;
            }
            let thing = (v1::Kind::Snapshot, of.name.clone());
            self.care_for(working, thing, move |this| async move {
                if !of.deleting {
                    this.was_deleted(&of.volume.clone().unwrap_or_default()).await?;
                }
                this.drop_snapshot(&of).await
            });
        } else if of.at.is_none() {
            // While it is taken, its volume is claimed.
            let thing = (v1::Kind::Volume, source);
            self.care_for(
                working,
                thing,
                move |this| async move { this.settle_snapshot(&of).await },
            );
        } else if !of.owner.is_empty() {
            // While the copy is begun, its source is claimed.
            let thing = (v1::Kind::Volume, source);
            self.care_for(working, thing, move |this| async move {
                this.unwant_snapshot(&of).await.map(|_| ())
            });
        }
    }

    fn look_at_cut(
        self: &Arc<Self>,
        working: &mut JoinSet<()>,
        of: Known<v1::VolumeGroupSnapshot>,
    ) {
        let listed = |cut: &v1::GroupCut| {
            let is_gone = cut.volume.as_ref().is_none_or(|it| !self.exists(it));
            is_gone || self.books.get::<v1::VolumeSnapshot>(&cut.snapshot_name).is_some()
        };
        let thing = (v1::Kind::GroupSnapshot, of.name.clone());
        if of.deleting || !of.ready {
            self.care_for(working, thing, move |this| async move { this.undo_cut(&of).await });
        } else if !of.cuts.iter().all(listed) {
            self.care_for(working, thing, move |this| async move { this.list_cut(&of.name).await });
        }
    }
}

#[cfg(test)]
mod tests;
