//! What a replica may say of itself. A decoder knows the form of a welcome; whether its parts fit
//! together is looked at here, before a target builds on them: a replica whose store was damaged,
//! or that is not what it says it is, costs the target that replica and nothing else.
use block::{Position, Term};

use crate::constants::{REQUEST_MAX, VOLUME_MAX};
use crate::encoding::SEQ_END;
use crate::message::{OpenedRound, Welcome};
use crate::state::SharedState;

/// More than any replica can reach, and far enough below the end that a reign has room above it.
pub(crate) const SEQ_MAX: u64 = SEQ_END / 2;
/// The most that one entry can cost; sums of as many as are under way stay far below 2^64.
const COST_MAX: u64 = 1 << 32;
/// Stages are counted one by one, but for a leap of 2^32 when an operator chooses a copy (Q12): that leaves 65,536 choices.
const STAGE_MAX: u64 = 1 << 48;

impl Welcome {
    /// Whether a replica that follows the protocol can have sent it to a target of this term. `Err`
    /// says what contradicts what.
    pub fn is_plausible(&self, term: Term) -> Result<(), &'static str> {
        let Welcome { position, shared, block_size, costs, .. } = self;
        shared.is_plausible_at(*position)?;
        holds(position.term <= term, "its history ends in a term that was never claimed")?;
        let granule = costs.granule.0;
        let divides = granule.is_power_of_two() && (512..=REQUEST_MAX).contains(&granule);
        holds(divides, "its granule is no power of two from 512 B to 1 MiB")?;
        let blocks = block_size.0.is_power_of_two() && block_size.0 <= granule;
        holds(blocks && block_size.0 >= 512, "its blocks are no part of its granules")?;
        let affordable = costs.per_write.0 <= COST_MAX && costs.per_granule.0 <= COST_MAX;
        holds(affordable, "its costs are higher than any pool's")
    }
}

impl OpenedRound {
    /// The same of a source that was frozen for a round.
    pub fn is_plausible(&self, term: Term) -> Result<(), &'static str> {
        let OpenedRound { position, shared, size, .. } = self;
        shared.is_plausible_at(*position)?;
        holds(position.term <= term, "its history ends in a term that was never claimed")?;
        holds(size.0 <= VOLUME_MAX, "it is larger than a volume can be")
    }
}

impl SharedState {
    /// Whether a history can end here with this state: it has a reign for every entry, and its last
    /// reign is that of its end.
    pub fn is_plausible_at(&self, end: Position) -> Result<(), &'static str> {
        holds(end.seq.0 < SEQ_MAX, "its position is higher than any that can be reached")?;
        match self.reigns.list().last() {
            Some(reign) => {
                holds(reign.first <= end.seq, "its last reign begins behind its end")?;
                holds(reign.term == end.term, "its end is of another term than its last reign")?;
            }
            None => holds(end == Position::default(), "it has entries, but no reign")?,
        }
        holds(self.closed <= end.seq, "it was closed behind its end")?;
        holds(self.size.0 <= VOLUME_MAX, "it is larger than a volume can be")?;
        let stages = [self.stages.last, self.stages.lowest];
        holds(stages.iter().all(|stage| stage.0 < STAGE_MAX), "its stages are too many")
    }
}

fn holds(it: bool, otherwise: &'static str) -> Result<(), &'static str> {
    if it { Ok(()) } else { Err(otherwise) }
}
