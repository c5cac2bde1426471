//! Client connections: links too, with late requests of connections that are gone for the client.
use replication::client::{Command, CommandAnswer, CommandError, ConnectionId, Request, RequestId};
use replication::target::Event;
use replication::words::ClientId;

use super::World;
use super::event::{Heard, RunAt, Said, What};
use super::probes::PROBES;
use crate::quorum::clients::{ClientAction, Time, VolumeNo};

pub(super) struct Attached {
    pub volume: VolumeNo,
    to: RunAt,
    /// When the last message of each direction arrives.
    to_front: Time,
    to_client: Time,
    /// What has not arrived by then never does.
    lost_after: Option<Time>,
    /// The client knows that it is gone.
    over: bool,
    /// Whose it is; a newer one of the same client takes its requests away.
    client: ClientId,
    replaced: bool,
}

impl Attached {
    /// Both sides have it, and what is asked over it is answered.
    pub fn is_open(&self) -> bool {
        !self.over && !self.replaced && self.lost_after.is_none()
    }
}

/// Commands of clients have lower ids, those of the coordinator higher ones.
pub(super) const COORDINATOR: u64 = 1 << 60;

impl World {
    /// Whether it leads to the run that the catalog names.
    pub(super) fn is_at_holder(&self, attached: &Attached, volume: VolumeNo) -> bool {
        let holder = self.truth(volume).holder;
        attached.to.node == holder && self.is_running(attached.to, volume)
    }

    pub(super) fn wake_clients(&mut self) {
        let actions = self.clients.wake(self.now);
        for action in actions {
            self.act(action);
        }
        self.arm_clients();
    }

    /// Wakes the clients when they want to be woken next.
    fn arm_clients(&mut self) {
        let Some(next) = self.clients.next() else { return };
        let next = next.max(self.now.after(100));
        if self.clients_wake <= self.now || next < self.clients_wake {
            self.clients_wake = next;
            self.push(next, What::ClientWake);
        }
    }

    fn act(&mut self, action: ClientAction) {
        match action {
            ClientAction::Connect { volume, connection, login } => {
                let Some(to) = self.address(volume) else {
                    let at = self.soon(100_000);
                    let said = Heard::Lost;
                    self.push(at, What::ToClient { connection, said });
                    return;
                };
                for older in self.attached.values_mut().filter(|it| it.client == login.client) {
                    older.replaced = true;
                }
                let attached = Attached {
                    volume,
                    to,
                    to_front: self.now,
                    to_client: self.now,
                    lost_after: None,
                    over: false,
                    client: login.client,
                    replaced: false,
                };
                self.attached.insert(connection, attached);
                self.carry_to_front_end(connection, Said::Login(login));
            }
            ClientAction::Send { connection, id, request } => {
                self.carry_to_front_end(connection, Said::Request(id, request));
            }
            ClientAction::Disconnect { connection } => {
                self.carry_to_front_end(connection, Said::Gone);
                if let Some(attached) = self.attached.get_mut(&connection) {
                    attached.over = true;
                }
            }
            ClientAction::Command { volume, id, command } => self.command(volume, id, command),
        }
    }

    /// Where a client finds its volume: mostly where it is, sometimes where it was.
    pub(super) fn address(&mut self, volume: VolumeNo) -> Option<RunAt> {
        let runs = self.runs(volume);
        let holder = self.catalog.objects[&volume].holder;
        let current = runs.iter().find(|run| run.node == holder).copied();
        if runs.is_empty() {
            return None;
        }
        let strays = !self.healed && self.rng.chance(1, 5);
        match current {
            Some(current) if !strays => Some(current),
            _ => Some(*self.rng.pick(&runs)),
        }
    }

    pub(super) fn command(&mut self, volume: VolumeNo, id: RequestId, command: Command) {
        let Some(to) = self.address(volume) else {
            let at = self.soon(50_000);
            let result = Err(CommandError::NotServing { reason: "no target".to_owned() });
            self.push(at, What::CommandAnswered { volume, id, result });
            return;
        };
        let at = self.soon(3_000);
        self.push(at, What::Commanded { volume, to, id, command });
    }

    pub(super) fn commanded(
        &mut self,
        volume: VolumeNo,
        to: RunAt,
        id: RequestId,
        command: Command,
    ) {
        if !self.is_running(to, volume) {
            let result = Err(CommandError::NotServing { reason: "gone".to_owned() });
            let at = self.soon(50_000);
            self.push(at, What::CommandAnswered { volume, id, result });
            return;
        }
        self.say(|| format!("v{} command {} to {}: {command:?}", volume.0, id.0, to.node));
        self.groups.asked.insert(id, to);
        self.observe_command(volume, to, id, &command);
        self.step_run(to, volume, Event::Command { id, command });
    }

    pub(super) fn command_answered(
        &mut self,
        volume: VolumeNo,
        id: RequestId,
        result: Result<CommandAnswer, CommandError>,
    ) {
        self.clone_marked(id, &result);
        match id.0 {
            PROBES.. => self.probe_answered(volume, id, &result),
            COORDINATOR.. => self.group_answered(volume, id, result),
            _ => self.clients.commanded(self.now, volume, id, result),
        }
        self.arm_clients();
    }

    fn carry_to_front_end(&mut self, connection: ConnectionId, said: Said) {
        let mut arrival = self.soon(self.plan.link_delay);
        let Some(attached) = self.attached.get_mut(&connection) else { return };
        arrival = arrival.max(attached.to_front);
        attached.to_front = arrival;
        self.push(arrival, What::ToFrontEnd { connection, said });
    }

    pub(super) fn carry_to_client(&mut self, connection: ConnectionId, said: Heard) {
        let mut arrival = self.soon(self.plan.link_delay);
        if connection.0 >= PROBES {
            return self.push(arrival, What::ToClient { connection, said });
        }
        let Some(attached) = self.attached.get_mut(&connection) else { return };
        arrival = arrival.max(attached.to_client);
        attached.to_client = arrival;
        self.push(arrival, What::ToClient { connection, said });
    }

    pub(super) fn arrive_at_front_end(&mut self, connection: ConnectionId, said: Said) {
        let Some(attached) = self.attached.get(&connection) else { return };
        let (to, volume) = (attached.to, attached.volume);
        if let Some(until) = self.nodes[&to.node].paused(self.now) {
            self.push(until, What::ToFrontEnd { connection, said });
            return;
        }
        let gone = matches!(said, Said::Gone);
        let cut = attached.lost_after.is_some_and(|after| self.now > after) && !gone;
        if cut {
            return;
        }
        if !self.is_running(to, volume) {
            let at = self.soon(20_000);
            self.push(at, What::ToClient { connection, said: Heard::Lost });
            return;
        }
        let event = match said {
            Said::Login(login) => {
                self.say(|| format!("v{} {login:?} as connection {}", volume.0, connection.0));
                Event::Login { connection, login }
            }
            Said::Request(id, request) => {
                self.trace_request(volume, connection, id, &request);
                self.observe_request(volume, connection, id, &request);
                Event::Request { connection, id, request }
            }
            Said::Gone => Event::Gone { connection },
        };
        self.step_run(to, volume, event);
    }

    fn trace_request(
        &mut self,
        volume: VolumeNo,
        connection: ConnectionId,
        id: RequestId,
        request: &Request,
    ) {
        if self.trace.on {
            let text: String = format!("{request:?}").chars().take(160).collect();
            let line = format!("v{} request {}/{}: {text}", volume.0, connection.0, id.0);
            self.say(|| line);
        }
    }

    pub(super) fn arrive_at_client(&mut self, connection: ConnectionId, said: Heard) {
        if connection.0 >= PROBES {
            return self.probe_heard(connection, &said);
        }
        let now = self.now;
        match self.attached.get_mut(&connection) {
            Some(attached) if attached.over => return,
            Some(attached) => {
                let lost = matches!(said, Heard::Lost);
                if !lost && attached.lost_after.is_some_and(|after| now > after) {
                    return;
                }
                attached.over = lost;
            }
            None => {}
        }
        match said {
            Heard::LoggedIn(result) => self.clients.logged_in(now, connection, result),
            Heard::Answer(id, result) => self.clients.answered(now, connection, id, result),
            Heard::Lost => self.clients.lost(now, connection),
        }
        self.arm_clients();
    }

    /// Breaks a connection: the client knows soon, what it sent may come much later.
    pub(super) fn break_client(&mut self) {
        let live = self.attached.iter().filter(|(_, attached)| !attached.over);
        let live: Vec<ConnectionId> = live.map(|(id, _)| *id).collect();
        if live.is_empty() {
            return;
        }
        let connection = *self.rng.pick(&live);
        let spread = *self.rng.pick(&[1, 10_000, 3_000_000]);
        let (after, told) = (self.soon(spread), self.soon(50_000));
        self.attached.get_mut(&connection).expect("one of them").lost_after = Some(after);
        self.push(told, What::ToClient { connection, said: Heard::Lost });
        if self.rng.chance(3, 4) {
            self.push(after.after(1), What::ToFrontEnd { connection, said: Said::Gone });
        }
    }

    /// Those who talked to a target that is gone notice it.
    pub(super) fn clients_of_run(&mut self, run: RunAt) {
        let theirs = self.attached.iter().filter(|(_, a)| a.to == run && !a.over);
        let theirs: Vec<ConnectionId> = theirs.map(|(id, _)| *id).collect();
        for connection in theirs {
            let at = self.soon(300_000);
            self.push(at, What::ToClient { connection, said: Heard::Lost });
        }
    }
}
