//! Messages and faults around simple servers, in virtual time.
use std::collections::{BTreeMap, BTreeSet};

use replication::client::{Answer, IoError, LoginError, Request, RequestId};
use replication::words::{ClientId, ConnectionNumber, SnapshotUid, StageNumber};

use super::super::{ClientAction, Clients, ClientsConfig, Violation, VolumeShape};
use super::server::{Quirk, Server};
use crate::Rng;
use crate::quorum::Sparse;

pub const SIZE: u64 = 512 * 1024;

type Link = (ClientId, ConnectionNumber);

enum Event {
    LoginArrives { link: Link, volume: usize, stage: Option<StageNumber> },
    LoginAnswered { link: Link, result: Result<(), LoginError> },
    Arrives { link: Link, volume: usize, id: RequestId, request: Request },
    Applies { link: Link, volume: usize, id: RequestId },
    TakenBack { volume: usize, at: usize, bytes: Vec<u8> },
    Answered { link: Link, id: RequestId, result: Result<Answer, IoError> },
    Lost { link: Link },
    Staged { client: ClientId, volume: usize },
    StageTold { client: ClientId, volume: usize, number: StageNumber },
    NoteTaken { volume: usize },
    NoteTold { volume: usize },
    LosesPower { volume: usize },
    SnapshotAsked { volumes: Vec<usize>, uid: SnapshotUid },
    SnapshotMade { volume: usize, uid: SnapshotUid },
    SnapshotTold { volume: usize, uid: SnapshotUid },
    RollbackAsked { volume: usize, uid: SnapshotUid },
    RolledBack { volume: usize, uid: SnapshotUid },
    RollbackTold { volume: usize, uid: SnapshotUid },
}

pub struct World {
    pub clients: Clients,
    servers: Vec<Server>,
    /// What arrived and is not applied yet.
    waiting: BTreeMap<(Link, RequestId), Request>,
    /// Logins that a superseded target answered: nothing else comes from it.
    stale: BTreeSet<Link>,
    events: BTreeMap<(u64, u64), Event>,
    snapshots: BTreeMap<(usize, SnapshotUid), Vec<u8>>,
    told: BTreeSet<(usize, SnapshotUid)>,
    group_cuts: Vec<SnapshotUid>,
    next_event: u64,
    now: u64,
    power_losses: u64,
    /// Connections that are lost and logins that go astray, in so many of ten thousand.
    trouble: u64,
    rng: Rng,
}

pub struct Plan {
    pub volumes: usize,
    pub ordered_group: bool,
    pub power_losses: usize,
    pub rollbacks: bool,
    pub lasts_us: u64,
}

impl World {
    pub fn new(seed: u64, plan: &Plan, quirk: Option<Quirk>) -> World {
        let mut rng = Rng::new(seed);
        let shape = VolumeShape { size: SIZE, block_size: 4096 };
        let mut config = ClientsConfig::new(vec![shape; plan.volumes], rng.next_u64());
        config.ordered_group = plan.ordered_group;
        config.patience_us = 300_000..3_000_000;
        let mut server = |_| Server::new(usize::try_from(SIZE).unwrap(), quirk, rng.fork());
        let servers = (0..plan.volumes).map(&mut server).collect();
        let mut world = World {
            clients: Clients::new(config),
            servers,
            waiting: BTreeMap::new(),
            stale: BTreeSet::new(),
            events: BTreeMap::new(),
            snapshots: BTreeMap::new(),
            told: BTreeSet::new(),
            group_cuts: Vec::new(),
            next_event: 0,
            now: 0,
            power_losses: 0,
            trouble: *rng.pick(&[0, 10, 100]),
            rng,
        };
        world.plan(plan);
        world
    }

    fn plan(&mut self, plan: &Plan) {
        for _ in 0..plan.power_losses {
            let volume = self.rng.index(plan.volumes);
            let at = self.rng.range(plan.lasts_us / 8..plan.lasts_us);
            self.at(at, Event::LosesPower { volume });
        }
        for number in 1..=4u8 {
            let uid = SnapshotUid([number; 16]);
            let volumes = match plan.ordered_group {
                true => (0..plan.volumes).collect(),
                false => vec![self.rng.index(plan.volumes)],
            };
            let at = self.rng.range(plan.lasts_us / 8..plan.lasts_us);
            if plan.rollbacks && self.rng.chance(1, 2) {
                let volume = volumes[0];
                let later = at + self.rng.range(100_000..plan.lasts_us / 2);
                self.at(later, Event::RollbackAsked { volume, uid });
            }
            self.at(at, Event::SnapshotAsked { volumes, uid });
        }
    }

    fn at(&mut self, at: u64, event: Event) {
        self.next_event += 1;
        self.events.insert((at.max(self.now), self.next_event), event);
    }

    fn later(&mut self, event: Event) {
        // Mostly quick, at times slow enough that clients lose patience.
        let span = match self.rng.below(100) {
            0..80 => self.rng.range(50..2_000),
            80..99 => self.rng.range(2_000..50_000),
            _ => self.rng.range(50_000..4_000_000),
        };
        self.at(self.now + span, event);
    }

    pub fn run(&mut self, lasts_us: u64) -> Result<(), Violation> {
        self.run_until(lasts_us, false)?;
        self.trouble = 0;
        self.clients.finish(self.now);
        self.run_until(lasts_us + 600_000_000, true)?;
        self.clients.power_losses(self.power_losses);
        self.clients.verdict()?;
        assert!(
            self.clients.is_swept(),
            "the clients came to an end: {:?}",
            self.clients.counters()
        );
        self.check()
    }

    fn run_until(&mut self, until: u64, to_the_end: bool) -> Result<(), Violation> {
        let mut actions = Vec::new();
        while !(to_the_end && self.clients.is_swept()) {
            let wake = self.clients.next_wake();
            let event = self.events.first_key_value().map(|((at, _), _)| *at);
            let Some(next) = wake.into_iter().chain(event).min() else { break };
            if next > until {
                break;
            }
            self.now = self.now.max(next);
            if event.is_some_and(|event| event <= self.now) {
                let (_, event) = self.events.pop_first().unwrap();
                self.happens(event)?;
            } else {
                self.clients.wake(self.now, &mut actions);
                actions.drain(..).for_each(|action| self.acts(action));
            }
        }
        Ok(())
    }

    fn check(&self) -> Result<(), Violation> {
        for (volume, server) in self.servers.iter().enumerate() {
            self.clients.check_final(volume, &server.content[..].into())?;
        }
        for (volume, uid) in &self.told {
            let content = self.snapshots[&(*volume, *uid)][..].into();
            self.clients.check_snapshot(*volume, *uid, &content)?;
        }
        for uid in &self.group_cuts {
            let volumes = 0..self.servers.len();
            if volumes.clone().all(|volume| self.told.contains(&(volume, *uid))) {
                let content = |volume| Sparse::from(&self.snapshots[&(volume, *uid)][..]);
                let contents: Vec<Sparse> = volumes.map(content).collect();
                self.clients.check_group(&contents.iter().enumerate().collect::<Vec<_>>())?;
            }
        }
        Ok(())
    }

    fn acts(&mut self, action: ClientAction) {
        match action {
            ClientAction::Connect { client, volume, number, stage } => {
                self.later(Event::LoginArrives { link: (client, number), volume, stage });
            }
            ClientAction::Send { client, number, volume, id, request } => {
                let link = (client, number);
                if self.rng.chance(self.trouble, 10_000) {
                    self.later(Event::Lost { link });
                }
                self.later(Event::Arrives { link, volume, id, request });
            }
            ClientAction::Disconnect { .. } => {}
            ClientAction::AskNewStage { client, volume } => {
                self.later(Event::Staged { client, volume });
            }
            ClientAction::TakeNote { volume } => self.later(Event::NoteTaken { volume }),
        }
    }

    fn login(&mut self, link: Link, volume: usize, stage: Option<StageNumber>) {
        if self.rng.chance(self.trouble, 1_000) {
            self.stale.insert(link);
            return self.later(Event::LoginAnswered { link, result: Ok(()) });
        }
        let server = &mut self.servers[volume];
        let result = server.login(link.0, link.1, stage);
        if result.is_ok() && !server.is(Quirk::KeepsOldRequests) {
            // Older work is finished or dropped.
            let finished = self.rng.chance(1, 2);
            self.waiting.retain(|(of, _), request| {
                if of.0 == link.0 && finished {
                    let _ = server.apply(request);
                }
                of.0 != link.0
            });
        }
        self.later(Event::LoginAnswered { link, result });
    }

    fn arrives(&mut self, link: Link, volume: usize, id: RequestId, request: Request) {
        let (client, number) = link;
        if self.stale.contains(&link) || !self.servers[volume].is_newest(client, number) {
            if self.rng.chance(1, 2) {
                self.later(Event::Answered { link, id, result: Err(IoError::Superseded) });
            }
            return;
        }
        if self.rng.chance(1, 100) {
            let error = if self.rng.chance(1, 2) { IoError::NoSpace } else { IoError::Busy };
            self.later(Event::Answered { link, id, result: Err(error) });
            if self.servers[volume].is(Quirk::AppliesRefused) {
                let _ = self.servers[volume].apply(&request);
            }
            return;
        }
        let is_write = matches!(request, Request::Write { .. });
        if is_write && self.servers[volume].is(Quirk::AcksBeforeApplying) && self.rng.chance(1, 5) {
            self.later(Event::Answered { link, id, result: Ok(Answer::Done) });
        }
        if self.rng.chance(1, 100) {
            // The deadline is over, though the request may still be done.
            let result = Err(IoError::NoQuorum { reason: String::new() });
            self.later(Event::Answered { link, id, result });
        }
        self.waiting.insert((link, id), request);
        self.later(Event::Applies { link, volume, id });
    }

    fn applies(&mut self, link: Link, volume: usize, id: RequestId) {
        let Some(request) = self.waiting.remove(&(link, id)) else { return };
        let server = &mut self.servers[volume];
        let before = server.before(&request);
        let mut result = server.apply(&request);
        if self.rng.chance(1, 60) {
            result = Err(IoError::NoQuorum { reason: String::new() });
            let takes_back = self.servers[volume].is(Quirk::TakesBack);
            if let (true, Some((at, bytes))) = (takes_back, before) {
                self.at(self.now + 200_000, Event::TakenBack { volume, at, bytes });
            }
        }
        self.later(Event::Answered { link, id, result });
    }

    fn loses_power(&mut self, volume: usize) {
        let server = &mut self.servers[volume];
        if server.is(Quirk::RaisesFalseHold) {
            server.hold();
            return;
        }
        self.power_losses += 1;
        server.lose_power();
        // Connections of all volumes are cut, which does no harm to the others.
        let links: BTreeSet<Link> = self.waiting.keys().map(|(link, _)| *link).collect();
        self.waiting.clear();
        for link in links {
            self.later(Event::Lost { link });
        }
    }

    fn snapshot_asked(&mut self, volumes: Vec<usize>, uid: SnapshotUid) {
        let made = self.now + self.rng.range(1_000..20_000);
        for (nth, &volume) in volumes.iter().enumerate() {
            self.clients.snapshot_asked(self.now, volume, uid);
            let server = &self.servers[volume];
            let made = match nth as u64 {
                nth if server.is(Quirk::CutsLoosely) => made + nth * 300_000,
                _ => made,
            };
            let late = u64::from(server.is(Quirk::SnapshotsLate)) * 1_000_000;
            let told = made + self.rng.range(1_000..20_000);
            self.at(made + late, Event::SnapshotMade { volume, uid });
            self.at(told, Event::SnapshotTold { volume, uid });
        }
        if volumes.len() > 1 {
            self.group_cuts.push(uid);
        }
    }

    fn happens(&mut self, event: Event) -> Result<(), Violation> {
        let now = self.now;
        match event {
            Event::LoginArrives { link, volume, stage } => self.login(link, volume, stage),
            Event::LoginAnswered { link, result } => {
                self.clients.logged_in(now, link.0, link.1, result);
            }
            Event::Arrives { link, volume, id, request } => self.arrives(link, volume, id, request),
            Event::Applies { link, volume, id } => self.applies(link, volume, id),
            Event::TakenBack { volume, at, bytes } => self.servers[volume].take_back(at, &bytes),
            Event::Answered { link, id, result } => {
                return self.clients.answered(now, link.0, link.1, id, result);
            }
            Event::Lost { link } => self.clients.lost(now, link.0, link.1),
            Event::Staged { client, volume } => {
                let number = self.servers[volume].new_stage();
                self.later(Event::StageTold { client, volume, number });
            }
            Event::StageTold { client, volume, number } => {
                self.clients.new_stage(now, client, volume, number);
            }
            Event::NoteTaken { volume } => {
                self.servers[volume].take_note();
                self.later(Event::NoteTold { volume });
            }
            Event::NoteTold { volume } => self.clients.note_taken(now, volume),
            Event::LosesPower { volume } => self.loses_power(volume),
            Event::SnapshotAsked { volumes, uid } => self.snapshot_asked(volumes, uid),
            Event::SnapshotMade { volume, uid } => {
                self.snapshots.insert((volume, uid), self.servers[volume].content.clone());
            }
            Event::SnapshotTold { volume, uid } => {
                self.clients.snapshot_done(now, volume, uid);
                self.told.insert((volume, uid));
            }
            Event::RollbackAsked { volume, uid } if self.told.contains(&(volume, uid)) => {
                self.clients.rollback_asked(now, volume, uid);
                self.later(Event::RolledBack { volume, uid });
            }
            Event::RollbackAsked { .. } => {}
            Event::RolledBack { volume, uid } => {
                if let Some(content) = self.snapshots.get(&(volume, uid)) {
                    self.servers[volume].roll_back(content);
                }
                self.later(Event::RollbackTold { volume, uid });
            }
            Event::RollbackTold { volume, uid } => self.clients.rolled_back(now, volume, uid),
        }
        Ok(())
    }
}
