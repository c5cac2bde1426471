//! Commands to units that are not there.
use crate::scsi::cdb::{Op, Query, Report};
use crate::scsi::inquiry::{self, Identity};
use crate::scsi::opcodes;
use crate::scsi::order::Outcome;
use crate::scsi::sense::{Code, Sense};
use crate::scsi::words::Command;

const REQUEST_SENSE: u8 = 0x03;

/// INQUIRY says that nobody is here, REPORT LUNS who is somewhere, REQUEST SENSE why nothing else
/// works.
pub(super) fn answer(command: &Command, identity: &Identity) -> Outcome {
    let nobody = Sense::illegal(Code::UNIT_NOT_SUPPORTED);
    let told = match opcodes::find(&command.cdb) {
        Ok((_, Ok(Op::Report(Report { query, allocation })))) => {
            let bytes = match query {
                Query::Inquiry { page: None } => Ok(inquiry::nobody(identity)),
                Query::Luns { select } => inquiry::luns(select),
                _ => Err(nobody),
            };
            bytes.map(|bytes| (bytes, allocation))
        }
        Ok((row, Ok(_))) if row.opcode == REQUEST_SENSE => {
            let descriptors = command.cdb[1] & 1 != 0;
            Ok((nobody.encode(descriptors), command.cdb[4].into()))
        }
        _ => Err(nobody),
    };
    match told {
        Ok((mut bytes, allocation)) => {
            bytes.truncate(allocation);
            Outcome::bytes(bytes)
        }
        Err(sense) => sense.into(),
    }
}
