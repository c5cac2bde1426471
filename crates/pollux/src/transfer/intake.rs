//! The frames of a delta on their way into a volume.
use std::collections::VecDeque;

use anyhow::{Result, bail, ensure};
use block::{ByteLen, ByteOffset, Data, Position, Seq};
use disk::FileDisk;
use engine::delta::Item;
use engine::{
    Op, OpError, Pool, Reply, RequestId, SnapshotId, SnapshotSpec, SnapshotsOfDeleted, Staged,
    Stamps, VolumeId, WRITE_MAX,
};

use super::ahead::Ahead;
use super::marker::{Identity, markers};
use super::plan::{Plan, Target, Way};
use crate::cli::Mode;
use crate::offline::Contents;
use crate::{clock, uid};

/// Frames on their way at the most, and their bytes.
const FRAMES_MAX: usize = 64;
const BYTES_MAX: usize = 8 << 20;

pub struct Intake<'a> {
    contents: &'a Contents,
    plan: &'a Plan,
    ahead: Ahead<'a, FileDisk>,
    volume: VolumeId,
    /// Where the volume stands in its sequence.
    held: Position,
    into: Into,
    under_way: VecDeque<(RequestId, usize)>,
    bytes: usize,
}

/// Where frames go.
enum Into {
    Hidden {
        staging: VolumeId,
        marker: Option<SnapshotId>,
        from: ByteOffset,
    },
    /// One write, to be made at the end.
    Write {
        from: u64,
        bytes: Vec<u8>,
    },
    /// They are in the volume, and are only compared.
    Compare {
        marker: SnapshotId,
    },
    /// There are none.
    Nowhere,
}

impl<'a> Intake<'a> {
    /// Makes ready what frames go into. `empty`: there will be none.
    pub fn begin(
        pool: &'a mut Pool<FileDisk>,
        contents: &'a Contents,
        plan: &'a Plan,
        empty: bool,
    ) -> Result<Intake<'a>> {
        let mut intake = Intake {
            contents,
            plan,
            ahead: Ahead::of(pool),
            volume: VolumeId(0),
            held: plan.volume.held(),
            into: Into::Nowhere,
            under_way: VecDeque::new(),
            bytes: 0,
        };
        intake.volume = match &plan.volume {
            Target::There(volume) => volume.id,
            Target::New(spec) => intake.created(Op::Create { spec: spec.clone() })?,
        };
        let into = match plan.way {
            Way::GoOn { staging, marker, progress: from } => {
                Ok(Into::Hidden { staging, marker: Some(marker), from })
            }
            Way::FromMarker(marker) => intake.stage(marker, Some(marker)),
            Way::Adopted(marker) => Ok(Into::Compare { marker }),
            Way::Marked | Way::Unmarked(_) | Way::AtOnce | Way::Unchanged => {
                intake.begin_fresh(empty)
            }
        };
        match into {
            Ok(into) => {
                intake.into = into;
                Ok(intake)
            }
            Err(error) => {
                intake.give_up();
                Err(error)
            }
        }
    }

    fn begin_fresh(&mut self, empty: bool) -> Result<Into> {
        // Left behind by imports that are over; one of them may have the name that is wanted.
        let stale: Vec<SnapshotId> =
            markers(self.contents, self.volume).map(|(marker, _)| marker.id).collect();
        for snapshot in stale {
            self.run(Op::DeleteSnapshot { snapshot })?;
        }
        if self.plan.grows() {
            // Before the hidden volume is made, which has the size of this one.
            let (volume, size) = (self.volume, self.plan.header.size);
            let position = self.next();
            self.run(Op::Grow { volume, position: Some(position), size })?;
        }
        match self.plan.way {
            _ if empty => Ok(Into::Nowhere),
            Way::AtOnce => Ok(Into::Write { from: 0, bytes: Vec::new() }),
            Way::Unmarked(base) => self.stage(base, None),
            _ => {
                let marker = self.mark()?;
                self.stage(marker, Some(marker))
            }
        }
    }

    fn mark(&mut self) -> Result<SnapshotId> {
        let Some(identity) = Identity::of(&self.plan.header, self.plan.mode) else {
            bail!("a delta that begins at a seq has no marker");
        };
        let (name, uid, created) = (identity.name(), uid::fresh()?, clock::now_ms());
        let spec = SnapshotSpec { name, uid, internal: true, created };
        let position = self.next();
        self.snapshotted(Op::Snapshot { volume: self.volume, position: Some(position), spec })
    }

    fn stage(&mut self, base: SnapshotId, marker: Option<SnapshotId>) -> Result<Into> {
        let staging = self.created(Op::Stage { volume: self.volume, base })?;
        Ok(Into::Hidden { staging, marker, from: ByteOffset(0) })
    }

    /// The next place in the volume's sequence.
    fn next(&mut self) -> Position {
        self.held = crate::offline::after(self.held);
        self.held
    }

    fn run(&mut self, op: Op) -> Result<Reply> {
        self.ahead.run(op).map_err(|error| self.contents.explain(error))
    }

    fn created(&mut self, op: Op) -> Result<VolumeId> {
        match self.run(op)? {
            Reply::Created(volume) => Ok(volume),
            other => bail!("the pool gave the wrong answer: {other:?}"),
        }
    }

    fn snapshotted(&mut self, op: Op) -> Result<SnapshotId> {
        match self.run(op)? {
            Reply::Snapshotted(snapshot) => Ok(snapshot),
            other => bail!("the pool gave the wrong answer: {other:?}"),
        }
    }

    /// Takes one frame.
    pub fn take(&mut self, item: Item) -> Result<()> {
        let (offset, changed, content) = match item {
            Item::Header(_) | Item::End(_) => return Ok(()),
            Item::Bytes { offset, changed, data } => (offset, changed, Staged::Bytes(data)),
            Item::Hole { offset, len, changed } => (offset, changed, Staged::Zeros(len)),
        };
        match &mut self.into {
            Into::Hidden { staging, from, .. } => {
                let (staging, from) = (*staging, *from);
                self.stage_data(staging, from, offset, changed, content)
            }
            Into::Write { from, bytes } => gather(from, bytes, offset, content),
            Into::Compare { .. } => self.compare(offset, content),
            Into::Nowhere => bail!("a delta without a change has a change"),
        }
    }

    fn stage_data(
        &mut self,
        staging: VolumeId,
        from: ByteOffset,
        offset: ByteOffset,
        changed: Seq,
        content: Staged,
    ) -> Result<()> {
        let (len, bytes) = match &content {
            Staged::Bytes(data) => (data.len() as u64, data.len()),
            Staged::Zeros(len) => (len.0, 0),
        };
        let progress = offset.0 + len;
        if progress <= from.0 {
            return Ok(());
        }
        // Foreign numbers mean nothing here, and may be higher than any of this sequence.
        let changed = match self.plan.mode {
            Mode::CatchUp => changed,
            Mode::Mirror => self.plan.adoption(self.held).seq,
        };
        let op = Op::StageData { staging, changed, offset, content, progress };
        let id = self.ahead.start(op);
        self.under_way.push_back((id, bytes));
        self.bytes += bytes;
        while self.under_way.len() >= FRAMES_MAX || self.bytes >= BYTES_MAX {
            self.settle_one()?;
        }
        Ok(())
    }

    fn settle_one(&mut self) -> Result<()> {
        let Some((id, bytes)) = self.under_way.pop_front() else { return Ok(()) };
        self.bytes -= bytes;
        match self.ahead.wait(id) {
            Ok(_) => Ok(()),
            Err(error) => Err(self.contents.explain(error)),
        }
    }

    /// What a volume has that took a whole import, but not its snapshot.
    fn compare(&mut self, offset: ByteOffset, content: Staged) -> Result<()> {
        let (volume, len) = match &content {
            Staged::Bytes(data) => (self.volume, data.len() as u64),
            Staged::Zeros(len) => (self.volume, len.0),
        };
        let mut at = 0;
        while at < len {
            let step = (len - at).min(WRITE_MAX);
            let offset = ByteOffset(offset.0 + at);
            let Reply::Read(found) = self.run(Op::Read { volume, offset, len: ByteLen(step) })?
            else {
                bail!("the pool gave the wrong answer");
            };
            let same = match &content {
                Staged::Bytes(data) => data[..] == found[..],
                Staged::Zeros(_) => found.iter().all(|byte| *byte == 0),
            };
            ensure!(
                same,
                "the volume was changed after this delta was imported into it, and before the \
                 snapshot was made: {offset} differs; take a snapshot of it by hand, or roll it \
                 back"
            );
            at += step;
        }
        Ok(())
    }

    /// The delta was whole: the volume has its content from here on, and then its snapshot.
    pub fn commit(mut self) -> Result<Position> {
        while !self.under_way.is_empty() {
            self.settle_one()?;
        }
        let (volume, position) = (self.volume, self.plan.adoption(self.held));
        let marker = match std::mem::replace(&mut self.into, Into::Nowhere) {
            Into::Hidden { staging, marker, .. } => {
                let stamps = match self.plan.mode {
                    Mode::CatchUp => Stamps::Keep,
                    Mode::Mirror => Stamps::Renew,
                };
                self.run(Op::Adopt { volume, staging, position, stamps, state: None })?;
                self.held = position;
                marker
            }
            Into::Write { bytes, .. } if bytes.is_empty() => None,
            Into::Write { from, bytes } => {
                let (offset, data) = (ByteOffset(from), Data::copy_of(&bytes));
                self.run(Op::Write { volume, position, offset, data })?;
                self.held = position;
                None
            }
            Into::Compare { marker } => Some(marker),
            Into::Nowhere => None,
        };
        let position = self.plan.snapshot(self.held);
        let snapshot = &self.plan.header.snapshot;
        let (name, uid, created) = (snapshot.name.clone(), snapshot.uid, snapshot.created_ms);
        let spec = SnapshotSpec { name, uid, internal: false, created };
        self.run(Op::Snapshot { volume, position: Some(position), spec })?;
        if let Some(snapshot) = marker {
            self.run(Op::DeleteSnapshot { snapshot })?;
        }
        Ok(position)
    }

    /// The delta ended badly. What could not go on later is dropped; the rest stays.
    pub fn give_up(mut self) {
        while !self.under_way.is_empty() {
            // Told already, or told best by what led here.
            let _ = self.settle_one();
        }
        let hidden = match self.into {
            Into::Hidden { marker: Some(_), .. } => return,
            Into::Hidden { staging, .. } => Some(staging),
            _ => None,
        };
        let made = matches!(self.plan.volume, Target::New(_)).then_some(self.volume);
        for volume in hidden.into_iter().chain(made) {
            let snapshots = SnapshotsOfDeleted::Delete;
            let _: Result<Reply, OpError> = self.ahead.run(Op::Delete { volume, snapshots });
        }
    }
}

/// Puts a frame behind what is there, with zeros between.
fn gather(from: &mut u64, bytes: &mut Vec<u8>, offset: ByteOffset, content: Staged) -> Result<()> {
    let Staged::Bytes(data) = content else { return Ok(()) };
    if bytes.is_empty() {
        *from = offset.0;
    }
    let end = offset.0 - *from + data.len() as u64;
    ensure!(
        end <= WRITE_MAX,
        "by its positions this delta is of one operation, but no single one changes so much; \
         import it with --mode mirror"
    );
    bytes.resize(usize::try_from(end)? - data.len(), 0);
    bytes.extend_from_slice(&data);
    Ok(())
}
