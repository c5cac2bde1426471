//! How a reign begins: the grant of the catalog, and hellos to the replicas.
use crate::catalog::{CatalogAnswer, CatalogAsk, VolumeObject};
use crate::message::{Hello, Refusal, ToReplica};
use crate::replica::LinkId;
use crate::state::Promise;
use crate::target::peer::{Peer, Stand};
use crate::target::{Begin, Cx, Output, Phase, Stopped, Target};
use crate::words::{Grant, Moment, ReplicaId, Span, Start};

/// How often an unanswered question to the catalog is asked again.
const ASK_AGAIN: Span = Span::secs(1);
/// How often a connection that is not there is asked for again.
const CONNECT_AGAIN: Span = Span::millis(300);

#[derive(Debug)]
pub struct Claim {
    begin: Begin,
    asked: Option<Moment>,
    /// A swap of the grant is under way. It may have been done though no answer came.
    swapping: bool,
}

impl Claim {
    pub fn new(begin: Begin) -> Claim {
        Claim { begin, asked: None, swapping: false }
    }
}

impl Target {
    pub(super) fn ask_catalog(&mut self, cx: &mut Cx<'_>) {
        if let Phase::Asking(claim) = &mut self.phase {
            claim.asked = Some(cx.now);
            claim.swapping = false;
        }
        cx.out.push(Output::Catalog(CatalogAsk::Get));
    }

    /// A run that waited for its grant asks for it from now on. One that has a grant needs no other:
    /// if the catalog has given the volume away meanwhile, it ends as soon as it hears of that.
    pub(super) fn take_over(&mut self, cx: &mut Cx<'_>) {
        if let Phase::Asking(claim) = &mut self.phase
            && claim.begin != Begin::TakeOver
        {
            claim.begin = Begin::TakeOver;
            self.ask_catalog(cx);
        }
    }

    pub(super) fn ask_catalog_again(&mut self, cx: &mut Cx<'_>) {
        let due = |asked: Option<Moment>| asked.is_none_or(|at| cx.now >= at + ASK_AGAIN);
        match &self.phase {
            Phase::Asking(claim) if due(claim.asked) => self.ask_catalog(cx),
            _ => self.ask_about_steps(cx),
        }
    }

    pub(super) fn catalog_said(&mut self, answer: CatalogAnswer, cx: &mut Cx<'_>) {
        let object = match answer {
            CatalogAnswer::Object(object) | CatalogAnswer::Swapped(object) => *object,
            CatalogAnswer::Deleted => return self.stop(Stopped::NoVolume, cx),
            CatalogAnswer::Missing => return self.catalog_lost_it(cx),
        };
        if object.is_older_than(&self.object) {
            // An older answer that came late, or a catalog that was restored: the replicas know.
            return;
        }
        self.steps.lost = false;
        match &self.phase {
            Phase::Asking(_) => self.look_for_grant(object, cx),
            _ if object.grant > self.grant() || self.is_given_twice(&object) => {
                if self.is_chosen_by_it(&object, cx) {
                    self.object = object;
                    self.steps.swapping = false;
                    return self.claim(Start(0).next(), cx);
                }
                self.answer_confirmed(object.holder == self.config.node, cx);
                self.stop(Stopped::Superseded, cx);
            }
            _ => {
                self.object = object;
                self.learn_membership(cx);
            }
        }
    }

    /// Another node has the very grant that this reign acts under: the catalog went back, was not noticed by a node that
    /// knew no better, and gave the grant again. Each of the two would claim a higher start than the other for ever; the one
    /// that the catalog does not name ends.
    fn is_given_twice(&self, object: &VolumeObject) -> bool {
        object.grant == self.grant() && object.holder != self.config.node
    }

    /// A target that acts on an object goes on with it: the replicas fence it, not the catalog. One that has not begun has
    /// nothing to act on.
    fn catalog_lost_it(&mut self, cx: &mut Cx<'_>) {
        if matches!(self.phase, Phase::Asking(_)) {
            return self.stop(Stopped::NoVolume, cx);
        }
        (self.steps.lost, self.steps.swapping) = (true, false);
        self.answer_confirmed(false, cx);
    }

    fn look_for_grant(&mut self, object: VolumeObject, cx: &mut Cx<'_>) {
        let Phase::Asking(claim) = &mut self.phase else { return };
        self.object = object;
        if self.object.holder == self.config.node {
            return self.claim(self.config.start_above.next(), cx);
        }
        if claim.begin == Begin::TakeOver && !claim.swapping {
            claim.swapping = true;
            claim.asked = Some(cx.now);
            let mut object = self.object.clone();
            let (expected, grant) = (object.version, object.grant);
            let Some(next) = grant.next() else { return self.stop(Stopped::Superseded, cx) };
            object.grant = next;
            object.holder = self.config.node;
            let object = Box::new(object);
            cx.out.push(Output::Catalog(CatalogAsk::Swap { expected, grant, object }));
        }
    }

    /// Claims a start under the grant: everybody is greeted anew. Starts may have run out, since
    /// replicas say which of them are promised: then only another grant leads on.
    fn claim(&mut self, start: Start, cx: &mut Cx<'_>) {
        if start > Start::MAX || self.object.grant > Grant::MAX {
            return self.stop(Stopped::Superseded, cx);
        }
        self.term = self.object.grant.term(start);
        self.steps.act_on(self.object.membership.clone());
        self.phase = Phase::Claiming { patient_until: None };
        for peer in self.peers.values_mut() {
            peer.stand = Stand::Away;
        }
        self.meet_members(cx);
        let linked: Vec<(ReplicaId, LinkId)> =
            self.peers.iter().filter_map(|(id, peer)| Some((*id, peer.link?))).collect();
        for (replica, link) in linked {
            self.greet(replica, link, cx);
        }
        self.connect_peers(cx);
    }

    /// A peer for every place that votes or is to vote; those that do neither go. Which content a
    /// place has is told by its welcome.
    pub(super) fn meet_members(&mut self, cx: &mut Cx<'_>) {
        let mut members = self.steps.membership.everybody();
        members.extend(self.object.desired.iter().copied());
        for member in &members {
            self.peers.entry(member.replica).or_insert_with(|| Peer::new(*member));
        }
        let gone = |id: &&ReplicaId| !members.iter().any(|member| member.replica == **id);
        let gone: Vec<ReplicaId> = self.peers.keys().filter(gone).copied().collect();
        for replica in gone {
            self.greet_anew(replica, cx);
            self.leave_stream(replica, cx);
            self.peers.remove(&replica);
            self.rounds.forget_source(replica);
        }
    }

    pub(super) fn connect_peers(&mut self, cx: &mut Cx<'_>) {
        if matches!(self.phase, Phase::Asking(_)) {
            return;
        }
        for (replica, peer) in &mut self.peers {
            let due = peer.asked.is_none_or(|at| cx.now >= at + CONNECT_AGAIN);
            if peer.link.is_none() && due {
                peer.asked = Some(cx.now);
                cx.out.push(Output::Connect { replica: *replica });
            }
        }
    }

    pub(super) fn link_up(&mut self, replica: ReplicaId, link: LinkId, cx: &mut Cx<'_>) {
        let Some(peer) = self.peers.get_mut(&replica) else {
            return cx.out.push(Output::Disconnect { replica, link });
        };
        if let Some(old) = peer.link.replace(link) {
            cx.out.push(Output::Disconnect { replica, link: old });
        }
        peer.linked = Some(cx.now);
        self.greet(replica, link, cx);
    }

    fn greet(&mut self, replica: ReplicaId, link: LinkId, cx: &mut Cx<'_>) {
        self.leave_stream(replica, cx);
        let peer = self.peers.get_mut(&replica).expect("whoever is greeted is a peer");
        peer.stand = Stand::Greeting;
        peer.heard = cx.now;
        let promise = Promise { term: self.term, run: self.config.run };
        let hello = Hello { promise, membership: self.steps.membership.clone() };
        cx.send(replica, link, self.term, ToReplica::Hello(hello));
    }

    pub(super) fn link_lost(&mut self, replica: ReplicaId, link: LinkId, cx: &mut Cx<'_>) {
        let Some(peer) = self.peers.get_mut(&replica) else { return };
        if peer.link != Some(link) {
            return;
        }
        peer.link = None;
        self.leave_stream(replica, cx);
        self.peers.get_mut(&replica).expect("looked up above").stand = Stand::Away;
    }

    pub(super) fn refused(&mut self, replica: ReplicaId, refusal: &Refusal, cx: &mut Cx<'_>) {
        let peer = self.peers.get_mut(&replica).expect("it was just heard");
        peer.stand = Stand::Refusing(refusal.clone());
        match *refusal {
            Refusal::Promised(promised) if Grant::of(promised.term) == self.grant() => {
                let start = Start::of(promised.term);
                match self.phase {
                    _ if start >= Start::MAX => self.stop(Stopped::Superseded, cx),
                    Phase::Claiming { .. } => self.claim(start.next(), cx),
                    _ => self.stop(Stopped::Outnumbered { promised }, cx),
                }
            }
            Refusal::Promised(promised) => {
                // Somebody has a higher grant. The catalog has to say the same: if it does not, it
                // was restored from a backup, which is not obeyed.
                self.steps.seen_grant = self.steps.seen_grant.max(Grant::of(promised.term));
                cx.out.push(Output::Catalog(CatalogAsk::Get));
            }
            Refusal::OlderMembership { seen } => {
                self.steps.seen_version = self.steps.seen_version.max(seen);
            }
        }
    }
}
