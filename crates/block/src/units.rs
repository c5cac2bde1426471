//! Newtypes for bytes: an offset and a length never stand side by side as two bare numbers.
use std::fmt;

/// The finest address that a front end may use: everything is a multiple of this.
pub const LOGICAL_SECTOR: u64 = 512;

/// A place within a volume or a device, in bytes from its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ByteOffset(pub u64);

/// A number of bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ByteLen(pub u64);

impl ByteOffset {
    /// The first byte after a range, or `None` where that is no 64-bit number.
    pub fn end(self, len: ByteLen) -> Option<ByteOffset> {
        self.0.checked_add(len.0).map(ByteOffset)
    }
}

impl fmt::Display for ByteOffset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "byte {}", self.0)
    }
}

const BINARY_UNITS: [(u64, &str); 5] =
    [(1 << 50, "PiB"), (1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];

impl fmt::Display for ByteLen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (unit, name) in BINARY_UNITS {
            if self.0 >= unit {
                let tenths = self.0 / (unit / 10).max(1);
                return match self.0 % unit {
                    0 => write!(f, "{} {name}", self.0 / unit),
                    _ => write!(f, "{}.{} {name}", self.0 / unit, (tenths % 10).min(9)),
                };
            }
        }
        write!(f, "{} B", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_shown_in_the_largest_unit_that_fits() {
        assert_eq!(ByteLen(0).to_string(), "0 B");
        assert_eq!(ByteLen(512).to_string(), "512 B");
        assert_eq!(ByteLen(4096).to_string(), "4 KiB");
        assert_eq!(ByteLen(1536).to_string(), "1.5 KiB");
        assert_eq!(ByteLen(16 << 40).to_string(), "16 TiB");
    }

    #[test]
    fn an_end_beyond_the_number_line_is_none() {
        assert_eq!(ByteOffset(u64::MAX).end(ByteLen(1)), None);
        assert_eq!(ByteOffset(1).end(ByteLen(1)), Some(ByteOffset(2)));
    }
}
