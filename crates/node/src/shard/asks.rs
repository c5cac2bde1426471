//! Between front ends and a target: questions become requests, answers come back.
//!
//! A target takes requests of at most [`REQUEST_MAX`] bytes; larger questions are cut here, and
//! their answers put together. Nobody promised that a large write is atomic.
use std::collections::{HashMap, VecDeque};

use block::{Buf, ByteLen, ByteOffset};
use frontend::ask::{Answer, Ask, AskError, AskId, Extent, Zeroing};
use frontend::export::OpenError;
use frontend::scsi::words::NexusId;
use replication::client::{self, IoError, LoginError, Request, RequestId};
use replication::constants::REQUEST_MAX;
use replication::entry;

use super::reads::Reads;

/// Request ids from here on are parts of a larger question; those of whole questions are below.
const PARTS: u64 = 1 << AskId::BITS;

/// A volume has at most one extent for so many bytes, and an extent takes so many in an answer.
const GRANULE_MIN: u64 = 4096;
const EXTENT_BYTES: u64 = 16;

/// Who uses a volume over a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asker {
    Nbd { line: usize },
    Iscsi { nexus: NexusId },
}

/// What is put together again.
#[derive(Debug)]
struct Join {
    left: usize,
    /// Where the parts of a read go.
    bytes: Option<Buf>,
    failed: Option<AskError>,
}

/// The questions of one login.
#[derive(Debug, Default)]
pub struct Splitter {
    /// Those that are asked and not answered, with the memory that they were given.
    asked: HashMap<AskId, u64>,
    parts: HashMap<RequestId, (AskId, usize)>,
    joins: HashMap<AskId, Join>,
    last: u64,
    /// Memory of reads under way.
    reads: u64,
    /// What is to be asked, in order; most of the time it is as soon as it is here.
    waiting: VecDeque<(AskId, Ask)>,
}

impl Splitter {
    /// Takes a question; [`Splitter::ask`] asks it. What needs no memory does not wait behind what does:
    /// nobody promised an order to requests that are under way at the same time.
    pub fn submit(&mut self, id: AskId, ask: Ask) {
        match memory_of(&ask) {
            0 => self.waiting.push_front((id, ask)),
            _ => self.waiting.push_back((id, ask)),
        }
    }

    pub fn has_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Asks what waits, as far as there is memory for reads. `true`: the rest waits for others, since
    /// nothing of this login is under way that would make room.
    pub fn ask(
        &mut self,
        asker: Asker,
        memory: &mut Reads,
        mut each: impl FnMut(RequestId, Request),
    ) -> bool {
        while let Some((_, ask)) = self.waiting.front() {
            let bytes = memory_of(ask);
            if bytes > 0 && !memory.has_room(asker, self.reads, bytes) {
                return self.reads == 0;
            }
            let Some((id, ask)) = self.waiting.pop_front() else { break };
            memory.take(asker, self.reads, bytes);
            self.reads += bytes;
            self.asked.insert(id, bytes);
            self.split(id, ask, &mut each);
        }
        false
    }

    /// The login is over: what was asked and is not answered, also if it still waited.
    pub fn end(self, asker: Asker, memory: &mut Reads) -> Vec<AskId> {
        memory.release(self.reads, self.reads);
        memory.leave_line(asker);
        self.asked.into_keys().chain(self.waiting.into_iter().map(|(id, _)| id)).collect()
    }

    /// The requests that a question is made of.
    fn split(&mut self, id: AskId, ask: Ask, mut each: impl FnMut(RequestId, Request)) {
        assert!(id.0 < PARTS, "{id:?} would be taken for a part of another question");
        let whole = RequestId(id.0);
        match ask {
            Ask::Read { offset, len } if len.0 > REQUEST_MAX => {
                let bytes = Buf::zeroed(usize::try_from(len.0).expect("a front end bounds it"));
                self.join(id, len, Some(bytes), |part, at, len| {
                    let offset = ByteOffset(offset.0 + at);
                    each(part, Request::Read { offset, len: ByteLen(len) });
                });
            }
            Ask::Write { offset, data, fua } if data.len() as u64 > REQUEST_MAX => {
                let len = ByteLen(data.len() as u64);
                self.join(id, len, None, |part, at, len| {
                    let from = usize::try_from(at).expect("within the data");
                    let to = from + usize::try_from(len).expect("within the data");
                    let offset = ByteOffset(offset.0 + at);
                    each(part, Request::Write { offset, data: data.slice(from..to), fua });
                });
            }
            Ask::Read { offset, len } => each(whole, Request::Read { offset, len }),
            Ask::Write { offset, data, fua } => each(whole, Request::Write { offset, data, fua }),
            Ask::Zero { offset, len, how, fua } => {
                let how = match how {
                    Zeroing::Zeroes => entry::Zeroing::Zeroes,
                    Zeroing::Discard => entry::Zeroing::Discard,
                };
                each(whole, Request::Zero { offset, len, how, fua });
            }
            Ask::Flush => each(whole, Request::Flush),
            Ask::Extents { offset, len } => each(whole, Request::Extents { offset, len }),
            Ask::Reservations(bytes) => each(whole, Request::Reservations(bytes)),
        }
    }

    fn join(
        &mut self,
        id: AskId,
        len: ByteLen,
        bytes: Option<Buf>,
        mut each: impl FnMut(RequestId, u64, u64),
    ) {
        let mut at = 0;
        let mut left = 0;
        while at < len.0 {
            let part = (len.0 - at).min(REQUEST_MAX);
            self.last += 1;
            let request = RequestId(PARTS | self.last);
            let start = usize::try_from(at).expect("a front end bounds it");
            self.parts.insert(request, (id, start));
            left += 1;
            each(request, at, part);
            at += part;
        }
        self.joins.insert(id, Join { left, bytes, failed: None });
    }

    /// The answer to a question, once all its parts are answered.
    pub fn answered(
        &mut self,
        id: RequestId,
        result: Result<client::Answer, IoError>,
        memory: &mut Reads,
    ) -> Option<(AskId, Result<Answer, AskError>)> {
        let (ask, result) = self.join_part(id, result)?;
        let bytes = self.asked.remove(&ask).unwrap_or_default();
        memory.release(self.reads, bytes);
        self.reads -= bytes;
        Some((ask, result))
    }

    fn join_part(
        &mut self,
        id: RequestId,
        result: Result<client::Answer, IoError>,
    ) -> Option<(AskId, Result<Answer, AskError>)> {
        let result = result.map_err(ask_error);
        if id.0 < PARTS {
            return Some((AskId(id.0), result.map(answer)));
        }
        let (ask, at) = self.parts.remove(&id)?;
        let join = self.joins.get_mut(&ask).expect("a part belongs to a question");
        join.left -= 1;
        match (result, &mut join.bytes) {
            (Ok(client::Answer::Read(data)), Some(bytes)) => {
                bytes[at..at + data.len()].copy_from_slice(&data);
            }
            (Ok(_), _) => {}
            (Err(error), _) => join.failed = Some(error),
        }
        if join.left > 0 {
            return None;
        }
        let join = self.joins.remove(&ask).expect("it was just there");
        let done = match (join.failed, join.bytes) {
            (Some(error), _) => Err(error),
            (None, Some(bytes)) => Ok(Answer::Read(bytes.into_data())),
            (None, None) => Ok(Answer::Done),
        };
        Some((ask, done))
    }
}

/// Memory that a question takes until it is answered. A read that is put together takes it twice: where its
/// parts land, and where they go.
fn memory_of(ask: &Ask) -> u64 {
    match ask {
        Ask::Read { len, .. } if len.0 > REQUEST_MAX => 2 * len.0,
        Ask::Read { len, .. } => len.0,
        Ask::Extents { len, .. } => (len.0 / GRANULE_MIN * EXTENT_BYTES).clamp(1, REQUEST_MAX),
        Ask::Write { .. } | Ask::Zero { .. } | Ask::Flush | Ask::Reservations(_) => 0,
    }
}

fn answer(answer: client::Answer) -> Answer {
    match answer {
        client::Answer::Read(data) => Answer::Read(data),
        client::Answer::Extents(extents) => {
            let extent = |it: client::Extent| Extent { len: it.len, has_data: it.has_data };
            Answer::Extents(extents.into_iter().map(extent).collect())
        }
        client::Answer::Done => Answer::Done,
    }
}

fn ask_error(error: IoError) -> AskError {
    match error {
        IoError::BadRange { .. } => AskError::OutOfRange,
        IoError::NoQuorum { reason } => AskError::NoQuorum { reason },
        IoError::NoSpace => AskError::NoSpace,
        IoError::Damaged { offset } => AskError::Damaged { offset },
        IoError::Superseded => AskError::Superseded,
        IoError::UnflushedWritesLost => AskError::UnflushedWritesLost,
        IoError::Busy => AskError::Busy,
        IoError::Stopped => AskError::Stopped,
    }
}

pub fn open_error(error: &LoginError) -> OpenError {
    match error {
        LoginError::OlderConnection => OpenError::OlderConnection,
        LoginError::UnflushedWritesLost => OpenError::UnflushedWritesLost,
        LoginError::Stopped => {
            OpenError::NotReady { reason: "nobody can serve the volume now; try again".into() }
        }
    }
}

#[cfg(test)]
mod tests {
    use block::Data;

    use super::*;

    const ASKER: Asker = Asker::Nbd { line: 0 };

    fn requests(splitter: &mut Splitter, id: u64, ask: Ask) -> Vec<(RequestId, Request)> {
        let mut requests = Vec::new();
        splitter.submit(AskId(id), ask);
        splitter.ask(ASKER, &mut Reads::default(), |id, request| requests.push((id, request)));
        requests
    }

    #[test]
    fn a_small_question_is_one_request() {
        let splitter = &mut Splitter::default();
        let ask = Ask::Read { offset: ByteOffset(512), len: ByteLen(REQUEST_MAX) };
        let asked = requests(splitter, 7, ask);
        assert_eq!(asked.len(), 1);
        let (id, result) = splitter.join_part(asked[0].0, Err(IoError::NoSpace)).unwrap();
        assert_eq!((id, result.unwrap_err()), (AskId(7), AskError::NoSpace));
    }

    /// Protects from parts that come back in another order, and from questions that are answered
    /// before all of their parts are.
    #[test]
    fn a_large_read_is_put_together() {
        let splitter = &mut Splitter::default();
        let len = 2 * REQUEST_MAX + 512;
        let mut asked =
            requests(splitter, 7, Ask::Read { offset: ByteOffset(4096), len: ByteLen(len) });
        assert_eq!(asked.len(), 3);
        asked.reverse();
        for (number, (id, request)) in asked.into_iter().enumerate() {
            let Request::Read { offset, len } = request else { panic!("{request:?}") };
            let fill = u8::try_from((offset.0 - 4096) / REQUEST_MAX).unwrap();
            let data = Data::copy_of(&vec![fill; usize::try_from(len.0).unwrap()]);
            let answered = splitter.join_part(id, Ok(client::Answer::Read(data)));
            assert_eq!(answered.is_some(), number == 2);
            if let Some((_, Ok(Answer::Read(data)))) = answered {
                assert_eq!(data.len() as u64, 2 * REQUEST_MAX + 512);
                assert_eq!((data[0], data[1 << 20], data[2 << 20]), (0, 1, 2));
            }
        }
        assert!(splitter.joins.is_empty() && splitter.parts.is_empty());
    }

    #[test]
    fn one_failed_part_fails_the_question() {
        let splitter = &mut Splitter::default();
        let data = Data::copy_of(&vec![1; 3 << 20]);
        let ask = Ask::Write { offset: ByteOffset(0), data, fua: true };
        let asked = requests(splitter, 1, ask);
        assert!(splitter.join_part(asked[0].0, Ok(client::Answer::Done)).is_none());
        assert!(splitter.join_part(asked[1].0, Err(IoError::NoSpace)).is_none());
        let (_, result) = splitter.join_part(asked[2].0, Ok(client::Answer::Done)).unwrap();
        assert_eq!(result.unwrap_err(), AskError::NoSpace);
    }

    /// Protects from memory that is kept for answers that nobody waits for any more, and from reads
    /// without a bound: 128 of 16 MiB are asked for with 6 KB.
    #[test]
    fn reads_of_a_login_are_bounded_and_go_with_it() {
        let (splitter, memory) = (&mut Splitter::default(), &mut Reads::default());
        for id in 0..128 {
            splitter.submit(AskId(id), Ask::Read { offset: ByteOffset(0), len: ByteLen(16 << 20) });
        }
        let mut asked = Vec::new();
        assert!(!splitter.ask(ASKER, memory, |id, _| asked.push(id)), "it waits for its own");
        assert_eq!((asked.len(), splitter.joins.len()), (16, 1));
        for id in asked {
            let answered = splitter.answered(id, Err(IoError::NoSpace), memory);
            assert_eq!(answered.is_some(), splitter.joins.is_empty());
        }
        let mut more = 0;
        splitter.ask(ASKER, memory, |_, _| more += 1);
        assert_eq!((more, splitter.joins.len()), (16, 1), "the next has its turn");
        let left = std::mem::take(splitter).end(ASKER, memory);
        assert_eq!(left.len(), 127);
        assert!(memory.has_room(ASKER, 0, 256 << 20), "everything was given back");
    }
}
