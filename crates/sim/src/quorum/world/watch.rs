//! Looking on: what the machines say and store is counted, remembered and judged.
use block::{Position, Term};
use replication::client::{Answer, ConnectionId, IoError, Request, RequestId};
use replication::entry::Change;
use replication::message::{ForReplica, ForTarget, Leaving, Refusal, ToReplica, ToTarget};
use replication::state::ReplicaState;
use replication::words::{Grant, NodeId, ReplicaId};

use super::event::RunAt;
use super::{World, replica_id};
use crate::quorum::check::{Quorums, Replied};
use crate::quorum::clients::{Time, VolumeNo};
use crate::quorum::coverage::{CAUGHT_UP, CHANGED};
use crate::quorum::off::Check;

/// How long a request may wait while nothing but space is missing, in microseconds.
pub(super) const WAITS_MAX: u64 = 8_000_000;

impl World {
    pub(super) fn observe_to_replica(
        &mut self,
        volume: VolumeNo,
        replica: ReplicaId,
        message: &ForReplica,
    ) {
        let term = message.term;
        self.measure_catch_up(volume, replica, &message.body);
        if let ToReplica::Entries(entries) = &message.body
            && let Some(last) = entries.last()
        {
            let newest = self.sent.entry(replica).or_default();
            if (term, entries[0].seq) <= *newest {
                self.note("entries sent again");
            }
            let newest = self.sent.entry(replica).or_default();
            *newest = (*newest).max((term, last.seq));
        }
        let path = match &message.body {
            ToReplica::Entries(entries) => {
                for entry in entries {
                    self.observe_entry(volume, term, entry);
                }
                "sent: entries"
            }
            ToReplica::Hello(_) => "sent: hello",
            ToReplica::Renew { .. } => "sent: renew",
            ToReplica::Read { .. } => "sent: read",
            ToReplica::Extents { .. } => "sent: extents",
            ToReplica::Repair { .. } => "sent: repair",
            ToReplica::Recovered => "sent: recovered",
            ToReplica::OpenRound { .. } => "sent: open round",
            ToReplica::Fetch { .. } => "sent: fetch",
            ToReplica::CloseRound { .. } => "sent: close round",
            ToReplica::BeginImport { .. } => "sent: begin import",
            ToReplica::OwnChanges { .. } => "sent: own changes (losing tail)",
            ToReplica::Import { .. } => "sent: import",
            ToReplica::CommitImport { snapshot, .. } => {
                if snapshot.is_some() {
                    self.note("round ended at a user's snapshot");
                }
                "sent: commit import"
            }
            ToReplica::AbandonImport => "sent: abandon import",
        };
        self.note(path);
    }

    fn measure_catch_up(&mut self, volume: VolumeNo, replica: ReplicaId, body: &ToReplica) {
        if let Some(end) = self.traffic.sent(replica, body) {
            self.count_catch_up(volume, replica, end);
        }
    }

    fn count_catch_up(&mut self, volume: VolumeNo, replica: ReplicaId, end: Position) {
        let granule = self.plan.volumes[volume.0].block_size.max(4096);
        let brought = self.observed.brought(&mut self.traffic, volume, replica, end, granule);
        if let Some(brought) = brought {
            self.note("catch-up measured");
            self.paths.add(CAUGHT_UP, brought.bytes);
            self.paths.add(CHANGED, brought.changed);
        }
    }

    fn observe_entry(&mut self, volume: VolumeNo, term: Term, entry: &replication::entry::Entry) {
        match self.observed.entry(volume, term, entry) {
            Ok(false) => {}
            Ok(true) => {
                let first = self.plan.volumes[volume.0].size;
                if matches!(entry.change, Change::Resize { size } if size.0 / 64 >= first) {
                    self.note("entry: growth by a level");
                }
                self.observe_change(entry);
            }
            Err(violation) => self.fail(violation),
        }
    }

    fn observe_change(&mut self, entry: &replication::entry::Entry) {
        let path = match &entry.change {
            Change::Write { .. } => "entry: write",
            Change::Zero { len, .. } if len.0 > 16 << 20 => "entry: zeros of a large part",
            Change::Zero { .. } => "entry: zero",
            Change::Flush => "entry: flush",
            Change::Barrier { .. } => "entry: barrier",
            Change::Stages(_) => "entry: stages",
            Change::Close => "entry: close",
            Change::Snapshot(_) => "entry: snapshot",
            Change::DeleteSnapshot(_) => "entry: delete snapshot",
            Change::Rollback { .. } => "entry: rollback",
            Change::MarkClone { .. } | Change::UnmarkClone { .. } => "entry: clone mark",
            Change::Resize { .. } => "entry: resize",
            Change::Reservations(_) => "entry: reservations",
            Change::Points(_) => "entry: points",
            Change::Membership(_) => "entry: membership",
        };
        self.note(path);
    }

    pub(super) fn observe_to_target(
        &mut self,
        node: NodeId,
        volume: VolumeNo,
        message: &ForTarget,
    ) {
        let granule = self.plan.volumes[volume.0].block_size.max(4096);
        let replica = replica_id(node, volume);
        if let Some(end) = self.traffic.heard(replica, &message.body, granule) {
            self.count_catch_up(volume, replica, end);
            self.traffic.go_on(replica, end);
        }
        let path = match &message.body {
            ToTarget::Welcome(welcome) => {
                for (seen, path) in [
                    (welcome.regressed, "welcome: regressed"),
                    (welcome.dirty, "welcome: dirty"),
                    (welcome.import.is_some(), "welcome: import can go on"),
                ] {
                    if seen {
                        self.note(path);
                    }
                }
                "welcome"
            }
            ToTarget::Refused(Refusal::Promised(_)) => "refused: promised",
            ToTarget::Refused(Refusal::OlderMembership { .. }) => "refused: older membership",
            ToTarget::Left { at, reason } => match reason {
                Leaving::NoSpace => {
                    self.observe_no_space(volume, (message.term, *at), replica);
                    "left: no space"
                }
                Leaving::Damaged { .. } => "left: damaged",
                Leaving::Failed { .. } => "left: failed",
            },
            ToTarget::Repaired { ok: true, .. } => "repaired",
            ToTarget::Repaired { ok: false, .. } => "not repaired",
            ToTarget::ReadDone { result: Err(_), .. } => "read failed on a replica",
            ToTarget::Committed { .. } => "round committed",
            ToTarget::ImportFailed { .. } => "import failed",
            _ => return,
        };
        self.note(path);
    }

    /// Where a copy is after its pool was polled.
    pub(super) fn observe_store(&mut self, id: NodeId, volume: VolumeNo) {
        let (pool, boot) = (&self.nodes[&id].pool, self.nodes[&id].boot);
        let (Some(held), Some(durable)) = (pool.held(volume), pool.durable(volume)) else { return };
        let replica = replica_id(id, volume);
        if self.observed.stored(volume, (replica, boot), held, durable) {
            let state =
                self.nodes[&id].pool.state(volume).map(|state| ReplicaState::decode(&state));
            if let Some(Ok(state)) = state {
                let judged = self.observed.reigns(volume, state.shared.reigns.list());
                judged.unwrap_or_else(|violation| self.fail(violation));
            }
        }
    }

    pub(super) fn observe_request(
        &mut self,
        volume: VolumeNo,
        connection: ConnectionId,
        id: RequestId,
        request: &Request,
    ) {
        self.observed.asked(self.now, volume, (connection, id), request);
    }

    /// Without space writes are refused and everything else goes on: nobody waits for long.
    pub(super) fn judge_waiting(&mut self) {
        self.judge_calm_waiting();
        self.judge_space();
        if !self.plan.is_only_short_of_space() || !self.plan.has_check(Check::Space) {
            return;
        }
        let before = Time(self.now.0.saturating_sub(WAITS_MAX));
        let waits = self.observed.unanswered(before).find(|(connection, _)| {
            self.attached.get(connection).is_some_and(|attached| attached.is_open())
        });
        if let Some(request) = waits {
            self.fail(format!("Q7: {request:?} waits although only space is short"));
        }
    }

    /// P6, Q7: where a quorum has been calm for long enough, and has space, no request waits for long,
    /// whatever happens elsewhere.
    fn judge_calm_waiting(&mut self) {
        if !self.plan.has_check(Check::Liveness) || self.plan.has_groups() {
            return;
        }
        let before = Time(self.now.0.saturating_sub(WAITS_MAX));
        for volume in self.volumes() {
            if !self.has_served_since(volume, before) {
                continue;
            }
            let waits = self.observed.unanswered_of(volume, before).find(|(connection, _)| {
                let attached = self.attached.get(connection);
                attached.is_some_and(|it| it.is_open() && self.is_at_holder(it, volume))
            });
            if let Some(request) = waits {
                self.fail(format!("P6: {request:?} waits at a calm quorum"));
                return;
            }
        }
    }

    pub(super) fn observe_reply(
        &mut self,
        at: RunAt,
        volume: VolumeNo,
        (connection, id): (ConnectionId, RequestId),
        result: &Result<Answer, IoError>,
    ) {
        let replied = match result {
            Ok(Answer::Read(_) | Answer::Extents(_)) => Replied::Data,
            Ok(Answer::Done) => Replied::Done,
            Err(error) => {
                self.note_io_error(error);
                self.judge_refusal(at, volume, (connection, id), error);
                Replied::Failed
            }
        };
        if replied == Replied::Failed {
            let error = result.as_ref().err().map(ToString::to_string).unwrap_or_default();
            self.say(|| format!("v{} reply {}/{}: {error}", volume.0, connection.0, id.0));
        } else {
            self.say(|| format!("v{} reply {}/{}: {replied:?}", volume.0, connection.0, id.0));
        }
        let Some(term) = self.term_of(at, volume) else {
            if replied != Replied::Failed {
                self.fail("a target without a term answered".to_owned());
            }
            return;
        };
        let object = &self.catalog.objects[&volume];
        let is_listed = Grant::of(term) == object.grant && !self.is_lost(volume);
        let listed = is_listed.then(|| object.membership.voters.clone());
        let target = self.nodes[&at.node].targets.get(&volume);
        let own = target.filter(|_| self.plan.has_check(Check::OwnQuorum));
        let own = own.map(|target| target.machine.membership().clone());
        let request = (connection, id);
        let quorums = Quorums { listed, own };
        match self.observed.replied(volume, term, request, replied, &quorums) {
            Ok(true) => self.say(|| format!("v{} reign {} serves", volume.0, term.0)),
            Ok(false) => {}
            Err(violation) => self.fail(violation),
        }
    }

    fn note_io_error(&mut self, error: &IoError) {
        self.note(match error {
            IoError::BadRange { .. } => "io: bad range",
            IoError::NoQuorum { .. } => "io: no quorum",
            IoError::NoSpace => "io: no space",
            IoError::Damaged { .. } => "io: damaged",
            IoError::Superseded => "io: superseded",
            IoError::UnflushedWritesLost => "io: unflushed writes lost",
            IoError::Busy => "io: busy",
            IoError::Stopped => "io: stopped",
        });
    }
}
