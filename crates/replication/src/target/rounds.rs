//! Catching up in rounds (Q4, Q9): a frozen source, a destination that stages, one commit.
use std::collections::VecDeque;

use block::{ByteLen, ByteOffset, Position, Seq};

use crate::constants::{FETCHES, ROUND_PATIENCE, VOLUME_MAX};
use crate::message::{
    AskId, Fetched, Leaving, OpenedRound, Piece, RoundFailure, RoundPoint, ToReplica, ToTarget,
};
use crate::state::{ImportMark, SnapshotEntry};
use crate::store::{ChangedRange, Content};
use crate::target::peer::{Apart, Stand};
use crate::target::plan::{Segment, Staged, plan};
use crate::target::sources::Kept;
use crate::target::{Cx, Progress, Target, off};
use crate::words::{Moment, ReplicaId, Span};

/// Pauses before a round is tried again.
const AFTER_FAILURE: Span = Span::secs(1);
const AFTER_NO_SPACE: Span = Span::secs(5);
/// What writers may write before a slowed round has to move.
const ALLOWANCE: u64 = 256 << 10;

#[derive(Debug)]
pub struct Round {
    pub(super) source: ReplicaId,
    apart: Apart,
    /// The source has said that it holds this: it cannot be frozen below.
    least: Seq,
    step: Step,
    /// What the destination had staged when the round began.
    pub(super) staged: Option<(ImportMark, ByteOffset)>,
    pub(super) opened: Option<Box<OpenedRound>>,
    own: Vec<ChangedRange>,
    segments: VecDeque<Segment>,
    fetching: Option<AskId>,
    /// Parts that are on their way to the destination.
    unacked: VecDeque<(ByteOffset, u64)>,
    bytes: u64,
    began: Moment,
    moved: Moment,
    not_before: Moment,
    pin: Option<Seq>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// `kept`: the source was asked to go on from where it is frozen already.
    Opening {
        id: AskId,
        kept: Option<Position>,
    },
    Beginning,
    OwnChanges(AskId),
    Copying,
    Committing,
}

#[derive(Debug, Default)]
pub struct Rounds {
    pub(super) kept: Vec<Kept>,
    /// While a round does not get ahead of the writers: bytes that they may still write.
    allowance: Option<u64>,
    pub committed: u64,
}

impl Rounds {
    /// Whether a write may go on; it is taken into account if so.
    pub fn allows(&mut self, bytes: u64) -> bool {
        match &mut self.allowance {
            None => true,
            Some(0) => false,
            Some(left) => {
                *left = left.saturating_sub(bytes);
                true
            }
        }
    }
}

impl Round {
    pub fn pinned(&self) -> Option<Seq> {
        self.pin
    }

    /// How far it is, how fast, and how long it takes if what is left is like what was.
    pub fn progress(&self, now: Moment) -> Progress {
        let size = self.opened.as_ref().map_or(0, |opened| opened.size.0);
        let at = self.segments.front().map_or(size, |segment| segment.from.0);
        let took = now.since(self.began).0.max(1);
        let left = (at > 0).then(|| Span(took.saturating_mul(size.saturating_sub(at)) / at));
        Progress {
            brought: ByteLen(self.bytes),
            at: ByteOffset(at),
            of: ByteLen(size),
            rate: ByteLen(self.bytes.saturating_mul(1_000_000) / took),
            left,
        }
    }

    /// What of its source it reads.
    fn content(&self) -> RoundPoint {
        match self.opened.as_deref() {
            Some(OpenedRound { snapshot: Some(spec), .. }) => RoundPoint::Snapshot(spec.uid),
            Some(opened) => RoundPoint::Kept(opened.position),
            None => RoundPoint::Now,
        }
    }

    fn mark(&self) -> Option<ImportMark> {
        let opened = self.opened.as_ref()?;
        Some(ImportMark { source: opened.position, since: self.apart.agreed.seq })
    }
}

impl Target {
    pub(super) fn go_on_with_rounds(&mut self, cx: &mut Cx<'_>) {
        if !self.is_active() {
            return;
        }
        let replicas: Vec<ReplicaId> = self.peers.keys().copied().collect();
        for replica in replicas {
            match &self.peers[&replica].stand {
                Stand::Apart(apart) if cx.now >= apart.not_before => self.begin_round(replica, cx),
                Stand::CatchingUp(round) if cx.now >= round.moved + ROUND_PATIENCE => {
                    self.round_failed(replica, AFTER_FAILURE, cx);
                }
                Stand::CatchingUp(_) => self.go_on_copying(replica, cx),
                _ => {}
            }
        }
        self.unpin_long_rounds();
        self.close_kept(cx);
        if !self.peers.values().any(|peer| matches!(peer.stand, Stand::CatchingUp(_))) {
            self.rounds.allowance = None;
        }
    }

    /// What is kept for a round is bounded like everything else that is kept.
    fn unpin_long_rounds(&mut self) {
        for peer in self.peers.values_mut() {
            if let Stand::CatchingUp(round) = &mut peer.stand
                && let Some(pin) = round.pin
                && self.sequence.bytes_above(pin) > self.config.backlog / 2
            {
                round.pin = None;
            }
        }
    }

    fn begin_round(&mut self, replica: ReplicaId, cx: &mut Cx<'_>) {
        let Stand::Apart(apart) = &self.peers[&replica].stand else { return };
        let apart = apart.clone();
        if apart.why == Some(Leaving::NoSpace) && self.sequence.has_all_above(apart.agreed.seq) {
            // Perhaps there is space by now; nobody else may be left to catch up from.
            return self.greet_anew(replica, cx);
        }
        let staged = self.staged_by(replica, apart.agreed);
        let Some((source, point)) = self.source_for(replica, apart.agreed, staged) else {
            return self.without_source(replica, cx);
        };
        self.open_round(replica, apart, staged, (source, point), cx);
    }

    /// Nobody to catch up from. Those that were damaged may be repaired by now; and if all have
    /// left the stream, each may find that it can follow again.
    fn without_source(&mut self, replica: ReplicaId, cx: &mut Cx<'_>) {
        let peer = self.peers.get_mut(&replica).expect("it is apart");
        let Stand::Apart(apart) = &mut peer.stand else { return };
        apart.bad_sources.clear();
        apart.not_before = cx.now + AFTER_FAILURE;
        if apart.why.is_some() && self.sequence.has_all_above(apart.agreed.seq) {
            self.greet_anew(replica, cx);
        }
    }

    fn open_round(
        &mut self,
        replica: ReplicaId,
        apart: Apart,
        staged: Option<(ImportMark, ByteOffset)>,
        (source, point): (ReplicaId, RoundPoint),
        cx: &mut Cx<'_>,
    ) {
        let Some(link) = self.peers[&source].link else { return };
        let least = match point {
            RoundPoint::Now => self.peers[&source].held,
            RoundPoint::Kept(at) => at.seq,
            // Only snapshots above what the destination has are asked for.
            RoundPoint::Snapshot(_) => Seq(apart.agreed.seq.0 + 1),
        };
        let id = self.ask_id();
        let kept = if let RoundPoint::Kept(at) = point { Some(at) } else { None };
        cx.send(source, link, self.term, ToReplica::OpenRound { id, point });
        let pin = Some(self.peers[&source].held).filter(|pin| self.sequence.has_all_above(*pin));
        let round = Round {
            source,
            apart,
            least,
            step: Step::Opening { id, kept },
            staged,
            opened: None,
            own: Vec::new(),
            segments: VecDeque::new(),
            fetching: None,
            unacked: VecDeque::new(),
            bytes: 0,
            began: cx.now,
            moved: cx.now,
            not_before: cx.now,
            pin,
        };
        let peer = self.peers.get_mut(&replica).expect("looked up above");
        peer.stand = Stand::CatchingUp(Box::new(round));
    }

    pub(super) fn about_round(&mut self, replica: ReplicaId, message: ToTarget, cx: &mut Cx<'_>) {
        match message {
            ToTarget::RoundOpened { id, opened } => self.round_opened(replica, id, opened, cx),
            ToTarget::Fetched { id, result } => self.fetched(id, result, cx),
            ToTarget::ImportBegun { kept } => self.import_begun(replica, kept, cx),
            ToTarget::OwnChanged { id, ranges, next } => {
                self.own_changed(replica, id, ranges, next, cx);
            }
            ToTarget::Imported { progress } => self.imported(replica, progress, cx),
            ToTarget::Committed { position } => self.committed(replica, position, cx),
            ToTarget::ImportFailed { reason } => self.import_failed(replica, &reason, cx),
            _ => unreachable!("everything else was handled before"),
        }
    }

    /// The destination whose round waits for an answer of its source.
    fn destination(&self, is_it: impl Fn(&Round) -> bool) -> Option<ReplicaId> {
        let of = |stand: &Stand| matches!(stand, Stand::CatchingUp(round) if is_it(round));
        self.peers.iter().find(|(_, peer)| of(&peer.stand)).map(|(id, _)| *id)
    }

    pub(super) fn round(&mut self, replica: ReplicaId) -> Option<&mut Round> {
        match &mut self.peers.get_mut(&replica)?.stand {
            Stand::CatchingUp(round) => Some(round),
            _ => None,
        }
    }

    /// Somebody who left the membership meanwhile need not know.
    pub(super) fn tell(&self, replica: ReplicaId, body: ToReplica, cx: &mut Cx<'_>) {
        if let Some(link) = self.peers.get(&replica).and_then(|peer| peer.link) {
            cx.send(replica, link, self.term, body);
        }
    }

    fn round_opened(
        &mut self,
        source: ReplicaId,
        id: AskId,
        opened: Result<Box<OpenedRound>, RoundFailure>,
        cx: &mut Cx<'_>,
    ) {
        let is_it = |round: &Round| matches!(round.step, Step::Opening { id: of, .. } if of == id);
        let Some(replica) = self.destination(is_it) else {
            // Nobody waits for it any more.
            if let Ok(opened) = opened {
                self.keep_frozen(source, opened.position, cx);
            }
            return;
        };
        let round = self.round(replica).expect("found above");
        let (least, step) = (round.least, round.step);
        // A source that is frozen below what it holds would be copied for ever: no such round brings
        // the destination to where it can join.
        let plausible = |opened: &OpenedRound| {
            opened.position.seq >= least && opened.is_plausible(self.term).is_ok()
        };
        let Some(opened) = opened.ok().filter(|opened| plausible(opened)) else {
            // A user's snapshot that is gone says nothing of what is frozen for the import.
            if let Step::Opening { kept: Some(at), .. } = step {
                self.forget_frozen(source, at);
            }
            let round = self.round(replica).expect("found above");
            round.apart.bad_sources.push(source);
            return self.round_failed(replica, AFTER_FAILURE, cx);
        };
        let round = self.round(replica).expect("found above");
        if opened.position.seq < round.apart.agreed.seq {
            return self.round_failed(replica, AFTER_FAILURE, cx);
        }
        // The source may have gone further than was known: a snapshot on the way comes first.
        let between = (round.apart.agreed.seq.0 + 1)..opened.position.seq.0;
        let missed = opened.snapshots.iter().filter(|it| between.contains(&it.position.seq.0));
        if let Some(first) = missed.min_by_key(|it| it.position.seq) {
            let at = (round.source, RoundPoint::Snapshot(first.uid));
            let (apart, staged) = (round.apart.clone(), round.staged);
            round.opened = Some(opened);
            self.round_failed(replica, Span(0), cx);
            return self.open_round(replica, apart, staged, at, cx);
        }
        round.moved = cx.now;
        round.step = Step::Beginning;
        let (size, of_user) = (opened.size, opened.snapshot.is_some());
        round.opened = Some(opened);
        let mark = round.mark().expect("it is opened");
        let source = round.source;
        let useless = round.staged.is_none();
        // A user's snapshot at the same point is another: what was frozen there is still to be closed.
        if !of_user && !off!(self, UseKept) {
            self.rounds.use_kept(source, mark.source);
        }
        let facts = self.peers[&replica].facts.as_ref();
        if useless && facts.is_some_and(|facts| facts.import.is_some()) {
            self.tell(replica, ToReplica::AbandonImport, cx);
        }
        self.tell(replica, ToReplica::BeginImport { mark, size }, cx);
    }

    fn import_begun(
        &mut self,
        replica: ReplicaId,
        kept: Option<(ImportMark, ByteOffset)>,
        cx: &mut Cx<'_>,
    ) {
        let undo = !off!(self, UndoTail);
        let ask = self.ask_id();
        let Some(round) = self.round(replica).filter(|round| round.step == Step::Beginning) else {
            return;
        };
        round.moved = cx.now;
        // What it says is there, not what was believed to be.
        round.staged = kept;
        if round.apart.has_tail && undo {
            round.step = Step::OwnChanges(ask);
            let (since, from) = (round.apart.agreed.seq, ByteOffset(0));
            return self.tell(replica, ToReplica::OwnChanges { id: ask, since, from }, cx);
        }
        self.begin_copying(replica, cx);
    }

    fn own_changed(
        &mut self,
        replica: ReplicaId,
        id: AskId,
        ranges: Vec<ChangedRange>,
        next: Option<ByteOffset>,
        cx: &mut Cx<'_>,
    ) {
        let ask = self.ask_id();
        let Some(round) = self.round(replica).filter(|round| round.step == Step::OwnChanges(id))
        else {
            return;
        };
        round.moved = cx.now;
        let from = round.own.last().and_then(ChangedRange::end).unwrap_or_default();
        if !are_in_order(from, &ranges) {
            return self.round_failed(replica, AFTER_FAILURE, cx);
        }
        for range in ranges {
            match round.own.last_mut() {
                Some(last) if last.offset.0 + last.len.0 == range.offset.0 => {
                    last.len.0 += range.len.0;
                }
                _ => round.own.push(range),
            }
        }
        let since = round.apart.agreed.seq;
        match next {
            Some(from) => {
                round.step = Step::OwnChanges(ask);
                self.tell(replica, ToReplica::OwnChanges { id: ask, since, from }, cx);
            }
            None => self.begin_copying(replica, cx),
        }
    }

    fn begin_copying(&mut self, replica: ReplicaId, cx: &mut Cx<'_>) {
        let round = self.round(replica).expect("the caller has it");
        let opened = round.opened.as_ref().expect("it was opened before the import began");
        let staged = round.staged.map(|(mark, through)| {
            let same = mark.source == opened.position;
            Staged { through, of: (!same).then_some(mark.source.seq) }
        });
        // Also for an empty destination: holes that were made have stamps too, and without them
        // it would be no source for anybody who still has what was there before.
        let since = round.apart.agreed.seq;
        round.segments = plan(ByteOffset(opened.size.0), since, staged, &round.own);
        round.step = Step::Copying;
        let mark = round.mark().expect("it is opened");
        let through = staged.filter(|it| it.of.is_none()).map_or(ByteOffset(0), |it| it.through);
        self.note_staged(replica, Some((mark, through)));
        self.go_on_copying(replica, cx);
    }

    fn note_staged(&mut self, replica: ReplicaId, staged: Option<(ImportMark, ByteOffset)>) {
        if let Some(facts) = self.peers.get_mut(&replica).and_then(|peer| peer.facts.as_mut()) {
            facts.import = staged;
        }
    }

    /// Asks the source for the next part, or ends the round.
    fn go_on_copying(&mut self, replica: ReplicaId, cx: &mut Cx<'_>) {
        let ask = self.ask_id();
        let Some(round) = self.round(replica).filter(|round| round.step == Step::Copying) else {
            return;
        };
        if round.fetching.is_some() || round.unacked.len() >= FETCHES || cx.now < round.not_before {
            return;
        }
        let source = round.source;
        let at = round.opened.as_ref().expect("it copies").position;
        if let Some(segment) = round.segments.front().copied() {
            round.fetching = Some(ask);
            let Segment { from, to, wanted } = segment;
            self.tell(source, ToReplica::Fetch { id: ask, round: at, wanted, from, to }, cx);
        } else if round.unacked.is_empty() {
            round.step = Step::Committing;
            let opened = round.opened.as_ref().expect("it copies").clone();
            let OpenedRound { position, shared, snapshot, snapshots, .. } = *opened;
            // A round that was frozen wherever its source was may have met a user's snapshot.
            let met = snapshots.iter().find(|entry| entry.position == position);
            let snapshot = snapshot.or_else(|| met.map(SnapshotEntry::spec));
            let shared = Box::new(shared);
            self.tell(replica, ToReplica::CommitImport { shared, snapshot, snapshots }, cx);
        }
    }

    fn fetched(&mut self, id: AskId, result: Result<Fetched, RoundFailure>, cx: &mut Cx<'_>) {
        let Some(replica) = self.destination(|round| round.fetching == Some(id)) else { return };
        let rate = self.config.catch_up_rate;
        let fetched = match result {
            Ok(fetched) => fetched,
            Err(failure) => {
                let round = self.round(replica).expect("found above");
                let source = round.source;
                if let RoundFailure::Damaged { offset } = failure {
                    round.apart.bad_sources.push(source);
                    let of = round.content();
                    // Frozen again, the source may have been written there since.
                    if let Some(opened) = round.opened.take() {
                        self.forget_frozen(source, opened.position);
                        // No round goes on with it. It stays for the repair of what is frozen, and is
                        // closed then: else it would take space for as long as this reign lasts.
                        if opened.snapshot.is_none() {
                            self.close_later(source, opened.position, cx);
                        }
                    }
                    self.repair(source, of, offset, cx);
                }
                return self.round_failed(replica, AFTER_FAILURE, cx);
            }
        };
        let round = self.round(replica).expect("found above");
        round.fetching = None;
        round.moved = cx.now;
        let bytes = fetched.pieces.iter().map(data_bytes).sum::<u64>();
        round.bytes += bytes;
        if let Some(pause) = (bytes * 1_000_000).checked_div(rate) {
            round.not_before = round.not_before.max(cx.now) + Span(pause);
        }
        let segment = round.segments.front_mut().expect("it was asked for");
        segment.from = fetched.through.max(segment.from);
        if segment.from >= segment.to {
            round.segments.pop_front();
        }
        if !fetched.pieces.is_empty() {
            round.unacked.push_back((fetched.through, bytes));
            let (pieces, progress) = (fetched.pieces, fetched.through);
            self.tell(replica, ToReplica::Import { pieces, progress }, cx);
        }
        self.go_on_copying(replica, cx);
    }

    fn imported(&mut self, replica: ReplicaId, progress: ByteOffset, cx: &mut Cx<'_>) {
        let copies = |round: &&mut Round| {
            let sent = round.unacked.iter().any(|(through, _)| *through == progress);
            round.step == Step::Copying && sent
        };
        let Some(round) = self.round(replica).filter(copies) else { return };
        round.moved = cx.now;
        let mut bytes = 0;
        while let Some((through, part)) = round.unacked.front().copied()
            && through <= progress
        {
            round.unacked.pop_front();
            bytes += part;
        }
        let staged = round.mark().map(|mark| (mark, progress));
        if let Some(left) = &mut self.rounds.allowance {
            // Half of what was copied: so the next round has at most half of this one's bytes.
            *left = (*left + bytes / 2).min(self.config.backlog);
        }
        self.note_staged(replica, staged);
        self.go_on_copying(replica, cx);
    }

    fn committed(&mut self, replica: ReplicaId, position: Position, cx: &mut Cx<'_>) {
        let Some(round) = self.round(replica).filter(|round| round.step == Step::Committing) else {
            return;
        };
        if round.mark().is_none_or(|mark| mark.source != position) {
            return self.round_failed(replica, AFTER_FAILURE, cx);
        }
        let (source, bytes, pin) = (round.source, round.bytes, round.pin);
        let last_round = round.apart.last_round;
        let internal = round.opened.as_ref().is_some_and(|opened| opened.snapshot.is_none());
        self.rounds.committed += 1;
        self.note_staged(replica, None);
        if internal && !self.is_copied_from(replica, source, position) {
            // Also not for another import that was to go on with it.
            self.forget_frozen(source, position);
            self.tell(source, ToReplica::CloseRound { round: position }, cx);
        }
        let joins = self.sequence.has_all_above(position.seq);
        let peer = self.peers.get_mut(&replica).expect("it was just heard");
        peer.held = position.seq;
        peer.durable = position.seq;
        if joins {
            peer.stand = Stand::InStream { sent: position.seq };
            peer.gives_up = false;
            return;
        }
        // It did not get ahead of the writers: they are slowed until it does.
        if pin.is_none() && last_round.is_some_and(|last| bytes > last / 2) {
            self.rounds.allowance.get_or_insert(ALLOWANCE);
        }
        peer.stand = Stand::Apart(Apart {
            agreed: position,
            not_before: cx.now,
            last_round: Some(bytes),
            ..Apart::default()
        });
        self.begin_round(replica, cx);
    }

    fn import_failed(&mut self, replica: ReplicaId, reason: &RoundFailure, cx: &mut Cx<'_>) {
        if self.round(replica).is_none() {
            return;
        }
        let pause = match reason {
            RoundFailure::NoSpace => AFTER_NO_SPACE,
            _ => AFTER_FAILURE,
        };
        if *reason == RoundFailure::NoSpace {
            let gives_up = self.can_do_without(replica);
            self.peers.get_mut(&replica).expect("it was just heard").gives_up = gives_up;
        }
        self.round_failed(replica, pause, cx);
    }

    /// A vote is given up only while a quorum of the others is in the stream.
    fn can_do_without(&self, replica: ReplicaId) -> bool {
        self.steps.membership.is_quorum(|member| {
            member.replica != replica && self.voter(member).is_some_and(|it| it.is_in_stream())
        })
    }

    /// The round is over; the destination is tried again later, and its source stays frozen for a
    /// while.
    fn round_failed(&mut self, replica: ReplicaId, pause: Span, cx: &mut Cx<'_>) {
        let peer = self.peers.get_mut(&replica).expect("it has a round");
        let Stand::CatchingUp(round) = std::mem::replace(&mut peer.stand, Stand::Away) else {
            unreachable!("the caller saw its round")
        };
        let mut apart = round.apart.clone();
        apart.not_before = cx.now + pause;
        peer.stand = Stand::Apart(apart);
        self.keep_for_later(&round, cx);
    }

    /// A replica is out of reach: rounds from and to it end.
    pub(super) fn rounds_without(&mut self, gone: ReplicaId, cx: &mut Cx<'_>) {
        let from_it = |stand: &Stand| matches!(stand, Stand::CatchingUp(it) if it.source == gone);
        let affected: Vec<ReplicaId> = self
            .peers
            .iter()
            .filter(|(id, peer)| **id == gone || from_it(&peer.stand))
            .filter(|(_, peer)| matches!(peer.stand, Stand::CatchingUp(_)))
            .map(|(id, _)| *id)
            .collect();
        for replica in affected {
            self.round_failed(replica, Span(0), cx);
        }
    }
}

/// Whether a copy can have these ranges, all of them behind what it told before.
fn are_in_order(mut from: ByteOffset, ranges: &[ChangedRange]) -> bool {
    ranges.iter().all(|range| {
        let end = range.end().filter(|end| range.offset >= from && end.0 <= VOLUME_MAX);
        from = end.unwrap_or(from);
        end.is_some()
    })
}

fn data_bytes(piece: &Piece) -> u64 {
    match &piece.content {
        Content::Bytes(data) => data.len() as u64,
        Content::Zeros(_) => 0,
    }
}
