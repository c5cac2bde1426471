//! What must be true of an answer to "what changed?".
use std::collections::BTreeSet;
use std::sync::Arc;

use block::{ByteLen, ByteOffset};
use engine::{Changes, Op, Runs, Since, SnapshotId};

use super::content::Content;
use super::state::SnapshotState;

/// A question that is asked page by page, with what the pages together have to name.
#[derive(Clone, Debug)]
pub struct Query {
    pub snapshot: SnapshotId,
    pub since: Since,
    /// Where the next page begins, in bytes.
    pub from: u64,
    /// Ranges on a page.
    pub max: usize,
    content: Arc<Content>,
    granule: u64,
    size: u64,
    /// The snapshot's own seq: nothing in it can have changed later.
    seq: u64,
    /// Granules that must be named.
    wanted: BTreeSet<u64>,
}

impl Query {
    /// What is allocated: no more and no less may be named.
    pub fn allocated(id: SnapshotId, snapshot: &SnapshotState) -> Query {
        let wanted = snapshot.content().blocks().keys().copied().collect();
        Query::new(id, snapshot, Since::Start, wanted)
    }

    /// What is not as in `old`: all of it must be named, and more may be.
    pub fn since(id: SnapshotId, snapshot: &SnapshotState, since: Since, old: &Content) -> Query {
        let per = snapshot.frozen.per();
        let differing = snapshot.content().differing(old);
        let wanted = differing.into_iter().map(|sector| sector / per).collect();
        Query::new(id, snapshot, since, wanted)
    }

    fn new(id: SnapshotId, snapshot: &SnapshotState, since: Since, wanted: BTreeSet<u64>) -> Query {
        Query {
            snapshot: id,
            since,
            from: 0,
            max: 1000,
            content: snapshot.content().clone(),
            granule: snapshot.frozen.granule(),
            size: snapshot.frozen.size,
            seq: snapshot.seq(),
            wanted,
        }
    }

    pub fn granules(&self) -> u64 {
        self.size.div_ceil(self.granule)
    }

    pub fn starting_at(self, granule: u64, max: usize) -> Query {
        Query { from: granule * self.granule, max, ..self }
    }

    pub fn op(&self) -> Op {
        Op::Changed {
            snapshot: self.snapshot,
            since: self.since,
            from: ByteOffset(self.from),
            to: None,
            max: self.max,
            runs: Runs::Joined,
        }
    }

    /// Compares one page, and returns the question for the next one.
    pub fn check(mut self, page: &Changes) -> Result<Option<Query>, String> {
        let wrong = |why: &str| Err(format!("{why}: {:?} was answered with {page:?}", self.op()));
        let granule = self.granule;
        let end_of_all = self.granules() * granule;
        if page.ranges.len() > self.max {
            return wrong("too many ranges");
        }
        let mut at = self.from;
        for range in &page.ranges {
            let (start, end) = (range.offset.0, range.offset.0.saturating_add(range.len.0));
            if start < at || start == end {
                return wrong("ranges are not in order");
            }
            let ends = end.is_multiple_of(granule) || end == self.size;
            if !start.is_multiple_of(granule) || !ends || end > end_of_all {
                return wrong("a range is not of granules of the snapshot");
            }
            let granules = start / granule..end.div_ceil(granule);
            let count = granules.end - granules.start;
            let held = self.content.blocks().range(granules).count() as u64;
            if held != if range.is_data { count } else { 0 } {
                return wrong("a range has other blocks than it says");
            }
            if range.changed.0 > self.seq {
                return wrong("a range changed after the snapshot");
            }
            at = end;
        }
        if self.since == Since::Start && page.ranges.iter().any(|range| !range.is_data) {
            return wrong("a hole was named as allocated");
        }
        let until = page.next.map_or(end_of_all, |next| next.0);
        let goes_on = until > self.from && until >= at && until <= end_of_all;
        if page.next.is_some() && !(goes_on && until.is_multiple_of(granule)) {
            return wrong("the next page begins at a wrong place");
        }
        let named = |granule: u64| {
            let start = granule * self.granule;
            let inside = |at: ByteOffset, len: ByteLen| (at.0..at.0 + len.0).contains(&start);
            page.ranges.iter().any(|range| inside(range.offset, range.len))
        };
        let mut wanted = self.wanted.range(self.from / granule..until.div_ceil(granule));
        if let Some(missing) = wanted.find(|granule| !named(**granule)) {
            return wrong(&format!("granule {missing} is missing"));
        }
        self.from = until;
        Ok(page.next.is_some().then_some(self))
    }
}
