//! Everybody who uses the volumes of a world: clients whose history is judged, and an operator.
//!
//! It carries between the world's connections and the clients' own words, and repeats what has to
//! be repeated until it is answered.
use std::collections::BTreeMap;

use replication::client::{
    Answer, CommandAnswer, CommandError, ConnectionId, IoError, Login, LoginError, RequestId,
};
use replication::words::{ClientId, ConnectionNumber, SnapshotUid};

use super::clients::{ClientAction, Fact, FinalCopy, Time, Violation, VolumeFacts, VolumeNo};
use super::history;
use super::off::Check;
use super::plan::Plan;
use super::sparse::Sparse;
use crate::Rng;

mod operator;

use operator::{Operator, Order};

/// Without an answer for this long a command is given up, or sent again.
const COMMAND_PATIENCE: u64 = 4_000_000;

struct Sent {
    volume: VolumeNo,
    order: Order,
    until: Time,
}

/// What one cut of a group has, volume by volume.
type Cut = Vec<(VolumeNo, SnapshotUid)>;

pub struct Load {
    seed: u64,
    groups: bool,
    clients_min: usize,
    spies: usize,
    snapshots: usize,
    requests: u64,
    think: u64,
    clients: Option<history::Clients>,
    operator: Operator,
    connections: BTreeMap<(ClientId, ConnectionNumber), ConnectionId>,
    owners: BTreeMap<ConnectionId, (ClientId, ConnectionNumber)>,
    sent: BTreeMap<RequestId, Sent>,
    numbers: u64,
    power_losses: u64,
    answered: u64,
    good_cuts: Vec<Cut>,
    violation: Option<Violation>,
}

impl Load {
    pub fn new(plan: &Plan) -> Load {
        Load {
            seed: plan.seed,
            groups: plan.has_groups(),
            clients_min: plan.clients,
            spies: if plan.has_check(Check::Spies) { plan.spies } else { 0 },
            snapshots: plan.snapshots,
            requests: plan.requests,
            think: plan.think,
            clients: None,
            operator: Operator::default(),
            connections: BTreeMap::new(),
            owners: BTreeMap::new(),
            sent: BTreeMap::new(),
            numbers: 0,
            power_losses: 0,
            answered: 0,
            good_cuts: Vec::new(),
            violation: None,
        }
    }

    fn clients(&mut self) -> &mut history::Clients {
        self.clients.as_mut().expect("begun")
    }

    fn judged(&mut self, result: Result<(), history::Violation>) {
        if let Err(violation) = result {
            self.violation.get_or_insert(format!("{violation:?}"));
        }
    }

    fn order(&mut self, now: Time, volume: VolumeNo, order: Order, out: &mut Vec<ClientAction>) {
        self.numbers += 1;
        let id = RequestId(self.numbers);
        let command = order.command();
        let until = now.after(COMMAND_PATIENCE);
        self.sent.insert(id, Sent { volume, order, until });
        out.push(ClientAction::Command { volume, id, command });
    }

    /// A client's wish becomes an action of the world.
    fn carry(&mut self, now: Time, action: history::ClientAction, out: &mut Vec<ClientAction>) {
        match action {
            history::ClientAction::Connect { client, volume, number, stage } => {
                self.numbers += 1;
                let connection = ConnectionId(self.numbers);
                self.connections.insert((client, number), connection);
                self.owners.insert(connection, (client, number));
                let login = Login { client, number, stage };
                let volume = VolumeNo(volume);
                out.push(ClientAction::Connect { volume, connection, login });
            }
            history::ClientAction::Send { client, number, id, request, .. } => {
                if let Some(connection) = self.connections.get(&(client, number)) {
                    out.push(ClientAction::Send { connection: *connection, id, request });
                }
            }
            history::ClientAction::Disconnect { client, number, .. } => {
                if let Some(connection) = self.connections.get(&(client, number)) {
                    out.push(ClientAction::Disconnect { connection: *connection });
                }
            }
            history::ClientAction::AskNewStage { client, volume } => {
                self.order(now, VolumeNo(volume), Order::NewStage { client }, out);
            }
            history::ClientAction::TakeNote { volume } => {
                self.order(now, VolumeNo(volume), Order::TakeNote, out);
            }
        }
    }

    /// Commands that were not answered: some are repeated, the others' end is not known.
    fn repeat(&mut self, now: Time, out: &mut Vec<ClientAction>) {
        let late = self.sent.iter().filter(|(_, sent)| sent.until <= now);
        let late: Vec<RequestId> = late.map(|(id, _)| *id).collect();
        for id in late {
            let sent = self.sent.remove(&id).expect("one of them");
            match sent.order {
                Order::NewStage { .. } | Order::TakeNote => {
                    self.order(now, sent.volume, sent.order, out);
                }
                order => self.operator.unknown(sent.volume, &order),
            }
        }
    }

    /// What was ordered before a copy was chosen is done or not, whatever is said of it.
    fn forget_orders(&mut self, volume: VolumeNo) {
        let stays = |order: &Order| matches!(order, Order::NewStage { .. } | Order::TakeNote);
        let gone = self.sent.extract_if(.., |_, it| it.volume == volume && !stays(&it.order));
        for (_, sent) in gone {
            self.operator.unknown(volume, &sent.order);
        }
    }

    fn refused(&mut self, now: Time, sent: Sent) {
        match sent.order {
            // Sent again a little later.
            Order::NewStage { .. } | Order::TakeNote => {
                self.numbers += 1;
                let until = now.after(200_000);
                self.sent.insert(RequestId(self.numbers), Sent { until, ..sent });
            }
            order => self.operator.unknown(sent.volume, &order),
        }
    }

    fn done(&mut self, now: Time, volume: VolumeNo, order: Order, answer: &CommandAnswer) {
        let (at, no) = (now.0, volume.0);
        match (&order, answer) {
            (Order::NewStage { client }, CommandAnswer::Stage(number)) => {
                self.clients().new_stage(at, *client, no, *number);
            }
            (Order::TakeNote, _) => self.clients().note_taken(at, no),
            (Order::Snapshot(spec), _) => self.clients().snapshot_done(at, no, spec.uid),
            (Order::Rollback(uid), _) => self.clients().rolled_back(at, no, *uid),
            (Order::Resize(size), _) => self.clients().resized(no, *size),
            _ => {}
        }
        self.operator.done(volume, &order);
    }

    fn judge_copy(&self, copy: &FinalCopy) -> Result<(), history::Violation> {
        let clients = self.clients.as_ref().expect("begun");
        let Some(bytes) = &copy.bytes else { return Ok(()) };
        match copy.snapshot {
            None => clients.check_final(copy.volume.0, bytes),
            Some(uid) if self.operator.was_done(copy.volume, uid) => {
                clients.check_snapshot(copy.volume.0, uid, bytes)
            }
            Some(_) => Ok(()),
        }
    }

    fn judge_cuts(&self, copies: &[FinalCopy]) -> Result<(), Violation> {
        let clients = self.clients.as_ref().expect("begun");
        let find = |volume: VolumeNo, uid: SnapshotUid| {
            copies.iter().find(|copy| copy.volume == volume && copy.snapshot == Some(uid))
        };
        for cut in &self.good_cuts {
            let mut parts = Vec::new();
            for (volume, uid) in cut {
                let Some(copy) = find(*volume, *uid) else {
                    return Err(format!("{uid:?} of a good cut is not there"));
                };
                parts.extend(copy.bytes.as_ref().map(|bytes| (volume.0, bytes)));
            }
            if parts.len() == cut.len() {
                clients.check_group(&parts).map_err(|violation| format!("{violation:?}"))?;
            }
        }
        Ok(())
    }
}

/// What the world tells, and asks.
impl Load {
    pub fn begin(&mut self, volumes: &[VolumeFacts], rng: Rng) {
        let shapes = volumes.iter().map(|facts| history::VolumeShape {
            size: facts.size,
            block_size: u32::try_from(facts.block_size).expect("a small number"),
        });
        let mut config = history::ClientsConfig::new(shapes.collect(), self.seed);
        config.ordered_group = self.groups;
        config.requests_max = self.requests;
        config.think_us.end = self.think;
        config.clients_per_volume = config.clients_per_volume.max(self.clients_min);
        config.spies_per_volume = self.spies;
        let mut clients = history::Clients::new(config);
        clients.power_losses(0);
        self.clients = Some(clients);
        self.operator = Operator::new(volumes, self.snapshots, rng);
    }

    pub fn wake(&mut self, now: Time) -> Vec<ClientAction> {
        let mut wishes = Vec::new();
        self.clients().wake(now.0, &mut wishes);
        let mut out = Vec::new();
        for wish in wishes {
            self.carry(now, wish, &mut out);
        }
        self.repeat(now, &mut out);
        if let Some((volume, order)) = self.operator.wake(now) {
            match &order {
                Order::Snapshot(spec) => {
                    self.clients().snapshot_asked(now.0, volume.0, spec.uid);
                }
                Order::Rollback(uid) => self.clients().rollback_asked(now.0, volume.0, *uid),
                _ => {}
            }
            self.order(now, volume, order, &mut out);
        }
        out
    }

    pub fn next(&self) -> Option<Time> {
        let clients = self.clients.as_ref().and_then(history::Clients::next_wake).map(Time);
        let late = self.sent.values().map(|sent| sent.until).min();
        clients.into_iter().chain(late).chain(self.operator.next()).min()
    }

    pub fn logged_in(
        &mut self,
        now: Time,
        connection: ConnectionId,
        result: Result<(), LoginError>,
    ) {
        if let Some((client, number)) = self.owners.get(&connection).copied() {
            self.clients().logged_in(now.0, client, number, result);
        }
    }

    pub fn answered(
        &mut self,
        now: Time,
        connection: ConnectionId,
        id: RequestId,
        result: Result<Answer, IoError>,
    ) {
        self.answered += 1;
        if let Some((client, number)) = self.owners.get(&connection).copied() {
            let judged = self.clients().answered(now.0, client, number, id, result);
            self.judged(judged);
        }
    }

    pub fn lost(&mut self, now: Time, connection: ConnectionId) {
        if let Some((client, number)) = self.owners.get(&connection).copied() {
            self.clients().lost(now.0, client, number);
        }
    }

    pub fn commanded(
        &mut self,
        now: Time,
        volume: VolumeNo,
        id: RequestId,
        result: Result<CommandAnswer, CommandError>,
    ) {
        let Some(sent) = self.sent.remove(&id) else { return };
        match result {
            Ok(answer) => self.done(now, volume, sent.order, &answer),
            Err(_) => self.refused(now, sent),
        }
    }

    pub fn fact(&mut self, fact: &Fact) {
        match fact {
            Fact::PowerCut | Fact::DeviceFailed => {
                self.power_losses += 1;
                let losses = self.power_losses;
                self.clients().power_losses(losses);
            }
            Fact::GroupCut { snapshots } => self.good_cuts.push(snapshots.clone()),
            Fact::Chosen { volume, at, bytes, snapshots } => {
                self.clients().chosen(at.0, volume.0, bytes);
                self.forget_orders(*volume);
                self.operator.chosen(*volume, bytes.size(), snapshots);
                let gone =
                    |(of, uid): &(VolumeNo, SnapshotUid)| of == volume && !snapshots.contains(uid);
                self.good_cuts.retain(|cut| !cut.iter().any(gone));
            }
        }
    }

    /// Snapshots of a volume that are there, as far as anybody knows.
    pub fn snapshots(&self, volume: VolumeNo) -> Vec<SnapshotUid> {
        self.operator.snapshots(volume)
    }

    /// A volume was made as a clone, with this content.
    pub fn cloned(&mut self, now: Time, origin: VolumeNo, facts: &VolumeFacts, bytes: &Sparse) {
        let block_size = u32::try_from(facts.block_size).expect("a small number");
        let shape = history::VolumeShape { size: facts.size, block_size };
        self.clients().cloned(now.0, origin.0, shape, bytes);
        self.operator.begin(facts);
    }

    pub fn stop(&mut self, now: Time) {
        self.operator.stop();
        self.clients().finish(now.0);
    }

    pub fn waiting(&self) -> usize {
        usize::from(!self.clients.as_ref().expect("begun").is_swept())
    }

    pub fn operations(&self) -> u64 {
        self.answered
    }

    pub fn violation(&self) -> Option<&Violation> {
        self.violation.as_ref()
    }

    pub fn judge(&mut self, copies: &[FinalCopy]) -> Result<(), Violation> {
        let verdict = self.clients().verdict();
        verdict.map_err(|violation| format!("{violation:?}"))?;
        for copy in copies {
            self.judge_copy(copy).map_err(|violation| format!("{violation:?}"))?;
        }
        self.operator.judge(copies)?;
        self.judge_cuts(copies)
    }

    pub fn paths(&self) -> Vec<(&'static str, u64)> {
        let clients = self.clients.as_ref().expect("begun");
        clients.counters().iter().map(|(name, count)| (*name, *count)).collect()
    }
}
