//! Liveness while faults go on: where a volume's holder has had the catalog and a quorum for a
//! while, it serves (P6), and commands are answered.
//!
//! A probe asks for a stage, logs in with it, reads, writes zeros where there are zeros, flushes,
//! makes a snapshot, asks for the same snapshot again, and deletes it. What disturbs a node or a
//! volume on purpose begins the wait anew; what a machine does of itself does not.
use std::collections::BTreeMap;

use block::{ByteLen, ByteOffset, Data, LOGICAL_SECTOR};
use replication::client::{
    Command, CommandAnswer, CommandError, ConnectionId, Login, Request, RequestId,
};
use replication::state::SnapshotSpec;
use replication::target::Event;
use replication::words::{ClientId, ConnectionNumber, NodeId, SnapshotUid, StageNumber};

use super::World;
use super::event::{Heard, RunAt};
use super::nodes::Life;
use crate::quorum::clients::{Time, VolumeNo};
use crate::quorum::in_memory;
use crate::quorum::off::Check;

/// How long nothing disturbs a quorum before a probe has to get through: activation (a lease,
/// `PATIENCE`, a round) has been done by then.
const CALM: u64 = 15_000_000;
/// How long one step of a probe may take. Longer than a hold of a group.
const STEP_MAX: u64 = 6_000_000;
/// Between two probes of a volume.
const PAUSE: u64 = 2_000_000;
/// Ids of probes, above all others.
pub(super) const PROBES: u64 = 1 << 61;
const DONE: &str = "probe done";
/// A sector that no client writes.
const SECTOR: u64 = 40;

/// What a probe waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Stage,
    Login(StageNumber),
    Read,
    Write,
    Flush,
    Snapshot,
    /// The same once more, as after an answer that was lost.
    SnapshotAgain,
    Delete,
}

#[derive(Debug)]
struct Probe {
    run: RunAt,
    number: u64,
    step: Step,
    since: Time,
}

#[derive(Default)]
pub(super) struct Probes {
    under_way: BTreeMap<VolumeNo, Probe>,
    /// When the next begins, at the earliest.
    next: BTreeMap<VolumeNo, Time>,
    /// Since when a volume's target is left alone.
    calm_since: BTreeMap<VolumeNo, Time>,
    /// Since when control moves a volume's target though its holder is well.
    moving_since: BTreeMap<VolumeNo, Time>,
    /// Since when the holder cannot serve: it is down, or has no quorum or no catalog.
    unfit_since: BTreeMap<VolumeNo, Time>,
    /// Since when it has to serve.
    serves_since: BTreeMap<VolumeNo, Time>,
    /// Clients have ended, and so do these.
    over: bool,
}

impl Probes {
    /// Control moves a target, or starts it again: what it does for one cause is one disturbance, however often it does
    /// it. That the holder cannot serve is a new cause; for how long that may last is judged apart.
    pub fn moved(&mut self, volume: VolumeNo, holder_is_fit: bool, now: Time) {
        let since = self.moving_since.entry(volume).or_insert(now);
        if !holder_is_fit {
            *since = now;
        }
    }

    /// The holder went away, and any other node was taken: whether that one is fit shows now.
    pub fn served_anew(&mut self, volume: VolumeNo) {
        self.unfit_since.remove(&volume);
    }
}

impl World {
    /// Something is done to a node; it is left alone from this moment on, which may be to come.
    pub(super) fn disturb(&mut self, id: NodeId, until: Time) {
        let Some(node) = self.nodes.get_mut(&id) else { return };
        node.calm_since = node.calm_since.max(until).max(self.now);
        node.quiet_since = node.calm_since;
    }

    pub(super) fn disturb_all(&mut self, until: Time) {
        for id in self.node_ids() {
            self.disturb(id, until);
        }
    }

    /// Something is done to the target of a volume.
    pub(super) fn disturb_volume(&mut self, volume: VolumeNo) {
        self.probes.calm_since.insert(volume, self.now);
    }

    pub(super) fn stop_probing(&mut self) {
        self.probes.over = true;
    }

    fn is_calm(&self, since: Option<&Time>) -> bool {
        since.is_none_or(|since| self.now >= since.after(CALM))
    }

    /// Nothing was done to a node for long, and nothing is in its way.
    fn is_well(&self, id: NodeId) -> bool {
        self.nodes.get(&id).is_some_and(|node| {
            node.life == Life::Up && self.is_calm(Some(&node.calm_since)) && node.pool.is_at_ease()
        })
    }

    /// A quorum of a volume is well, and so are volume and catalog: whichever node is well can serve.
    fn can_be_served(&self, volume: VolumeNo) -> bool {
        let votes = |member: replication::membership::Member| {
            let (node, _) = super::place_of(member.replica);
            self.is_well(node) && self.member_on(node, volume) == Some(member)
        };
        // What rotted may be what has to be read.
        let rotten = self.rotten.keys().any(|(of, _)| *of == volume);
        self.is_calm(self.probes.calm_since.get(&volume))
            && !rotten
            && !self.catalog.away
            && self.truth(volume).membership.is_quorum(votes)
    }

    /// The run that has to serve a volume by now, if there is one.
    fn has_to_serve(&self, volume: VolumeNo) -> Option<NodeId> {
        let holder = self.rightful(volume)?;
        let serves = self.is_well(holder)
            && self.can_be_served(volume)
            && self.is_calm(self.probes.moving_since.get(&volume));
        serves.then_some(holder)
    }

    /// P6: a target does not stay where it cannot serve while it could be served elsewhere.
    fn judge_place(&mut self, volume: VolumeNo) {
        let holder = self.truth(volume).holder;
        // Without the catalog nothing moves.
        if self.is_fit(holder, volume) || self.is_lost(volume) {
            self.probes.unfit_since.remove(&volume);
            return;
        }
        let since = *self.probes.unfit_since.entry(volume).or_insert(self.now);
        if self.is_calm(Some(&since)) && self.can_be_served(volume) {
            self.fail(format!(
                "P6: volume {} stays with {holder}, which could not serve it for {} s, while others had a quorum",
                volume.0,
                CALM / 1_000_000
            ));
        }
    }

    /// Nothing was done to the target of a volume for so long.
    pub(super) fn is_left_alone(&self, volume: VolumeNo, calm: u64) -> bool {
        self.probes.calm_since.get(&volume).is_none_or(|since| self.now >= since.after(calm))
    }

    pub(super) fn has_served_since(&self, volume: VolumeNo, before: Time) -> bool {
        self.probes.serves_since.get(&volume).is_some_and(|since| *since <= before)
    }

    pub(super) fn go_on_probing(&mut self) {
        if !self.plan.has_check(Check::Liveness) {
            return;
        }
        for volume in self.volumes() {
            self.judge_place(volume);
            let Some(holder) = self.has_to_serve(volume) else {
                self.probes.under_way.remove(&volume);
                self.probes.serves_since.remove(&volume);
                continue;
            };
            self.probes.serves_since.entry(volume).or_insert(self.now);
            let late = Time(self.now.0.saturating_sub(STEP_MAX));
            match self.probes.under_way.get(&volume) {
                Some(probe) if probe.since < late => {
                    let what = format!(
                        "P6: {probe:?} of volume {} is not answered, though its holder has had the \
                         catalog and a quorum for {} s",
                        volume.0,
                        CALM / 1_000_000
                    );
                    self.fail(what);
                }
                Some(_) => {}
                None => self.begin_probe(volume, holder),
            }
        }
    }

    fn begin_probe(&mut self, volume: VolumeNo, holder: NodeId) {
        let paused = self.probes.next.get(&volume).is_some_and(|next| *next > self.now);
        if paused || self.probes.over {
            return;
        }
        let Some(target) = self.nodes[&holder].targets.get(&volume) else {
            self.fail(format!("P6: nothing runs for volume {} on its calm holder", volume.0));
            return;
        };
        let run = RunAt { node: holder, run: target.run };
        let number = self.number();
        let probe = Probe { run, number, step: Step::Stage, since: self.now };
        self.probes.under_way.insert(volume, probe);
        self.ask_for_probe(volume);
    }

    /// Says to the target what the present step is about.
    fn ask_for_probe(&mut self, volume: VolumeNo) {
        let Some(probe) = self.probes.under_way.get(&volume) else { return };
        let (run, number) = (probe.run, probe.number);
        let id = RequestId(PROBES + number * 16 + step_number(probe.step));
        let connection = ConnectionId(PROBES + number);
        let (offset, len) = (ByteOffset(SECTOR * LOGICAL_SECTOR), ByteLen(LOGICAL_SECTOR));
        let mut uid = [0xab; 16];
        uid[..8].copy_from_slice(&number.to_le_bytes());
        let spec = SnapshotSpec {
            uid: SnapshotUid(uid),
            name: format!("probe-{number}"),
            created: number,
        };
        let ask = |request| Event::Request { connection, id, request };
        let event = match probe.step {
            Step::Stage => Event::Command { id, command: Command::NewStage },
            Step::Login(stage) => {
                let client = ClientId(PROBES + volume.0 as u64);
                let number = ConnectionNumber(number);
                Event::Login { connection, login: Login { client, number, stage: Some(stage) } }
            }
            Step::Read => ask(Request::Read { offset, len }),
            Step::Write => {
                let data = Data::copy_of(&vec![0; in_memory(LOGICAL_SECTOR)]);
                ask(Request::Write { offset, data, fua: false })
            }
            Step::Flush => ask(Request::Flush),
            Step::Snapshot | Step::SnapshotAgain => {
                Event::Command { id, command: Command::Snapshot(spec) }
            }
            Step::Delete => Event::Command { id, command: Command::DeleteSnapshot(spec.uid) },
        };
        if let Event::Request { connection, id, request } = &event {
            self.observe_request(volume, *connection, *id, request);
        }
        if let Event::Command { id, command } = &event {
            self.observe_command(volume, run, *id, command);
        }
        self.say(|| format!("v{} probe {number}: {event:?}", volume.0));
        self.step_run(run, volume, event);
    }

    fn probe_moves(&mut self, volume: VolumeNo, step: Step) {
        let now = self.now;
        if let Some(probe) = self.probes.under_way.get_mut(&volume) {
            (probe.step, probe.since) = (step, now);
            self.ask_for_probe(volume);
        }
    }

    fn end_probe(&mut self, volume: VolumeNo, path: &'static str) {
        if let Some(probe) = self.probes.under_way.remove(&volume) {
            let (run, connection) = (probe.run, ConnectionId(PROBES + probe.number));
            self.note(path);
            self.probes.next.insert(volume, self.now.after(PAUSE));
            if path == DONE {
                self.probes.moving_since.remove(&volume);
            }
            self.step_run(run, volume, Event::Gone { connection });
        }
    }

    /// An answer to a login or a request. Where a fault struck meanwhile it says anything.
    pub(super) fn probe_heard(&mut self, connection: ConnectionId, heard: &Heard) {
        let found = self
            .probes
            .under_way
            .iter()
            .find(|(_, probe)| ConnectionId(PROBES + probe.number) == connection);
        let Some((volume, step)) = found.map(|(volume, probe)| (*volume, probe.step)) else {
            return;
        };
        let next = match (step, heard) {
            (Step::Login(_), Heard::LoggedIn(Ok(()))) => Step::Read,
            (Step::Read, Heard::Answer(_, Ok(_))) => Step::Write,
            (Step::Write, Heard::Answer(_, Ok(_))) => Step::Flush,
            (Step::Flush, Heard::Answer(_, Ok(_))) => Step::Snapshot,
            (step, heard) if self.has_to_serve(volume).is_some() => {
                self.fail(format!("P6: {step:?} of a probe of a calm volume heard {heard:?}"));
                return;
            }
            _ => return self.end_probe(volume, "probe interrupted"),
        };
        self.probe_moves(volume, next);
    }

    pub(super) fn probe_answered(
        &mut self,
        volume: VolumeNo,
        id: RequestId,
        result: &Result<CommandAnswer, CommandError>,
    ) {
        let Some(probe) = self.probes.under_way.get(&volume) else { return };
        let step = probe.step;
        if id.0 != PROBES + probe.number * 16 + step_number(step) {
            return;
        }
        let next = match (step, result) {
            (Step::Stage, Ok(CommandAnswer::Stage(number))) => Step::Login(*number),
            (Step::Snapshot, Ok(_)) => Step::SnapshotAgain,
            (Step::SnapshotAgain, Ok(_)) => Step::Delete,
            (Step::Delete, Ok(_)) => return self.end_probe(volume, DONE),
            // A hold of a group, as many deletions as are kept, or pools that were full.
            (_, Err(CommandError::Busy | CommandError::NoSpace)) => {
                return self.end_probe(volume, "probe came at a bad time");
            }
            (step, result) if self.has_to_serve(volume).is_some() => {
                self.fail(format!("P6: {step:?} of a probe of a calm volume heard {result:?}"));
                return;
            }
            _ => return self.end_probe(volume, "probe interrupted"),
        };
        self.probe_moves(volume, next);
    }
}

fn step_number(step: Step) -> u64 {
    match step {
        Step::Stage => 0,
        Step::Login(_) => 1,
        Step::Read => 2,
        Step::Write => 3,
        Step::Flush => 4,
        Step::Snapshot => 5,
        Step::SnapshotAgain => 6,
        Step::Delete => 7,
    }
}
