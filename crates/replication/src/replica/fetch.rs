//! Parts of a frozen source: first which ranges changed, then their bytes.
use std::ops::Range;

use block::{ByteLen, ByteOffset, Position, Seq};

use crate::constants::FETCH;
use crate::message::{AskId, Fetched, Piece, RoundFailure, ToTarget, Wanted};
use crate::replica::{LinkId, Output, Replica};
use crate::store::{ChangedRange, Content, StoreError, StoreOp, StoreReply};
use crate::words::SnapshotUid;

use super::asked::Purpose;
use super::outcome::round_failure;

/// Ranges of one look at what changed: so many headers fit a frame beside the bytes.
pub const RANGES_MAX: usize = 1024;

/// The longest read that a store takes.
pub const PART_MAX: u64 = 1 << 20;

/// Fetches that may be under way at once; a target has a handful.
const FETCHES_MAX: usize = 64;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FetchNo(pub u64);

/// A part of the answer. The bytes of data come later.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    pub offset: u64,
    pub len: u64,
    pub changed: Seq,
    pub is_data: bool,
}

#[derive(Debug)]
pub struct Fetch {
    link: LinkId,
    id: AskId,
    snapshot: SnapshotUid,
    everything: bool,
    range: Range<u64>,
    pieces: Vec<Piece>,
    through: u64,
    /// Reads that are under way.
    left: usize,
}

/// What of a range is sent, given what changed below `looked`: at most `FETCH` bytes of data. With
/// `everything` gaps are holes that never changed. Returns how far it goes.
pub fn cut(
    range: Range<u64>,
    ranges: &[ChangedRange],
    looked: u64,
    everything: bool,
) -> (Vec<Part>, u64) {
    let mut parts = Vec::new();
    let (mut at, mut room) = (range.start, FETCH);
    let gap =
        |from: u64, to: u64| Part { offset: from, len: to - from, changed: Seq(0), is_data: false };
    for found in ranges {
        let start = found.offset.0.max(at);
        let end = found.offset.0.saturating_add(found.len.0).min(range.end).min(looked);
        if start >= end {
            continue;
        }
        if everything && start > at {
            parts.push(gap(at, start));
        }
        at = start;
        if !found.is_data {
            let (len, changed) = (end - start, found.changed);
            parts.push(Part { offset: start, len, changed, is_data: false });
            at = end;
            continue;
        }
        while at < end {
            let len = (end - at).min(room).min(PART_MAX);
            if len == 0 {
                return (parts, at);
            }
            parts.push(Part { offset: at, len, changed: found.changed, is_data: true });
            (at, room) = (at + len, room - len);
        }
    }
    let end = looked.min(range.end);
    if everything && end > at {
        parts.push(gap(at, end));
    }
    (parts, end.max(at))
}

impl Replica {
    pub(super) fn fetch(
        &mut self,
        link: LinkId,
        id: AskId,
        round: Position,
        wanted: Wanted,
        range: Range<ByteOffset>,
        out: &mut Vec<Output>,
    ) {
        let Some(source) = self.sources.get(&round).copied() else {
            let result = Err(RoundFailure::Gone);
            return self.send(link, ToTarget::Fetched { id, result }, out);
        };
        if self.fetches.len() >= FETCHES_MAX {
            return self.hang_up(link, out);
        }
        let (everything, since) = match wanted {
            Wanted::Changed(since) => (false, since),
            Wanted::Everything => (true, Seq(0)),
        };
        let range = range.start.0..range.end.0;
        let fetch = Fetch {
            link,
            id,
            snapshot: source.snapshot,
            everything,
            range: range.clone(),
            pieces: Vec::new(),
            through: range.start,
            left: 0,
        };
        self.fetched += 1;
        let no = FetchNo(self.fetched);
        self.fetches.insert(no, fetch);
        let to = range.end.min(source.size.0);
        if range.start >= to {
            // Beyond the end of the source there is nothing but zeros.
            let reply = StoreReply::Changed { ranges: Vec::new(), next: None };
            return self.ranges_known(no, Ok(reply), out);
        }
        let op = StoreOp::Changed {
            snapshot: source.snapshot,
            since,
            from: ByteOffset(range.start),
            to: Some(ByteOffset(to)),
            max: RANGES_MAX,
        };
        self.ask(Purpose::Ranges { fetch: no }, op, out);
    }

    pub(super) fn ranges_known(
        &mut self,
        no: FetchNo,
        result: Result<StoreReply, StoreError>,
        out: &mut Vec<Output>,
    ) {
        let Some(fetch) = self.fetches.get_mut(&no) else { return };
        let (ranges, next) = match result {
            Ok(StoreReply::Changed { ranges, next }) => (ranges, next),
            Ok(_) => return self.fetch_failed(no, StoreError::UnknownSnapshot, out),
            Err(error) => return self.fetch_failed(no, error, out),
        };
        let looked = next.map_or(fetch.range.end, |next| next.0);
        let (parts, through) = cut(fetch.range.clone(), &ranges, looked, fetch.everything);
        fetch.through = through;
        let snapshot = fetch.snapshot;
        let mut reads = Vec::new();
        for (index, part) in parts.into_iter().enumerate() {
            let (offset, len) = (ByteOffset(part.offset), ByteLen(part.len));
            // The bytes of data replace this when they are there.
            let content = Content::Zeros(len);
            fetch.pieces.push(Piece { offset, changed: part.changed, content });
            if part.is_data {
                fetch.left += 1;
                reads.push((index, StoreOp::ReadSnapshot { snapshot, offset, len }));
            }
        }
        for (index, op) in reads {
            self.ask(Purpose::Part { fetch: no, index }, op, out);
        }
        self.fetch_done(no, out);
    }

    pub(super) fn part_read(
        &mut self,
        no: FetchNo,
        index: usize,
        result: Result<StoreReply, StoreError>,
        out: &mut Vec<Output>,
    ) {
        let Some(fetch) = self.fetches.get_mut(&no) else { return };
        match result {
            Ok(StoreReply::Read(data)) => {
                fetch.pieces[index].content = Content::Bytes(data);
                fetch.left -= 1;
                self.fetch_done(no, out);
            }
            Ok(_) => self.fetch_failed(no, StoreError::UnknownSnapshot, out),
            Err(error) => self.fetch_failed(no, error, out),
        }
    }

    fn fetch_done(&mut self, no: FetchNo, out: &mut Vec<Output>) {
        if self.fetches.get(&no).is_none_or(|fetch| fetch.left > 0) {
            return;
        }
        let Some(Fetch { link, id, pieces, through, .. }) = self.fetches.remove(&no) else {
            return;
        };
        let result = Ok(Fetched { pieces, through: ByteOffset(through) });
        self.send(link, ToTarget::Fetched { id, result }, out);
    }

    fn fetch_failed(&mut self, no: FetchNo, error: StoreError, out: &mut Vec<Output>) {
        if let Some(Fetch { link, id, .. }) = self.fetches.remove(&no) {
            let result = Err(round_failure(error));
            self.send(link, ToTarget::Fetched { id, result }, out);
        }
    }
}
