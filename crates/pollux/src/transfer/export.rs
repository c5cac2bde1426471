//! Writing a delta: what changed is asked for page by page, and read ahead of what is written.
use std::collections::VecDeque;

use anyhow::{Result, anyhow, bail, ensure};
use block::{ByteLen, ByteOffset, Seq, Wait};
use engine::delta::{Base, DATA_MAX, Header, Snapshot, Sums, Writer};
use engine::{
    ChangedRange, Op, OpError, Pool, Reply, RequestId, Runs, Since, SnapshotId, SnapshotInfo,
};

use super::ahead::Ahead;
use super::{Meter, Sink};
use crate::offline::Contents;

/// Ranges of one answer about what changed.
const RANGES: usize = 4096;
/// Reads under way: enough for a device to be busy, and 8 MiB of memory.
const READS: usize = 8;

/// What is to be exported: of which snapshot, and since when.
pub struct Order {
    pub header: Header,
    snapshot: SnapshotId,
    since: Since,
}

impl Order {
    /// From `empty`, `seq:N` or a snapshot to `VOLUME@SNAPSHOT`. Nothing is opened yet.
    pub fn new(
        contents: &Contents,
        from: &str,
        to: &str,
        resume_from: ByteOffset,
    ) -> Result<Order> {
        let snapshot = contents.snapshot(to)?;
        let (base, since) = base(contents, from, snapshot)?;
        let volume = contents.volume_of(snapshot.volume).map(|volume| volume.uid);
        let path = contents.path.display();
        let Some(volume) = volume else {
            bail!(
                "{path}: the volume of {to} is gone, and its identity with it: clone the snapshot, \
                 and export from the clone"
            );
        };
        let header = Header {
            volume,
            block_size: snapshot.block_size,
            size: snapshot.size,
            base,
            snapshot: Snapshot {
                uid: snapshot.uid,
                name: snapshot.name.clone(),
                position: snapshot.position,
                created_ms: snapshot.created,
            },
            own_sequence: true,
            resume_from,
        };
        header.check().map_err(|problem| anyhow!("{path}: {problem}"))?;
        Ok(Order { header, snapshot: snapshot.id, since })
    }
}

fn base(contents: &Contents, from: &str, to: &SnapshotInfo) -> Result<(Base, Since)> {
    if from == "empty" {
        return Ok((Base::Empty, Since::Start));
    }
    if let Some(number) = from.strip_prefix("seq:") {
        let Ok(seq) = number.parse().map(Seq) else {
            bail!("{from:?} is no seq: write seq:N with a number");
        };
        return Ok((Base::Seq(seq), Since::Seq(seq)));
    }
    let path = contents.path.display();
    let own = contents.snapshots_of(to.volume).find(|snapshot| snapshot.name == from);
    let base = match own {
        Some(base) => base,
        None if from.contains('@') => contents.snapshot(from)?,
        None => bail!(
            "{path}: the volume of {} has no snapshot {from:?}: name one of `pollux disk snapshot \
             list {path}`, or say seq:N, or empty",
            contents.title(to)
        ),
    };
    ensure!(
        base.volume == to.volume,
        "{path}: {} and {} are of different volumes: export from a snapshot of the same, or from \
         empty",
        contents.title(base),
        contents.title(to)
    );
    ensure!(
        base.position <= to.position,
        contents.explain(OpError::BaseIsNewer { base: base.id, snapshot: to.id })
    );
    let (uid, name, position) = (base.uid, base.name.clone(), base.position);
    Ok((Base::Snapshot { uid, name, position }, Since::Snapshot(base.id)))
}

/// A part of what changed, as it stands in one frame.
enum Piece {
    Data { read: RequestId, offset: ByteOffset, changed: Seq },
    Hole { offset: ByteOffset, len: ByteLen, changed: Seq },
}

/// The ranges that changed, from some place on.
struct Changed<'a> {
    order: &'a Order,
    contents: &'a Contents,
    /// In order; the first may have been used in part.
    ranges: VecDeque<ChangedRange>,
    next: Option<ByteOffset>,
}

impl<'a> Changed<'a> {
    fn new(order: &'a Order, contents: &'a Contents) -> Changed<'a> {
        let from = order.header.resume_from;
        let next = (from.0 < order.header.size.0).then_some(from);
        Changed { order, contents, ranges: VecDeque::new(), next }
    }

    /// The next range, at most as long as a frame can take.
    fn take<D: Wait>(&mut self, ahead: &mut Ahead<'_, D>) -> Result<Option<ChangedRange>> {
        while self.ranges.is_empty() {
            let Some(from) = self.next else { return Ok(None) };
            let Order { snapshot, since, .. } = *self.order;
            let op =
                Op::Changed { snapshot, since, from, to: None, max: RANGES, runs: Runs::Joined };
            match ahead.run(op).map_err(|error| self.contents.explain(error))? {
                Reply::Changed(changes) => {
                    self.ranges.extend(changes.ranges);
                    self.next = changes.next;
                }
                other => bail!("the pool gave the wrong answer: {other:?}"),
            }
        }
        let first = &mut self.ranges[0];
        if !first.is_data || first.len.0 <= DATA_MAX {
            return Ok(self.ranges.pop_front());
        }
        let part = ChangedRange { len: ByteLen(DATA_MAX), ..*first };
        first.offset.0 += DATA_MAX;
        first.len.0 -= DATA_MAX;
        Ok(Some(part))
    }
}

/// How much data an export will have.
pub fn measure<D: Wait>(pool: &mut Pool<D>, contents: &Contents, order: &Order) -> Result<ByteLen> {
    let mut ahead = Ahead::of(pool);
    let mut changed = Changed::new(order, contents);
    let mut total = ByteLen(0);
    while let Some(range) = changed.take(&mut ahead)? {
        total.0 += if range.is_data { range.len.0 } else { 0 };
    }
    Ok(total)
}

/// Writes the delta; it is whole when the sink is finished.
pub fn send<D: Wait>(
    pool: &mut Pool<D>,
    contents: &Contents,
    order: &Order,
    sink: &mut Sink,
    meter: &Meter,
) -> Result<Sums> {
    let mut writer = Writer::new(&order.header, &mut sink.out)?;
    let mut ahead = Ahead::of(pool);
    let mut changed = Changed::new(order, contents);
    let (mut pieces, mut sent) = (VecDeque::new(), 0);
    loop {
        while pieces.len() < READS
            && let Some(ChangedRange { offset, len, is_data, changed }) =
                changed.take(&mut ahead)?
        {
            pieces.push_back(match is_data {
                false => Piece::Hole { offset, len, changed },
                true => {
                    let op = Op::ReadSnapshot { snapshot: order.snapshot, offset, len };
                    Piece::Data { read: ahead.start(op), offset, changed }
                }
            });
        }
        match pieces.pop_front() {
            None => break,
            Some(Piece::Hole { offset, len, changed }) => {
                writer.hole(offset, len, changed, &mut sink.out)?;
            }
            Some(Piece::Data { read, offset, changed }) => {
                let data = match ahead.wait(read).map_err(|error| contents.explain(error))? {
                    Reply::Read(data) => data,
                    other => bail!("the pool gave the wrong answer: {other:?}"),
                };
                writer.bytes(offset, changed, &data, &mut sink.out)?;
                sent += data.len() as u64;
                meter.reached(sent);
            }
        }
        sink.pass_on()?;
    }
    Ok(writer.finish(&mut sink.out))
}
