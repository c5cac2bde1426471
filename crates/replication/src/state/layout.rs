//! A replica's small state as bytes: `docs/wire.md` has the tables.
//!
//! Invariants: the first byte is the version, and another one is refused. Every list is within its
//! bound, written and read, so the longest state fits [`STATE_MAX`]. One state has one encoding:
//! what can be read is written again byte by byte.
use block::Position;

use super::{
    CLONES_MAX, DOOMED_MAX, Doomed, ImportMark, NAME_MAX, POINTS_MAX, Promise, RESERVATIONS_MAX,
    ReplicaState, SharedState, SnapshotEntry, SnapshotSpec, Stages,
};
use crate::encoding::{Malformed, Reader, SEQ_LEN, Writer};
use crate::history::{REIGNS_MAX, Reign, Reigns};
use crate::membership::{MEMBERS_MAX, Member, Membership, Voters};
use crate::words::{Boot, Incarnation, Powered, ReplicaId, SnapshotUid, StageNumber, VolumeUid};

/// 1: the first.
pub const STATE_VERSION: u8 = 1;

/// What a store keeps for a replica at the most; the engine's bound is the same.
pub const STATE_MAX: usize = 3456;

impl ReplicaState {
    /// What the store keeps; at most [`STATE_MAX`] bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut to = Writer::new();
        to.u8(STATE_VERSION);
        to.u64(self.incarnation.0);
        self.promise.write(&mut to);
        to.u64(self.membership_seen);
        to.option(self.dirty.as_ref(), |to, powered| {
            to.u128(powered.kernel);
            to.u128(powered.device);
        });
        to.u8(u8::from(self.regressed));
        to.option(self.import.as_ref(), |to, mark| mark.write(to));
        to.option(self.pending.as_ref(), |to, spec| spec.write(to));
        self.shared.write(&mut to);
        let bytes = to.into_bytes();
        assert!(bytes.len() <= STATE_MAX, "the bounds of a state let it fit: {}", bytes.len());
        bytes
    }

    pub fn decode(bytes: &[u8]) -> Result<ReplicaState, Malformed> {
        let from = &mut Reader::new(bytes);
        let version = from.u8("a state without a version")?;
        if version != STATE_VERSION {
            let (found, known) = (u16::from(version), u16::from(STATE_VERSION));
            return Err(Malformed::Version { what: "a replica's state", found, known });
        }
        let state = ReplicaState {
            incarnation: Incarnation(from.u64("incarnation of a state")?),
            promise: Promise::read(from)?,
            membership_seen: from.u64("membership version of a state")?,
            dirty: from.option("dirty mark of a state", |from| {
                let what = "power-up of a dirty mark";
                Ok(Powered { kernel: from.u128(what)?, device: from.u128(what)? })
            })?,
            regressed: from.bool("regressed mark of a state")?,
            import: from.option("import of a state", ImportMark::read)?,
            pending: from.option("pending snapshot of a state", SnapshotSpec::read)?,
            shared: SharedState::read(from)?,
        };
        from.end("bytes behind a state")?;
        Ok(state)
    }
}

impl SharedState {
    pub(crate) fn write(&self, to: &mut Writer) {
        let reigns = self.reigns.list();
        to.length(1, reigns.len(), REIGNS_MAX, "reigns");
        for reign in reigns {
            to.u64(reign.term.0);
            to.seq(reign.first);
        }
        to.u64(self.size.0);
        self.membership.write(to);
        to.length(1, self.doomed.len(), DOOMED_MAX, "doomed snapshots");
        for doomed in &self.doomed {
            to.bytes(&doomed.snapshot.0);
            to.seq(doomed.at);
        }
        to.length(1, self.clones.len(), CLONES_MAX, "clones");
        for (snapshot, clone) in &self.clones {
            to.bytes(&snapshot.0);
            to.bytes(&clone.0);
        }
        to.length(2, self.reservations.len(), RESERVATIONS_MAX, "bytes of reservations");
        to.bytes(&self.reservations);
        to.length(1, self.points.len(), POINTS_MAX, "bytes of mirror points");
        to.bytes(&self.points);
        self.stages.write(to);
        to.seq(self.closed);
    }

    pub(crate) fn read(from: &mut Reader) -> Result<SharedState, Malformed> {
        let count = from.length(1, REIGNS_MAX, "number of reigns")?;
        let reigns = from.list(count, 8 + SEQ_LEN, "reigns", |from| {
            Ok(Reign { term: from.term("term of a reign")?, first: from.seq("start of a reign")? })
        })?;
        let reigns =
            Reigns::new(reigns).ok_or(Malformed::Field { what: "reigns that do not grow" })?;
        let size = from.len("size of a volume")?;
        let membership = Membership::read(from)?;
        let count = from.length(1, DOOMED_MAX, "number of doomed snapshots")?;
        let doomed = from.list(count, 16 + SEQ_LEN, "doomed snapshots", |from| {
            let snapshot = SnapshotUid(from.array("uid of a doomed snapshot")?);
            Ok(Doomed { snapshot, at: from.seq("seq of a deletion")? })
        })?;
        let count = from.length(1, CLONES_MAX, "number of clones")?;
        let clones = from.list(count, 32, "clones", |from| {
            Ok((SnapshotUid(from.array("source of a clone")?), VolumeUid(from.array("a clone")?)))
        })?;
        let len = from.length(2, RESERVATIONS_MAX, "length of reservations")?;
        let reservations = from.bytes(len, "reservations")?.to_vec();
        let len = from.length(1, POINTS_MAX, "length of mirror points")?;
        let points = from.bytes(len, "mirror points")?.to_vec();
        let stages = Stages::read(from)?;
        let closed = from.seq("seq of the last close")?;
        Ok(SharedState {
            reigns,
            size,
            membership,
            doomed,
            clones,
            reservations,
            points,
            stages,
            closed,
        })
    }
}

impl Promise {
    pub(crate) fn write(&self, to: &mut Writer) {
        to.u64(self.term.0);
        to.u64(self.run.0);
    }

    pub(crate) fn read(from: &mut Reader) -> Result<Promise, Malformed> {
        Ok(Promise {
            term: from.term("term of a promise")?,
            run: Boot(from.u64("run of a promise")?),
        })
    }
}

impl ImportMark {
    pub(crate) fn write(&self, to: &mut Writer) {
        to.u64(self.source.term.0);
        to.seq(self.source.seq);
        to.seq(self.since);
    }

    pub(crate) fn read(from: &mut Reader) -> Result<ImportMark, Malformed> {
        let what = "mark of an import";
        let source = Position { term: from.term(what)?, seq: from.seq(what)? };
        Ok(ImportMark { source, since: from.seq(what)? })
    }
}

impl Stages {
    pub(crate) fn write(&self, to: &mut Writer) {
        to.u64(self.lowest.0);
        to.u64(self.last.0);
        to.u8(u8::from(self.plain_refused));
    }

    pub(crate) fn read(from: &mut Reader) -> Result<Stages, Malformed> {
        Ok(Stages {
            lowest: StageNumber(from.u64("lowest stage")?),
            last: StageNumber(from.u64("last stage")?),
            plain_refused: from.bool("whether plain initiators are refused")?,
        })
    }
}

fn write_name(name: &str, to: &mut Writer) {
    to.length(1, name.len(), NAME_MAX, "bytes of a snapshot's name");
    to.bytes(name.as_bytes());
}

fn read_name(from: &mut Reader) -> Result<String, Malformed> {
    let len = from.length(1, NAME_MAX, "length of a snapshot's name")?;
    let bytes = from.bytes(len, "name of a snapshot")?.to_vec();
    String::from_utf8(bytes).map_err(|_| Malformed::Field { what: "a snapshot's name is no UTF-8" })
}

impl SnapshotSpec {
    pub(crate) fn write(&self, to: &mut Writer) {
        to.bytes(&self.uid.0);
        to.u64(self.created);
        write_name(&self.name, to);
    }

    pub(crate) fn read(from: &mut Reader) -> Result<SnapshotSpec, Malformed> {
        let uid = SnapshotUid(from.array("uid of a snapshot")?);
        let created = from.u64("age of a snapshot")?;
        Ok(SnapshotSpec { uid, created, name: read_name(from)? })
    }
}

impl SnapshotEntry {
    /// The least that one takes: with an empty name.
    pub(crate) const LEAST: usize = 16 + 8 + 16 + 1;

    pub(crate) fn write(&self, to: &mut Writer) {
        to.bytes(&self.uid.0);
        to.u64(self.created);
        to.position(self.position);
        write_name(&self.name, to);
    }

    pub(crate) fn read(from: &mut Reader) -> Result<SnapshotEntry, Malformed> {
        let uid = SnapshotUid(from.array("uid of a snapshot")?);
        let created = from.u64("age of a snapshot")?;
        let position = from.position("position of a snapshot")?;
        Ok(SnapshotEntry { uid, created, position, name: read_name(from)? })
    }
}

impl Membership {
    pub(crate) fn write(&self, to: &mut Writer) {
        to.u64(self.version);
        self.voters.write(to);
        to.option(self.next.as_ref(), |to, next| next.write(to));
    }

    pub(crate) fn read(from: &mut Reader) -> Result<Membership, Malformed> {
        let version = from.u64("version of a membership")?;
        let voters = Voters::read(from)?;
        let next = from.option("change of a membership", Voters::read)?;
        Ok(Membership { version, voters, next })
    }
}

impl Voters {
    fn write(&self, to: &mut Writer) {
        to.u8(self.rf);
        to.length(1, self.members.len(), MEMBERS_MAX, "voters");
        for member in &self.members {
            to.u64(member.replica.0);
            to.u64(member.incarnation.0);
        }
    }

    fn read(from: &mut Reader) -> Result<Voters, Malformed> {
        let rf = from.u8("replication factor")?;
        let count = from.length(1, MEMBERS_MAX, "number of voters")?;
        let members = from.list(count, 16, "voters", |from| {
            Ok(Member {
                replica: ReplicaId(from.u64("replica of a voter")?),
                incarnation: Incarnation(from.u64("incarnation of a voter")?),
            })
        })?;
        Ok(Voters { members, rf })
    }
}
