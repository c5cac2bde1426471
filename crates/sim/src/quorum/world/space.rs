//! Space, while faults go on (Q7): where every voter of a volume is there and only space is short,
//! nothing waits for it. What takes space is done or refused, what gives it back is done, and no
//! entry is stuck because those who hold it have no room.
//!
//! Every voter, not a quorum of them: a replica that was away has lost its credit, and what was
//! given a seq meanwhile had that of the others.
use std::collections::BTreeMap;

use block::{Seq, Term};
use replication::client::{Command, CommandError, ConnectionId, IoError, RequestId};
use replication::words::{NodeId, ReplicaId};

use super::event::RunAt;
use super::nodes::Life;
use super::watch::WAITS_MAX;
use super::{World, place_of};
use crate::quorum::check::Frees;
use crate::quorum::clients::{Time, VolumeNo};
use crate::quorum::off::Check;

/// How long nothing but space disturbs the voters before they are judged.
const CALM: u64 = 10_000_000;
/// How often a replica may leave at one entry: its credit may have been on its way.
const LEAVES_MAX: u32 = 2;

/// A command that a run of a target has.
struct Asked {
    run: RunAt,
    since: Time,
    command: Command,
}

#[derive(Default)]
pub(super) struct Space {
    commands: BTreeMap<(VolumeNo, RequestId), Asked>,
    /// Since when a volume is short of space and nothing else disturbs it.
    short_since: BTreeMap<VolumeNo, Time>,
    /// How often each replica left at an entry since then.
    left: BTreeMap<VolumeNo, BTreeMap<(Term, Seq, ReplicaId), u32>>,
}

impl World {
    /// Space of a node is made short on purpose, or given back.
    pub(super) fn disturb_space(&mut self, id: NodeId, until: Time) {
        let Some(node) = self.nodes.get_mut(&id) else { return };
        node.calm_since = node.calm_since.max(until).max(self.now);
    }

    pub(super) fn observe_command(
        &mut self,
        volume: VolumeNo,
        run: RunAt,
        id: RequestId,
        command: &Command,
    ) {
        let asked = Asked { run, since: self.now, command: command.clone() };
        self.space.commands.insert((volume, id), asked);
    }

    /// What takes no space is never refused for want of it.
    pub(super) fn observe_answer(
        &mut self,
        volume: VolumeNo,
        id: RequestId,
        error: Option<&CommandError>,
    ) {
        let Some(asked) = self.space.commands.remove(&(volume, id)) else { return };
        let takes = matches!(
            asked.command,
            Command::Snapshot(_)
                | Command::Cut { .. }
                | Command::Rollback { .. }
                | Command::Resize { .. }
        );
        if error == Some(&CommandError::NoSpace) && !takes && self.plan.has_check(Check::Space) {
            self.fail(format!("Q7: {:?} is refused for want of space", asked.command));
        }
    }

    /// The same of requests: flushes, and discards of a volume that has no snapshots.
    pub(super) fn judge_refusal(
        &mut self,
        at: RunAt,
        volume: VolumeNo,
        request: (ConnectionId, RequestId),
        error: &IoError,
    ) {
        if *error != IoError::NoSpace || !self.plan.has_check(Check::Space) {
            return;
        }
        let granule = self.plan.volumes[volume.0].block_size.max(4096);
        let wrong = match self.observed.frees(volume, request, granule) {
            Frees::Nothing => false,
            Frees::TakesNothing => true,
            Frees::WithoutSnapshots => self.has_no_snapshots(at, volume),
        };
        match wrong {
            true => {
                self.fail(format!("Q7: {request:?} takes no space, and is refused for want of it"))
            }
            false => self.note("refused for want of space"),
        }
    }

    /// Neither has any copy one, nor is one on its way.
    fn has_no_snapshots(&self, at: RunAt, volume: VolumeNo) -> bool {
        let copies = self.nodes.values().filter_map(|node| node.pool.facts(volume));
        let mut shared = copies.map(|facts| !facts.snapshots.is_empty() || facts.costs.is_clone);
        let target = self.nodes[&at.node].targets.get(&volume);
        let shown = target.is_none_or(|target| !target.machine.snapshots().is_empty());
        let coming = self.space.commands.iter().any(|((of, _), asked)| {
            *of == volume && matches!(asked.command, Command::Snapshot(_) | Command::Cut { .. })
        });
        let opened = self.nodes.values().all(|node| node.pool.is_open());
        opened && !shown && !coming && !shared.any(|shared| shared)
    }

    /// All voters are there and connected, left alone but for their space, of which some have none.
    fn is_only_short(&self, volume: VolumeNo) -> bool {
        let quiet = |since: Time| self.now >= since.after(CALM);
        let object = &self.catalog.objects[&volume];
        let is_well = |id: NodeId| {
            let node = &self.nodes[&id];
            node.life == Life::Up && quiet(node.quiet_since) && !node.pool.is_failed()
        };
        let voters = object.membership.everybody();
        let places: Vec<NodeId> = voters.iter().map(|it| place_of(it.replica).0).collect();
        let votes = voters.iter().all(|member| {
            let (node, _) = place_of(member.replica);
            is_well(node) && self.member_on(node, volume) == Some(*member)
        });
        let rotten = self.rotten.keys().any(|(of, _)| *of == volume);
        votes
            && !rotten
            && !self.catalog.away
            && object.membership.next.is_none()
            && is_well(object.holder)
            && self.is_left_alone(volume, CALM)
            && places.iter().any(|id| !self.nodes[id].pool.is_at_ease())
    }

    /// No request and no command waits while only space is short.
    pub(super) fn judge_space(&mut self) {
        if !self.plan.has_check(Check::Space) || self.plan.has_groups() {
            return;
        }
        let before = Time(self.now.0.saturating_sub(WAITS_MAX));
        for volume in self.volumes() {
            if !self.is_only_short(volume) {
                self.space.short_since.remove(&volume);
                self.space.left.remove(&volume);
                continue;
            }
            let since = *self.space.short_since.entry(volume).or_insert(self.now);
            if since > before {
                continue;
            }
            self.note("short of space and judged");
            let request = self.observed.unanswered_of(volume, before).find(|(connection, _)| {
                let attached = self.attached.get(connection);
                attached.is_some_and(|it| it.is_open() && self.is_at_holder(it, volume))
            });
            if let Some(request) = request {
                self.fail(format!("Q7: {request:?} waits although only space is short"));
            }
            let holder = self.catalog.objects[&volume].holder;
            let command = self.space.commands.iter().find(|((of, _), asked)| {
                *of == volume
                    && asked.since < before
                    && asked.run.node == holder
                    && self.is_running(asked.run, volume)
            });
            if let Some((_, asked)) = command {
                let what = format!("Q7: {:?} waits although only space is short", asked.command);
                self.fail(what);
            }
        }
    }

    /// A replica found no space for an entry. A quorum had set some aside when it got its seq.
    pub(super) fn observe_no_space(
        &mut self,
        volume: VolumeNo,
        (term, seq): (Term, Seq),
        replica: ReplicaId,
    ) {
        if !self.plan.has_check(Check::Space) || !self.space.short_since.contains_key(&volume) {
            return;
        }
        let voters = self.catalog.objects[&volume].membership.voters.clone();
        let left = self.space.left.entry(volume).or_default();
        *left.entry((term, seq, replica)).or_default() += 1;
        let can = |replica: ReplicaId| {
            left.get(&(term, seq, replica)).is_none_or(|times| *times <= LEAVES_MAX)
        };
        let able = voters.members.iter().filter(|member| can(member.replica)).count();
        if able < voters.cf() {
            self.fail(format!(
                "Q7: {}.{} of volume {} finds no space on too many replicas",
                term.0, seq.0, volume.0
            ));
        }
    }
}
