//! From a quorum of welcomes to serving: the history is chosen, the barrier settles, older leases
//! run out (Q3, P5, P8).
use std::borrow::Cow;

use block::{Position, Seq};

use crate::constants::{DRIFT_PERCENT, LEASE, PATIENCE};
use crate::entry::Change;
use crate::history::History;
use crate::membership::{Member, Membership};
use crate::message::{ToReplica, Welcome};
use crate::state::{Promise, Stages};
use crate::target::peer::{Apart, Peer, Stand};
use crate::target::sequence::Sequence;
use crate::target::{Cx, Phase, Stopped, Target, off};
use crate::words::{ClientId, Moment, ReplicaId, Span, StageNumber};

/// Numbers of stages that were given and that a chosen copy knows nothing of: more than can have been,
/// and a small part of all there are.
const UNKNOWN_STAGES: u64 = 1 << 32;

impl Target {
    /// Whose agreement is needed now.
    pub(super) fn quorum(&self) -> Cow<'_, Membership> {
        let membership = &self.steps.membership;
        match &membership.next {
            Some(next) if off!(self, JointQuorum) => {
                let (version, voters) = (membership.version, next.clone());
                Cow::Owned(Membership { version, voters, next: None })
            }
            Some(_) if off!(self, NewQuorum) => {
                let (version, voters) = (membership.version, membership.voters.clone());
                Cow::Owned(Membership { version, voters, next: None })
            }
            _ => Cow::Borrowed(membership),
        }
    }

    /// A voter's books, if they are of the content that is listed.
    pub(super) fn voter(&self, member: Member) -> Option<&Peer> {
        self.peers.get(&member.replica).filter(|peer| peer.member == member)
    }

    fn welcome_of(&self, member: Member) -> Option<&Welcome> {
        match &self.voter(member)?.stand {
            Stand::Welcoming(welcome) => Some(welcome),
            _ => None,
        }
    }

    pub(super) fn welcomed(&mut self, replica: ReplicaId, welcome: Box<Welcome>, cx: &mut Cx<'_>) {
        let member = Member { replica, incarnation: welcome.incarnation };
        let listed = self.steps.membership.has(member) || self.object.desired.contains(&member);
        let claiming = matches!(self.phase, Phase::Claiming { .. });
        let plausible = welcome.is_plausible(self.term).and_then(|()| {
            // Before a history is chosen, this term has no entries.
            let of_this_term = claiming && welcome.position.term == self.term;
            if of_this_term { Err("its history ends in a term that has not begun") } else { Ok(()) }
        });
        let peer = self.peers.get_mut(&replica).expect("it was just heard");
        if peer.member != member && listed {
            peer.meet(member, cx.now);
        }
        if let Err(why) = plausible {
            peer.stand = Stand::Implausible(why);
        } else if !listed {
            peer.stand = Stand::Stranger;
        } else if claiming {
            peer.stand = Stand::Welcoming(welcome);
        } else {
            self.admit(replica, welcome, cx);
        }
    }

    pub(super) fn go_on_activating(&mut self, cx: &mut Cx<'_>) {
        match self.phase {
            Phase::Claiming { .. } => self.try_to_choose(cx),
            Phase::Preparing { serve_from, .. } => {
                self.count_books();
                let settled = self.sequence.settled >= self.sequence.barrier();
                if cx.now >= serve_from && (settled || off!(self, Barrier)) {
                    self.phase = Phase::Serving;
                }
            }
            _ => {}
        }
    }

    fn try_to_choose(&mut self, cx: &mut Cx<'_>) {
        if self.steps.is_catalog_older(self.object.grant) {
            return;
        }
        let quorum = self.quorum().into_owned();
        if !quorum.is_quorum(|member| self.welcome_of(member).is_some()) {
            return;
        }
        let welcomes = quorum.everybody().into_iter().filter_map(|member| self.welcome_of(member));
        let rank = |position: Position| match off!(self, TermInPosition) {
            true => Position { term: block::Term(0), ..position },
            false => position,
        };
        let chosen = welcomes.max_by_key(|welcome| rank(welcome.position));
        let chosen = Box::new(chosen.expect("a quorum has somebody").clone());
        let lost = self.may_have_lost(&chosen, &quorum);
        if lost && !self.object.chosen && self.waits_for_more(cx.now, &quorum) {
            return;
        }
        self.activate(chosen, lost || self.object.chosen, cx);
    }

    /// Whether acknowledged writes may be missing in the chosen history (P8).
    fn may_have_lost(&self, chosen: &Welcome, quorum: &Membership) -> bool {
        let at = chosen.position;
        let proven = |member| self.welcome_of(member).is_some_and(|welcome| !welcome.regressed);
        let has_it = |member| self.welcome_of(member).is_some_and(|it| it.position == at);
        let closed = chosen.shared.closed == at.seq && quorum.is_quorum(has_it);
        at.seq > Seq(0) && !quorum.is_met(proven) && !closed
    }

    /// More voters may prove that nothing was lost: they are waited for, but not for ever.
    fn waits_for_more(&mut self, now: Moment, quorum: &Membership) -> bool {
        let everybody =
            quorum.everybody().into_iter().all(|member| self.welcome_of(member).is_some());
        let Phase::Claiming { patient_until } = &mut self.phase else { return false };
        !everybody && now < *patient_until.get_or_insert(now + PATIENCE)
    }

    /// Who was chosen may be gone before anybody has its history: then a new start chooses anew.
    pub(super) fn give_up_choice(&mut self, cx: &mut Cx<'_>) {
        if !matches!(self.phase, Phase::Preparing { .. }) {
            return;
        }
        let alone = !self.peers.values().any(Peer::is_in_stream);
        let answers = |member| self.voter(member).is_some_and(|peer| peer.open_link().is_some());
        let could_choose = self.quorum().is_quorum(answers);
        let Phase::Preparing { alone_since, .. } = &mut self.phase else { return };
        if !alone || !could_choose {
            *alone_since = None;
            return;
        }
        if cx.now >= *alone_since.get_or_insert(cx.now) + PATIENCE {
            let promised = Promise { term: self.term, run: self.config.run };
            self.stop(Stopped::Outnumbered { promised }, cx);
        }
    }

    fn activate(&mut self, chosen: Box<Welcome>, lost: bool, cx: &mut Cx<'_>) {
        let at = chosen.position;
        // An ended history has no reign that could still serve; nor has an empty one.
        let unserved = chosen.shared.closed == at.seq;
        let wait = match unserved || off!(self, WaitOutLease) {
            true => Span(0),
            false => Span(LEASE.0 + LEASE.0 * DRIFT_PERCENT / 100),
        };
        self.shared = chosen.shared.clone();
        self.snapshots = chosen.snapshots.clone();
        self.sequence = Sequence::on_top_of(at, self.term);
        self.phase = Phase::Preparing { serve_from: cx.now + wait, alone_since: None };
        let stages = self.shared.stages;
        let stages = match lost {
            true => {
                let unknown = if self.object.chosen { UNKNOWN_STAGES } else { 0 };
                let last = StageNumber(stages.last.0 + unknown);
                Stages { lowest: StageNumber(last.0 + 1), last, plain_refused: true }
            }
            false => stages,
        };
        self.append(Change::Barrier { stages }, None, 0);
        self.sequence_membership();
        let welcoming: Vec<ReplicaId> = self
            .peers
            .iter()
            .filter(|(_, peer)| matches!(peer.stand, Stand::Welcoming(_)))
            .map(|(id, _)| *id)
            .collect();
        for replica in welcoming {
            let peer = self.peers.get_mut(&replica).expect("it is in the list");
            if let Stand::Welcoming(welcome) = std::mem::replace(&mut peer.stand, Stand::Away) {
                self.admit(replica, welcome, cx);
            }
        }
    }

    /// Gives an entry its seq, and tells the small state and the list of snapshots of it.
    pub(super) fn append(&mut self, change: Change, client: Option<ClientId>, cost: u64) -> Seq {
        let seq = Seq(self.sequence.last().0 + 1);
        let position = Position { term: self.term, seq };
        if let Change::Snapshot(spec) = &change {
            self.snapshots.push(spec.at(position));
        }
        let followed = self.shared.follow(position, &change);
        assert!(followed.is_ok(), "bounds are looked at before an entry is made: {followed:?}");
        self.sequence.push(change, cost, client)
    }

    pub(super) fn history(&self) -> History {
        History { reigns: self.shared.reigns.clone(), end: self.sequence.last_position() }
    }

    /// A welcome replaces the books, and the replica joins the stream or catches up first.
    pub(super) fn admit(&mut self, replica: ReplicaId, welcome: Box<Welcome>, cx: &mut Cx<'_>) {
        let theirs = History { reigns: welcome.shared.reigns.clone(), end: welcome.position };
        // Reigns that both had may be forgotten: then nothing counts as common, and all that it
        // has is taken back.
        let agreed = self.history().common(&theirs).unwrap_or_default();
        let has_tail = agreed.seq != welcome.position.seq;
        let reach = self.sequence.acked.max(self.sequence.barrier());
        let keep_acks = off!(self, RetractAcks);
        let undo = !off!(self, UndoTail);
        let peer = self.peers.get_mut(&replica).expect("it was just heard");
        let known = agreed.seq;
        (peer.held, peer.durable) = match keep_acks {
            true => (peer.held.max(known), peer.durable.max(known)),
            false => (known, known),
        };
        peer.boot = welcome.boot;
        peer.headroom = welcome.headroom;
        peer.regressed = welcome.regressed.then_some(reach);
        peer.reads = 0;
        let importing = welcome.import.is_some();
        let rounds = welcome.rounds.clone();
        peer.facts = Some(welcome);
        for at in rounds {
            self.keep_frozen(replica, at, cx);
        }
        let peer = self.peers.get_mut(&replica).expect("looked up above");
        let joins = !(has_tail && undo) && self.sequence.has_all_above(known);
        if !joins {
            let not_before = cx.now;
            let has_tail = has_tail && undo;
            peer.stand = Stand::Apart(Apart { agreed, has_tail, not_before, ..Apart::default() });
            return;
        }
        peer.stand = Stand::InStream { sent: known };
        peer.gives_up = false;
        // What it had staged is thrown away: nobody may go on with it.
        peer.facts.as_mut().expect("set above").import = None;
        self.tell_settled(replica, cx);
        let peer = &self.peers[&replica];
        if importing && let Some(link) = peer.link {
            cx.send(replica, link, self.term, ToReplica::AbandonImport);
        }
    }

    /// In this live reign it has what a quorum had when it came: nothing of it is missing.
    pub(super) fn recover_regressed(&mut self, cx: &mut Cx<'_>) {
        if !self.is_serving() {
            return;
        }
        for (replica, peer) in &mut self.peers {
            let reached = peer.regressed.is_some_and(|reach| peer.held >= reach);
            if let (true, true, Some(link)) = (reached, peer.is_in_stream(), peer.link) {
                peer.regressed = None;
                cx.send(*replica, link, self.term, ToReplica::Recovered);
            }
        }
    }
}
