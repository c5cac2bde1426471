//! Reads: from one replica that has everything acknowledged, answered when what was read can no
//! longer vanish, and only under the lease (P3, P5).
//!
//! Where a read is kept says how far it is, so that no event looks at more of them than it moves.
use std::collections::{BTreeMap, VecDeque};

use block::{ByteLen, ByteOffset, Data, LOGICAL_SECTOR, Seq};

use crate::client::{Answer, ConnectionId, Extent, IoError, RequestId};
use crate::message::{AskId, ReadFailure, RoundPoint, ToReplica};
use crate::target::peer::Peer;
use crate::target::{Cx, Output, Target, off};
use crate::words::{Moment, ReplicaId, Span};

/// How long a replica that could not answer is left alone.
const PAUSE: Span = Span::millis(50);

/// What is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    Bytes,
    /// What is allocated: as much a fact about the content as its bytes.
    Extents,
}

#[derive(Debug)]
struct Read {
    connection: ConnectionId,
    id: RequestId,
    what: What,
    offset: ByteOffset,
    len: ByteLen,
    deadline: Moment,
    /// Their copies are damaged.
    bad: Vec<ReplicaId>,
    /// Not before this moment is somebody asked again.
    not_before: Moment,
}

/// A read whose answer is there.
#[derive(Debug)]
struct Ready {
    read: Read,
    ask: AskId,
    answer: Answer,
    /// The answer may be of any entry up to this one: those that touch its range have to be held
    /// by a quorum first.
    newest: Seq,
}

impl Read {
    fn is_answered_by(&self, answer: &Answer) -> bool {
        match (self.what, answer) {
            (What::Bytes, Answer::Read(data)) => data.len() as u64 == self.len.0,
            (What::Extents, Answer::Extents(extents)) => {
                let told = extents.iter().try_fold(0u64, |told, it| told.checked_add(it.len.0));
                let whole = |it: &Extent| it.len.0 > 0 && it.len.0.is_multiple_of(LOGICAL_SECTOR);
                let differ = extents.windows(2).all(|pair| pair[0].has_data != pair[1].has_data);
                told.is_some_and(|told| (1..=self.len.0).contains(&told))
                    && extents.iter().all(whole)
                    && differ
            }
            (What::Bytes | What::Extents, _) => false,
        }
    }
}

#[derive(Debug, Default)]
pub struct Reads {
    /// For the next replica that has everything.
    fresh: VecDeque<Read>,
    /// Somebody could not answer them; each waits for its moment, or for somebody else.
    again: Vec<Read>,
    asked: BTreeMap<AskId, (ReplicaId, Read)>,
    /// By the newest entry that they may have seen and that is not committed.
    held_up: BTreeMap<(Seq, AskId), Ready>,
    /// They leave with the lease.
    ready: Vec<Ready>,
    /// How many of these were counted as waiting for the lease.
    counted: usize,
    /// What was committed is not any more, as far as the books go.
    went_back: bool,
    /// Answers that had to wait for the lease.
    pub without_lease: u64,
}

impl Reads {
    pub fn len(&self) -> usize {
        let waiting = self.fresh.len() + self.again.len() + self.asked.len();
        waiting + self.held_up.len() + self.ready.len()
    }

    pub fn add(
        &mut self,
        connection: ConnectionId,
        id: RequestId,
        what: What,
        (offset, len): (ByteOffset, ByteLen),
        deadline: Moment,
    ) {
        let (bad, not_before) = (Vec::new(), Moment(0));
        self.fresh.push_back(Read { connection, id, what, offset, len, deadline, bad, not_before });
    }

    /// Takes out those that are meant, wherever they are. Looks at all: not for every event.
    fn extract(&mut self, is_it: impl Fn(&Read) -> bool) -> Vec<(ConnectionId, RequestId)> {
        let mut gone = Vec::new();
        let mut keep = |read: &Read| {
            let keep = !is_it(read);
            if !keep {
                gone.push((read.connection, read.id));
            }
            keep
        };
        self.fresh.retain(&mut keep);
        self.again.retain(&mut keep);
        self.asked.retain(|_, (_, read)| keep(read));
        self.held_up.retain(|_, ready| keep(&ready.read));
        self.ready.retain(|ready| keep(&ready.read));
        self.counted = self.counted.min(self.ready.len());
        gone
    }

    pub fn drop_of(&mut self, connection: ConnectionId) {
        self.extract(|read| read.connection == connection);
    }

    pub fn expire(&mut self, now: Moment) -> Vec<(ConnectionId, RequestId)> {
        self.extract(|read| now >= read.deadline)
    }

    pub fn drain(&mut self) -> Vec<(ConnectionId, RequestId)> {
        self.extract(|_| true)
    }

    /// A replica will not answer any more: others are asked, first of all.
    pub fn ask_anew(&mut self, gone: ReplicaId) {
        let lost = self.asked.extract_if(.., |_, (replica, _)| *replica == gone);
        let lost: Vec<Read> = lost.map(|(_, (_, read))| read).collect();
        for read in lost.into_iter().rev() {
            match read.bad.is_empty() {
                true => self.fresh.push_front(read),
                false => self.again.push(read),
            }
        }
    }

    /// The books went back: what waits for the lease is judged once more.
    pub fn committed_less(&mut self) {
        self.went_back = true;
    }
}

impl Target {
    pub(super) fn go_on_reading(&mut self, cx: &mut Cx<'_>) {
        if !self.is_serving() {
            return;
        }
        self.ask_fresh(cx);
        self.ask_again(cx);
        if std::mem::take(&mut self.reads.went_back) {
            for ready in std::mem::take(&mut self.reads.ready) {
                self.judge(ready);
            }
            self.reads.counted = self.reads.counted.min(self.reads.ready.len());
        }
        self.answer_ready(cx);
    }

    fn answer_ready(&mut self, cx: &mut Cx<'_>) {
        let committed = self.sequence.committed;
        while let Some(first) = self.reads.held_up.first_entry()
            && first.key().0 <= committed
        {
            self.reads.ready.push(first.remove());
        }
        if self.reads.ready.is_empty() {
            return;
        }
        if !self.has_lease(cx.now) {
            let reads = &mut self.reads;
            reads.without_lease += (reads.ready.len() - reads.counted) as u64;
            reads.counted = reads.ready.len();
            return;
        }
        self.reads.counted = 0;
        for Ready { read, answer, .. } in self.reads.ready.drain(..) {
            let Read { connection, id, .. } = read;
            cx.out.push(Output::Reply { connection, id, result: Ok(answer) });
        }
    }

    /// Whether an answer waits for an entry that it may have seen.
    fn judge(&mut self, ready: Ready) {
        let Read { offset, len, .. } = ready.read;
        let open = self.sequence.unsafe_overlap(offset, len, ready.newest);
        match open.filter(|_| !off!(self, ReadsWait)) {
            Some(seq) => drop(self.reads.held_up.insert((seq, ready.ask), ready)),
            None => self.reads.ready.push(ready),
        }
    }

    fn ask_fresh(&mut self, cx: &mut Cx<'_>) {
        while !self.reads.fresh.is_empty()
            && let Some(replica) = self.reader(&[])
            && let Some(read) = self.reads.fresh.pop_front()
        {
            self.ask_for(replica, read, cx);
        }
    }

    fn ask_again(&mut self, cx: &mut Cx<'_>) {
        for read in std::mem::take(&mut self.reads.again) {
            let reader = match cx.now < read.not_before {
                true => None,
                false => self.reader(&read.bad),
            };
            match reader {
                Some(replica) => self.ask_for(replica, read, cx),
                None if self.is_bad_everywhere(&read.bad) => {
                    let Read { connection, id, offset, .. } = read;
                    let result = Err(IoError::Damaged { offset });
                    cx.out.push(Output::Reply { connection, id, result });
                }
                None => self.reads.again.push(read),
            }
        }
    }

    fn ask_for(&mut self, replica: ReplicaId, read: Read, cx: &mut Cx<'_>) {
        let id = self.ask_id();
        let Read { what, offset, len, .. } = read;
        self.reads.asked.insert(id, (replica, read));
        let body = match what {
            What::Bytes => ToReplica::Read { id, of: RoundPoint::Now, offset, len },
            What::Extents => ToReplica::Extents { id, offset, len },
        };
        self.ask_reader(replica, body, cx);
    }

    pub(super) fn ask_read(
        &mut self,
        replica: ReplicaId,
        id: AskId,
        of: RoundPoint,
        (offset, len): (ByteOffset, ByteLen),
        cx: &mut Cx<'_>,
    ) {
        self.ask_reader(replica, ToReplica::Read { id, of, offset, len }, cx);
    }

    fn ask_reader(&mut self, replica: ReplicaId, body: ToReplica, cx: &mut Cx<'_>) {
        let peer = self.peers.get_mut(&replica).expect("readers are peers");
        peer.reads += 1;
        let link = peer.link.expect("whoever is asked has a connection");
        cx.send(replica, link, self.term, body);
    }

    /// Who can answer a read now: the local replica, or the least busy one, of those who have all
    /// that was acknowledged.
    pub(super) fn reader(&self, bad: &[ReplicaId]) -> Option<ReplicaId> {
        let acked = self.sequence.acked;
        let able = self.peers.iter().filter(|(id, peer)| {
            peer.is_in_stream()
                && peer.held >= acked
                && !bad.contains(id)
                && self.steps.membership.has(peer.member)
        });
        let local = self.config.local;
        able.min_by_key(|(id, peer)| (Some(**id) != local, peer.reads)).map(|(id, _)| *id)
    }

    /// Whether every voter's copy was found damaged.
    fn is_bad_everywhere(&self, bad: &[ReplicaId]) -> bool {
        let voters = self.steps.membership.everybody();
        !bad.is_empty() && voters.iter().all(|member| bad.contains(&member.replica))
    }

    pub(super) fn read_done(
        &mut self,
        replica: ReplicaId,
        ask: AskId,
        result: Result<Data, ReadFailure>,
        cx: &mut Cx<'_>,
    ) {
        if self.repairs.is_asking(ask) {
            self.peers.entry(replica).and_modify(Peer::answered_read);
            return self.good_copy(ask, result, cx);
        }
        self.read_answered(replica, ask, result.map(Answer::Read), cx);
    }

    pub(super) fn extents_done(
        &mut self,
        replica: ReplicaId,
        ask: AskId,
        result: Result<Vec<Extent>, ReadFailure>,
        cx: &mut Cx<'_>,
    ) {
        self.read_answered(replica, ask, result.map(Answer::Extents), cx);
    }

    fn read_answered(
        &mut self,
        replica: ReplicaId,
        ask: AskId,
        result: Result<Answer, ReadFailure>,
        cx: &mut Cx<'_>,
    ) {
        self.peers.entry(replica).and_modify(Peer::answered_read);
        let Some((_, mut read)) = self.reads.asked.remove(&ask) else { return };
        match result {
            Ok(answer) if read.is_answered_by(&answer) => {
                let newest = self.sequence.last();
                self.judge(Ready { read, ask, answer, newest });
            }
            Err(ReadFailure::Damaged { offset }) => {
                read.bad.push(replica);
                self.reads.again.push(read);
                self.repair(replica, RoundPoint::Now, offset, cx);
            }
            // It is busy, or has just left the stream: that says nothing of its copy.
            Ok(_) | Err(ReadFailure::Failed | ReadFailure::Busy) => {
                read.not_before = cx.now + PAUSE;
                self.reads.again.push(read);
            }
        }
    }
}
