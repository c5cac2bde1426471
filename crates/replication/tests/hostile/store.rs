//! A store that keeps its contract and nothing more: operations take effect in the order of asking
//! and are answered in any, and any of them may be refused.
use block::{ByteLen, ByteOffset, Data, Position, Seq};
use replication::replica::Event;
use replication::store::{
    ChangedRange, Extent, StoreError, StoreFacts, StoreOp, StoreReply, StoreTag,
};

use crate::random::Rng;

pub struct Store {
    position: Position,
    /// One of so many operations is refused; none if 0.
    refuses: u64,
    answers: Vec<(StoreTag, Result<StoreReply, StoreError>)>,
}

impl Store {
    pub fn new(facts: &StoreFacts, refuses: u64) -> Store {
        Store { position: facts.position, refuses, answers: Vec::new() }
    }

    pub fn take(&mut self, rng: &mut Rng, tag: StoreTag, op: &StoreOp) {
        let result = self.apply(rng, op);
        self.answers.push((tag, result));
    }

    /// Everything is answered.
    pub fn is_idle(&self) -> bool {
        self.answers.is_empty()
    }

    /// Some answers, in any order.
    pub fn some(&mut self, rng: &mut Rng) -> Vec<Event> {
        let mut events = Vec::new();
        while !self.answers.is_empty() && rng.below(4) > 0 {
            let (tag, result) = self.answers.swap_remove(rng.index(self.answers.len()));
            events.push(Event::Stored { tag, result });
        }
        events
    }

    fn apply(&mut self, rng: &mut Rng, op: &StoreOp) -> Result<StoreReply, StoreError> {
        let position = match op {
            StoreOp::Write { position, .. }
            | StoreOp::Zero { position, .. }
            | StoreOp::Mark { position }
            | StoreOp::Rollback { position, .. } => Some(*position),
            StoreOp::SetState { position, .. } | StoreOp::Snapshot { position, .. } => *position,
            _ => None,
        };
        if position.is_some_and(|at| at.seq.0 != self.position.seq.0 + 1) {
            return Err(StoreError::Gap);
        }
        if self.refuses > 0 && rng.below(self.refuses) == 0 {
            return Err(refusal(rng));
        }
        self.position = match op {
            StoreOp::Adopt { position, .. } => *position,
            _ => position.unwrap_or(self.position),
        };
        Ok(reply(rng, op))
    }
}

fn refusal(rng: &mut Rng) -> StoreError {
    match rng.below(7) {
        0 => StoreError::NoSpace,
        1 => StoreError::Damaged { offset: ByteOffset(rng.any()) },
        2 => StoreError::UnknownSnapshot,
        3 => StoreError::Refused { reason: rng.name() },
        4 => StoreError::Failed { reason: rng.name() },
        _ => StoreError::Busy,
    }
}

fn reply(rng: &mut Rng, op: &StoreOp) -> StoreReply {
    match op {
        StoreOp::Read { len, .. } | StoreOp::ReadSnapshot { len, .. } => {
            let len = usize::try_from(len.0.min(1 << 20)).expect("a short read");
            StoreReply::Read(Data::copy_of(&vec![0; len]))
        }
        StoreOp::Extents { len, .. } => {
            let len = ByteLen(len.0.min(16 << 20));
            StoreReply::Extents(vec![Extent { len, has_data: true }])
        }
        StoreOp::Flush => StoreReply::Flushed,
        // What a pool says is no invariant: anything that can be decoded.
        StoreOp::SnapshotState { .. } => StoreReply::State(rng.state().encode()),
        StoreOp::Changed { from, to, max, .. } => changed(rng, *from, *to, *max),
        _ => StoreReply::Done,
    }
}

fn changed(rng: &mut Rng, from: ByteOffset, to: Option<ByteOffset>, max: usize) -> StoreReply {
    let end = to.map_or(from.0.saturating_add(1 << 20), |to| to.0);
    let (mut ranges, mut at) = (Vec::new(), from.0);
    while at < end && ranges.len() < max.min(20) {
        let len = (1 + rng.below(64)) * 4096;
        let (offset, len) = (ByteOffset(at), ByteLen(len.min(end - at)));
        if rng.chance() {
            let (is_data, changed) = (rng.chance(), Seq(1 + rng.below(9)));
            ranges.push(ChangedRange { offset, len, is_data, changed });
        }
        at += len.0;
    }
    StoreReply::Changed { ranges, next: (at < end).then_some(ByteOffset(at)) }
}
