//! Reads: from one replica that has everything acknowledged, answered when what was read can no
//! longer vanish, and only under the lease (P3, P5).
use std::collections::BTreeMap;

use block::{ByteLen, ByteOffset, Data, Seq};

use crate::client::{Answer, ConnectionId, IoError, RequestId};
use crate::message::{AskId, ReadFailure, RoundPoint, ToReplica};
use crate::target::{Cx, Output, Target, off};
use crate::words::{Moment, ReplicaId, Span};

/// How long a replica that could not answer is left alone.
const PAUSE: Span = Span::millis(50);

#[derive(Debug)]
struct Read {
    connection: ConnectionId,
    id: RequestId,
    offset: ByteOffset,
    len: ByteLen,
    deadline: Moment,
    /// Their copies are damaged.
    bad: Vec<ReplicaId>,
    /// Not before this moment is somebody asked again.
    not_before: Moment,
    state: ReadState,
}

#[derive(Debug)]
enum ReadState {
    /// Nobody was asked yet.
    Waiting,
    Asked {
        replica: ReplicaId,
        ask: AskId,
    },
    /// The bytes are there. They may be of any entry up to this one: those that touch them have
    /// to be held by a quorum first.
    Ready {
        data: Data,
        newest: Seq,
    },
}

#[derive(Debug, Default)]
pub struct Reads {
    reads: BTreeMap<u64, Read>,
    next: u64,
    /// Answers that had to wait for the lease.
    pub without_lease: u64,
}

impl Reads {
    pub fn len(&self) -> usize {
        self.reads.len()
    }

    pub fn add(
        &mut self,
        connection: ConnectionId,
        id: RequestId,
        offset: ByteOffset,
        len: ByteLen,
        deadline: Moment,
    ) {
        let (bad, not_before, state) = (Vec::new(), Moment(0), ReadState::Waiting);
        let read = Read { connection, id, offset, len, deadline, bad, not_before, state };
        self.reads.insert(self.next, read);
        self.next += 1;
    }

    pub fn drop_of(&mut self, connection: ConnectionId) {
        self.reads.retain(|_, read| read.connection != connection);
    }

    /// A replica will not answer any more.
    pub fn ask_anew(&mut self, gone: ReplicaId) {
        for read in self.reads.values_mut() {
            if matches!(read.state, ReadState::Asked { replica, .. } if replica == gone) {
                read.state = ReadState::Waiting;
            }
        }
    }

    pub fn expire(&mut self, now: Moment) -> Vec<(ConnectionId, RequestId)> {
        let late = self.reads.extract_if(.., |_, read| now >= read.deadline);
        late.map(|(_, read)| (read.connection, read.id)).collect()
    }

    pub fn drain(&mut self) -> Vec<(ConnectionId, RequestId)> {
        let all = std::mem::take(&mut self.reads).into_values();
        all.map(|read| (read.connection, read.id)).collect()
    }
}

impl Target {
    pub(super) fn go_on_reading(&mut self, cx: &mut Cx<'_>) {
        if !self.is_serving() {
            return;
        }
        let leased = self.has_lease(cx.now);
        let waiting: Vec<u64> = self.reads.reads.keys().copied().collect();
        for key in waiting {
            match self.reads.reads[&key].state {
                ReadState::Waiting if cx.now < self.reads.reads[&key].not_before => {}
                ReadState::Waiting => self.ask_somebody(key, cx),
                ReadState::Asked { .. } => {}
                ReadState::Ready { newest, .. } => {
                    let Read { offset, len, .. } = self.reads.reads[&key];
                    let open = self.sequence.unsafe_overlap(offset, len, newest);
                    let held = open.is_none() || off!(self, ReadsWait);
                    if held && leased {
                        self.answer_read(key, cx);
                    } else if held {
                        self.reads.without_lease += 1;
                    }
                }
            }
        }
    }

    fn answer_read(&mut self, key: u64, cx: &mut Cx<'_>) {
        let read = self.reads.reads.remove(&key).expect("it was just looked at");
        let Read { connection, id, state, .. } = read;
        let ReadState::Ready { data, .. } = state else {
            unreachable!("only a read with its bytes is answered")
        };
        cx.out.push(Output::Reply { connection, id, result: Ok(Answer::Read(data)) });
    }

    /// Asks the local replica, or the least busy one, of those who have all that was acknowledged.
    fn ask_somebody(&mut self, key: u64, cx: &mut Cx<'_>) {
        let read = &self.reads.reads[&key];
        let (offset, len, bad) = (read.offset, read.len, read.bad.clone());
        let Some(replica) = self.reader(&bad) else {
            if self.is_bad_everywhere(&bad) {
                let read = self.reads.reads.remove(&key).expect("looked at above");
                let (connection, id) = (read.connection, read.id);
                let result = Err(IoError::Damaged { offset });
                cx.out.push(Output::Reply { connection, id, result });
            }
            return;
        };
        let ask = self.ask_id();
        let read = self.reads.reads.get_mut(&key).expect("looked at above");
        read.state = ReadState::Asked { replica, ask };
        self.ask_read(replica, ask, RoundPoint::Now, (offset, len), cx);
    }

    pub(super) fn ask_read(
        &mut self,
        replica: ReplicaId,
        id: AskId,
        of: RoundPoint,
        (offset, len): (ByteOffset, ByteLen),
        cx: &mut Cx<'_>,
    ) {
        let peer = self.peers.get_mut(&replica).expect("readers are peers");
        peer.reads += 1;
        let link = peer.link.expect("whoever is asked has a connection");
        cx.send(replica, link, self.term, ToReplica::Read { id, of, offset, len });
    }

    /// Who can answer a read now.
    pub(super) fn reader(&self, bad: &[ReplicaId]) -> Option<ReplicaId> {
        let acked = self.sequence.acked;
        let able = self.peers.iter().filter(|(id, peer)| {
            let votes = self.steps.membership.has(peer.member);
            peer.is_in_stream() && votes && peer.held >= acked && !bad.contains(id)
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
        if let Some(peer) = self.peers.get_mut(&replica) {
            peer.reads = peer.reads.saturating_sub(1);
        }
        if self.repairs.is_asking(ask) {
            return self.good_copy(ask, result, cx);
        }
        let is_it =
            |read: &Read| matches!(read.state, ReadState::Asked { ask: it, .. } if it == ask);
        let Some(key) = self.reads.reads.iter().find(|(_, read)| is_it(read)).map(|(key, _)| *key)
        else {
            return;
        };
        let read = self.reads.reads.get_mut(&key).expect("found above");
        match result {
            Ok(data) if data.len() as u64 == read.len.0 => {
                read.state = ReadState::Ready { data, newest: self.sequence.last() };
            }
            Err(ReadFailure::Damaged { offset }) => {
                read.state = ReadState::Waiting;
                read.bad.push(replica);
                self.repair(replica, RoundPoint::Now, offset, cx);
            }
            // It is busy, or has just left the stream: that says nothing of its copy.
            Ok(_) | Err(ReadFailure::Failed | ReadFailure::Busy) => {
                read.state = ReadState::Waiting;
                read.not_before = cx.now + PAUSE;
            }
        }
    }
}
