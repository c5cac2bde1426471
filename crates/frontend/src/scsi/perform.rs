//! What each command does, once it is its turn.
use crate::ask::Ask;
use crate::scsi::cdb::{Check, Control, Medium, Op, Query, Report};
use crate::scsi::copy::{self, Copied, Copy};
use crate::scsi::disk::Disk;
use crate::scsi::jobs::Job;
use crate::scsi::opcodes::{Access, Row};
use crate::scsi::order::{Asker, Begun, Order, Outcome};
use crate::scsi::reservations::{self, Request, Standing};
use crate::scsi::same::Same;
use crate::scsi::sense::{Code, During, Key, Refusal, Sense};
use crate::scsi::unit::Unit;
use crate::scsi::words::{Command, NexusId, Rights, Status};
use crate::scsi::{
    capacity, compare, inquiry, mode, opcodes, or_write, provisioning, rw, same, unmap, verify, vpd,
};

/// The parameter list of a command: all that it announced.
fn list(command: &Command, len: usize) -> Result<&[u8], Sense> {
    command.data_out.get(..len).ok_or(Sense::illegal(Code::LIST_LENGTH))
}

impl Unit {
    /// Whether a command may be carried out now: nothing must be told first, its fields are right,
    /// and nobody else holds the disk.
    pub(super) fn admit(
        &mut self,
        nexus: NexusId,
        order: &Order,
    ) -> Result<(&'static Row, Op), Refusal> {
        let Some(entry) = self.nexuses.get_mut(&nexus) else {
            // Commands come before their nexus only by a fault of the transport.
            return Err(Refusal::Status(Status::Busy));
        };
        let unattended = order.decoded.as_ref().is_ok_and(|(row, _)| row.unattended);
        if !unattended && let Some(sense) = entry.attentions.take() {
            return Err(sense.into());
        }
        let standing = entry.standing;
        let (row, op) = order.decoded?;
        self.check_reservations(nexus, standing, row, &order.command)?;
        let op = op?;
        self.check_protection(nexus, row, &op)?;
        Ok((row, op))
    }

    fn check_reservations(
        &self,
        nexus: NexusId,
        standing: Standing,
        row: &Row,
        command: &Command,
    ) -> Result<(), Refusal> {
        let access = row.access.of(&command.cdb);
        if self.reserved.is_some_and(|holder| holder != nexus) {
            let harmless = access == Access::Free && row.access != Access::Free;
            if !row.unreserved && !harmless {
                return Err(Refusal::CONFLICT);
            }
        }
        match self.reservations.kind() {
            Some(kind) if reservations::conflicts(kind, standing, access) => Err(Refusal::CONFLICT),
            _ => Ok(()),
        }
    }

    /// As one nexus sees it.
    fn disk_of(&self, nexus: NexusId) -> Disk {
        Disk { read_only: self.disk.read_only || self.may_only_read(nexus), ..self.disk }
    }

    /// Whether a nexus may do nothing but read: neither what is on the disk nor what others find of it
    /// changes by what it does.
    pub(super) fn may_only_read(&self, nexus: NexusId) -> bool {
        self.nexuses.get(&nexus).is_some_and(|known| known.rights == Rights::Read)
    }

    fn check_protection(&self, nexus: NexusId, row: &Row, op: &Op) -> Result<(), Sense> {
        let concerns_others = matches!(
            op,
            Op::Control(Control::ModeSelect { .. } | Control::ReserveOut { .. } | Control::Reserve)
        );
        if concerns_others && self.may_only_read(nexus) {
            return Err(Sense::new(Key::DataProtect, Code::WRITE_PROTECTED));
        }
        if row.access != Access::Writes || !matches!(op, Op::Medium(_)) {
            return Ok(());
        }
        let code = if self.disk_of(nexus).read_only {
            Code::WRITE_PROTECTED
        } else if self.mode.write_protected {
            Code::SOFTWARE_WRITE_PROTECTED
        } else {
            return Ok(());
        };
        Err(Sense::new(Key::DataProtect, code))
    }

    /// The bytes that a command needs from the initiator.
    pub(super) fn need(&self, op: &Op) -> usize {
        let disk = &self.disk;
        match *op {
            Op::Report(_) => 0,
            Op::Medium(medium) => match medium {
                Medium::Write { span, .. }
                | Medium::WriteVerify { span, .. }
                | Medium::Or { span, .. }
                | Medium::Verify { span, check: Check::Blocks } => disk.index(span.blocks),
                Medium::Compare { span, .. } => disk.index(span.blocks.saturating_mul(2)),
                Medium::Verify { check: Check::OneBlock, .. }
                | Medium::Same { no_data: false, .. } => disk.index(1),
                Medium::Unmap { list } | Medium::Copy { list } => list,
                Medium::Read { .. }
                | Medium::Verify { check: Check::Medium, .. }
                | Medium::Same { no_data: true, .. }
                | Medium::Prefetch { .. }
                | Medium::Provisioning { .. } => 0,
            },
            Op::Control(Control::ModeSelect { list, .. } | Control::ReserveOut { list, .. }) => {
                list
            }
            Op::Control(_) => 0,
        }
    }

    pub(super) fn perform(
        &mut self,
        nexus: NexusId,
        row: &Row,
        op: &Op,
        command: &Command,
        asker: &mut Asker,
    ) -> Result<Begun, Refusal> {
        match op {
            Op::Report(report) => self.report(nexus, report).map_err(Refusal::Check),
            Op::Medium(medium) => {
                let begun = self.medium(medium, row.length_at(), command, asker)?;
                if let Begun::Runs(Job::Copy(copy)) = &begun {
                    self.note_copy(nexus, copy, None);
                }
                Ok(begun)
            }
            Op::Control(control) => self.control(nexus, control, command, asker),
        }
    }

    fn report(&self, nexus: NexusId, report: &Report) -> Result<Begun, Sense> {
        let disk = &self.disk;
        let mut bytes = match report.query {
            Query::Inquiry { page: None } => inquiry::standard(&self.identity),
            Query::Inquiry { page: Some(page) } => {
                vpd::page(page, &self.identity, &self.uid, disk)?
            }
            Query::Luns { select } => inquiry::luns(select)?,
            Query::Capacity10 => capacity::short(disk),
            Query::Capacity16 => capacity::long(disk),
            Query::Mode(query) => mode::sense(&self.mode, &self.disk_of(nexus), &query)?,
            Query::Reservations(query) => reservations::report(&self.reservations, query),
            Query::Opcodes(query) => opcodes::report(&query)?,
            Query::Functions { extended } => inquiry::functions(extended),
            Query::PortGroups { extended } => inquiry::port_groups(extended),
            Query::Defects { long, lists } => inquiry::defects(long, lists),
            Query::Log { page, subpage } => inquiry::log(page, subpage)?,
            Query::CopyStatus { id } => self.copy_status(nexus, id)?,
            Query::CopyParameters => copy::operating_parameters(disk),
        };
        bytes.truncate(report.allocation);
        Ok(Begun::Ended(Outcome::bytes(bytes)))
    }

    fn medium(
        &self,
        medium: &Medium,
        field: u16,
        command: &Command,
        asker: &mut Asker,
    ) -> Result<Begun, Refusal> {
        let (disk, data) = (&self.disk, &command.data_out);
        let through = !self.mode.write_cache;
        match *medium {
            Medium::Read { span } => rw::read(span, field, disk, asker),
            Medium::Write { span, fua } => {
                rw::write(span, fua || through, field, data, disk, asker)
            }
            Medium::Verify { span, check } => verify::verify(span, check, field, data, disk, asker),
            Medium::WriteVerify { span, check } => {
                verify::write_verify(span, check, field, data, disk, asker)
            }
            Medium::Same { span, unmap, no_data } => {
                let same = Same { span, unmap, no_data, fua: through };
                same::write_same(&same, field, data, disk, asker)
            }
            Medium::Unmap { list: len } => unmap::unmap(list(command, len)?, through, disk, asker),
            Medium::Compare { span, fua } => {
                compare::compare_and_write(span, fua || through, data, disk, asker)
            }
            Medium::Or { span, fua } => {
                or_write::or_write(span, fua || through, field, data, disk, asker)
            }
            Medium::Prefetch { span } => {
                disk.check(span)?;
                Ok(Begun::Ended(Outcome::ConditionMet))
            }
            Medium::Copy { list: len } => {
                copy::copy(list(command, len)?, &self.uid, through, disk, asker)
            }
            Medium::Provisioning { first, allocation } => {
                provisioning::get_lba_status(first, allocation, disk, asker)
            }
        }
    }

    fn control(
        &mut self,
        nexus: NexusId,
        control: &Control,
        command: &Command,
        asker: &mut Asker,
    ) -> Result<Begun, Refusal> {
        match *control {
            Control::Ready | Control::Prevent | Control::Diagnose => Ok(Begun::DONE),
            Control::RequestSense { descriptors, allocation } => {
                Ok(self.request_sense(nexus, descriptors, allocation))
            }
            Control::Flush { span, immediate } => {
                self.disk.check(span)?;
                Ok(flush(immediate, asker))
            }
            Control::StartStop { flush: true, immediate, .. } => Ok(flush(immediate, asker)),
            Control::StartStop { flush: false, .. } => Ok(Begun::DONE),
            Control::ModeSelect { long, list: len } => {
                self.mode_select(nexus, long, list(command, len)?, asker)
            }
            Control::ReserveOut { action, kind, list: len } => {
                let Some(entry) = self.nexuses.get(&nexus) else { return Err(Refusal::CONFLICT) };
                let (list, from) = (list(command, len)?, &entry.port);
                self.reserve_out(&Request { action, kind, list, from }, asker)
            }
            Control::Reserve => self.reserve(nexus, true),
            Control::Release => self.reserve(nexus, false),
        }
    }

    fn request_sense(&mut self, nexus: NexusId, descriptors: bool, allocation: usize) -> Begun {
        let waiting = self.nexuses.get_mut(&nexus).and_then(|nexus| nexus.attentions.take());
        let sense = waiting.unwrap_or(Sense::new(Key::NoSense, Code::NONE));
        let mut bytes = sense.encode(descriptors);
        bytes.truncate(allocation);
        Begun::Ended(Outcome::bytes(bytes))
    }

    fn mode_select(
        &mut self,
        nexus: NexusId,
        long: bool,
        list: &[u8],
        asker: &mut Asker,
    ) -> Result<Begun, Refusal> {
        let new = mode::parse(self.mode, &self.disk, long, list)?;
        if self.mode.write_cache && !new.write_cache {
            // What was answered while it was only cached has to be durable as well.
            asker.ask(Ask::Flush);
            return Ok(Begun::Runs(Job::Mode(new)));
        }
        if new != self.mode {
            self.switch(nexus, new);
        }
        Ok(Begun::DONE)
    }

    fn reserve_out(&self, request: &Request, asker: &mut Asker) -> Result<Begun, Refusal> {
        if self.reserved.is_some() {
            return Err(Refusal::CONFLICT);
        }
        let Some(change) = reservations::apply(&self.reservations, request)? else {
            return Ok(Begun::DONE);
        };
        let bytes = reservations::encode(&change.next);
        // What is there already may always become less.
        let had = reservations::encode(&self.reservations).len();
        if bytes.len() > self.room.max(had) {
            return Err(Sense::illegal(Code::NO_REGISTRATION_ROOM).into());
        }
        asker.ask(Ask::Reservations(bytes));
        Ok(Begun::Runs(Job::Reserve(Box::new(change))))
    }

    /// RESERVE and RELEASE. Who has the disk by a persistent reservation is told that all is good,
    /// and nothing changes.
    fn reserve(&mut self, nexus: NexusId, take: bool) -> Result<Begun, Refusal> {
        let standing = self.nexuses.get(&nexus).map(|nexus| nexus.standing).unwrap_or_default();
        if let Some(kind) = self.reservations.kind()
            && !reservations::conflicts(kind, standing, Access::Writes)
        {
            return Ok(Begun::DONE);
        }
        if self.reservations.has_registrations() {
            return Err(Refusal::CONFLICT);
        }
        if take {
            self.reserved = Some(nexus);
        } else if self.reserved == Some(nexus) {
            self.reserved = None;
        }
        Ok(Begun::DONE)
    }
}

impl Unit {
    /// Keeps how a copy stands, where its initiator wants to ask for that.
    pub(super) fn note_copy(&mut self, nexus: NexusId, copy: &Copy, good: Option<bool>) {
        if let (Some(nexus), Some(id)) = (self.nexuses.get_mut(&nexus), copy.id) {
            nexus.copied = Some(Copied { id, good, progress: copy.progress() });
        }
    }

    fn copy_status(&self, nexus: NexusId, id: u8) -> Result<Vec<u8>, Sense> {
        let copied = self.nexuses.get(&nexus).and_then(|nexus| nexus.copied);
        let copied = copied.filter(|copied| copied.id == id).ok_or(Sense::cdb(2))?;
        Ok(copied.report())
    }
}

fn flush(immediate: bool, asker: &mut Asker) -> Begun {
    asker.ask(Ask::Flush);
    let job = Job::Settle(During::Writing);
    if immediate { Begun::RunsOn(job) } else { Begun::Runs(job) }
}
