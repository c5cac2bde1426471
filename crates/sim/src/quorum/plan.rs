//! What a seed makes of its world: sizes, and how often which fault comes.
use replication::bounds::{BOUNDS, Bounds};

use super::clients::Time;
use super::off::{Check, Off};
use super::store::{LARGE_POOL, POOL};
use crate::Rng;

/// What can befall the world. Each has a name in the table of coverage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    Kill,
    PowerCut,
    /// The power of several nodes goes at once.
    SitePowerCut,
    Pause,
    /// A process stops inside of a turn: between a step and the sending of what came of it.
    Stall,
    CleanStop,
    KillTarget,
    CloseTarget,
    /// Another node takes over although the holder lives.
    TakeOver,
    BreakLink,
    Partition,
    /// A target is cut off from the catalog and most replicas, and another takes over.
    CutOff,
    /// A target is cut off from the other nodes only: the catalog and the controller still hear it.
    Stranded,
    /// A process dies when it has just said welcome, and is soon back.
    KillAtWelcome,
    /// The power goes when a replica has just acknowledged what is not durable, and is soon back.
    PowerCutAtAck,
    SlowLinks,
    CorruptByte,
    SlowDisk,
    FailPool,
    /// A device fails a flush, also while its pool is opened; the machine runs on.
    FlushFails,
    Rot,
    FullPool,
    CatalogAway,
    /// The catalog, or one object, goes back to an older state, until an operator acts.
    CatalogRolledBack,
    /// The catalog does not have an object for a while.
    ObjectMissing,
    BreakClient,
    Scale,
    Replace,
    GroupCut,
    /// So many voters of a volume vanish for good that the others are no quorum.
    QuorumLost,
    /// A volume is made as a clone of another's snapshot.
    Clone,
}

/// All of them, with the name of each and the seconds between two of its kind in an ordinary world.
pub const FAULTS: [(Fault, &str, u64); 31] = [
    (Fault::Kill, "fault: process killed", 5),
    (Fault::PowerCut, "fault: power cut", 6),
    (Fault::SitePowerCut, "fault: power cut of several nodes", 25),
    (Fault::Pause, "fault: process paused", 5),
    (Fault::Stall, "fault: process stalled inside a turn", 2),
    (Fault::CleanStop, "fault: node stopped cleanly", 6),
    (Fault::KillTarget, "fault: target killed", 6),
    (Fault::CloseTarget, "fault: target closed", 6),
    (Fault::TakeOver, "fault: takeover from a living target", 5),
    (Fault::BreakLink, "fault: link broken", 3),
    (Fault::Partition, "fault: partition", 5),
    (Fault::CutOff, "fault: target cut off", 7),
    (Fault::KillAtWelcome, "fault: process killed at its welcome", 6),
    (Fault::PowerCutAtAck, "fault: power cut at an ack", 8),
    (Fault::SlowLinks, "fault: slow links", 8),
    (Fault::CorruptByte, "fault: byte changed in flight", 5),
    (Fault::SlowDisk, "fault: slow disk", 5),
    (Fault::FailPool, "fault: pool failed", 10),
    (Fault::Rot, "fault: bit rot", 1),
    (Fault::FullPool, "fault: pool full", 7),
    (Fault::CatalogAway, "fault: catalog away", 8),
    (Fault::BreakClient, "fault: client connection broken", 12),
    (Fault::Scale, "fault: replicas wanted changed", 8),
    (Fault::Replace, "fault: replica replaced", 7),
    (Fault::GroupCut, "group cut begun", 2),
    (Fault::FlushFails, "fault: flush failed", 5),
    (Fault::Stranded, "fault: target stranded", 8),
    (Fault::CatalogRolledBack, "fault: catalog rolled back", 6),
    (Fault::ObjectMissing, "fault: object missing", 10),
    (Fault::QuorumLost, "fault: quorum lost for good", 8),
    (Fault::Clone, "clone begun", 10),
];

impl Fault {
    pub fn name(self) -> &'static str {
        FAULTS.iter().find(|(fault, ..)| *fault == self).map_or("fault", |(_, name, _)| name)
    }
}

#[derive(Clone, Debug)]
pub struct VolumePlan {
    pub rf: usize,
    pub size: u64,
    pub block_size: u64,
}

#[derive(Clone, Debug)]
pub struct Plan {
    pub seed: u64,
    pub nodes: usize,
    pub off: Off,
    pub volumes: Vec<VolumePlan>,
    /// Microseconds on a link and on a disk, at the most, while nothing is slow.
    pub link_delay: u64,
    pub disk_delay: u64,
    /// Bytes that a replica may lag behind: small, so that it is reached.
    pub backlog: u64,
    /// Clients of each volume, at least, and requests of all of them together.
    pub clients: usize,
    pub requests: u64,
    /// Microseconds between two requests of a client, at the most.
    pub think: u64,
    /// A fault and the mean time between two of them.
    pub faults: Vec<(Fault, u64)>,
    /// Faults end.
    pub heals: Time,
    /// Clients end.
    pub stops: Time,
    /// By now everything must be still.
    pub ends: Time,
    /// Machines take together what came for them, whenever so many microseconds are over; 0: each
    /// event when it comes.
    pub turn: u64,
    /// Clients of each volume that only read and never leave a target of themselves.
    pub spies: usize,
    /// By how many microseconds the time of a step may be older than what it is stepped with, where
    /// the rule is turned off that it is taken behind the reading of its input.
    pub stale_turns: u64,
    /// Bounds of the machines' lists: small ones are reached.
    pub bounds: Bounds,
    /// Snapshots that the operator keeps of each volume, at the most.
    pub snapshots: usize,
    /// Checkers that are left out.
    pub unchecked: Vec<Check>,
}

/// Snapshots that a volume has at the most, in most worlds.
const SNAPSHOTS: usize = 4;
const SEC: u64 = 1_000_000;

/// How many kinds of faults a world has. Many together hide what one alone would show, since little is
/// done between them; few do not meet one another.
const KINDS: [usize; 8] = [0, 1, 2, 3, 4, 6, 8, 12];

/// Any of the faults, each at a rate of its own between half and four times the ordinary one. Which
/// faults meet is left to chance, not to an expectation of what is dangerous.
fn draw_faults(rng: &mut Rng) -> Vec<(Fault, u64)> {
    let mut all = FAULTS.to_vec();
    rng.shuffle(&mut all);
    all.truncate(*rng.pick(&KINDS));
    all.sort_unstable();
    let mean = |secs: u64, rng: &mut Rng| secs * SEC * rng.range(10..80) / 20;
    all.into_iter().map(|(fault, _, secs)| (fault, mean(secs, rng))).collect()
}

impl Plan {
    /// Nothing bad happens but that space runs out.
    pub fn is_only_short_of_space(&self) -> bool {
        self.faults.iter().all(|(fault, _)| *fault == Fault::FullPool)
    }

    /// How old the time of a step may be. 0: it is taken when everything was read, as it has to be.
    pub fn stale_turns(&self) -> u64 {
        match self.off {
            #[cfg(feature = "faults")]
            Off::TimeAfterInput => self.stale_turns,
            _ => 0,
        }
    }

    /// The kinds of faults, for reports.
    pub fn shown(&self) -> String {
        let kinds: Vec<String> = self.faults.iter().map(|(kind, _)| format!("{kind:?}")).collect();
        if kinds.is_empty() { "no faults".to_owned() } else { kinds.join(", ") }
    }

    pub fn has_check(&self, check: Check) -> bool {
        !self.unchecked.contains(&check)
    }

    pub fn has_groups(&self) -> bool {
        let cuts = self.faults.iter().any(|(fault, _)| *fault == Fault::GroupCut);
        cuts && self.volumes.len() > 1
    }

    pub fn for_seed(seed: u64) -> Plan {
        let mut rng = Rng::new(seed ^ 0x0071_756f_7275_6d00);
        // A stream of their own: another kind of fault leaves the shape of a world as it was.
        let faults = draw_faults(&mut rng.fork());
        let groups = faults.iter().any(|(fault, _)| *fault == Fault::GroupCut);
        let volumes = match groups {
            true => 2 + rng.index(2),
            false => 1 + usize::from(rng.chance(1, 5)),
        };
        let volumes: Vec<VolumePlan> = (0..volumes).map(|_| VolumePlan::draw(&mut rng)).collect();
        let widest = volumes.iter().map(|volume| volume.rf).max().unwrap_or(1);
        let heals = Time::secs(40 + rng.below(25));
        let mut plan = Plan {
            seed,
            nodes: widest + 1 + rng.index(2),
            off: Off::Nothing,
            volumes,
            link_delay: *rng.pick(&[200, 1000, 5000]),
            disk_delay: *rng.pick(&[100, 500, 3000]),
            backlog: *rng.pick(&[64 << 10, 256 << 10, 4 << 20]),
            clients: 1,
            requests: 1_500,
            think: 60_000,
            faults,
            heals,
            stops: heals.after(12 * SEC),
            ends: heals.after(30 * SEC),
            // The last that is drawn: what was drawn before it stays the same.
            turn: *rng.pick(&[0, 0, 150, 2_000]),
            spies: *rng.pick(&[0, 0, 1, 2]),
            // Half of a lease: a target that believes to have one for that much longer overlaps with
            // its successor.
            stale_turns: SEC,
            bounds: Bounds {
                reigns: *rng.pick(&[BOUNDS.reigns, BOUNDS.reigns, 12, 6]),
                doomed: *rng.pick(&[BOUNDS.doomed, BOUNDS.doomed, 4, 2]),
                rounds: *rng.pick(&[BOUNDS.rounds, BOUNDS.rounds, 2]),
            },
            snapshots: SNAPSHOTS,
            unchecked: Vec::new(),
        };
        plan.deepen(&mut rng);
        plan
    }

    /// Some worlds have a large sparse volume, whose map has more levels, and some have dozens of
    /// snapshots; where space matters most, all pools are full at times.
    fn deepen(&mut self, rng: &mut Rng) {
        let (deep, many) = (rng.chance(1, 10), rng.chance(1, 12));
        if deep {
            let volume = &mut self.volumes[0];
            let granules = *rng.pick(&[1 << 14, (1 << 14) + 1, 1 << 21, (1 << 28) - 8]);
            volume.size = volume.block_size.max(4096) * granules;
        }
        if many {
            self.snapshots = 40;
        }
        let full = self.faults.iter().any(|(fault, _)| *fault == Fault::FullPool);
        if (deep || many) && !full && rng.chance(1, 2) {
            self.faults.push((Fault::FullPool, 8 * SEC));
        }
    }
}

impl Plan {
    /// Bytes of each node's pool.
    pub fn pool_size(&self) -> u64 {
        if self.snapshots > SNAPSHOTS { LARGE_POOL } else { POOL }
    }

    /// A world with a mechanism turned off, and with the faults under which it matters.
    #[cfg(feature = "faults")]
    pub fn without(seed: u64, off: Off) -> Plan {
        let mut plan = Plan::for_seed(seed);
        plan.off = off;
        let provoking = off.provoked_by().iter().map(|(fault, secs)| (*fault, secs * SEC));
        plan.faults = provoking.collect();
        let groups = plan.faults.iter().any(|(fault, _)| *fault == Fault::GroupCut);
        let mut rng = Rng::new(seed ^ 0x6f66_6600);
        while groups && plan.volumes.len() < 2 {
            plan.volumes.push(VolumePlan::draw(&mut rng));
        }
        for volume in &mut plan.volumes {
            volume.rf = volume.rf.max(3);
        }
        // Most of what is written takes fresh space.
        if off == Off::Machine(replication::Switch::Headroom) {
            plan.volumes = vec![VolumePlan { rf: 3, size: 8 << 20, block_size: 4096 }];
        }
        // Those who write meet those who read, until the last of the faults.
        plan.clients = 2;
        plan.requests = 3_000;
        if off.needs_haste() {
            (plan.clients, plan.requests, plan.think) = (4, 6_000, 10_000);
        }
        plan.heals = Time::secs(30);
        plan.stops = plan.heals.after(12 * SEC);
        plan.ends = plan.heals.after(30 * SEC);
        if matches!(off, Off::TimeAfterInput | Off::ClockCountsSleep) {
            (plan.clients, plan.spies) = (4, 2);
        }
        plan.nodes = plan.nodes.max(plan.volumes.iter().map(|it| it.rf).max().unwrap_or(3) + 1);
        plan
    }
}

impl VolumePlan {
    fn draw(rng: &mut Rng) -> VolumePlan {
        let block_size = *rng.pick(&[512, 4096, 4096, 16384]);
        let granule = block_size.max(4096);
        VolumePlan {
            rf: *rng.pick(&[1, 2, 3, 3, 3, 5]),
            size: granule * *rng.pick(&[64, 128, 256]),
            block_size,
        }
    }
}
