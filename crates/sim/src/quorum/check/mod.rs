//! What can be known from outside the machines: entries on the wire, positions in the stores,
//! replies that leave. It is compared with what was promised.
use std::collections::BTreeMap;

use block::{ByteLen, ByteOffset, Data, Position, Seq, Term};
use replication::client::{ConnectionId, Request, RequestId};
use replication::constants::LEASE;
use replication::entry::{Change, Entry, Zeroing};
use replication::history::Reign;
use replication::membership::{Membership, Voters};
use replication::message::{ForTarget, ToTarget};
use replication::words::{Boot, Incarnation, ReplicaId};

use super::clients::{Time, Violation, VolumeNo};
use super::off::Check;
use super::plan::Plan;

mod content;
mod traffic;

pub use traffic::Traffic;

/// How far one content of a replica ever was, by reign. What it lost it once had all the same:
/// promises are about the moment of the answer.
#[derive(Clone, Debug, Default)]
struct Reached {
    incarnation: Incarnation,
    held: BTreeMap<Term, Seq>,
    durable: BTreeMap<Term, Seq>,
    last: Position,
    /// What it held in each run of its process.
    in_boot: BTreeMap<(Boot, Term), Seq>,
    /// The run that each reign knows it by: what an older one held counts no more for that reign.
    known_by: BTreeMap<Term, Boot>,
    /// What each reign had acknowledged when it was welcomed.
    owed: BTreeMap<Term, Seq>,
    /// The newest reign that it welcomed, and what it said to have.
    welcome: Option<(Term, Position)>,
}

impl Reached {
    fn has(&self, at: Position, durably: bool) -> bool {
        let marks = if durably { &self.durable } else { &self.held };
        let had = marks.get(&at.term).is_some_and(|seq| *seq >= at.seq);
        // What is durable stays; and so does what a killed process held.
        let boot = self.known_by.get(&at.term).filter(|_| !durably);
        let has_still = boot.is_none_or(|boot| {
            self.in_boot.get(&(*boot, at.term)).is_some_and(|seq| *seq >= at.seq)
        });
        had && has_still
    }
}

/// A request that is with a target.
struct Asked {
    what: Asks,
    since: Time,
    /// Highest acknowledged write of each reign when it came: what a flush has to cover.
    acked: Option<Position>,
    /// The last entry on the wire when it came: its own comes behind.
    behind: Option<(Term, Seq)>,
}

enum Asks {
    Write { offset: ByteOffset, data: Data, fua: bool },
    Zero { offset: ByteOffset, len: ByteLen, how: Zeroing, fua: bool },
    Flush,
    Read,
    Other,
}

impl Asks {
    fn is(&self, change: &Change) -> bool {
        match (self, change) {
            (Asks::Write { offset, data, .. }, Change::Write { offset: at, data: sent, .. }) => {
                offset == at && data[..] == sent[..]
            }
            (Asks::Zero { offset, len, .. }, Change::Zero { offset: at, len: long, .. }) => {
                offset == at && len == long
            }
            _ => false,
        }
    }
}

#[derive(Default)]
struct Volume {
    entries: BTreeMap<(Term, Seq), Change>,
    /// The reign before each reign, in its own history.
    before: BTreeMap<Term, Option<Reign>>,
    reached: BTreeMap<ReplicaId, Reached>,
    /// Contents that are gone. What they had when something was promised, they had.
    lost: BTreeMap<(ReplicaId, Incarnation), Reached>,
    /// The newest reign that answered, and the highest write that it acknowledged.
    served: Term,
    acked: Option<Position>,
    asked: BTreeMap<(ConnectionId, RequestId), Asked>,
    /// Since when its voters are no quorum, and none has been chosen.
    without_quorum: Option<Time>,
}

pub struct Observed {
    volumes: Vec<Volume>,
    /// Reads of two reigns are compared by their moment alone.
    one_reader: bool,
}

/// Who has to have what is acknowledged.
pub struct Quorums {
    /// The voters of the catalog, if it has the grant of the reign that answers.
    pub listed: Option<Voters>,
    /// What the target goes by.
    pub own: Option<Membership>,
}

/// What a request does to the space of pools (Q7).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Frees {
    /// It may take some.
    Nothing,
    TakesNothing,
    /// It gives some back, if no snapshot shares what it covers.
    WithoutSnapshots,
}

/// What an answer was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Replied {
    Done,
    Data,
    Failed,
}

impl Observed {
    pub fn new(plan: &Plan) -> Observed {
        let volumes = plan.volumes.iter().map(|_| Volume::default()).collect();
        Observed { volumes, one_reader: plan.has_check(Check::OneReader) }
    }

    pub fn created(&mut self, replica: ReplicaId, volume: VolumeNo, incarnation: Incarnation) {
        let reached = Reached { incarnation, ..Reached::default() };
        let volume = &mut self.volumes[volume.0];
        if let Some(lost) = volume.reached.insert(replica, reached) {
            volume.lost.insert((replica, lost.incarnation), lost);
        }
    }

    /// Another volume begins as this one was at a position: with its history.
    pub fn cloned(&mut self, origin: VolumeNo, at: Position) {
        let terms = self.terms(origin, at).unwrap_or_default();
        let of = &self.volumes[origin.0];
        let mut clone = Volume::default();
        for (term, seqs) in terms {
            let range = (term, Seq(*seqs.start()))..=(term, Seq(*seqs.end()));
            let entries = of.entries.range(range);
            clone.entries.extend(entries.map(|(at, change)| (*at, change.clone())));
            clone.before.extend(of.before.get(&term).map(|before| (term, *before)));
        }
        self.volumes.push(clone);
    }

    pub fn quorum_lost(&mut self, volume: VolumeNo, now: Time) {
        self.volumes[volume.0].without_quorum = Some(now);
    }

    pub fn quorum_chosen(&mut self, volume: VolumeNo) {
        self.volumes[volume.0].without_quorum = None;
    }

    /// An entry on the wire. One reign gives one seq to one entry.
    pub fn entry(
        &mut self,
        volume: VolumeNo,
        term: Term,
        entry: &Entry,
    ) -> Result<bool, Violation> {
        let entries = &mut self.volumes[volume.0].entries;
        if let Some(known) = entries.get(&(term, entry.seq)) {
            let same = match (known, &entry.change) {
                (
                    Change::Write { offset: a, sums: x, .. },
                    Change::Write { offset: b, sums: y, .. },
                ) => a == b && x == y,
                (a, b) => std::mem::discriminant(a) == std::mem::discriminant(b),
            };
            return match same {
                true => Ok(false),
                false => Err(format!(
                    "two entries at {}.{}: {known:?} {:?}",
                    term.0, entry.seq.0, entry.change
                )),
            };
        }
        entries.insert((term, entry.seq), entry.change.clone());
        Ok(true)
    }

    /// Where a copy is now. True: it is in another reign than before, whose list tells its history.
    pub fn stored(
        &mut self,
        volume: VolumeNo,
        (replica, boot): (ReplicaId, Boot),
        held: Position,
        durable: Position,
    ) -> bool {
        let Some(reached) = self.volumes[volume.0].reached.get_mut(&replica) else { return false };
        let best = reached.held.entry(held.term).or_default();
        *best = (*best).max(held.seq);
        let best = reached.in_boot.entry((boot, held.term)).or_default();
        *best = (*best).max(held.seq);
        let best = reached.durable.entry(durable.term).or_default();
        *best = (*best).max(durable.seq);
        std::mem::replace(&mut reached.last, held).term != held.term
    }

    /// What a replica says. Q2: what a welcome did not tell is not acknowledged to an older reign.
    pub fn said(
        &mut self,
        volume: VolumeNo,
        replica: ReplicaId,
        message: &ForTarget,
    ) -> Result<(), Violation> {
        let reached = self.volumes[volume.0].reached.get_mut(&replica);
        let Some(reached) = reached else { return Ok(()) };
        match (&message.body, reached.welcome) {
            (ToTarget::Welcome(welcome), known) => {
                if known.is_none_or(|(term, _)| term < message.term) {
                    reached.welcome = Some((message.term, welcome.position));
                }
                Ok(())
            }
            (ToTarget::Ack { held, .. }, Some((newest, told)))
                if message.term < newest && *held > told.seq =>
            {
                Err(format!(
                    "Q2: {replica:?} welcomed reign {} at {told} and acknowledges {} to reign {}",
                    newest.0, held.0, message.term.0
                ))
            }
            _ => Ok(()),
        }
    }

    /// A target of this reign was welcomed.
    pub fn welcomed(&mut self, volume: VolumeNo, term: Term, replica: ReplicaId, boot: Boot) {
        let volume = &mut self.volumes[volume.0];
        let acked = volume.acked.filter(|acked| acked.term == term).map(|acked| acked.seq);
        if let Some(reached) = volume.reached.get_mut(&replica) {
            let known = reached.known_by.entry(term).or_insert(boot);
            *known = (*known).max(boot);
            reached.owed.insert(term, acked.unwrap_or_default());
        }
    }

    /// P8: who is told that it has recovered has everything that was acknowledged when it came: from
    /// here on its word counts again.
    pub fn recovered(
        &self,
        volume: VolumeNo,
        term: Term,
        replica: ReplicaId,
    ) -> Result<(), Violation> {
        let Some(reached) = self.volumes[volume.0].reached.get(&replica) else { return Ok(()) };
        let (Some(boot), Some(owed)) = (reached.known_by.get(&term), reached.owed.get(&term))
        else {
            return Ok(());
        };
        let has = reached.in_boot.get(&(*boot, term)).copied().unwrap_or_default();
        match has >= *owed {
            true => Ok(()),
            false => Err(format!(
                "P8: {replica:?} is told that it has recovered: {} was acknowledged, it has {}",
                owed.0, has.0
            )),
        }
    }

    /// A history that a copy has: no reign has two.
    pub fn reigns(&mut self, volume: VolumeNo, list: &[Reign]) -> Result<(), Violation> {
        let before = &mut self.volumes[volume.0].before;
        for (i, reign) in list.iter().enumerate() {
            let earlier = i.checked_sub(1).map(|i| list[i]);
            let Some(earlier) = earlier else {
                if reign.first == Seq(1) {
                    before.entry(reign.term).or_insert(None);
                }
                continue;
            };
            let known = before.entry(reign.term).or_insert(Some(earlier));
            if *known != Some(earlier) {
                return Err(format!(
                    "two histories of {reign:?}: behind {known:?} and {earlier:?}"
                ));
            }
        }
        Ok(())
    }

    pub fn asked(
        &mut self,
        since: Time,
        volume: VolumeNo,
        (connection, id): (ConnectionId, RequestId),
        request: &Request,
    ) {
        let what = match request {
            Request::Read { .. } | Request::Extents { .. } => Asks::Read,
            Request::Write { offset, data, fua } => {
                Asks::Write { offset: *offset, data: data.clone(), fua: *fua }
            }
            Request::Zero { offset, len, how, fua } => {
                Asks::Zero { offset: *offset, len: *len, how: *how, fua: *fua }
            }
            Request::Flush => Asks::Flush,
            Request::Reservations(_) => Asks::Other,
        };
        let volume = &mut self.volumes[volume.0];
        let behind = volume.entries.last_key_value().map(|(at, _)| *at);
        volume.asked.insert((connection, id), Asked { what, since, acked: volume.acked, behind });
    }

    /// Requests that came before this moment and are not answered.
    pub fn unanswered(&self, before: Time) -> impl Iterator<Item = (ConnectionId, RequestId)> {
        let asked = self.volumes.iter().flat_map(|volume| &volume.asked);
        asked.filter(move |(_, asked)| asked.since < before).map(|(request, _)| *request)
    }

    /// Requests of a volume that came before this moment and are not answered.
    pub fn unanswered_of(
        &self,
        volume: VolumeNo,
        before: Time,
    ) -> impl Iterator<Item = (ConnectionId, RequestId)> {
        let asked = self.volumes[volume.0].asked.iter();
        asked.filter(move |(_, asked)| asked.since < before).map(|(request, _)| *request)
    }

    pub fn frees(
        &self,
        volume: VolumeNo,
        request: (ConnectionId, RequestId),
        granule: u64,
    ) -> Frees {
        match self.volumes[volume.0].asked.get(&request).map(|asked| &asked.what) {
            Some(Asks::Flush | Asks::Read | Asks::Other) => Frees::TakesNothing,
            Some(Asks::Zero { offset, len, how: Zeroing::Discard, .. })
                if offset.0.is_multiple_of(granule) && len.0.is_multiple_of(granule) =>
            {
                Frees::WithoutSnapshots
            }
            _ => Frees::Nothing,
        }
    }

    /// A reply leaves a target of this reign.
    pub fn replied(
        &mut self,
        volume: VolumeNo,
        term: Term,
        request: (ConnectionId, RequestId),
        replied: Replied,
        quorums: &Quorums,
    ) -> Result<bool, Violation> {
        let volume = &mut self.volumes[volume.0];
        let Some(asked) = volume.asked.remove(&request) else {
            return Err(format!("{request:?} is answered, and was not asked or answered before"));
        };
        if replied == Replied::Failed {
            return Ok(false);
        }
        if self.one_reader && replied == Replied::Data && term < volume.served {
            return Err(format!(
                "P5: a read is answered by reign {} after reign {} answered",
                term.0, volume.served.0
            ));
        }
        volume.judge_offline(term, replied, &asked)?;
        let first = term > volume.served;
        if first {
            volume.judge_first(term, quorums)?;
        }
        volume.served = volume.served.max(term);
        volume.judge(term, &asked, quorums)?;
        Ok(first)
    }
}

impl Volume {
    /// Q12: without a quorum nothing is done that came since, and nothing is read once the last lease
    /// is over. A flush behind which nothing was written is a look at what is known to be durable.
    fn judge_offline(&self, term: Term, replied: Replied, asked: &Asked) -> Result<(), Violation> {
        let Some(since) = self.without_quorum else { return Ok(()) };
        let looks = replied == Replied::Data || matches!(asked.what, Asks::Flush);
        let lease = if looks { LEASE.0 + LEASE.0 / 20 } else { 0 };
        match asked.since > since.after(lease) {
            false => Ok(()),
            true => Err(format!("Q12: reign {} answers, and has no quorum: {replied:?}", term.0)),
        }
    }

    /// Q3: what a reign serves cannot vanish any more: its barrier is durable on a quorum.
    fn judge_first(&self, term: Term, quorums: &Quorums) -> Result<(), Violation> {
        let mut of_term = self.entries.range((term, Seq(0))..=(term, Seq(u64::MAX)));
        let Some(((_, barrier), _)) = of_term.next() else {
            return Err(format!("Q3: reign {} answers and has no barrier", term.0));
        };
        let at = Position { term, seq: *barrier };
        self.on_quorums(at, quorums, true, "Q3: what stands behind the barrier")
    }

    fn judge(&mut self, term: Term, asked: &Asked, quorums: &Quorums) -> Result<(), Violation> {
        let fua = match &asked.what {
            Asks::Write { fua, .. } | Asks::Zero { fua, .. } => *fua,
            Asks::Flush => {
                let covered = asked.acked.filter(|acked| acked.term == term);
                return match covered {
                    Some(acked) => self.on_quorums(acked, quorums, true, "P2: a flush"),
                    None => Ok(()),
                };
            }
            Asks::Read | Asks::Other => return Ok(()),
        };
        let newer = asked.behind.map(|(newest, _)| newest).filter(|newest| *newest > term);
        let mut verdict = Err(match newer {
            Some(newer) => format!(
                "P5: a write that came when reign {} had begun was acknowledged by reign {}",
                newer.0, term.0
            ),
            None => format!("a write was acknowledged by reign {} and never sent", term.0),
        });
        // Two requests may be alike: it is enough that one entry of this kind is where it has to be.
        for seq in self.fitting(term, asked) {
            let at = Position { term, seq };
            verdict = self.on_quorums(at, quorums, fua, "P1: a write");
            if verdict.is_ok() {
                self.acked = self.acked.max(Some(at));
                break;
            }
        }
        verdict
    }

    /// Entries of a reign that may be what was asked for.
    fn fitting(&self, term: Term, asked: &Asked) -> Vec<Seq> {
        let of_term = self.entries.range((term, Seq(0))..=(term, Seq(u64::MAX)));
        let fits =
            of_term.filter(|(at, change)| Some(**at) > asked.behind && asked.what.is(change));
        fits.map(|((_, seq), _)| *seq).collect()
    }

    /// By the catalog's word, and by what the target itself goes by: of both sets while a change is
    /// under way, also where another node has the grant by now.
    fn on_quorums(
        &self,
        at: Position,
        quorums: &Quorums,
        durably: bool,
        what: &str,
    ) -> Result<(), Violation> {
        if let Some(voters) = &quorums.listed {
            self.on_quorum(at, voters, durably, what)?;
        }
        if let Some(own) = &quorums.own {
            let what = format!("{what}, by the target's own membership,");
            for voters in std::iter::once(&own.voters).chain(&own.next) {
                self.on_quorum(at, voters, durably, &what)?;
            }
        }
        Ok(())
    }

    fn on_quorum(
        &self,
        at: Position,
        voters: &Voters,
        durably: bool,
        what: &str,
    ) -> Result<(), Violation> {
        let has = |member: &&replication::membership::Member| {
            let lost = self.lost.get(&(member.replica, member.incarnation));
            let present = self.reached.get(&member.replica);
            let present = present.filter(|reached| reached.incarnation == member.incarnation);
            present.or(lost).is_some_and(|reached| reached.has(at, durably))
        };
        let count = voters.members.iter().filter(has).count();
        match count >= voters.cf() {
            true => Ok(()),
            false => Err(format!(
                "{what} at {at} was acknowledged, {count} of {} voters have it{}: {:?}",
                voters.members.len(),
                if durably { " durably" } else { "" },
                self.reached
            )),
        }
    }
}
