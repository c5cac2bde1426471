//! The tables of the file. `docs/catalog.md` has them too.
use proto::v1::Kind;
use redb::TableDefinition;

/// 1: the first.
pub const FORMAT_VERSION: u64 = 1;

pub const META: TableDefinition<&str, u64> = TableDefinition::new("meta");
pub const FORMAT: &str = "format";
pub const REVISION: &str = "revision";

/// (kind, name) to the encoded `pollux.v1.Object`.
pub const OBJECTS: TableDefinition<(u8, &str), &[u8]> = TableDefinition::new("objects");

/// The revision of its last change to the object.
pub const CHANGES: TableDefinition<u64, (u8, &str)> = TableDefinition::new("changes");

/// Openings of the file, in order: a random name, and the revision that it found.
pub const SESSIONS: TableDefinition<u64, (u64, u64)> = TableDefinition::new("sessions");

pub fn kind_number(kind: Kind) -> u8 {
    match kind {
        Kind::Unspecified => 0,
        Kind::Volume => 1,
        Kind::Node => 2,
        Kind::Snapshot => 3,
        Kind::Group => 4,
        Kind::GroupSnapshot => 5,
        Kind::Controller => 6,
        Kind::Token => 7,
        Kind::Host => 8,
    }
}
