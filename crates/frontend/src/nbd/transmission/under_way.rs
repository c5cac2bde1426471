//! Requests that the volume was asked about, and those that wait until it may be.
use std::collections::VecDeque;

use block::ByteLen;

use super::reply::Echo;
use crate::ask::{Ask, AskId};
use crate::nbd::connection::Output;
use crate::nbd::limits::{PAYLOAD_UNDER_WAY_MAX, READS_MAX, REQUESTS_MAX};
use crate::nbd::session::Heads;

/// The answer that belongs to a question, and how it is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expects {
    Done,
    Read,
    Written,
    Extents {
        heads: Heads,
        /// The client wants no more than one.
        one: bool,
    },
}

/// What has to be known of a request when its answer comes.
#[derive(Clone, Copy, Debug)]
pub struct Asked {
    pub echo: Echo,
    pub len: ByteLen,
    pub expects: Expects,
}

impl Asked {
    /// Memory that it holds until it is answered.
    fn payload(&self) -> u64 {
        match self.expects {
            Expects::Read | Expects::Written => self.len.0,
            Expects::Done | Expects::Extents { .. } => 0,
        }
    }

    /// Of that, what becomes a reply.
    fn reads(&self) -> u64 {
        match self.expects {
            Expects::Read => self.len.0,
            Expects::Written | Expects::Done | Expects::Extents { .. } => 0,
        }
    }
}

/// Questions keep the order of their requests. No more are asked at a time than the bounds allow;
/// the rest waits, which is no more than the owner brought at once: it is told to stop.
#[derive(Debug, Default)]
pub struct UnderWay {
    /// A question's id is its place here.
    asked: Vec<Option<Asked>>,
    free: Vec<usize>,
    payload: u64,
    /// Of the payload, what is read.
    reads: u64,
    /// Bytes of replies that wait to be sent, as far as is known.
    unsent: u64,
    waiting: VecDeque<(Asked, Ask)>,
}

impl UnderWay {
    /// Asks at once, or as soon as the bounds allow it.
    pub fn submit(&mut self, asked: Asked, ask: Ask, out: &mut Vec<Output>) {
        if self.waiting.is_empty() && self.fits(&asked) {
            self.ask(asked, ask, out);
        } else {
            self.waiting.push_back((asked, ask));
        }
    }

    /// Takes a question off, which makes room for what waits.
    pub fn finish(&mut self, id: AskId) -> Asked {
        let slot = usize::try_from(id.0).ok().filter(|slot| *slot < self.asked.len());
        let asked = slot.and_then(|slot| {
            let asked = self.asked[slot].take()?;
            self.free.push(slot);
            Some(asked)
        });
        let asked = asked.expect("an answer belongs to a question under way");
        self.payload -= asked.payload();
        self.reads -= asked.reads();
        // It becomes a reply, or less.
        self.unsent += asked.reads();
        asked
    }

    pub fn unsent(&mut self, bytes: usize) {
        self.unsent = bytes as u64;
    }

    /// Whether something that waited may be asked.
    pub fn can_ask(&self) -> bool {
        self.waiting.front().is_some_and(|(asked, _)| self.fits(asked))
    }

    /// Asks what waited, as far as there is room.
    pub fn ask_waiting(&mut self, out: &mut Vec<Output>) {
        while self.can_ask()
            && let Some((asked, ask)) = self.waiting.pop_front()
        {
            self.ask(asked, ask, out);
        }
    }

    /// Whether there will be room for the payload that is landing, or for another request if none is.
    pub fn wants_more(&self, landing: usize) -> bool {
        self.waiting.is_empty() && self.has_room(landing.max(1) as u64)
    }

    /// Questions without an answer.
    pub fn len(&self) -> usize {
        self.asked.len() - self.free.len()
    }

    pub fn is_idle(&self) -> bool {
        self.len() == 0 && self.waiting.is_empty()
    }

    fn has_room(&self, payload: u64) -> bool {
        self.len() < REQUESTS_MAX && self.payload + payload <= PAYLOAD_UNDER_WAY_MAX
    }

    /// A client that does not take what was read for it has to wait with the next read.
    fn fits(&self, asked: &Asked) -> bool {
        let reads = asked.reads();
        self.has_room(asked.payload())
            && (reads == 0 || self.reads + self.unsent + reads <= READS_MAX)
    }

    fn ask(&mut self, asked: Asked, ask: Ask, out: &mut Vec<Output>) {
        self.payload += asked.payload();
        self.reads += asked.reads();
        let slot = self.free.pop().unwrap_or_else(|| {
            self.asked.push(None);
            self.asked.len() - 1
        });
        self.asked[slot] = Some(asked);
        out.push(Output::Ask { id: AskId(slot as u64), ask });
    }
}
