//! What snapshots have, and how they differ.
use block::{ByteOffset, Position, Seq, Term};
use proto::v1;
use replication::words::SnapshotUid;
use tonic::Status;

use super::{Admin, uid};
use crate::shard::{Extent, ExtentsAsk, Order};
use crate::store::Point;

/// Extents of an answer, unless the caller wants another number of them; and at the most.
const LIMIT: usize = 1024;
const LIMIT_MAX: usize = 4096;

impl Admin {
    pub(super) async fn list_extents(
        &self,
        request: v1::ListExtentsRequest,
    ) -> Result<v1::ListExtentsResponse, Status> {
        let (snapshot, base) = points(&request)?;
        let volume = self.volume(request.volume).await?;
        let from = ByteOffset(request.from);
        let ask = ExtentsAsk { volume, snapshot, base, from, limit: limit(request.limit) };
        let extents = self.order(|answer| Order::Extents { ask, answer }).await?;
        let extent = |it: &Extent| v1::Extent { offset: it.offset.0, len: it.len.0 };
        Ok(v1::ListExtentsResponse {
            extents: extents.found.iter().map(extent).collect(),
            size: extents.size.0,
            next: extents.next.map(|next| next.0),
        })
    }
}

fn limit(wanted: u32) -> usize {
    match usize::try_from(wanted).unwrap_or(LIMIT_MAX) {
        0 => LIMIT,
        wanted => wanted.min(LIMIT_MAX),
    }
}

/// The snapshot, and the earlier one that it is compared with.
fn points(request: &v1::ListExtentsRequest) -> Result<(Point, Option<Point>), Status> {
    let snapshot = point(&request.snapshot, request.at, ["snapshot", "at"])?;
    if request.base.is_empty() {
        return match request.base_at {
            None => Ok((snapshot, None)),
            Some(_) => Err(Status::invalid_argument("`base_at` is given, and `base` is not")),
        };
    }
    let base = point(&request.base, request.base_at, ["base", "base_at"])?;
    match base.at < snapshot.at && base.snapshot != snapshot.snapshot {
        true => Ok((snapshot, Some(base))),
        false => Err(Status::invalid_argument(format!(
            "`base` is at {}, and the snapshot at {}: a difference goes from an earlier one to a later",
            base.at, snapshot.at
        ))),
    }
}

fn point(bytes: &[u8], at: Option<v1::Position>, [of, field]: [&str; 2]) -> Result<Point, Status> {
    let snapshot = SnapshotUid(uid(bytes, of)?);
    let at = at.ok_or_else(|| Status::invalid_argument(format!("`{field}` is missing")))?;
    Ok(Point { snapshot, at: Position { term: Term(at.term), seq: Seq(at.seq) } })
}

#[cfg(test)]
mod tests {
    use tonic::Code;

    use super::*;

    fn request(snapshot: (u8, u64), base: Option<(u8, u64)>) -> v1::ListExtentsRequest {
        let at = |seq| Some(v1::Position { term: 3, seq });
        v1::ListExtentsRequest {
            snapshot: vec![snapshot.0; 16],
            at: at(snapshot.1),
            base: base.map(|(uid, _)| vec![uid; 16]).unwrap_or_default(),
            base_at: base.and_then(|(_, seq)| at(seq)),
            ..v1::ListExtentsRequest::default()
        }
    }

    #[test]
    fn a_base_is_earlier_and_another() {
        assert!(points(&request((1, 9), None)).unwrap().1.is_none());
        let (_, base) = points(&request((1, 9), Some((2, 8)))).unwrap();
        assert_eq!(base.unwrap().at, Position::new(3, 8));
        for base in [(2, 9), (2, 10), (1, 8)] {
            let refused = points(&request((1, 9), Some(base))).unwrap_err();
            assert_eq!(refused.code(), Code::InvalidArgument, "{base:?}");
        }
    }

    #[test]
    fn what_is_missing_is_named() {
        let without = v1::ListExtentsRequest { base_at: None, ..request((1, 9), Some((2, 8))) };
        assert!(points(&without).unwrap_err().message().contains("`base_at`"));
        let short = v1::ListExtentsRequest { snapshot: vec![1; 3], ..request((1, 9), None) };
        assert!(points(&short).unwrap_err().message().contains("`snapshot` has 3 bytes"));
        let alone = v1::ListExtentsRequest { base: Vec::new(), ..request((1, 9), Some((2, 8))) };
        assert_eq!(points(&alone).unwrap_err().code(), Code::InvalidArgument);
    }

    #[test]
    fn an_answer_is_bounded_whatever_is_asked() {
        assert_eq!([0, 1, 4096, u32::MAX].map(limit), [1024, 1, 4096, 4096]);
    }
}
