//! The lease under which reads are served (P5): CF replicas of this term confirmed it lately.
use crate::constants::{LEASE, RENEW_EVERY};
use crate::message::ToReplica;
use crate::target::{Cx, Target, off};
use crate::words::{Moment, ReplicaId};

impl Target {
    /// Until when no successor can have begun to serve.
    fn lease_until(&self) -> Option<Moment> {
        let renewed = self.quorum().reached(|member| self.voter(member)?.renewed);
        renewed.map(|sent| sent + LEASE)
    }

    pub(super) fn has_lease(&self, now: Moment) -> bool {
        self.lease_until().is_some_and(|until| now < until) || off!(self, ReadLease)
    }

    pub(super) fn renew_lease(&mut self, cx: &mut Cx<'_>) {
        let due = self.last_renewal.is_none_or(|at| cx.now >= at + RENEW_EVERY);
        if !due {
            return;
        }
        self.last_renewal = Some(cx.now);
        let replicas: Vec<ReplicaId> = self.peers.keys().copied().collect();
        for replica in replicas {
            self.tell_settled(replica, cx);
        }
        self.forget_doomed();
    }

    /// Also the first word to a replica that joins the stream: of deletions that are settled it
    /// need not remember that they could be undone.
    pub(super) fn tell_settled(&mut self, replica: ReplicaId, cx: &mut Cx<'_>) {
        let Some(peer) = self.peers.get_mut(&replica) else { return };
        if let Some(link) = peer.open_link() {
            peer.renewal_sent = peer.renewal_sent.max(Some(cx.now));
            // Of a history that it does not have nothing is settled: the same seqs may be a tail
            // there, and a deletion in it must not take effect.
            let through = match peer.is_in_stream() {
                true => self.sequence.settled,
                false => self.sequence.settled.min(peer.held),
            };
            let (sent, settled) = (cx.now, through);
            cx.send(replica, link, self.term, ToReplica::Renew { sent, settled });
        }
    }

    /// Deletions that everybody in the stream was told to be settled are done with. Not earlier:
    /// replicas keep no more of them than this target does.
    fn forget_doomed(&mut self) {
        let settled = self.sequence.settled;
        let gone = self.shared.doomed.extract_if(.., |it| it.at <= settled);
        for doomed in gone {
            self.snapshots.retain(|it| it.uid != doomed.snapshot);
        }
    }
}
