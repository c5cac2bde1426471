//! Questions for what changed.
use block::Seq;
use engine::{ChangedRange, OpError, Reply, Since};

use super::super::changed::Query;
use super::Driver;
use super::answers::Asked;

impl Driver {
    /// Asks what changed in a snapshot, while other things are under way.
    pub(super) fn query(&mut self) {
        let Some(query) = self.some_query() else { return };
        let from = match self.rng.chance(1, 2) {
            true => 0,
            false => self.rng.below(query.granules()),
        };
        let max = *self.rng.pick(&[1, 2, 5, 1000]);
        let query = query.starting_at(from, max);
        self.ask(query.op(), Asked::Changed(query));
    }

    fn some_query(&mut self) -> Option<Query> {
        let id = self.live_snapshot()?;
        let live = self.history.live_snapshots();
        let snapshot = self.history.settled().snapshots[&id].clone();
        let way = if snapshot.frozen.foreign_stamps { 0 } else { self.rng.below(3) };
        let query = match way {
            0 => None,
            1 => {
                let seq = self.rng.below(snapshot.seq() + 1);
                let old = self.history.content_at(snapshot.volume, seq);
                old.map(|old| Query::since(id, &snapshot, Since::Seq(Seq(seq)), &old))
            }
            _ => {
                let line = self.history.settled().visible_of(snapshot.volume);
                let older = line.into_iter().filter(|(id, found)| {
                    found.position() < snapshot.position() && live.contains(id)
                });
                let older: Vec<_> =
                    older.map(|(id, found)| (id, found.content().clone())).collect();
                let at = (!older.is_empty()).then(|| self.rng.index(older.len()));
                at.map(|at| {
                    let (older, content) = &older[at];
                    Query::since(id, &snapshot, Since::Snapshot(*older), content)
                })
            }
        };
        Some(query.unwrap_or_else(|| Query::allocated(id, &snapshot)))
    }

    /// All pages of an answer, with nothing else under way.
    pub(super) fn ranges(&mut self, query: Query) -> Option<Vec<ChangedRange>> {
        let mut ranges = Vec::new();
        let mut next = Some(query);
        while let Some(query) = next {
            match self.call(query.op())? {
                Ok(Reply::Changed(page)) => {
                    next = query.check(&page).unwrap_or_else(|problem| panic!("{problem}"));
                    ranges.extend(page.ranges);
                    self.paths.add("changed query", 1);
                }
                Err(OpError::Busy) => return None,
                other => panic!("{:?} was answered with {other:?}", query.op()),
            }
        }
        Some(ranges)
    }
}
