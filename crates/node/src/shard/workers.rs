//! How many operations of a replica are under way at once (`zvolWorkers`).
use std::collections::VecDeque;

use replication::store::{StoreOp, StoreTag};

/// What waits goes first, in the order in which it came: a store may take operations in any number,
/// but never in another order.
#[derive(Default)]
pub struct Workers {
    /// `None`: as many as the engine takes.
    limit: Option<usize>,
    under_way: usize,
    waiting: VecDeque<(StoreTag, StoreOp)>,
}

impl Workers {
    pub fn limit(&self) -> Option<usize> {
        self.limit
    }

    /// From now on; what is under way already goes on.
    pub fn set_limit(&mut self, limit: Option<usize>) {
        self.limit = limit;
    }

    /// The operation, if it may begin now; else it comes with a later [`Workers::next`].
    pub fn begin(&mut self, tag: StoreTag, op: StoreOp) -> Option<(StoreTag, StoreOp)> {
        self.waiting.push_back((tag, op));
        self.next()
    }

    pub fn answered(&mut self) {
        self.under_way -= 1;
    }

    /// The next that may begin.
    pub fn next(&mut self) -> Option<(StoreTag, StoreOp)> {
        if self.limit.is_some_and(|limit| self.under_way >= limit) {
            return None;
        }
        let next = self.waiting.pop_front()?;
        self.under_way += 1;
        Some(next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn begin(workers: &mut Workers, tag: u64) -> Option<u64> {
        workers.begin(StoreTag(tag), StoreOp::Flush).map(|(tag, _)| tag.0)
    }

    fn next(workers: &mut Workers) -> Option<u64> {
        workers.next().map(|(tag, _)| tag.0)
    }

    #[test]
    fn no_more_than_the_limit_are_under_way_and_order_is_kept() {
        let mut workers = Workers::default();
        workers.set_limit(Some(2));
        let begun: Vec<_> = (1..=5).map(|tag| begin(&mut workers, tag)).collect();
        assert_eq!(begun, [Some(1), Some(2), None, None, None]);
        assert_eq!(next(&mut workers), None);
        workers.answered();
        assert_eq!((next(&mut workers), next(&mut workers)), (Some(3), None));
        workers.answered();
        assert_eq!(begin(&mut workers, 6), Some(4), "who waits goes first");
    }

    #[test]
    fn a_limit_can_be_lowered_and_lifted_while_operations_are_under_way() {
        let mut workers = Workers::default();
        (1..=3).for_each(|tag| assert_eq!(begin(&mut workers, tag), Some(tag)));
        workers.set_limit(Some(1));
        workers.answered();
        assert_eq!(begin(&mut workers, 4), None, "two are under way");
        workers.answered();
        workers.answered();
        assert_eq!(next(&mut workers), Some(4));
        assert_eq!((begin(&mut workers, 5), begin(&mut workers, 6)), (None, None));
        workers.set_limit(None);
        assert_eq!([next(&mut workers), next(&mut workers)], [Some(5), Some(6)]);
    }
}
