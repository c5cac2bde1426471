//! One sector as a register whose writes all differ: which values may be read, given what was seen.
//!
//! All that concerns one write is its *cluster*: the write and the reads that returned it. Let
//! `first_end` be when the earliest of them ended (the write had taken effect by then) and
//! `last_start` when the latest of them began (it was not overwritten before). Cluster `a` came
//! before `b` if `a.first_end < b.last_start`. A history is linearizable exactly if no two
//! clusters came each before the other (Gibbons and Korach, Testing Shared Memories), so
//! looking at pairs finds every violation. A write that was neither acknowledged nor read may have
//! never happened, and binds nobody.
//!
//! Zeros, rollbacks and what was there at the beginning are clusters whose value may also be
//! another's. A read that several clusters may explain is not counted for any of them: that is
//! sound, and misses little.
use super::stamp::Value;
use super::violation::Unexplained;

/// A write of one volume, in the volume's list.
pub type WriteIndex = usize;

/// What a client knows of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// Not answered, or answered with an error that does not tell. If it takes effect at all,
    /// then before this moment.
    Open {
        until: u64,
    },
    Acked {
        at: u64,
    },
    /// It never takes effect.
    Refused,
}

/// What a write makes of a sector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Makes {
    Value(Value),
    /// What a snapshot had.
    Snapshot(usize),
}

#[derive(Clone, Copy, Debug)]
pub struct Write {
    pub began: u64,
    pub fate: Fate,
    pub makes: Makes,
    /// Durable with its acknowledgement.
    pub durable: bool,
}

/// The facts of a volume that its registers are judged by.
pub trait Facts {
    fn write(&self, index: WriteIndex) -> &Write;
    /// What a snapshot may hold in this sector.
    fn snapshot(&self, snapshot: usize, sector: u64) -> &[Value];
    /// What was there before this moment is durable.
    fn flushed(&self) -> u64;
}

#[derive(Clone, Debug)]
struct Cluster {
    /// `None`: what was there at the beginning.
    write: Option<WriteIndex>,
    read_first_end: u64,
    read_last_start: u64,
    /// What it turned out to be, where it may be several things.
    found: Option<Value>,
}

/// A cluster with what is known of its write.
#[derive(Clone, Copy, Debug)]
struct Zone {
    /// It took effect.
    certain: bool,
    first_end: u64,
    last_start: u64,
    durable: bool,
}

const ZEROS: [Value; 1] = [Value::ZEROS];

#[derive(Clone, Debug)]
pub struct Register {
    sector: u64,
    /// What it may hold at the beginning.
    inherited: Vec<Value>,
    clusters: Vec<Cluster>,
}

impl Cluster {
    fn of(write: Option<WriteIndex>) -> Cluster {
        Cluster { write, read_first_end: u64::MAX, read_last_start: 0, found: None }
    }

    fn was_read(&self) -> bool {
        self.read_first_end != u64::MAX
    }

    fn zone(&self, facts: &impl Facts) -> Zone {
        let Some(index) = self.write else {
            let last_start = self.read_last_start;
            return Zone { certain: true, first_end: 0, last_start, durable: true };
        };
        let write = facts.write(index);
        let (certain, end) = match write.fate {
            Fate::Acked { at } => (true, at),
            Fate::Open { until } => (self.was_read(), until),
            Fate::Refused => (false, u64::MAX),
        };
        let first_end = end.min(self.read_first_end);
        let acked_durable = write.durable && matches!(write.fate, Fate::Acked { .. });
        Zone {
            certain,
            first_end,
            last_start: write.began.max(self.read_last_start),
            durable: certain && (acked_durable || first_end < facts.flushed()),
        }
    }
}

/// The two latest of many moments, so that the latest of all others can be told for each.
#[derive(Default)]
struct Latest {
    first: Option<(u64, usize)>,
    second: Option<(u64, usize)>,
}

impl Latest {
    fn add(&mut self, moment: u64, of: usize) {
        if self.first.is_none_or(|(first, _)| moment > first) {
            self.second = self.first.replace((moment, of));
        } else if self.second.is_none_or(|(second, _)| moment > second) {
            self.second = Some((moment, of));
        }
    }

    fn beside(&self, of: usize) -> Option<u64> {
        let latest = self.first.filter(|(_, by)| *by != of).or(self.second);
        latest.map(|(moment, _)| moment)
    }
}

impl Register {
    pub fn new(sector: u64, inherited: Vec<Value>) -> Register {
        let inherited = if inherited.is_empty() { ZEROS.to_vec() } else { inherited };
        Register { sector, inherited, clusters: vec![Cluster::of(None)] }
    }

    pub fn begin(&mut self, write: WriteIndex) {
        self.clusters.push(Cluster::of(Some(write)));
    }

    fn may_be<'a>(&'a self, cluster: &'a Cluster, facts: &'a impl Facts) -> &'a [Value] {
        if let Some(found) = &cluster.found {
            return std::slice::from_ref(found);
        }
        let Some(index) = cluster.write else { return &self.inherited };
        match &facts.write(index).makes {
            Makes::Value(value) => std::slice::from_ref(value),
            Makes::Snapshot(snapshot) => facts.snapshot(*snapshot, self.sector),
        }
    }

    /// A read that lasted from `start` to `end` returned `value`.
    pub fn read(
        &mut self,
        facts: &impl Facts,
        value: Value,
        start: u64,
        end: u64,
    ) -> Result<(), Unexplained> {
        let explained = self.explained(facts, value, start, end)?;
        if let [only] = explained[..] {
            let cluster = &mut self.clusters[only];
            cluster.read_first_end = cluster.read_first_end.min(end);
            cluster.read_last_start = cluster.read_last_start.max(start);
            cluster.found = Some(value);
        }
        Ok(())
    }

    /// The clusters that a read may belong to: at least one, or it is a violation.
    pub fn explained(
        &self,
        facts: &impl Facts,
        value: Value,
        start: u64,
        end: u64,
    ) -> Result<Vec<usize>, Unexplained> {
        let mut explained = Vec::new();
        let mut why = Unexplained::NeverWritten(value);
        for (at, cluster) in self.clusters.iter().enumerate() {
            if !self.may_be(cluster, facts).contains(&value) {
                continue;
            }
            match self.hindrance(facts, at, value, start, end) {
                None => explained.push(at),
                Some(hindrance) => why = hindrance,
            }
        }
        if !explained.is_empty() {
            return Ok(explained);
        }
        if why == Unexplained::NeverWritten(Value::ZEROS) {
            let newer = self.clusters.iter().rev().find(|c| c.zone(facts).certain);
            let newer = newer.map_or(Value::ZEROS, |cluster| self.name(cluster, facts));
            why = Unexplained::Zeros { newer };
        }
        Err(why)
    }

    /// Why a read cannot belong to a cluster.
    fn hindrance(
        &self,
        facts: &impl Facts,
        at: usize,
        value: Value,
        start: u64,
        end: u64,
    ) -> Option<Unexplained> {
        let cluster = &self.clusters[at];
        let mut zone = cluster.zone(facts);
        if let Some(index) = cluster.write {
            let write = facts.write(index);
            if write.fate == Fate::Refused {
                return Some(Unexplained::Refused(value));
            }
            if write.began > end {
                return Some(Unexplained::NeverWritten(value));
            }
        }
        zone.first_end = zone.first_end.min(end);
        zone.last_start = zone.last_start.max(start);
        let newer = self.clusters.iter().enumerate().find(|(other, cluster)| {
            let other_zone = cluster.zone(facts);
            *other != at
                && other_zone.certain
                && zone.first_end < other_zone.last_start
                && other_zone.first_end < zone.last_start
        });
        let newer = self.name(newer?.1, facts);
        Some(match value {
            Value::ZEROS => Unexplained::Zeros { newer },
            found => Unexplained::Stale { found, newer },
        })
    }

    fn name(&self, cluster: &Cluster, facts: &impl Facts) -> Value {
        self.may_be(cluster, facts).first().copied().unwrap_or(Value::ZEROS)
    }

    /// Whether a write that is said to be refused was read.
    pub fn was_read(&self, write: WriteIndex) -> bool {
        self.clusters.iter().any(|cluster| cluster.write == Some(write) && cluster.was_read())
    }

    /// What may have been there at one moment or another between these two.
    pub fn between(&self, facts: &impl Facts, start: u64, end: u64) -> Vec<Value> {
        let over = |zone: &Zone| zone.certain && zone.first_end < start;
        self.left(facts, over, |write| write.began <= end)
    }

    /// What may be there after writes that were not flushed were lost.
    pub fn survivors(&self, facts: &impl Facts) -> Vec<Value> {
        self.left(facts, |zone| zone.durable, |_| true)
    }

    /// What may have been there between two moments, if writes were lost before. What became
    /// durable later, such as a rollback, took nothing away from what was there then.
    pub fn survivors_between(&self, facts: &impl Facts, start: u64, end: u64) -> Vec<Value> {
        let stood = |zone: &Zone| zone.durable && zone.first_end < start;
        self.left(facts, stood, |write| write.began <= end)
    }

    /// The values of clusters that are not overwritten by one of those that `stands`.
    fn left(
        &self,
        facts: &impl Facts,
        stands: impl Fn(&Zone) -> bool,
        begun: impl Fn(&Write) -> bool,
    ) -> Vec<Value> {
        let zones: Vec<Zone> = self.clusters.iter().map(|cluster| cluster.zone(facts)).collect();
        let mut latest = Latest::default();
        for (at, zone) in zones.iter().enumerate().filter(|(_, zone)| stands(zone)) {
            latest.add(zone.last_start, at);
        }
        let mut left = Vec::new();
        for (at, (cluster, zone)) in self.clusters.iter().zip(&zones).enumerate() {
            let write = cluster.write.map(|index| facts.write(index));
            let possible = write.is_none_or(|write| write.fate != Fate::Refused && begun(write));
            let overwritten = latest.beside(at).is_some_and(|latest| zone.first_end < latest);
            if possible && !overwritten {
                left.extend_from_slice(self.may_be(cluster, facts));
            }
        }
        left.sort_unstable();
        left.dedup();
        left
    }
}
