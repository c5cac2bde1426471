//! Who a round is from: the source, the point at which it is frozen, and what stays frozen for an
//! import that may go on.
use block::{ByteOffset, Position};

use crate::message::{RoundPoint, ToReplica};
use crate::replica::ROUNDS_MAX;
use crate::state::ImportMark;
use crate::target::peer::Stand;
use crate::target::rounds::{Round, Rounds};
use crate::target::{Cx, Target, off};
use crate::words::{Moment, ReplicaId, Span};

/// How long a frozen source is kept for an import that may go on.
const KEPT_FOR: Span = Span::secs(60);

/// A source that stays frozen though no round uses it now.
#[derive(Clone, Copy, Debug)]
pub struct Kept {
    source: ReplicaId,
    at: Position,
    until: Moment,
    /// An import may go on with it; else it only waits to be closed.
    is_offered: bool,
}

impl Rounds {
    /// It is used again, or of no use.
    pub fn use_kept(&mut self, source: ReplicaId, at: Position) {
        self.kept.retain(|kept| (kept.source, kept.at) != (source, at));
    }

    /// One more that stays frozen. Returns what is not kept any longer: a replica has at most [`ROUNDS_MAX`], and gives
    /// up the oldest when it has to.
    fn keep(&mut self, kept: Kept) -> Option<Position> {
        let of_source = |it: &Kept| it.source == kept.source;
        if self.kept.iter().any(|it| of_source(it) && it.at == kept.at) {
            return None;
        }
        self.kept.push(kept);
        let all = self.kept.iter().enumerate().filter(|(_, it)| of_source(it));
        let oldest = match all.clone().count() > ROUNDS_MAX {
            true => all.min_by_key(|(_, it)| it.at).map(|(place, _)| place),
            false => None,
        };
        oldest.map(|place| self.kept.remove(place).at)
    }

    /// A replica has left: nobody can tell it to close anything.
    pub fn forget_source(&mut self, source: ReplicaId) {
        self.kept.retain(|kept| kept.source != source);
    }
}

impl Target {
    /// Sources that stay frozen for an import that may go on.
    pub fn kept_sources(&self) -> impl Iterator<Item = (ReplicaId, Position)> {
        self.rounds.kept.iter().map(|kept| (kept.source, kept.at))
    }

    /// What a destination has staged, if it is of use.
    pub(super) fn staged_by(
        &self,
        replica: ReplicaId,
        agreed: Position,
    ) -> Option<(ImportMark, ByteOffset)> {
        let staged = self.peers[&replica].facts.as_ref()?.import?;
        let useful = staged.0.since == agreed.seq && self.history().contains(staged.0.source);
        useful.then_some(staged)
    }

    /// Who is frozen for a round, and where.
    pub(super) fn source_for(
        &self,
        replica: ReplicaId,
        agreed: Position,
        staged: Option<(ImportMark, ByteOffset)>,
    ) -> Option<(ReplicaId, RoundPoint)> {
        let bad: &[ReplicaId] = match &self.peers[&replica].stand {
            Stand::Apart(apart) => &apart.bad_sources,
            _ => &[],
        };
        let able = |id: &ReplicaId| {
            let peer = &self.peers[id];
            let has_it = peer.is_in_stream() && peer.held >= agreed.seq;
            *id != replica && has_it && !bad.contains(id)
        };
        let missed = self.snapshots.iter().filter(|it| it.position.seq > agreed.seq);
        let held = missed.filter(|it| {
            let has = |id: &ReplicaId| self.peers[id].held >= it.position.seq;
            self.peers.keys().filter(|id| able(id)).any(has)
        });
        let boundary = held.min_by_key(|it| it.position.seq);
        let local = self.config.local;
        let sources = self.peers.keys().copied().filter(able);
        let has = |id: &ReplicaId| boundary.is_none_or(|it| self.peers[id].held >= it.position.seq);
        let best = |sources: &mut dyn Iterator<Item = ReplicaId>| {
            sources.min_by_key(|id| (Some(*id) != local, std::cmp::Reverse(self.peers[id].held)))
        };
        if let Some(snapshot) = boundary {
            let source = best(&mut sources.filter(has))?;
            return Some((source, RoundPoint::Snapshot(snapshot.uid)));
        }
        if let Some((mark, _)) = staged {
            let keeps = |id: &ReplicaId| {
                let facts = self.peers[id].facts.as_ref();
                let reported = facts.is_some_and(|facts| facts.rounds.contains(&mark.source));
                let kept =
                    |kept: &Kept| kept.is_offered && (kept.source, kept.at) == (*id, mark.source);
                reported || self.rounds.kept.iter().any(kept)
            };
            let mut keeping = self.peers.keys().copied().filter(able).filter(keeps);
            if let Some(source) = best(&mut keeping) {
                return Some((source, RoundPoint::Kept(mark.source)));
            }
        }
        Some((best(&mut self.peers.keys().copied().filter(able))?, RoundPoint::Now))
    }

    pub(super) fn keep_for_later(&mut self, round: &Round, cx: &mut Cx<'_>) {
        if let Some(opened) = round.opened.as_ref().filter(|opened| opened.snapshot.is_none()) {
            self.keep_frozen(round.source, opened.position, cx);
        }
    }

    /// A source that was frozen by somebody, for an import that may go on.
    pub(super) fn keep_frozen(&mut self, source: ReplicaId, at: Position, cx: &mut Cx<'_>) {
        self.keep(Kept { source, at, until: cx.now + KEPT_FOR, is_offered: true }, cx);
    }

    /// A source that no import goes on with. It is closed when repairs of it are done.
    pub(super) fn close_later(&mut self, source: ReplicaId, at: Position, cx: &mut Cx<'_>) {
        self.keep(Kept { source, at, until: cx.now + KEPT_FOR, is_offered: false }, cx);
    }

    fn keep(&mut self, kept: Kept, cx: &mut Cx<'_>) {
        let source = kept.source;
        let Some(dropped) = self.rounds.keep(kept) else { return };
        // No round is from its source to its source: whoever copies from it is another.
        if !self.is_copied_from(source, source, dropped) {
            self.forget_frozen(source, dropped);
            self.tell(source, ToReplica::CloseRound { round: dropped }, cx);
        }
    }

    /// Whether the round of another destination uses what was frozen there: the last of them closes it.
    pub(super) fn is_copied_from(
        &self,
        but: ReplicaId,
        source: ReplicaId,
        frozen: Position,
    ) -> bool {
        let uses = |round: &Round| {
            let opened = round.opened.as_ref().filter(|opened| opened.snapshot.is_none());
            round.source == source && opened.is_some_and(|opened| opened.position == frozen)
        };
        self.peers.iter().any(|(replica, peer)| match &peer.stand {
            Stand::CatchingUp(round) => *replica != but && uses(round),
            _ => false,
        })
    }

    /// Nobody goes on with it.
    pub(super) fn forget_frozen(&mut self, source: ReplicaId, frozen: Position) {
        if !off!(self, UseKept) {
            self.rounds.use_kept(source, frozen);
        }
        if let Some(facts) = self.peers.get_mut(&source).and_then(|peer| peer.facts.as_mut()) {
            facts.rounds.retain(|at| *at != frozen);
        }
    }

    pub(super) fn close_kept(&mut self, cx: &mut Cx<'_>) {
        let due: Vec<Kept> = self.rounds.kept.extract_if(.., |it| cx.now >= it.until).collect();
        for Kept { source, at, .. } in due {
            self.tell(source, ToReplica::CloseRound { round: at }, cx);
        }
    }
}
