//! What a round has to bring: segments in ascending order, each with which blocks are wanted.
use std::collections::VecDeque;

use block::{ByteOffset, Seq};

use crate::message::Wanted;
use crate::store::ChangedRange;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    pub from: ByteOffset,
    pub to: ByteOffset,
    pub wanted: Wanted,
}

/// What the destination has staged already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Staged {
    /// Below this everything is staged, ...
    pub through: ByteOffset,
    /// ... as the source was at this seq. `None`: as it is now.
    pub of: Option<Seq>,
}

/// The segments of a round over a copy of this size. `own`: what the destination changed itself
/// and has to take back, from the source, whatever that has there.
pub fn plan(
    size: ByteOffset,
    since: Seq,
    staged: Option<Staged>,
    own: &[ChangedRange],
) -> VecDeque<Segment> {
    let mut segments = Vec::new();
    let mut from = ByteOffset(0);
    if let Some(staged) = staged {
        from = staged.through.min(size);
        if let Some(of) = staged.of {
            let wanted = Wanted::Changed(of);
            segments.push(Segment { from: ByteOffset(0), to: from, wanted });
        }
    }
    for range in own {
        let end = ByteOffset(range.offset.0 + range.len.0);
        if end <= from {
            continue;
        }
        let start = range.offset.max(from);
        segments.push(Segment { from, to: start.min(size), wanted: Wanted::Changed(since) });
        segments.push(Segment { from: start, to: end, wanted: Wanted::Everything });
        from = end;
    }
    segments.push(Segment { from, to: size, wanted: Wanted::Changed(since) });
    segments.retain(|segment| segment.from < segment.to);
    segments.into()
}

#[cfg(test)]
mod tests {
    use block::ByteLen;

    use super::*;

    fn seg(from: u64, to: u64, wanted: Wanted) -> Segment {
        Segment { from: ByteOffset(from), to: ByteOffset(to), wanted }
    }

    fn own(offset: u64, len: u64) -> ChangedRange {
        ChangedRange {
            offset: ByteOffset(offset),
            len: ByteLen(len),
            is_data: true,
            changed: Seq(9),
        }
    }

    const SINCE: Seq = Seq(5);
    const CHANGED: Wanted = Wanted::Changed(SINCE);

    #[test]
    fn without_anything_staged_or_own_it_is_one_pass() {
        let plan = plan(ByteOffset(100), SINCE, None, &[]);
        assert_eq!(plan, [seg(0, 100, CHANGED)]);
    }

    /// Protects from a tail that stays where the winner changed nothing, also beyond its end.
    #[test]
    fn own_changes_are_taken_back_whatever_the_source_has() {
        let plan = plan(ByteOffset(100), SINCE, None, &[own(10, 10), own(95, 30)]);
        let all = Wanted::Everything;
        let expected =
            [seg(0, 10, CHANGED), seg(10, 20, all), seg(20, 95, CHANGED), seg(95, 125, all)];
        assert_eq!(plan, expected);
    }

    /// Protects from staged blocks that the source changed again since.
    #[test]
    fn what_was_staged_of_an_older_moment_is_refreshed() {
        let staged = Staged { through: ByteOffset(40), of: Some(Seq(7)) };
        let plan = plan(ByteOffset(100), SINCE, Some(staged), &[own(10, 10), own(50, 10)]);
        let refresh = Wanted::Changed(Seq(7));
        let expected = [
            seg(0, 40, refresh),
            seg(40, 50, CHANGED),
            seg(50, 60, Wanted::Everything),
            seg(60, 100, CHANGED),
        ];
        assert_eq!(plan, expected);
    }

    #[test]
    fn an_import_of_the_same_moment_goes_on_where_it_was() {
        let staged = Staged { through: ByteOffset(40), of: None };
        let plan = plan(ByteOffset(100), SINCE, Some(staged), &[]);
        assert_eq!(plan, [seg(40, 100, CHANGED)]);
    }
}
