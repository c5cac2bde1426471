//! Random numbers, and random states made of them: legal ones, often at their bounds.
use block::{ByteLen, Position, Seq, Term};
use replication::encoding::SEQ_END;
use replication::history::{REIGNS_MAX, Reign, Reigns};
use replication::membership::{MEMBERS_MAX, Member, Membership, Voters};
use replication::state::{
    CLONES_MAX, DOOMED_MAX, Doomed, ImportMark, NAME_MAX, POINTS_MAX, Promise, RESERVATIONS_MAX,
    ReplicaState, SharedState, SnapshotEntry, SnapshotSpec, Stages,
};
use replication::words::{
    Boot, Incarnation, Powered, ReplicaId, SnapshotUid, StageNumber, VolumeUid,
};

pub mod messages;

/// SplitMix64: small, and any seed is a good one.
pub struct Rng(pub u64);

impl Rng {
    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ (word >> 31)
    }

    pub fn below(&mut self, end: u64) -> u64 {
        self.number() % end
    }

    pub fn index(&mut self, end: usize) -> usize {
        usize::try_from(self.below(end as u64)).expect("below a usize")
    }

    pub fn chance(&mut self) -> bool {
        self.below(2) == 0
    }

    /// A number of any size: small ones, large ones and the very largest.
    pub fn any(&mut self) -> u64 {
        match self.below(8) {
            0 => 0,
            1 => u64::MAX,
            _ => self.number() >> self.below(64),
        }
    }

    pub fn bytes(&mut self, len: usize) -> Vec<u8> {
        (0..len).map(|_| self.number().to_le_bytes()[0]).collect()
    }

    pub fn uid(&mut self) -> [u8; 16] {
        std::array::from_fn(|_| self.number().to_le_bytes()[0])
    }

    /// A length up to a bound, quite often the bound itself.
    pub fn length(&mut self, max: usize) -> usize {
        match self.below(4) {
            0 => 0,
            1 => max,
            _ => self.index(max + 1),
        }
    }

    pub fn list<T>(&mut self, max: usize, mut one: impl FnMut(&mut Rng) -> T) -> Vec<T> {
        (0..self.length(max)).map(|_| one(self)).collect()
    }

    pub fn option<T>(&mut self, one: impl FnOnce(&mut Rng) -> T) -> Option<T> {
        if self.chance() { Some(one(self)) } else { None }
    }

    /// A seq that a state can keep.
    pub fn seq(&mut self) -> Seq {
        match self.below(8) {
            0 => Seq(SEQ_END - 1),
            _ => Seq((self.number() % SEQ_END) >> self.below(56)),
        }
    }

    pub fn position(&mut self) -> Position {
        Position { term: Term(self.any()), seq: self.seq() }
    }

    pub fn name(&mut self) -> String {
        let len = self.length(NAME_MAX);
        (0..len).map(|_| char::from(b'a' + u8::try_from(self.below(26)).expect("26"))).collect()
    }

    pub fn promise(&mut self) -> Promise {
        Promise { term: Term(self.any()), run: Boot(self.any()) }
    }

    pub fn mark(&mut self) -> ImportMark {
        ImportMark { source: self.position(), since: self.seq() }
    }

    pub fn spec(&mut self) -> SnapshotSpec {
        SnapshotSpec { uid: SnapshotUid(self.uid()), name: self.name(), created: self.any() }
    }

    pub fn snapshot(&mut self) -> SnapshotEntry {
        let SnapshotSpec { uid, name, created } = self.spec();
        SnapshotEntry { uid, name, created, position: self.position() }
    }

    pub fn stages(&mut self) -> Stages {
        Stages {
            lowest: StageNumber(self.any()),
            last: StageNumber(self.any()),
            plain_refused: self.chance(),
        }
    }

    fn voters(&mut self) -> Voters {
        let members = self.list(MEMBERS_MAX, |rng| Member {
            replica: ReplicaId(rng.any()),
            incarnation: Incarnation(rng.any()),
        });
        Voters { members, rf: self.number().to_le_bytes()[0] }
    }

    pub fn membership(&mut self) -> Membership {
        Membership { version: self.any(), voters: self.voters(), next: self.option(Rng::voters) }
    }

    fn reigns(&mut self) -> Reigns {
        let mut terms = self.list(REIGNS_MAX, Rng::number);
        let mut firsts: Vec<u64> = terms.iter().map(|_| self.number() % SEQ_END).collect();
        terms.sort_unstable();
        firsts.sort_unstable();
        let both = terms.into_iter().zip(firsts);
        let list = both.map(|(term, first)| Reign { term: Term(term), first: Seq(first) });
        Reigns::new(list.collect()).expect("64 random bits are not drawn twice")
    }

    pub fn shared(&mut self) -> SharedState {
        SharedState {
            reigns: self.reigns(),
            size: ByteLen(self.any()),
            membership: self.membership(),
            doomed: self
                .list(DOOMED_MAX, |rng| Doomed { snapshot: SnapshotUid(rng.uid()), at: rng.seq() }),
            clones: self.list(CLONES_MAX, |rng| (SnapshotUid(rng.uid()), VolumeUid(rng.uid()))),
            reservations: self.list(RESERVATIONS_MAX, |rng| rng.number().to_le_bytes()[0]),
            points: self.list(POINTS_MAX, |rng| rng.number().to_le_bytes()[0]),
            stages: self.stages(),
            closed: self.seq(),
        }
    }

    pub fn state(&mut self) -> ReplicaState {
        ReplicaState {
            incarnation: Incarnation(self.any()),
            promise: self.promise(),
            membership_seen: self.any(),
            dirty: self.option(|rng| Powered {
                kernel: u128::from_le_bytes(rng.uid()),
                device: u128::from_le_bytes(rng.uid()),
            }),
            regressed: self.chance(),
            import: self.option(Rng::mark),
            pending: self.option(Rng::spec),
            shared: self.shared(),
        }
    }
}
