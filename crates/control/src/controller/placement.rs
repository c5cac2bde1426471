//! Where replicas go: on different nodes, where the topology allows, the least used pools first. No IO.
use std::collections::BTreeSet;

use super::no_room::Unfit;
use crate::api::types::Pairs;

/// Of which every node has one value: its name.
pub const NODE_KEY: &str = "topology.pollux.io/node";

/// A pool that is open, in a node that is there.
#[derive(Clone, Debug)]
pub struct Candidate {
    pub node: u64,
    pub pool: String,
    pub topology: Pairs,
    /// What volumes may take here in all, promises included.
    pub room: u64,
    /// What was promised to volumes.
    pub promised: u64,
    /// Bytes that can really be written now.
    pub free: u64,
}

impl Candidate {
    fn left(&self) -> u64 {
        self.room.saturating_sub(self.promised)
    }

    /// Compared without fractions: promised / room.
    fn use_in_millionths(&self) -> u128 {
        u128::from(self.promised) * 1_000_000 / u128::from(self.room.max(1))
    }
}

/// What is to be placed.
#[derive(Clone, Debug, Default)]
pub struct Wanted {
    pub count: usize,
    pub size: u64,
    /// Names of pools; none: all.
    pub pools: Vec<String>,
    /// A node must have all pairs of one of these; none: all nodes.
    pub accessible: Vec<Pairs>,
    /// Those are taken first, the first first.
    pub preferred: Vec<Pairs>,
    /// A key over whose values replicas are spread.
    pub spread: Option<String>,
    /// Nodes that have, or must not have, one.
    pub taken: BTreeSet<u64>,
    /// Values of the spread that are used already.
    pub used_values: BTreeSet<String>,
}

/// There are not enough pools on different nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooFew;

fn has_all(topology: &Pairs, pairs: &Pairs) -> bool {
    pairs.iter().all(|(key, value)| topology.get(key) == Some(value))
}

impl Wanted {
    fn allows(&self, candidate: &Candidate) -> bool {
        self.has_pool(candidate)
            && self.has_place(candidate)
            && !self.taken.contains(&candidate.node)
    }

    fn has_pool(&self, candidate: &Candidate) -> bool {
        self.pools.is_empty() || self.pools.contains(&candidate.pool)
    }

    fn has_place(&self, candidate: &Candidate) -> bool {
        self.accessible.is_empty()
            || self.accessible.iter().any(|pairs| has_all(&candidate.topology, pairs))
    }

    /// Why a node that has these pools gets no replica; `None`: it may.
    pub fn rejects(&self, pools: &[&Candidate]) -> Option<Unfit> {
        let named: Vec<_> = pools.iter().filter(|it| self.has_pool(it)).collect();
        if named.is_empty() {
            return Some(Unfit::NoPool);
        }
        if !named.iter().any(|it| self.has_place(it)) {
            return Some(Unfit::Elsewhere);
        }
        if named.iter().any(|it| self.fits(it)) {
            return None;
        }
        let left = named.iter().filter(|it| it.free > 0).map(|it| it.left()).max();
        Some(Unfit::Full { left: left.unwrap_or(0) })
    }

    fn fits(&self, candidate: &Candidate) -> bool {
        candidate.left() >= self.size && candidate.free > 0
    }

    fn preference(&self, candidate: &Candidate) -> usize {
        let preferred = self.preferred.iter();
        let at = preferred.clone().position(|pairs| has_all(&candidate.topology, pairs));
        at.unwrap_or(preferred.len())
    }

    fn value<'a>(&self, candidate: &'a Candidate) -> Option<&'a String> {
        candidate.topology.get(self.spread.as_ref()?)
    }
}

/// Nodes and pools for as many replicas as are wanted.
pub fn choose(candidates: &[Candidate], wanted: &Wanted) -> Result<Vec<(u64, String)>, TooFew> {
    let mut chosen: Vec<(u64, String)> = Vec::new();
    let mut values = wanted.used_values.clone();
    while chosen.len() < wanted.count {
        let free = |it: &&Candidate| {
            wanted.allows(it) && wanted.fits(it) && !chosen.iter().any(|(node, _)| *node == it.node)
        };
        let rank = |it: &&Candidate| {
            let is_used = wanted.value(it).is_some_and(|value| values.contains(value));
            (is_used, wanted.preference(it), it.use_in_millionths(), it.node, it.pool.clone())
        };
        let Some(best) = candidates.iter().filter(free).min_by_key(rank) else {
            return Err(TooFew);
        };
        values.extend(wanted.value(best).cloned());
        chosen.push((best.node, best.pool.clone()));
    }
    Ok(chosen)
}

/// How large a volume with so many replicas can be, and what all of them may take together.
pub fn capacity(candidates: &[Candidate], wanted: &Wanted) -> (u64, u64) {
    let mut nodes: std::collections::BTreeMap<u64, (u64, u64)> = Default::default();
    for candidate in candidates.iter().filter(|it| wanted.allows(it) && it.free > 0) {
        let (largest, all) = nodes.entry(candidate.node).or_default();
        *largest = (*largest).max(candidate.left());
        *all = all.saturating_add(candidate.left());
    }
    let count = wanted.count.max(1);
    let mut largest: Vec<u64> = nodes.values().map(|(largest, _)| *largest).collect();
    largest.sort_unstable_by(|a, b| b.cmp(a));
    let all: Vec<u64> = nodes.values().map(|(_, all)| *all).collect();
    (largest.get(count - 1).copied().unwrap_or(0), together(&all, count))
}

/// The most that can be spread over nodes in portions of `count` different ones: x is possible when every
/// node counted up to x makes count times x.
fn together(nodes: &[u64], count: usize) -> u64 {
    let possible = |x: u64| {
        let sum: u128 = nodes.iter().map(|left| u128::from((*left).min(x))).sum();
        sum >= u128::from(x) * count as u128
    };
    let (mut low, mut high) = (0, nodes.iter().copied().fold(0, u64::saturating_add));
    while low < high {
        let middle = low + (high - low).div_ceil(2);
        if possible(middle) { low = middle } else { high = middle - 1 }
    }
    low
}

#[cfg(test)]
mod tests;
