//! Clients of replicated volumes, what they saw, and whether they may have seen it.
//!
//! [`Clients`] generates the load, records the history and judges it, from nothing but what a
//! client or an operator sees: requests, answers, lost connections, stage numbers. It shares no
//! code with the machines that it judges. No correct history is ever called a violation; what it
//! may miss is said where it does.
//!
//! Judged are: reads (`register.rs`: P3, P4, P5, P9), losses and flushes (`volume.rs`,
//! `staging.rs`: P2, P8), snapshots (`snapshots.rs`), and cuts of a group (`group.rs`: Q10).
mod answers;
mod choice;
mod config;
mod group;
mod register;
mod session;
mod snapshots;
mod staging;
mod stamp;
mod violation;
mod volume;
mod waking;
mod workload;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, VecDeque};

use replication::words::{ClientId, ConnectionNumber, SnapshotUid};

pub use config::{ClientAction, ClientsConfig, VolumeShape};
pub use stamp::{Place, Value};
pub use violation::{Seen, Unexplained, Violation};

use crate::Rng;
use crate::quorum::sparse::Sparse;
use choice::Chosen;
use group::Group;
use session::{Kind, Link, Role, Session};
use staging::Attachment;
use volume::{Extent, Volume};
use workload::Mix;

/// Reads of a spy at once: those without an answer do not keep it from asking again for a while.
const SPY_DEPTH: usize = 16;

/// How much a client reads at once in the end: 64 KiB.
const SWEEP_SECTORS: u64 = 128;

#[derive(Debug)]
struct VolumeView {
    sectors: u64,
    content: Volume,
    attachment: Attachment,
    /// What is still to be read in the end.
    sweep: VecDeque<Extent>,
    rolled_back: bool,
    /// A copy that an operator chose, until clients have been told.
    chosen: Option<Chosen>,
}

#[derive(Debug)]
pub struct Clients {
    config: ClientsConfig,
    volumes: Vec<VolumeView>,
    sessions: Vec<Session>,
    group: Option<Group>,
    next_value: u64,
    next_request: u64,
    requests: u64,
    /// Since when there are only reads.
    finished: Option<u64>,
    power_losses: Option<u64>,
    /// The latest moment that was heard of.
    now: u64,
    /// What answers made necessary; handed out by the next wake.
    queued: Vec<ClientAction>,
    found: Option<Violation>,
    counters: BTreeMap<&'static str, u64>,
}

impl Clients {
    pub fn new(config: ClientsConfig) -> Clients {
        let mut rng = Rng::new(config.seed);
        let volumes = config.volumes.iter().enumerate().map(|(number, shape)| VolumeView {
            sectors: shape.size / block::LOGICAL_SECTOR,
            content: Volume::new(number),
            attachment: Attachment::new(),
            sweep: VecDeque::new(),
            rolled_back: false,
            chosen: None,
        });
        let mut clients = Clients {
            volumes: volumes.collect(),
            sessions: Vec::new(),
            group: config.ordered_group.then(|| Group::new(config.volumes.len())),
            next_value: 1,
            next_request: 1,
            requests: 0,
            finished: None,
            power_losses: None,
            now: 0,
            queued: Vec::new(),
            found: None,
            counters: BTreeMap::new(),
            config,
        };
        for volume in 0..clients.volumes.len() {
            clients.attach(volume, &mut rng);
            clients.ask_stages(volume, 0);
        }
        clients
    }

    /// A volume is there that was cloned from another, with this content: it has clients of its own.
    pub fn cloned(&mut self, now: u64, origin: usize, shape: VolumeShape, bytes: &Sparse) {
        self.now = now;
        let number = self.volumes.len();
        let next = Value(self.next_value);
        self.config.volumes.push(shape);
        self.volumes.push(VolumeView {
            sectors: shape.size / block::LOGICAL_SECTOR,
            content: Volume::cloned(number, origin, bytes, next),
            attachment: Attachment::new(),
            sweep: VecDeque::new(),
            rolled_back: false,
            chosen: None,
        });
        let mut rng = Rng::new(self.config.seed ^ next.0);
        self.attach(number, &mut rng);
        self.ask_stages(number, 0);
    }

    fn attach(&mut self, volume: usize, rng: &mut Rng) {
        let sectors = self.volumes[volume].sectors;
        assert!(sectors > 2 * workload::RESERVED, "a volume of {sectors} sectors is too small");
        let shared = rng.fork();
        for _ in 0..self.config.clients_per_volume {
            let mix = Mix::new(rng, &mut shared.clone(), sectors);
            self.add_session(volume, Role::Mixed(mix), rng);
        }
        for _ in 0..self.config.spies_per_volume {
            let mix = Mix::of_spy(&mut shared.clone(), sectors);
            self.add_session(volume, Role::Spy(mix), rng);
        }
        if self.group.is_some() {
            self.add_session(volume, Role::Ordered, rng);
            self.add_session(volume, Role::Echo, rng);
        }
    }

    fn add_session(&mut self, volume: usize, role: Role, rng: &mut Rng) {
        let plain = rng.chance(self.config.plain_percent, 100);
        let depth_max = self.config.depth.max(1);
        self.sessions.push(Session {
            id: ClientId(self.sessions.len() as u64 + 1),
            volume,
            kind: if plain { Kind::Plain } else { Kind::Staged },
            depth: match role {
                Role::Mixed(_) => 1 + rng.index(depth_max),
                Role::Spy(_) => SPY_DEPTH,
                Role::Ordered | Role::Echo => 1,
            },
            role,
            stage: None,
            number: ConnectionNumber(0),
            link: Link::Down { until: 0 },
            joined: false,
            outstanding: BTreeMap::new(),
            undecided: Vec::new(),
            unproven: None,
            patience: rng.range(self.config.patience_us.clone()),
            next_ask: 0,
            rng: rng.fork(),
        });
    }

    fn session_of(&self, client: ClientId) -> Option<usize> {
        let at = usize::try_from(client.0.checked_sub(1)?).ok()?;
        (at < self.sessions.len()).then_some(at)
    }

    fn count(&mut self, what: &'static str) {
        *self.counters.entry(what).or_default() += 1;
    }

    fn fail(&mut self, violation: Violation) {
        self.found.get_or_insert(violation);
    }

    /// The first violation that was found, also those that no answer could carry.
    pub fn verdict(&self) -> Result<(), Violation> {
        self.found.clone().map_or(Ok(()), Err)
    }

    pub fn counters(&self) -> &BTreeMap<&'static str, u64> {
        &self.counters
    }

    /// How often power was cut so far, anywhere. Told once in the end, or whenever it changes and
    /// once in the beginning.
    pub fn power_losses(&mut self, losses: u64) {
        self.power_losses = Some(losses);
        let told = self.volumes.iter().position(|view| view.attachment.losses() > 0);
        if let (0, Some(volume)) = (losses, told) {
            self.fail(Violation::LossWithoutPowerCut { volume });
        }
    }

    pub fn snapshot_asked(&mut self, now: u64, volume: usize, uid: SnapshotUid) {
        self.volumes[volume].content.snapshot_asked(now, uid);
    }

    pub fn snapshot_done(&mut self, now: u64, volume: usize, uid: SnapshotUid) {
        self.volumes[volume].content.snapshot_done(now, uid);
        self.count("snapshots");
    }

    /// Also where it is asked for again because no answer came.
    pub fn rollback_asked(&mut self, now: u64, volume: usize, uid: SnapshotUid) {
        self.volumes[volume].content.rollback_asked(now, uid);
        self.volumes[volume].rolled_back = true;
    }

    pub fn rolled_back(&mut self, now: u64, volume: usize, uid: SnapshotUid) {
        self.volumes[volume].content.rollback_done(now, uid);
        self.count("rollbacks");
    }

    /// The volume has this size from now on, in bytes.
    pub fn resized(&mut self, volume: usize, size: u64) {
        self.volumes[volume].sectors = size / block::LOGICAL_SECTOR;
    }

    /// From now on there are only reads, of everything that was ever written. Faults have to end
    /// before, for the last checks to be as strict as they can be.
    pub fn finish(&mut self, now: u64) {
        self.now = now;
        self.finished = Some(now);
        for view in &mut self.volumes {
            view.sweep.push_back(Extent { first: 0, count: 1 });
            for sector in view.content.touched().filter(|sector| *sector < view.sectors) {
                match view.sweep.back_mut() {
                    Some(last) if sector < last.first + SWEEP_SECTORS => {
                        last.count = sector - last.first + 1;
                    }
                    _ => view.sweep.push_back(Extent { first: sector, count: 1 }),
                }
            }
        }
    }

    /// Whether everything was read that was to be read in the end.
    pub fn is_swept(&self) -> bool {
        let waiting = self.sessions.iter().any(|session| !session.outstanding.is_empty());
        self.finished.is_some() && !waiting && self.volumes.iter().all(|v| v.sweep.is_empty())
    }

    /// Whether no loss can have gone unnoticed: clients worked after the last fault.
    fn is_settled(&self, volume: usize) -> bool {
        let worked = self.volumes[volume].attachment.worked();
        self.power_losses == Some(0) || self.finished.is_some_and(|finished| worked >= finished)
    }

    /// The content of a volume as a replica has it, when nothing is under way any more.
    pub fn check_final(&self, volume: usize, content: &Sparse) -> Result<(), Violation> {
        self.verdict()?;
        let settled = self.is_settled(volume);
        self.volumes[volume].content.check_final(self.now, content, settled)
    }

    /// The content of a snapshot that was said to be done. Asked in the end, when it is known
    /// whether writes had been lost before it.
    pub fn check_snapshot(
        &self,
        volume: usize,
        uid: SnapshotUid,
        content: &Sparse,
    ) -> Result<(), Violation> {
        self.volumes[volume].content.check_snapshot(uid, content)
    }

    /// The contents of a cut that was said to be good, volumes ascending. Asked in the end. A
    /// loss or a rollback in one of the volumes breaks the order for good reason, and excuses.
    pub fn check_group(&self, cut: &[(usize, &Sparse)]) -> Result<(), Violation> {
        let Some(group) = &self.group else { return Ok(()) };
        let excused = cut.iter().any(|(volume, _)| {
            let view = &self.volumes[*volume];
            view.rolled_back || view.attachment.losses() > 0 || !self.is_settled(*volume)
        });
        if excused { Ok(()) } else { group.check(cut) }
    }
}
