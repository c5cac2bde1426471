//! Why a command was not carried out, and how that is written.
//!
//! The one place where what a volume says ([`AskError`]) becomes what an initiator sees.
use block::ByteOffset;

use crate::ask::AskError;
use crate::scsi::words::Status;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Key {
    NoSense = 0,
    NotReady = 2,
    Medium = 3,
    Hardware = 4,
    IllegalRequest = 5,
    UnitAttention = 6,
    DataProtect = 7,
    CopyAborted = 0xA,
    Miscompare = 0xE,
}

/// The additional sense code and its qualifier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Code(pub(super) u8, pub(super) u8);

impl Code {
    pub(super) const NONE: Code = Code(0x00, 0x00);
    pub(super) const BECOMING_READY: Code = Code(0x04, 0x01);
    pub(super) const PORT_UNAVAILABLE: Code = Code(0x04, 0x0C);
    pub(super) const WRITE_ERROR: Code = Code(0x0C, 0x00);
    /// INVALID FIELD IN COMMAND INFORMATION UNIT: the data does not fit the CDB.
    pub(super) const DATA_LENGTH: Code = Code(0x0E, 0x03);
    pub(super) const UNRECOVERED_READ: Code = Code(0x11, 0x00);
    pub(super) const LIST_LENGTH: Code = Code(0x1A, 0x00);
    pub(super) const MISCOMPARE: Code = Code(0x1D, 0x00);
    pub(super) const INVALID_OPCODE: Code = Code(0x20, 0x00);
    pub(super) const OUT_OF_RANGE: Code = Code(0x21, 0x00);
    pub(super) const INVALID_FIELD_IN_CDB: Code = Code(0x24, 0x00);
    pub(super) const UNIT_NOT_SUPPORTED: Code = Code(0x25, 0x00);
    pub(super) const INVALID_FIELD_IN_LIST: Code = Code(0x26, 0x00);
    pub(super) const INVALID_RELEASE: Code = Code(0x26, 0x04);
    pub(super) const WRITE_PROTECTED: Code = Code(0x27, 0x00);
    pub(super) const SOFTWARE_WRITE_PROTECTED: Code = Code(0x27, 0x02);
    pub(super) const SPACE_ALLOCATION_FAILED: Code = Code(0x27, 0x07);
    pub(super) const SAVING_NOT_SUPPORTED: Code = Code(0x39, 0x00);
    pub(super) const INTERNAL_FAILURE: Code = Code(0x44, 0x00);
    pub(super) const INVALID_MESSAGE: Code = Code(0x49, 0x00);
    pub(super) const NO_REGISTRATION_ROOM: Code = Code(0x55, 0x04);
}

/// Which part of a request is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Field {
    Cdb { byte: u16, bit: Option<u8> },
    List { byte: u16 },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sense {
    pub(super) key: Key,
    pub(super) code: Code,
    pub(super) information: Option<u64>,
    pub(super) field: Option<Field>,
    /// About an earlier command that was answered already.
    pub(super) deferred: bool,
}

impl Sense {
    pub(super) const fn new(key: Key, code: Code) -> Sense {
        Sense { key, code, information: None, field: None, deferred: false }
    }

    pub(super) const fn illegal(code: Code) -> Sense {
        Sense::new(Key::IllegalRequest, code)
    }

    /// A byte of the CDB is wrong.
    pub(super) const fn cdb(byte: u16) -> Sense {
        let field = Some(Field::Cdb { byte, bit: None });
        Sense { field, ..Sense::illegal(Code::INVALID_FIELD_IN_CDB) }
    }

    /// A field of the CDB whose highest bit this is, is wrong.
    pub(super) const fn cdb_bit(byte: u16, bit: u8) -> Sense {
        let field = Some(Field::Cdb { byte, bit: Some(bit) });
        Sense { field, ..Sense::illegal(Code::INVALID_FIELD_IN_CDB) }
    }

    /// A byte of the parameter list is wrong.
    pub(super) fn list(byte: usize) -> Sense {
        let field = u16::try_from(byte).ok().map(|byte| Field::List { byte });
        Sense { field, ..Sense::illegal(Code::INVALID_FIELD_IN_LIST) }
    }

    pub(super) fn miscompare(at: u64) -> Sense {
        Sense { information: Some(at), ..Sense::new(Key::Miscompare, Code::MISCOMPARE) }
    }

    /// The volume answered something that was not asked.
    pub(super) const fn internal() -> Sense {
        Sense::new(Key::Hardware, Code::INTERNAL_FAILURE)
    }

    pub(super) fn encode(&self, descriptors: bool) -> Vec<u8> {
        if descriptors { self.with_descriptors() } else { self.fixed() }
    }

    fn fixed(&self) -> Vec<u8> {
        let mut bytes = vec![0; 18];
        bytes[0] = if self.deferred { 0x71 } else { 0x70 };
        bytes[2] = self.key as u8;
        if let Some(information) = self.information.and_then(|value| u32::try_from(value).ok()) {
            bytes[0] |= 0x80;
            bytes[3..7].copy_from_slice(&information.to_be_bytes());
        }
        bytes[7] = 10;
        (bytes[12], bytes[13]) = (self.code.0, self.code.1);
        if let Some(field) = self.field {
            bytes[15..18].copy_from_slice(&field.pointer());
        }
        bytes
    }

    fn with_descriptors(&self) -> Vec<u8> {
        let response = if self.deferred { 0x73 } else { 0x72 };
        let mut bytes = vec![response, self.key as u8, self.code.0, self.code.1, 0, 0, 0, 0];
        if let Some(information) = self.information {
            bytes.extend([0x00, 0x0A, 0x80, 0x00]);
            bytes.extend(information.to_be_bytes());
            bytes[7] += 12;
        }
        if let Some(field) = self.field {
            bytes.extend([0x02, 0x06, 0x00, 0x00]);
            bytes.extend(field.pointer());
            bytes.push(0);
            bytes[7] += 8;
        }
        bytes
    }
}

impl Field {
    /// The three bytes that are specific to ILLEGAL REQUEST.
    fn pointer(self) -> [u8; 3] {
        const VALID: u8 = 0x80;
        const IN_CDB: u8 = 0x40;
        const BIT_VALID: u8 = 0x08;
        let (flags, byte) = match self {
            Field::Cdb { byte, bit: None } => (VALID | IN_CDB, byte),
            Field::Cdb { byte, bit: Some(bit) } => (VALID | IN_CDB | BIT_VALID | (bit & 7), byte),
            Field::List { byte } => (VALID, byte),
        };
        let [high, low] = byte.to_be_bytes();
        [flags, high, low]
    }
}

/// Why a command ends without being carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    Check(Sense),
    Status(Status),
}

impl From<Sense> for Refusal {
    fn from(sense: Sense) -> Refusal {
        Refusal::Check(sense)
    }
}

impl Refusal {
    pub(super) const CONFLICT: Refusal = Refusal::Status(Status::ReservationConflict);
}

/// What a command was doing when the volume failed it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum During {
    Reading,
    Writing,
}

/// What an initiator is told when the volume fails a question.
///
/// The choice is made for what Linux does with it:
/// - No quorum, and a target that just moves away, pass. NOT READY, BECOMING READY (02/04/01) is
///   asked again after a delay until six times the command's timeout is over (three minutes
///   unless told otherwise), so a file system sees a slow disk and not an error. ABORTED COMMAND would be
///   tried five times at once and then fail the file system.
/// - A replaced connection must not go on: TARGET PORT UNAVAILABLE (02/04/0C) fails at once, and
///   makes multipath take another path.
/// - Lost writes must not pass unseen: HARDWARE ERROR is given up at once, on all paths.
/// - A full pool: 07/27/07 becomes ENOSPC.
/// - Damage: MEDIUM ERROR with the block's address is given up at once.
pub(super) fn of_ask(error: &AskError, during: During, block: u64) -> Refusal {
    let at = |offset: &ByteOffset| Some(offset.0 / block);
    let sense = match error {
        AskError::OutOfRange => Sense::illegal(Code::OUT_OF_RANGE),
        AskError::NoQuorum { .. } | AskError::Stopped => {
            Sense::new(Key::NotReady, Code::BECOMING_READY)
        }
        AskError::NoSpace => Sense::new(Key::DataProtect, Code::SPACE_ALLOCATION_FAILED),
        AskError::Damaged { offset } => {
            let code = match during {
                During::Reading => Code::UNRECOVERED_READ,
                During::Writing => Code::WRITE_ERROR,
            };
            Sense { information: at(offset), ..Sense::new(Key::Medium, code) }
        }
        AskError::Superseded => Sense::new(Key::NotReady, Code::PORT_UNAVAILABLE),
        AskError::UnflushedWritesLost => Sense::internal(),
        AskError::Busy => return Refusal::Status(Status::TaskSetFull),
    };
    Refusal::Check(sense)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sense_is_written_in_both_formats() {
        let sense = Sense { information: Some(0x1234), ..Sense::cdb_bit(1, 7) };
        let fixed = sense.encode(false);
        assert_eq!(fixed[..8], [0xF0, 0, 5, 0, 0, 0x12, 0x34, 10]);
        assert_eq!(fixed[12..], [0x24, 0, 0, 0xCF, 0, 1]);
        let descriptors = sense.encode(true);
        assert_eq!(descriptors[..8], [0x72, 5, 0x24, 0, 0, 0, 0, 20]);
        assert_eq!(descriptors[8..12], [0, 10, 0x80, 0]);
        assert_eq!(descriptors[18..20], [0x12, 0x34]);
        assert_eq!(descriptors[20..], [2, 6, 0, 0, 0xCF, 0, 1, 0]);
        assert_eq!(Sense::list(9).encode(false)[15..], [0x80, 0, 9]);
    }

    #[test]
    fn information_beyond_32_bits_is_not_valid_in_the_fixed_format() {
        let sense = Sense::miscompare(1 << 40);
        assert_eq!(sense.encode(false)[..7], [0x70, 0, 0xE, 0, 0, 0, 0]);
        assert_eq!(sense.encode(true)[12..20], (1_u64 << 40).to_be_bytes());
    }

    #[test]
    fn deferred_errors_say_so() {
        let sense = Sense { deferred: true, ..Sense::internal() };
        assert_eq!(sense.encode(false)[0], 0x71);
        assert_eq!(sense.encode(true)[0], 0x73);
    }

    #[test]
    fn every_failure_of_a_volume_has_its_sense() {
        let check = |error: AskError, during| match of_ask(&error, during, 512) {
            Refusal::Check(sense) => (sense.key as u8, sense.code, sense.information),
            Refusal::Status(status) => panic!("{status:?}"),
        };
        let reading = During::Reading;
        let quorum = AskError::NoQuorum { reason: "two of three are away".into() };
        assert_eq!(check(quorum, reading), (2, Code(4, 1), None));
        assert_eq!(check(AskError::Stopped, reading), (2, Code(4, 1), None));
        assert_eq!(check(AskError::Superseded, reading), (2, Code(4, 0xC), None));
        assert_eq!(check(AskError::NoSpace, During::Writing), (7, Code(0x27, 7), None));
        assert_eq!(check(AskError::OutOfRange, reading), (5, Code(0x21, 0), None));
        assert_eq!(check(AskError::UnflushedWritesLost, reading), (4, Code(0x44, 0), None));
        let damaged = AskError::Damaged { offset: ByteOffset(5120) };
        assert_eq!(check(damaged.clone(), reading), (3, Code(0x11, 0), Some(10)));
        assert_eq!(check(damaged, During::Writing), (3, Code(0x0C, 0), Some(10)));
        let busy = of_ask(&AskError::Busy, reading, 512);
        assert_eq!(busy, Refusal::Status(Status::TaskSetFull));
    }
}
