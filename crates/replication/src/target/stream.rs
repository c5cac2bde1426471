//! Entries on their way to the replicas, and their acknowledgements on the way back (Q5).
use block::Seq;

use crate::constants::{GREETING, SILENCE};
use crate::message::{ForTarget, Leaving, ToReplica, ToTarget};
use crate::replica::LinkId;
use crate::target::peer::{Apart, Stand};
use crate::target::{Cx, Output, Target, off};
use crate::words::{Boot, ReplicaId, Span};

/// Entries of one message, and bytes that may be under way to one replica.
const BATCH: usize = 256;
const BATCH_BYTES: u64 = 1 << 20;
const UNDER_WAY: u64 = 8 << 20;

/// How long a replica without space is left alone.
const NO_SPACE_PAUSE: Span = Span::secs(2);

impl Target {
    pub(super) fn message(
        &mut self,
        replica: ReplicaId,
        link: LinkId,
        message: ForTarget,
        cx: &mut Cx<'_>,
    ) {
        let stale = off!(self, RetractAcks) && matches!(message.body, ToTarget::Ack { .. });
        let Some(peer) = self.peers.get_mut(&replica) else { return };
        if (peer.link != Some(link) && !stale) || message.term != self.term {
            return;
        }
        peer.heard = cx.now;
        match message.body {
            ToTarget::Welcome(welcome) => self.welcomed(replica, welcome, cx),
            ToTarget::Refused(refusal) => self.refused(replica, &refusal, cx),
            ToTarget::Ack { boot, held, durable, headroom } => {
                self.acked(replica, boot, held, durable, headroom, cx);
            }
            // A renewal that was not sent yet confirms nothing.
            ToTarget::Renewed { sent } if Some(sent) > peer.renewal_sent => {}
            ToTarget::Renewed { sent } => peer.renewed = peer.renewed.max(Some(sent)),
            ToTarget::Left { at, reason } => self.left(replica, at, reason, cx),
            ToTarget::ReadDone { id, result } => self.read_done(replica, id, result, cx),
            ToTarget::ExtentsDone { id, result } => self.extents_done(replica, id, result, cx),
            ToTarget::Repaired { id, ok } => self.repaired(id, ok, cx),
            other => self.about_round(replica, other, cx),
        }
    }

    fn acked(
        &mut self,
        replica: ReplicaId,
        boot: Boot,
        held: Seq,
        durable: Seq,
        headroom: block::ByteLen,
        cx: &mut Cx<'_>,
    ) {
        let any_boot = off!(self, RetractAcks);
        let last = self.sequence.last();
        self.uncounted = true;
        let peer = self.peers.get_mut(&replica).expect("it was just heard");
        if !peer.is_in_stream() || (peer.boot != boot && !any_boot) {
            return;
        }
        if held > last && !any_boot {
            // Nobody holds what was never sequenced: its books are not ours.
            return self.greet_anew(replica, cx);
        }
        peer.held = peer.held.max(held);
        peer.durable = peer.durable.max(durable);
        peer.headroom = headroom;
        peer.milestone.held(peer.held, last, cx.now);
    }

    /// How far a quorum has the sequence. The books may go back, what was acknowledged does not.
    pub(super) fn count_books(&mut self) {
        if !self.is_active() || !std::mem::take(&mut self.uncounted) {
            return;
        }
        let before = self.sequence.committed;
        let last = self.sequence.last();
        let quorum = self.quorum();
        let held = quorum.reached(|member| Some(self.voter(member)?.held));
        let durable = quorum.reached(|member| Some(self.voter(member)?.durable));
        drop(quorum);
        self.sequence.committed = held.unwrap_or_default().min(last);
        if self.sequence.committed < before {
            self.reads.committed_less();
        }
        self.sequence.acked = self.sequence.acked.max(self.sequence.committed);
        self.sequence.settled = self.sequence.settled.max(durable.unwrap_or_default()).min(last);
        self.forget_settled();
    }

    fn forget_settled(&mut self) {
        let needed = |stand: &Stand, held: Seq| match stand {
            Stand::InStream { .. } => Some(held),
            Stand::CatchingUp(round) => round.pinned(),
            _ => None,
        };
        let keep = self.peers.values().filter_map(|peer| needed(&peer.stand, peer.held)).min();
        self.sequence.forget(keep.unwrap_or(self.sequence.settled));
    }

    pub(super) fn send_entries(&mut self, cx: &mut Cx<'_>) {
        let (term, sequence) = (self.term, &self.sequence);
        for (replica, peer) in &mut self.peers {
            let (Stand::InStream { sent }, Some(link)) = (&mut peer.stand, peer.link) else {
                continue;
            };
            while *sent < sequence.last()
                && sequence.bytes_between(peer.held, *sent) < UNDER_WAY
                && sequence.has_all_above(*sent)
            {
                let entries = sequence.batch(*sent, BATCH, BATCH_BYTES);
                *sent = entries.last().expect("there is one behind `sent`").seq;
                cx.send(*replica, link, term, ToReplica::Entries(entries));
            }
        }
    }

    /// The replica is not in the stream any more; what it was asked is asked of somebody else.
    pub(super) fn leave_stream(&mut self, replica: ReplicaId, cx: &mut Cx<'_>) {
        let Some(peer) = self.peers.get_mut(&replica) else { return };
        peer.renewed = None;
        peer.reads = 0;
        self.reads.ask_anew(replica);
        if !off!(self, ForgetRepairs) {
            self.repairs.forget(replica);
        }
        self.rounds_without(replica, cx);
    }

    fn left(&mut self, replica: ReplicaId, at: Seq, why: Leaving, cx: &mut Cx<'_>) {
        let held = self.peers.get(&replica).map_or(Seq(0), |peer| peer.held);
        let agreed = Seq(at.0.saturating_sub(1)).min(held);
        let term = self.shared.reigns.term_at(agreed).unwrap_or_default();
        let pause = match why {
            Leaving::NoSpace => NO_SPACE_PAUSE,
            Leaving::Damaged { .. } | Leaving::Failed { .. } => Span(0),
        };
        let Some(peer) = self.peers.get_mut(&replica).filter(|peer| peer.is_in_stream()) else {
            return;
        };
        peer.stand = Stand::Apart(Apart {
            agreed: block::Position { term, seq: agreed },
            why: Some(why),
            not_before: cx.now + pause,
            ..Apart::default()
        });
        self.leave_stream(replica, cx);
    }

    /// Those who lag too far or are silent lose their connection: what they miss then, they get as
    /// a delta.
    pub(super) fn drop_laggards(&mut self, cx: &mut Cx<'_>) {
        let mut dropped = Vec::new();
        for (replica, peer) in &mut self.peers {
            if peer.link.is_none() {
                continue;
            }
            // Behind what others hold, not behind what nobody can hold yet.
            let lag = self.sequence.bytes_between(peer.held, self.sequence.committed);
            let lags = peer.is_in_stream() && lag > self.config.backlog / 4 * 3;
            // A hello waits for everything that the replica had under way.
            let patience = match peer.stand {
                Stand::Greeting => GREETING,
                _ => SILENCE,
            };
            if lags {
                peer.left_behind = Some(cx.now);
            }
            // How far it really came is told by its next welcome, when nothing is on its way.
            if lags || cx.now >= peer.heard + patience {
                dropped.push(*replica);
            }
        }
        for replica in dropped {
            self.greet_anew(replica, cx);
        }
    }

    /// Ends the connection: another one begins with a hello, and so with new books.
    pub(super) fn greet_anew(&mut self, replica: ReplicaId, cx: &mut Cx<'_>) {
        if let Some(link) = self.peers[&replica].link {
            cx.out.push(Output::Disconnect { replica, link });
            self.link_lost(replica, link, cx);
        }
    }
}
