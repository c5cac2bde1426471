//! The names by which compression is chosen, and the byte that keeps the choice.
use std::fmt;
use std::str::FromStr;

use thiserror::Error;

use crate::format::Encoding;

/// How hard gzip tries: 1 is fast, 9 is small.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GzipLevel(u8);

impl GzipLevel {
    /// What `gzip` alone means.
    pub const DEFAULT: GzipLevel = GzipLevel(6);

    pub fn new(level: u8) -> Option<GzipLevel> {
        (1..=9).contains(&level).then_some(GzipLevel(level))
    }

    pub fn get(self) -> u8 {
        self.0
    }
}

/// How a volume's data is stored. Fixed names, as users of the resource schema know them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Compression {
    #[default]
    Off,
    Lz4,
    Gzip(GzipLevel),
    Zle,
    Lzjb,
}

#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error(
    "{name:?} is no compression: choose one of off, on (which is lz4), lz4, gzip (which is \
     gzip-6), gzip-1 to gzip-9, zle, lzjb"
)]
pub struct UnknownCompression {
    pub name: String,
}

impl FromStr for Compression {
    type Err = UnknownCompression;

    fn from_str(name: &str) -> Result<Compression, UnknownCompression> {
        Ok(match name {
            "off" => Compression::Off,
            "on" | "lz4" => Compression::Lz4,
            "gzip" => Compression::Gzip(GzipLevel::DEFAULT),
            "zle" => Compression::Zle,
            "lzjb" => Compression::Lzjb,
            _ => {
                // One digit, so that `gzip-06` is no second name of `gzip-6`.
                let level = match name.strip_prefix("gzip-").map(str::as_bytes) {
                    Some([digit @ b'1'..=b'9']) => GzipLevel::new(digit - b'0'),
                    _ => None,
                };
                let unknown = || UnknownCompression { name: name.to_owned() };
                Compression::Gzip(level.ok_or_else(unknown)?)
            }
        })
    }
}

impl fmt::Display for Compression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Compression::Off => f.pad("off"),
            Compression::Lz4 => f.pad("lz4"),
            Compression::Gzip(level) => f.pad(&format!("gzip-{}", level.get())),
            Compression::Zle => f.pad("zle"),
            Compression::Lzjb => f.pad("lzjb"),
        }
    }
}

impl Compression {
    /// How a block is encoded that became shorter. `None`: nothing is tried.
    pub fn encoding(self) -> Option<Encoding> {
        Some(match self {
            Compression::Off => return None,
            Compression::Lz4 => Encoding::Lz4,
            Compression::Gzip(level) => Encoding::Gzip(level),
            Compression::Zle => Encoding::Zle,
            Compression::Lzjb => Encoding::Lzjb,
        })
    }

    /// As a volume's header keeps it: the byte of the encoding that it asks for.
    pub fn byte(self) -> u8 {
        self.encoding().map_or(0, Encoding::byte)
    }

    pub fn from_byte(byte: u8) -> Option<Compression> {
        if byte == 0 {
            return Some(Compression::Off);
        }
        match Encoding::from_byte(byte)? {
            Encoding::Lz4 => Some(Compression::Lz4),
            Encoding::Gzip(level) => Some(Compression::Gzip(level)),
            Encoding::Zle => Some(Compression::Zle),
            Encoding::Lzjb => Some(Compression::Lzjb),
            Encoding::Raw | Encoding::Unknown => None,
        }
    }
}
