//! The tables of SPC-4 and SBC-3, command by command.
use super::*;
use crate::scsi::opcodes;

/// Whether a command conflicts: with write exclusive and exclusive access of another; as a
/// registered nexus where registered ones may; with the same as a stranger.
fn columns(cdb: &[u8]) -> [bool; 5] {
    let mut wide = [0; 16];
    wide[..cdb.len()].copy_from_slice(cdb);
    let (row, _) = opcodes::find(&wide).unwrap();
    let access = row.access.of(&wide);
    let of = |kind, standing| conflicts(kind, standing, access);
    for kind in Kind::EVERY {
        assert!(!of(kind, Standing::Holder), "a holder may do all");
    }
    for (plain, registrants) in [(1, 5), (3, 6)] {
        let [plain, registrants] = [plain, registrants].map(|kind| Kind::of(kind).unwrap());
        assert_eq!(of(plain, Standing::Registered), of(plain, Standing::Stranger));
        assert_eq!(of(plain, Standing::Stranger), of(registrants, Standing::Stranger));
    }
    [
        of(Kind::WriteExclusive, Standing::Stranger),
        of(Kind::ExclusiveAccess, Standing::Stranger),
        of(Kind::WriteExclusiveRegistrants, Standing::Registered)
            || of(Kind::ExclusiveAccessRegistrants, Standing::Registered),
        of(Kind::WriteExclusiveAll, Standing::Stranger),
        of(Kind::ExclusiveAccessAll, Standing::Stranger),
    ]
}

const FREE: [bool; 5] = [false; 5];
const READS: [bool; 5] = [false, true, false, false, true];
const WRITES: [bool; 5] = [true, true, false, true, true];

#[test]
fn commands_that_no_reservation_keeps_out() {
    for cdb in [
        &[0x00][..],
        &[0x03],
        &[0x12],
        &[0x1B, 0, 0, 0, 1],
        &[0x1E, 0, 0, 0, 0],
        &[0x25],
        &[0x4D],
        &[0x5E, 0],
        &[0x5E, 3],
        &[0x5F, 0],
        &[0x9E, 0x10],
        &[0xA0],
        &[0xA3, 0x0A],
    ] {
        assert_eq!(columns(cdb), FREE, "{cdb:02X?}");
    }
}

#[test]
fn commands_that_read() {
    for cdb in [
        &[0x08][..],
        &[0x1A],
        &[0x28],
        &[0x2F],
        &[0x34],
        &[0x37],
        &[0x5A],
        &[0x88],
        &[0x8F],
        &[0x90],
        &[0x9E, 0x12],
        &[0xA3, 0x0C],
        &[0xA3, 0x0D],
        &[0xA8],
        &[0xAF],
        &[0xB7],
    ] {
        assert_eq!(columns(cdb), READS, "{cdb:02X?}");
    }
}

#[test]
fn commands_that_write_or_change_what_is_shared() {
    for cdb in [
        &[0x0A][..],
        &[0x15],
        &[0x1B, 0, 0, 0, 0],
        &[0x1B, 0, 0, 0, 0x11],
        &[0x1D],
        &[0x1E, 0, 0, 0, 1],
        &[0x2A],
        &[0x2E],
        &[0x35],
        &[0x41],
        &[0x42],
        &[0x55],
        &[0x89],
        &[0x8A],
        &[0x8B],
        &[0x8E],
        &[0x91],
        &[0x93],
        &[0xAA],
        &[0xAE],
    ] {
        assert_eq!(columns(cdb), WRITES, "{cdb:02X?}");
    }
}
