//! Sizes: ranges that are asked for, and numbers that gRPC has with a sign.
use proto::csi::CapacityRange;
use tonic::Status;

use super::status::invalid;
use crate::catalog::limits::SIZE_UNIT;

/// What a volume has of which no size is said.
const SIZE_DEFAULT: u64 = 1 << 30;

/// At least so large, and no larger than the limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Range {
    /// 0: not said.
    pub least: u64,
    pub limit: Option<u64>,
}

pub fn range(of: Option<CapacityRange>) -> Result<Range, Status> {
    let CapacityRange { required_bytes, limit_bytes } = of.unwrap_or_default();
    let bytes = |field: &str, value: i64| {
        u64::try_from(value).map_err(|_| invalid(field, format!("{value} is below zero")))
    };
    let least = bytes("capacity_range.required_bytes", required_bytes)?;
    let limit = Some(bytes("capacity_range.limit_bytes", limit_bytes)?).filter(|limit| *limit > 0);
    match limit {
        Some(limit) if limit < least => Err(Status::out_of_range(format!(
            "capacity_range: nothing has at least {least} and at most {limit} bytes"
        ))),
        _ => Ok(Range { least, limit }),
    }
}

impl Range {
    /// For an empty volume: as much as was asked for, or as is usual below the limit.
    pub fn for_empty(self, block_size: u32) -> u64 {
        let unit = SIZE_UNIT.max(block_size.into());
        match self {
            // A limit below one unit is for the site to refuse: nothing fits it.
            Range { least: 0, limit: Some(limit) } if limit < SIZE_DEFAULT => {
                (limit - limit % unit).max(unit)
            }
            Range { least: 0, .. } => SIZE_DEFAULT,
            Range { least, .. } => least,
        }
    }
}

/// Nothing here has 2^63 bytes.
pub fn signed(bytes: u64) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use tonic::Code;

    use super::*;

    const GIB: u64 = 1 << 30;

    fn of(required_bytes: i64, limit_bytes: i64) -> Option<CapacityRange> {
        Some(CapacityRange { required_bytes, limit_bytes })
    }

    #[test]
    fn ranges_and_what_an_empty_volume_has_of_them() {
        for (asked, least, limit, size) in [
            (None, 0, None, GIB),
            (of(0, 0), 0, None, GIB),
            (of(5000, 0), 5000, None, 5000),
            (of(5000, 8192), 5000, Some(8192), 5000),
            (of(0, 2 << 30), 0, Some(2 << 30), GIB),
            (of(0, 10_000), 0, Some(10_000), 8192),
            (of(0, 100), 0, Some(100), 4096),
        ] {
            let read = range(asked).unwrap();
            assert_eq!(read, Range { least, limit }, "{asked:?}");
            assert_eq!(read.for_empty(4096), size, "{asked:?}");
        }
        assert_eq!(range(of(0, 200_000)).unwrap().for_empty(128 << 10), 128 << 10);
    }

    #[test]
    fn ranges_that_are_none() {
        for (asked, code) in [
            (of(-1, 0), Code::InvalidArgument),
            (of(0, -1), Code::InvalidArgument),
            (of(8192, 4096), Code::OutOfRange),
        ] {
            assert_eq!(range(asked).unwrap_err().code(), code, "{asked:?}");
        }
    }
}
