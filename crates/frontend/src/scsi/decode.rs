//! From a CDB to its command. Whoever decodes has looked at the bits that the command does not
//! have; what is wrong with the others is found here.
use crate::scsi::bytes::{index, u16_at, u24_at, u32_at, u64_at};
use crate::scsi::cdb::{
    Cdb, Check, Control, Medium, ModeSense, Op, Opcodes, Query, Report, ReserveIn, ReserveOut,
    Values,
};
use crate::scsi::disk::{Lba, Span};
use crate::scsi::sense::Sense;

type Decoded = Result<Op, Sense>;

/// The blocks that a CDB of this length names, where it names blocks.
pub(super) fn span(cdb: &Cdb, len: u8) -> Span {
    match len {
        6 => {
            let blocks: u16 = if cdb[4] == 0 { 256 } else { cdb[4].into() };
            Span::new(u64::from(u24_at(cdb, 1) & 0x1F_FFFF), blocks)
        }
        10 => Span::new(u32_at(cdb, 2).into(), u16_at(cdb, 7)),
        12 => Span::new(u32_at(cdb, 2).into(), u32_at(cdb, 6)),
        _ => Span::new(u64_at(cdb, 2), u32_at(cdb, 10)),
    }
}

fn report(query: Query, allocation: u32) -> Decoded {
    Ok(Op::Report(Report { query, allocation: index(allocation) }))
}

fn bit(byte: u8, bit: u8) -> bool {
    byte & (1 << bit) != 0
}

pub(super) fn ready(_: &Cdb, _: Span) -> Decoded {
    Ok(Op::Control(Control::Ready))
}

pub(super) fn request_sense(cdb: &Cdb, _: Span) -> Decoded {
    let (descriptors, allocation) = (bit(cdb[1], 0), usize::from(cdb[4]));
    Ok(Op::Control(Control::RequestSense { descriptors, allocation }))
}

pub(super) fn inquiry(cdb: &Cdb, _: Span) -> Decoded {
    let page = bit(cdb[1], 0).then_some(cdb[2]);
    if page.is_none() && cdb[2] != 0 {
        return Err(Sense::cdb(2));
    }
    report(Query::Inquiry { page }, u16_at(cdb, 3).into())
}

pub(super) fn report_luns(cdb: &Cdb, _: Span) -> Decoded {
    report(Query::Luns { select: cdb[2] }, u32_at(cdb, 6))
}

pub(super) fn capacity10(cdb: &Cdb, span: Span) -> Decoded {
    // An address only means something together with the obsolete PMI bit.
    if span.first != Lba(0) && !bit(cdb[8], 0) {
        return Err(Sense::cdb(2));
    }
    report(Query::Capacity10, u32::MAX)
}

pub(super) fn capacity16(cdb: &Cdb, span: Span) -> Decoded {
    if span.first != Lba(0) && !bit(cdb[14], 0) {
        return Err(Sense::cdb(2));
    }
    report(Query::Capacity16, u32_at(cdb, 10))
}

pub(super) fn mode_sense(cdb: &Cdb, long: bool) -> Decoded {
    let values = match cdb[2] >> 6 {
        0 => Values::Current,
        1 => Values::Changeable,
        2 => Values::Default,
        _ => Values::Saved,
    };
    let sense = ModeSense {
        long,
        without_blocks: bit(cdb[1], 3),
        long_blocks: bit(cdb[1], 4),
        values,
        page: cdb[2] & 0x3F,
        subpage: cdb[3],
    };
    let allocation = if long { u16_at(cdb, 7) } else { cdb[4].into() };
    report(Query::Mode(sense), allocation.into())
}

pub(super) fn mode_sense6(cdb: &Cdb, _: Span) -> Decoded {
    mode_sense(cdb, false)
}

pub(super) fn mode_sense10(cdb: &Cdb, _: Span) -> Decoded {
    mode_sense(cdb, true)
}

fn mode_select(cdb: &Cdb, long: bool, list: usize) -> Decoded {
    if bit(cdb[1], 0) {
        // Nothing is saved.
        return Err(Sense::cdb_bit(1, 0));
    }
    if !bit(cdb[1], 4) && list > 0 {
        // There are no pages but the standard's.
        return Err(Sense::cdb_bit(1, 4));
    }
    Ok(Op::Control(Control::ModeSelect { long, list }))
}

pub(super) fn mode_select6(cdb: &Cdb, _: Span) -> Decoded {
    mode_select(cdb, false, cdb[4].into())
}

pub(super) fn mode_select10(cdb: &Cdb, _: Span) -> Decoded {
    mode_select(cdb, true, u16_at(cdb, 7).into())
}

pub(super) fn reserve_in(cdb: &Cdb, _: Span) -> Decoded {
    let action = match cdb[1] & 0x1F {
        0 => ReserveIn::Keys,
        1 => ReserveIn::Reservation,
        2 => ReserveIn::Capabilities,
        3 => ReserveIn::FullStatus,
        _ => return Err(Sense::cdb_bit(1, 4)),
    };
    report(Query::Reservations(action), u16_at(cdb, 7).into())
}

pub(super) fn reserve_out(cdb: &Cdb, _: Span) -> Decoded {
    let action = match cdb[1] & 0x1F {
        0 => ReserveOut::Register,
        1 => ReserveOut::Reserve,
        2 => ReserveOut::Release,
        3 => ReserveOut::Clear,
        4 => ReserveOut::Preempt,
        5 => ReserveOut::PreemptAndAbort,
        6 => ReserveOut::RegisterAndIgnore,
        7 => ReserveOut::RegisterAndMove,
        _ => return Err(Sense::cdb_bit(1, 4)),
    };
    let list = index(u32_at(cdb, 5));
    Ok(Op::Control(Control::ReserveOut { action, kind: cdb[2], list }))
}

pub(super) fn report_opcodes(cdb: &Cdb, _: Span) -> Decoded {
    let opcodes = Opcodes {
        options: cdb[2] & 7,
        opcode: cdb[3],
        action: u16_at(cdb, 4),
        timeouts: bit(cdb[2], 7),
    };
    report(Query::Opcodes(opcodes), u32_at(cdb, 6))
}

pub(super) fn report_functions(cdb: &Cdb, _: Span) -> Decoded {
    report(Query::Functions { extended: bit(cdb[2], 7) }, u32_at(cdb, 6))
}

pub(super) fn report_port_groups(cdb: &Cdb, _: Span) -> Decoded {
    let extended = match cdb[1] >> 5 {
        0 => false,
        1 => true,
        _ => return Err(Sense::cdb_bit(1, 7)),
    };
    report(Query::PortGroups { extended }, u32_at(cdb, 6))
}

pub(super) fn defects10(cdb: &Cdb, _: Span) -> Decoded {
    report(Query::Defects { long: false, lists: cdb[2] }, u16_at(cdb, 7).into())
}

pub(super) fn defects12(cdb: &Cdb, _: Span) -> Decoded {
    report(Query::Defects { long: true, lists: cdb[1] }, u32_at(cdb, 6))
}

pub(super) fn log_sense(cdb: &Cdb, _: Span) -> Decoded {
    if bit(cdb[1], 0) {
        return Err(Sense::cdb_bit(1, 0));
    }
    let log = Query::Log { page: cdb[2] & 0x3F, subpage: cdb[3] };
    report(log, u16_at(cdb, 7).into())
}

fn fua(cdb: &Cdb) -> bool {
    bit(cdb[1], 3)
}

fn check(cdb: &Cdb) -> Result<Check, Sense> {
    match (cdb[1] >> 1) & 3 {
        0 => Ok(Check::Medium),
        1 => Ok(Check::Blocks),
        3 => Ok(Check::OneBlock),
        _ => Err(Sense::cdb_bit(1, 2)),
    }
}

pub(super) fn read(_: &Cdb, span: Span) -> Decoded {
    Ok(Op::Medium(Medium::Read { span }))
}

/// WRITE(6), whose bits are all address.
pub(super) fn write6(_: &Cdb, span: Span) -> Decoded {
    Ok(Op::Medium(Medium::Write { span, fua: false }))
}

pub(super) fn write(cdb: &Cdb, span: Span) -> Decoded {
    Ok(Op::Medium(Medium::Write { span, fua: fua(cdb) }))
}

pub(super) fn or_write(cdb: &Cdb, span: Span) -> Decoded {
    Ok(Op::Medium(Medium::Or { span, fua: fua(cdb) }))
}

pub(super) fn compare(cdb: &Cdb, span: Span) -> Decoded {
    Ok(Op::Medium(Medium::Compare { span, fua: fua(cdb) }))
}

pub(super) fn verify(cdb: &Cdb, span: Span) -> Decoded {
    Ok(Op::Medium(Medium::Verify { span, check: check(cdb)? }))
}

pub(super) fn write_verify(cdb: &Cdb, span: Span) -> Decoded {
    match check(cdb)? {
        Check::OneBlock => Err(Sense::cdb_bit(1, 2)),
        check => Ok(Op::Medium(Medium::WriteVerify { span, check })),
    }
}

pub(super) fn write_same(cdb: &Cdb, span: Span) -> Decoded {
    let (unmap, no_data) = (bit(cdb[1], 3), bit(cdb[1], 0));
    Ok(Op::Medium(Medium::Same { span, unmap, no_data }))
}

pub(super) fn unmap(cdb: &Cdb, _: Span) -> Decoded {
    Ok(Op::Medium(Medium::Unmap { list: u16_at(cdb, 7).into() }))
}

pub(super) fn prefetch(_: &Cdb, span: Span) -> Decoded {
    Ok(Op::Medium(Medium::Prefetch { span }))
}

pub(super) fn provisioning(cdb: &Cdb, span: Span) -> Decoded {
    let allocation = index(u32_at(cdb, 10));
    Ok(Op::Medium(Medium::Provisioning { first: span.first, allocation }))
}

pub(super) fn flush(cdb: &Cdb, span: Span) -> Decoded {
    Ok(Op::Control(Control::Flush { span, immediate: bit(cdb[1], 1) }))
}

pub(super) fn reserve(_: &Cdb, _: Span) -> Decoded {
    Ok(Op::Control(Control::Reserve))
}

pub(super) fn release(_: &Cdb, _: Span) -> Decoded {
    Ok(Op::Control(Control::Release))
}

/// The medium cannot be taken out, and there is no power to save: what is left of a stop is that
/// everything is durable.
pub(super) fn start_stop(cdb: &Cdb, _: Span) -> Decoded {
    const ACTIVE: u8 = 1;
    if bit(cdb[4], 1) {
        return Err(Sense::cdb_bit(4, 1));
    }
    if cdb[4] >> 4 > ACTIVE {
        return Err(Sense::cdb_bit(4, 7));
    }
    let start = bit(cdb[4], 0) || cdb[4] >> 4 == ACTIVE;
    let flush = !start && !bit(cdb[4], 2);
    Ok(Op::Control(Control::StartStop { start, flush, immediate: bit(cdb[1], 0) }))
}

pub(super) fn prevent(cdb: &Cdb, _: Span) -> Decoded {
    if bit(cdb[4], 1) {
        return Err(Sense::cdb_bit(4, 1));
    }
    Ok(Op::Control(Control::Prevent))
}

pub(super) fn diagnose(cdb: &Cdb, _: Span) -> Decoded {
    // Only the default self test: no codes for others, and no pages.
    if cdb[1] >> 5 != 0 {
        return Err(Sense::cdb_bit(1, 7));
    }
    if u16_at(cdb, 3) != 0 {
        return Err(Sense::cdb(3));
    }
    Ok(Op::Control(Control::Diagnose))
}

pub(super) fn extended_copy(cdb: &Cdb, _: Span) -> Decoded {
    Ok(Op::Medium(Medium::Copy { list: index(u32_at(cdb, 10)) }))
}

pub(super) fn copy_results(cdb: &Cdb, _: Span) -> Decoded {
    let query = match cdb[1] & 0x1F {
        0 => Query::CopyStatus { id: cdb[2] },
        _ => Query::CopyParameters,
    };
    report(query, u32_at(cdb, 10))
}
