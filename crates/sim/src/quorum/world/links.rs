//! Links between targets and replicas: ordered, slow, and gone at any moment.
//!
//! A break takes what had not arrived by a certain moment, which may be long after either side has
//! noticed: so messages of an old connection arrive beside those of a new one.
use replication::constants::SILENCE;
use replication::replica::LinkId;
use replication::words::{Boot, NodeId, ReplicaId};

use super::event::{RunAt, Side, What};
use super::{World, place_of, replica_id};
use crate::quorum::clients::{Time, VolumeNo};
use crate::quorum::wire::{Frame, Parcel};

/// Characters of a message that a trace shows.
const TRACED: usize = 4000;

pub(super) struct Link {
    pub volume: VolumeNo,
    pub target: RunAt,
    pub replica: NodeId,
    replica_boot: Boot,
    /// When the last message of each direction arrives.
    to_target: Time,
    to_replica: Time,
    /// What has not arrived by then never does.
    lost_after: Option<Time>,
    target_closed: bool,
    replica_closed: bool,
}

impl Link {
    pub fn node(&self, side: Side) -> NodeId {
        match side {
            Side::Target => self.target.node,
            Side::Replica => self.replica,
        }
    }

    fn closed(&mut self, side: Side) -> &mut bool {
        match side {
            Side::Target => &mut self.target_closed,
            Side::Replica => &mut self.replica_closed,
        }
    }

    fn is_cut(&self, at: Time) -> bool {
        self.lost_after.is_some_and(|after| at > after)
    }
}

impl Side {
    fn other(self) -> Side {
        match self {
            Side::Target => Side::Replica,
            Side::Replica => Side::Target,
        }
    }
}

impl World {
    /// How long something takes from one node to another, or until a wall between them falls.
    pub(super) fn way(&mut self, from: NodeId, to: NodeId) -> Time {
        if from == to {
            return self.soon(20);
        }
        let slow = if self.slow_links_until > self.now { 40 } else { 1 };
        let arrival = self.soon(self.plan.link_delay * slow).after(30);
        arrival.max(self.wall(from, to))
    }

    /// When the wall between two nodes falls, if there is one.
    pub(super) fn wall(&self, from: NodeId, to: NodeId) -> Time {
        let between = self.walls.iter().filter(|(a, b, _)| (*a, *b) == (from, to));
        between
            .map(|(_, _, until)| *until)
            .filter(|until| *until > self.now)
            .max()
            .unwrap_or_default()
    }

    /// A target wants a connection; it comes about, or nothing does.
    pub(super) fn connect(&mut self, target: RunAt, volume: VolumeNo, replica: ReplicaId) {
        let (to, _) = place_of(replica);
        let Some(node) = self.nodes.get(&to) else { return };
        let open = node.is_up() && node.replicas.contains_key(&volume);
        let walled = self.wall(target.node, to) > self.now || self.wall(to, target.node) > self.now;
        if !open || walled {
            return;
        }
        let replica_boot = node.boot;
        let id = LinkId(self.number());
        let link = Link {
            volume,
            target,
            replica: to,
            replica_boot,
            to_target: self.now,
            to_replica: self.now,
            lost_after: None,
            target_closed: false,
            replica_closed: false,
        };
        self.links.insert(id, link);
        let up = self.way(target.node, to);
        self.push(up, What::LinkUp { link: id });
    }

    pub(super) fn link_up(&mut self, id: LinkId) {
        let Some(link) = self.links.get(&id) else { return };
        if link.target_closed {
            return;
        }
        let (target, volume) = (link.target, link.volume);
        let replica = replica_id(link.replica, volume);
        let event = replication::target::Event::LinkUp { replica, link: id };
        self.step_run(target, volume, event);
    }

    pub(super) fn send(&mut self, id: LinkId, from: Side, parcel: &Parcel) {
        let Some(link) = self.links.get(&id) else { return };
        let (a, b) = (link.node(from), link.node(from.other()));
        let mut arrival = self.way(a, b);
        let mut frame = parcel.pack();
        if self.corrupt_next && a != b {
            self.corrupt_next = false;
            let mut rng = self.rng.fork();
            frame.corrupt(&mut rng);
            self.say(|| format!("a byte changes on link {}", id.0));
        }
        self.trace_parcel(id, from, parcel);
        let link = self.links.get_mut(&id).expect("looked at");
        if *link.closed(from) {
            return;
        }
        let last = match from {
            Side::Target => &mut link.to_replica,
            Side::Replica => &mut link.to_target,
        };
        arrival = arrival.max(*last);
        *last = arrival;
        self.push(arrival, What::Arrive { link: id, frame });
    }

    fn trace_parcel(&mut self, id: LinkId, from: Side, parcel: &Parcel) {
        if !self.trace.on {
            return;
        }
        let Some(link) = self.links.get(&id) else { return };
        let (target, replica) = (link.target, link.replica);
        let mut text = match parcel {
            Parcel::ToReplica(message) => format!("{:?}", message.body),
            Parcel::ToTarget(message) => format!("{:?}", message.body),
        };
        text.truncate(TRACED);
        let way = if from == Side::Target { "->" } else { "<-" };
        let line = format!(
            "v{} t{}/{} {way} r{} link {}: {text}",
            link.volume.0, target.node, target.run.0, replica, id.0
        );
        self.say(|| line);
    }

    pub(super) fn arrive(&mut self, id: LinkId, frame: &Frame) {
        let now = self.now;
        let side = if frame.is_to_replica() { Side::Replica } else { Side::Target };
        let Some(link) = self.links.get_mut(&id) else { return };
        if link.is_cut(now) || *link.closed(side) {
            return;
        }
        let (volume, target, replica, boot) =
            (link.volume, link.target, link.replica, link.replica_boot);
        match frame.unpack() {
            Ok(Parcel::ToReplica(message)) => {
                let node = &self.nodes[&replica];
                if node.boot == boot && node.is_up() {
                    let event = replication::replica::Event::Message { link: id, message };
                    self.step_replica(replica, volume, event);
                }
            }
            Ok(Parcel::ToTarget(message)) => {
                let replica = replica_id(replica, volume);
                let event = replication::target::Event::Message { replica, link: id, message };
                self.step_run(target, volume, event);
            }
            Err(error) => {
                self.note("malformed message dropped a link");
                let now = self.now;
                for node in [target.node, replica] {
                    self.disturb(node, now);
                }
                self.say(|| format!("link {}: {error}", id.0));
                self.link_lost(id, side);
                self.hang_up(id, side);
            }
        }
    }

    /// One side has done with a link; the other hears of it behind what was sent.
    pub(super) fn hang_up(&mut self, id: LinkId, side: Side) {
        let Some(link) = self.links.get(&id) else { return };
        let (a, b) = (link.node(side), link.node(side.other()));
        let last = match side {
            Side::Target => link.to_replica,
            Side::Replica => link.to_target,
        };
        let heard = self.way(a, b).max(last);
        self.push(heard, What::LinkLost { link: id, side: side.other() });
        *self.links.get_mut(&id).expect("looked at").closed(side) = true;
    }

    pub(super) fn link_lost(&mut self, id: LinkId, side: Side) {
        let Some(link) = self.links.get_mut(&id) else { return };
        if std::mem::replace(link.closed(side), true) {
            return;
        }
        let (volume, target, replica, boot) =
            (link.volume, link.target, link.replica, link.replica_boot);
        match side {
            Side::Target => {
                let replica = replica_id(replica, volume);
                let event = replication::target::Event::LinkLost { replica, link: id };
                self.step_run(target, volume, event);
            }
            Side::Replica if self.nodes[&replica].boot == boot => {
                self.lose_link_of_replica(replica, volume, id);
            }
            Side::Replica => {}
        }
    }

    /// Breaks a link: each side notices at its own time, or only by silence.
    pub(super) fn break_link(&mut self, id: LinkId) {
        let linger = *self.rng.pick(&[0, 0, 10_000, 3_000_000]);
        let after = self.soon(linger + 1);
        let Some(link) = self.links.get_mut(&id) else { return };
        link.lost_after.get_or_insert(after);
        let (target, replica) = (link.target.node, link.replica);
        // Who does not notice it waits for the silence.
        for node in [target, replica] {
            self.disturb(node, after.after(SILENCE.0));
        }
        for side in [Side::Target, Side::Replica] {
            if self.rng.chance(4, 5) {
                let spread = *self.rng.pick(&[100, 50_000, 2_000_000]);
                let at = self.soon(spread);
                self.push(at, What::LinkLost { link: id, side });
            } else {
                self.note("link noticed by silence");
            }
        }
    }

    /// A process is gone, and its links with it.
    pub(super) fn links_of_dead(&mut self, node: NodeId) {
        let ids: Vec<LinkId> = self
            .links
            .iter()
            .filter(|(_, link)| link.replica == node || link.target.node == node)
            .map(|(id, _)| *id)
            .collect();
        for id in ids {
            self.break_link(id);
        }
    }

    pub(super) fn links_of_run(&mut self, run: RunAt) {
        let of_run = |(_, link): &(&LinkId, &Link)| link.target == run;
        let ids: Vec<LinkId> = self.links.iter().filter(of_run).map(|(id, _)| *id).collect();
        for id in ids {
            self.break_link(id);
        }
    }

    /// Links that nobody has any more are forgotten.
    pub(super) fn forget_links(&mut self) {
        let long_ago = Time(self.now.0.saturating_sub(10_000_000));
        self.links.retain(|_, link| {
            let over = link.target_closed && link.replica_closed;
            !over && !link.is_cut(long_ago)
        });
    }

    pub(super) fn link_ids(&self) -> Vec<LinkId> {
        let live = |(_, link): &(&LinkId, &Link)| link.lost_after.is_none() && !link.target_closed;
        self.links.iter().filter(live).map(|(id, _)| *id).collect()
    }
}
