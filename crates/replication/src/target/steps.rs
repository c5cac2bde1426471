//! Membership, one step at a time, each under the old and the new quorum (Q1, Q8).
//!
//! Invariant: `Steps::membership` is what the catalog has, never anything else.
use block::Seq;

use crate::catalog::{CatalogAsk, VolumeObject};
use crate::client::{CommandAnswer, CommandError, RequestId};
use crate::entry::Change;
use crate::membership::{MEMBERS_MAX, Member, Membership, Voters};
use crate::target::peer::Stand;
use crate::target::{Cx, Output, Phase, Target, off};
use crate::words::{Grant, Moment, ReplicaId, Span};

/// How often the catalog is asked while a step waits for it.
const ASK_AGAIN: Span = Span::secs(1);
/// How often it is asked all the same: a watch may have missed something.
const LOOK_EVERY: Span = Span::secs(10);
/// How long a step waits for its new quorum before it is taken back.
const STEP_PATIENCE: Span = Span::secs(10);

#[derive(Debug, Default)]
pub struct Steps {
    /// What is acted on.
    pub membership: Membership,
    /// The seq of its entry in the sequence.
    entry: Seq,
    /// A swap is under way; it may have been done though no answer came.
    pub swapping: bool,
    /// Replicas have seen these; a catalog with less was restored from a backup.
    pub seen_version: u64,
    pub seen_grant: Grant,
    /// The catalog has lost the volume: no step can be made.
    pub lost: bool,
    /// An operator's choice that the catalog does not have yet.
    pub choosing: Option<(RequestId, Voters)>,
    /// An operator's word that the catalog is right, which it does not have yet.
    confirming: Option<RequestId>,
    asked: Option<Moment>,
    /// Since when a step lacks its new quorum though it has its old one.
    stuck_since: Option<Moment>,
}

impl Steps {
    pub fn act_on(&mut self, membership: Membership) {
        self.membership = membership;
    }

    /// Whether the catalog lags behind what replicas have seen: then it is not obeyed.
    pub fn is_catalog_older(&self, grant: Grant) -> bool {
        self.seen_version > self.membership.version || self.seen_grant > grant
    }

    /// Commands of operators that wait for the catalog.
    pub fn of_operators(&self) -> usize {
        usize::from(self.choosing.is_some()) + usize::from(self.confirming.is_some())
    }
}

impl Target {
    pub(super) fn ask_about_steps(&mut self, cx: &mut Cx<'_>) {
        let waits = self.steps.swapping
            || self.steps.of_operators() > 0
            || self.steps.lost
            || self.steps.is_catalog_older(self.object.grant);
        let pause = if waits { ASK_AGAIN } else { LOOK_EVERY };
        if self.steps.asked.is_none_or(|at| cx.now >= at + pause) {
            self.steps.asked = Some(cx.now);
            cx.out.push(Output::Catalog(CatalogAsk::Get));
        }
    }

    /// The catalog has said what it has: a membership that is newer is acted on from now on.
    pub(super) fn learn_membership(&mut self, cx: &mut Cx<'_>) {
        self.steps.swapping = false;
        let newer = self.object.membership.version > self.steps.membership.version;
        if newer {
            self.steps.act_on(self.object.membership.clone());
        }
        self.meet_members(cx);
        if newer && self.is_active() {
            self.sequence_membership();
        }
        self.go_on_choosing(cx);
        self.go_on_confirming(cx);
    }

    /// Replicas learn of a membership through the sequence.
    pub(super) fn sequence_membership(&mut self) {
        if self.shared.membership != self.steps.membership {
            let membership = self.steps.membership.clone();
            self.steps.entry = self.append(Change::Membership(membership), None, 0);
        }
    }

    pub(super) fn go_on_with_steps(&mut self, cx: &mut Cx<'_>) {
        let settled = self.sequence.settled >= self.steps.entry;
        let free = !self.steps.swapping && !self.steps.lost && !self.holds.is_in_force();
        if !self.is_serving() || !settled || !free {
            return;
        }
        if self.object.chosen {
            // The barrier has told it.
            let object = VolumeObject { chosen: false, ..self.object.clone() };
            return self.swap(object, cx);
        }
        let present = &self.steps.membership;
        // Behind the last version there is no step.
        let Some(version) = present.version.checked_add(1) else { return };
        let next = match &present.next {
            Some(next) => Some(Membership { version, voters: next.clone(), next: None }),
            None => self.next_voters().map(|next| Membership {
                version,
                voters: present.voters.clone(),
                next: Some(next),
            }),
        };
        if let Some(membership) = next {
            self.swap_membership(membership, cx);
        }
    }

    /// A step whose new voters have lost too many is taken back: whatever was committed is held by
    /// a quorum of the old ones too, so they go on as if it had not begun.
    pub(super) fn take_back_step(&mut self, cx: &mut Cx<'_>) {
        let Some(next) = &self.steps.membership.next else {
            self.steps.stuck_since = None;
            return;
        };
        let has_quorum = |voters: &Voters| {
            let here = |member: Member| {
                let stand = self.voter(member).map(|peer| &peer.stand);
                matches!(stand, Some(Stand::InStream { .. } | Stand::Welcoming(_)))
            };
            Membership { version: 0, voters: voters.clone(), next: None }.is_quorum(here)
        };
        if has_quorum(next) || !has_quorum(&self.steps.membership.voters) {
            self.steps.stuck_since = None;
            return;
        }
        let since = *self.steps.stuck_since.get_or_insert(cx.now);
        if cx.now >= since + STEP_PATIENCE
            && !self.steps.swapping
            && !self.steps.lost
            && let Some(version) = self.steps.membership.version.checked_add(1)
        {
            let voters = self.steps.membership.voters.clone();
            self.swap_membership(Membership { version, voters, next: None }, cx);
        }
    }

    fn swap_membership(&mut self, membership: Membership, cx: &mut Cx<'_>) {
        if off!(self, CatalogMembership) {
            self.steps.act_on(membership.clone());
            self.object.membership = membership.clone();
            self.sequence_membership();
        }
        let object = VolumeObject { membership, ..self.object.clone() };
        self.swap(object, cx);
    }

    fn swap(&mut self, object: VolumeObject, cx: &mut Cx<'_>) {
        (self.steps.swapping, self.steps.asked) = (true, Some(cx.now));
        let (expected, grant) = (self.object.version, self.object.grant);
        let object = Box::new(object);
        cx.out.push(Output::Catalog(CatalogAsk::Swap { expected, grant, object }));
    }

    /// The voters after the next step towards what is desired, if one can be made now.
    fn next_voters(&self) -> Option<Voters> {
        let present = &self.steps.membership.voters;
        let desired = &self.object.desired;
        let arrived = |member: &&Member| {
            self.voter(**member).is_some_and(|peer| {
                peer.is_in_stream() && peer.held >= self.sequence.committed && !peer.gives_up
            })
        };
        let joins = desired.iter().filter(|it| !present.has(**it)).find(arrived).copied();
        let leaving = present.members.iter().filter(|it| !desired.contains(it));
        let leaves = leaving.min_by_key(|it| self.voter(**it).is_some_and(|it| it.is_in_stream()));
        let with = |members: Vec<Member>, rf: usize| {
            let rf = u8::try_from(rf).expect("a volume has at most 255 replicas");
            Voters { members, rf }
        };
        let without = |gone: Member| {
            let left = present.members.iter().filter(|it| **it != gone);
            left.copied().collect::<Vec<Member>>()
        };
        let rf = usize::from(present.rf);
        let next = match (joins, leaves.copied()) {
            (Some(joins), Some(leaves)) => {
                let mut members = without(leaves);
                members.push(joins);
                with(members, rf)
            }
            (Some(joins), None) => {
                let mut members = present.members.clone();
                members.push(joins);
                let rf = rf.max(members.len());
                with(members, rf)
            }
            // A vote was given up, and is not wanted back.
            (None, _) if rf > desired.len().max(present.members.len()) => {
                with(present.members.clone(), rf - 1)
            }
            (None, Some(leaves)) if desired.len() < present.members.len() => {
                let members = without(leaves);
                let rf = rf.saturating_sub(1).max(members.len());
                with(members, rf)
            }
            (None, _) => {
                let tired = present.members.iter().find(|it| {
                    self.voter(**it).is_some_and(|peer| peer.gives_up && !peer.is_in_stream())
                })?;
                with(without(*tired), rf)
            }
        };
        if next.members.len() > MEMBERS_MAX {
            return None;
        }
        // Whoever is to vote alone afterwards must be there already.
        let there = |member: Member| self.voter(member).is_some_and(|peer| peer.is_in_stream());
        let after = Membership { version: 0, voters: next.clone(), next: None };
        after.is_quorum(there).then_some(next)
    }

    /// Q12: an operator says which replica to go on with, though no quorum answers.
    pub(super) fn choose(&mut self, id: RequestId, replica: ReplicaId, cx: &mut Cx<'_>) {
        let welcoming = |stand: &Stand| matches!(stand, Stand::Welcoming(_));
        let peer = self.peers.get(&replica).filter(|peer| welcoming(&peer.stand));
        let (Some(peer), Phase::Claiming { .. }) = (peer, &self.phase) else {
            let reason = "only a replica that answers a target without a quorum can be chosen";
            let result = Err(CommandError::Invalid { reason: reason.into() });
            return cx.out.push(Output::Answer { id, result });
        };
        let voters = Voters::of(&[peer.member]);
        if let Some((replaced, _)) = self.steps.choosing.replace((id, voters)) {
            cx.out.push(Output::Answer { id: replaced, result: Err(CommandError::Busy) });
        }
        self.go_on_choosing(cx);
    }

    /// A choice is not in the catalog yet: it is sent, perhaps again. In one swap with it go the mark that
    /// it was one, and a grant of its own: the reigns that only others knew were under the present grant, and
    /// no term of theirs may be given twice, since histories are compared by their terms.
    fn go_on_choosing(&mut self, cx: &mut Cx<'_>) {
        let Some((id, voters)) = self.steps.choosing.clone() else { return };
        let present = self.steps.membership.version.max(self.object.membership.version);
        let version = present.max(self.steps.seen_version).checked_add(1);
        let grant = self.steps.seen_grant.max(self.object.grant).next();
        let failed = match (&self.phase, version, grant) {
            (Phase::Claiming { .. }, Some(version), Some(grant)) => {
                let membership = Membership { version, voters, next: None };
                let holder = self.config.node;
                let present = self.object.clone();
                let chosen = VolumeObject { membership, chosen: true, grant, holder, ..present };
                return self.swap(chosen, cx);
            }
            (Phase::Claiming { .. }, ..) => run_out(),
            _ => CommandError::Invalid { reason: "enough replicas answer again".to_owned() },
        };
        self.steps.choosing = None;
        cx.out.push(Output::Answer { id, result: Err(failed) });
    }

    /// The catalog has a higher grant. True: it is that of this target's choice.
    pub(super) fn is_chosen_by_it(&mut self, object: &VolumeObject, cx: &mut Cx<'_>) -> bool {
        let ours = self.steps.choosing.as_ref().is_some_and(|(_, voters)| {
            let claims = matches!(self.phase, Phase::Claiming { .. });
            let chosen = object.chosen && object.membership.voters == *voters;
            claims && chosen && object.holder == self.config.node
        });
        if let (true, Some((id, _))) = (ours, self.steps.choosing.take_if(|_| ours)) {
            let at = block::Position::default();
            cx.out.push(Output::Answer { id, result: Ok(CommandAnswer::Done { at }) });
        }
        ours
    }

    /// Q1: an operator says that a restored catalog is right.
    pub(super) fn confirm_catalog(&mut self, id: RequestId, cx: &mut Cx<'_>) {
        if let Some(replaced) = self.steps.confirming.replace(id) {
            cx.out.push(Output::Answer { id: replaced, result: Err(CommandError::Busy) });
        }
        self.go_on_confirming(cx);
    }

    /// A confirmation is not in the catalog yet: it is sent, perhaps again, above what is there by now. Not beside another
    /// swap: one of the two would be in vain.
    fn go_on_confirming(&mut self, cx: &mut Cx<'_>) {
        let Some(id) = self.steps.confirming.filter(|_| !self.steps.swapping) else { return };
        let mut object = self.object.clone();
        let version = self.steps.seen_version.max(object.membership.version).checked_add(1);
        let grant = self.steps.seen_grant.max(object.grant).next();
        let failed = match (version, grant) {
            _ if !self.steps.is_catalog_older(object.grant) => {
                let reason = "no replica has seen a newer catalog".to_string();
                CommandError::Invalid { reason }
            }
            (Some(version), Some(grant)) => {
                (object.membership.version, object.grant) = (version, grant);
                object.holder = self.config.node;
                return self.swap(object, cx);
            }
            _ => run_out(),
        };
        self.steps.confirming = None;
        cx.out.push(Output::Answer { id, result: Err(failed) });
    }

    /// The catalog has a higher grant: ours, which confirms it, or another's.
    pub(super) fn answer_confirmed(&mut self, ours: bool, cx: &mut Cx<'_>) {
        let Some(id) = self.steps.confirming.take() else { return };
        let at = block::Position::default();
        let reason = "the catalog went on without it".to_string();
        let result = match ours {
            true => Ok(CommandAnswer::Done { at }),
            false => Err(CommandError::NotServing { reason }),
        };
        cx.out.push(Output::Answer { id, result });
    }
}

/// No replica counts so far: one of them has kept, or says, what cannot be.
fn run_out() -> CommandError {
    let reason = "a replica says that it has seen the highest version of a membership, or the \
                  highest grant, that there can be: nothing can follow it. Remove that replica, and \
                  start the target again";
    CommandError::Invalid { reason: reason.to_owned() }
}
