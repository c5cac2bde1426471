//! What operators and the control plane ask. Everything but holds is answered when it is durable
//! on a quorum.
use std::collections::BTreeMap;

use block::{Position, Seq};

use crate::bounds::bounds;
use crate::client::{Command, CommandAnswer, CommandError, RequestId, SnapshotList};
use crate::constants::VOLUME_MAX;
use crate::entry::Change;
use crate::state::{CLONES_MAX, NAME_MAX, POINTS_MAX, SNAPSHOTS_MAX, SnapshotSpec, Stages};
use crate::target::{Cx, Output, Phase, Stopped, Target, off};
use crate::words::{Moment, SnapshotUid, StageNumber};

#[derive(Clone, Copy, Debug)]
struct Waiting {
    id: RequestId,
    /// A stage that was asked for.
    stage: Option<StageNumber>,
}

#[derive(Debug, Default)]
pub struct Commands {
    for_settle: BTreeMap<Seq, Vec<Waiting>>,
}

impl Commands {
    pub fn len(&self) -> usize {
        self.for_settle.len()
    }

    pub fn await_settled(&mut self, seq: Seq, id: RequestId) {
        self.for_settle.entry(seq).or_default().push(Waiting { id, stage: None });
    }
}

impl Target {
    pub(super) fn command(&mut self, id: RequestId, command: Command, cx: &mut Cx<'_>) {
        match command {
            Command::Choose { replica } => return self.choose(id, replica, cx),
            Command::ConfirmCatalog => return self.confirm_catalog(id, cx),
            _ if !self.is_serving() => {
                let reason = self.why_held(cx.now);
                let result = Err(CommandError::NotServing { reason });
                return cx.out.push(Output::Answer { id, result });
            }
            Command::Hold { token, lasts } => return self.hold(id, token, lasts, cx),
            Command::Cut { token, spec } => return self.cut(id, token, spec, cx),
            Command::Release { token } => return self.release(id, token, cx),
            _ if self.holds.is_in_force() => {
                let result = Err(CommandError::Busy);
                return cx.out.push(Output::Answer { id, result });
            }
            _ => {}
        }
        if let Err(error) = self.sequence_command(id, command, cx.now) {
            cx.out.push(Output::Answer { id, result: Err(error) });
        }
    }

    fn sequence_command(
        &mut self,
        id: RequestId,
        command: Command,
        now: Moment,
    ) -> Result<(), CommandError> {
        let mut stage = None;
        let change = match command {
            Command::Snapshot(spec) => {
                if let Some(known) = self.snapshots.iter().find(|it| **it == spec.at(it.position)) {
                    // Asked again: it is answered as the first time.
                    let seq = known.position.seq;
                    if !off!(self, AnswerRepeated) {
                        self.commands.await_settled(seq, id);
                    }
                    return Ok(());
                }
                self.may_snapshot(&spec)?;
                Change::Snapshot(spec)
            }
            Command::DeleteSnapshot(uid) => {
                self.may_delete(uid)?;
                Change::DeleteSnapshot(uid)
            }
            Command::Rollback { to } => {
                self.shown(to)?;
                Change::Rollback { to }
            }
            Command::MarkClone { snapshot, clone } => {
                self.shown(snapshot)?;
                // The same again takes no place of its own.
                let others = self.shared.clones.iter().filter(|(_, marked)| *marked != clone);
                if others.count() >= CLONES_MAX {
                    return Err(CommandError::TooManyClones);
                }
                Change::MarkClone { snapshot, clone }
            }
            Command::UnmarkClone { clone } => Change::UnmarkClone { clone },
            Command::Resize { size } if size < self.shared.size => {
                return Err(CommandError::Shrink { has: self.shared.size });
            }
            Command::Resize { size } => self.resize(size)?,
            Command::Points(bytes) if bytes.len() > POINTS_MAX => {
                let reason = format!("at most {POINTS_MAX} bytes of points are kept");
                return Err(CommandError::Invalid { reason });
            }
            Command::Points(bytes) => Change::Points(bytes),
            Command::NewStage => {
                let last =
                    StageNumber(self.shared.stages.last.0.max(self.shared.stages.lowest.0) + 1);
                stage = Some(last);
                Change::Stages(Stages { last, ..self.shared.stages })
            }
            Command::TakeNote => {
                Change::Stages(Stages { plain_refused: false, ..self.shared.stages })
            }
            Command::Close => {
                self.append(Change::Close, None, 0);
                self.phase = Phase::Closing { id };
                return Ok(());
            }
            Command::Hold { .. }
            | Command::Cut { .. }
            | Command::Release { .. }
            | Command::Choose { .. }
            | Command::ConfirmCatalog => unreachable!("it was handled before"),
        };
        let cost = self.afford(&change, now)?;
        let seq = self.append(change, None, cost);
        self.commands.for_settle.entry(seq).or_default().push(Waiting { id, stage });
        Ok(())
    }

    fn resize(&self, size: block::ByteLen) -> Result<Change, CommandError> {
        let facts = self.peers.values().find_map(|peer| peer.facts.as_ref());
        let block = facts.map_or(4096, |facts| facts.block_size.0.max(512));
        match size.0.is_multiple_of(block) && size.0 <= VOLUME_MAX {
            true => Ok(Change::Resize { size }),
            false => {
                let reason =
                    format!("a size is a multiple of {block} bytes, and at most {VOLUME_MAX}");
                Err(CommandError::Invalid { reason })
            }
        }
    }

    /// What a change costs, if a quorum has set as much aside. An entry that all pools refuse would
    /// stop everything behind it, so it gets no seq: not either while too few replicas are there to
    /// say what they have.
    pub(super) fn afford(&self, change: &Change, now: Moment) -> Result<u64, CommandError> {
        let cost = self.cost_of(change);
        match self.credit_for(cost) {
            _ if cost == 0 => Ok(cost),
            (true, _) => Ok(cost),
            (false, true) => Err(CommandError::NoSpace),
            (false, false) => Err(CommandError::NotServing { reason: self.why_held(now) }),
        }
    }

    pub(super) fn may_snapshot(&self, spec: &SnapshotSpec) -> Result<(), CommandError> {
        let fits = (1..=NAME_MAX).contains(&spec.name.len());
        if !fits || spec.name.contains(char::is_control) {
            let reason =
                format!("a snapshot's name has 1 to {NAME_MAX} bytes without control characters");
            return Err(CommandError::Invalid { reason });
        }
        if self.snapshots.iter().any(|it| it.uid == spec.uid || it.name == spec.name) {
            return Err(CommandError::SnapshotExists);
        }
        match self.snapshots.len() >= SNAPSHOTS_MAX {
            true => Err(CommandError::TooManySnapshots),
            false => Ok(()),
        }
    }

    fn may_delete(&self, uid: SnapshotUid) -> Result<(), CommandError> {
        // One that is not settled yet may still come: that it is unknown would be believed.
        let settled = self.sequence.settled;
        if self.snapshots.iter().any(|it| it.uid == uid && it.position.seq > settled) {
            return Err(CommandError::Busy);
        }
        self.shown(uid)?;
        if self.shared.clones.iter().any(|(snapshot, _)| *snapshot == uid) {
            return Err(CommandError::HasClones);
        }
        // Replicas may not have got rid of as many again that are settled.
        match self.shared.doomed.len() >= bounds().doomed / 2 {
            true => Err(CommandError::Busy),
            false => Ok(()),
        }
    }

    /// Only what a quorum has durably is shown, and only what is not about to go.
    pub fn snapshots(&self) -> SnapshotList {
        let shown = self.snapshots.iter().filter(|it| self.shown(it.uid).is_ok());
        shown.cloned().collect()
    }

    fn shown(&self, uid: SnapshotUid) -> Result<(), CommandError> {
        let settled = self.sequence.settled;
        let is_doomed = self.shared.doomed.iter().any(|doomed| doomed.snapshot == uid);
        let found = self.snapshots.iter().find(|it| it.uid == uid);
        match found.filter(|it| it.position.seq <= settled && !is_doomed) {
            Some(_) => Ok(()),
            None => Err(CommandError::UnknownSnapshot(uid)),
        }
    }

    pub(super) fn answer_commands(&mut self, cx: &mut Cx<'_>) {
        if self.commands.for_settle.is_empty() {
            return;
        }
        let later = self.commands.for_settle.split_off(&Seq(self.sequence.settled.0 + 1));
        let done = std::mem::replace(&mut self.commands.for_settle, later);
        for (seq, waiting) in done {
            let at = Position { term: self.term, seq };
            for Waiting { id, stage } in waiting {
                let answer = stage.map_or(CommandAnswer::Done { at }, CommandAnswer::Stage);
                cx.out.push(Output::Answer { id, result: Ok(answer) });
            }
        }
    }

    pub(super) fn go_on_closing(&mut self, cx: &mut Cx<'_>) {
        let Phase::Closing { id } = self.phase else { return };
        if self.sequence.settled == self.sequence.last() {
            let at = self.sequence.last_position();
            cx.out.push(Output::Answer { id, result: Ok(CommandAnswer::Done { at }) });
            self.stop(Stopped::Closed, cx);
        }
    }

    pub(super) fn refuse_commands(&mut self, cx: &mut Cx<'_>) {
        self.answer_confirmed(false, cx);
        if let Some((id, _)) = self.steps.choosing.take() {
            let reason = "the reign is over".to_string();
            let result = Err(CommandError::NotServing { reason });
            cx.out.push(Output::Answer { id, result });
        }
        for waiting in std::mem::take(&mut self.commands.for_settle).into_values().flatten() {
            let reason = "the reign is over".to_string();
            let result = Err(CommandError::NotServing { reason });
            cx.out.push(Output::Answer { id: waiting.id, result });
        }
    }
}
