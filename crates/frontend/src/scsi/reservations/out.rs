//! PERSISTENT RESERVE OUT: what each service action makes of the reservations.
use super::{Change, Held, Key, Kind, Registration, Reservations, Standing, transport_id};
use crate::scsi::attention::Attention;
use crate::scsi::bytes::{index, u16_at, u32_at, u64_at};
use crate::scsi::cdb::ReserveOut;
use crate::scsi::inquiry::TARGET_PORT;
use crate::scsi::sense::{Code, Refusal, Sense};
use crate::scsi::words::InitiatorPort;

/// The parameter list without what only some actions add to it.
const LIST: usize = 24;

/// Ports that one registration may name beside its own.
const NAMED_MAX: usize = 32;

const SPEC_I_PT: u8 = 0x08;
const APTPL: u8 = 0x01;
const UNREG: u8 = 0x02;

pub(crate) struct Request<'a> {
    pub(crate) action: ReserveOut,
    /// Scope and type, as the CDB has them.
    pub(crate) kind: u8,
    pub(crate) list: &'a [u8],
    pub(crate) from: &'a InitiatorPort,
}

impl Request<'_> {
    /// The key that the initiator says it is registered with.
    fn key(&self) -> u64 {
        u64_at(self.list, 0)
    }

    /// The key that the action is about.
    fn other_key(&self) -> Key {
        Key(u64_at(self.list, 8))
    }

    fn kind(&self) -> Result<Kind, Sense> {
        if self.kind >> 4 != 0 {
            return Err(Sense::cdb_bit(2, 7));
        }
        Kind::of(self.kind & 0x0F).ok_or(Sense::cdb_bit(2, 3))
    }

    fn check_list(&self) -> Result<(), Sense> {
        let moves = self.action == ReserveOut::RegisterAndMove;
        let registers = self.action == ReserveOut::Register;
        if self.list.len() < LIST {
            return Err(Sense::illegal(Code::LIST_LENGTH));
        }
        let names_ports = !moves && self.list[20] & SPEC_I_PT != 0;
        if names_ports && !registers {
            return Err(Sense::list(20));
        }
        if !names_ports && !moves && self.list.len() != LIST {
            return Err(Sense::illegal(Code::LIST_LENGTH));
        }
        Ok(())
    }
}

/// What a request makes of the reservations. `None`: it is good, and changes nothing.
pub(crate) fn apply(now: &Reservations, request: &Request) -> Result<Option<Change>, Refusal> {
    request.check_list()?;
    let mut work = Work { next: now.clone(), told: Vec::new(), from: request.from };
    let known = now.key(request.from);
    match request.action {
        ReserveOut::Register => work.register(request, known)?,
        ReserveOut::RegisterAndIgnore => work.set(request, known, request.other_key())?,
        _ if known != Some(Key(request.key())) => return Err(Refusal::CONFLICT),
        ReserveOut::Reserve => work.reserve(request.kind()?)?,
        ReserveOut::Release => work.release(request)?,
        ReserveOut::Clear => work.clear(),
        ReserveOut::Preempt | ReserveOut::PreemptAndAbort => work.preempt(request)?,
        ReserveOut::RegisterAndMove => work.register_and_move(request)?,
    }
    let Work { next, told, .. } = work;
    Ok((next != *now).then_some(Change { next, told }))
}

/// The reservations that are being made.
struct Work<'a> {
    next: Reservations,
    told: Vec<(InitiatorPort, Attention)>,
    from: &'a InitiatorPort,
}

impl Work<'_> {
    fn count(&mut self) {
        self.next.generation = self.next.generation.wrapping_add(1);
    }

    fn tell(&mut self, port: &InitiatorPort, attention: Attention) {
        if port != self.from {
            self.told.push((port.clone(), attention));
        }
    }

    fn tell_all(&mut self, attention: Attention) {
        for entry in self.next.registered.clone() {
            self.tell(&entry.port, attention);
        }
    }

    fn put(&mut self, port: &InitiatorPort, key: Key) -> Result<(), Sense> {
        if let Some(entry) = self.next.registered.iter_mut().find(|entry| entry.port == *port) {
            entry.key = key;
            return Ok(());
        }
        if self.next.registered.len() >= usize::from(u16::MAX) {
            return Err(Sense::illegal(Code::NO_REGISTRATION_ROOM));
        }
        self.next.registered.push(Registration { port: port.clone(), key });
        Ok(())
    }

    /// Takes a registration away, and with it what only that nexus held.
    fn unregister(&mut self, port: &InitiatorPort) {
        let held = self.next.standing(port) == Standing::Holder;
        self.next.registered.retain(|entry| entry.port != *port);
        let Some(Held { kind, .. }) = self.next.held else { return };
        let last = self.next.registered.is_empty();
        if !held || (kind.is_for_all() && !last) {
            return;
        }
        self.next.held = None;
        if kind.is_for_registrants() {
            self.tell_all(Attention::ReservationsReleased);
        }
    }

    fn register(&mut self, request: &Request, known: Option<Key>) -> Result<(), Refusal> {
        if known.unwrap_or(Key(0)) != Key(request.key()) {
            return Err(Refusal::CONFLICT);
        }
        let names_ports = request.list[20] & SPEC_I_PT != 0;
        if names_ports && known.is_some() {
            return Err(Sense::list(20).into());
        }
        let ports = if names_ports { ports(request.list)? } else { Vec::new() };
        let key = request.other_key();
        self.set(request, known, key)?;
        for port in ports {
            if key != Key(0) && self.next.key(&port).is_none() {
                self.put(&port, key)?;
            }
        }
        Ok(())
    }

    /// Registers, changes the key, or unregisters.
    fn set(&mut self, request: &Request, known: Option<Key>, key: Key) -> Result<(), Sense> {
        match (known, key) {
            (None, Key(0)) => return Ok(()),
            (Some(_), Key(0)) => self.unregister(request.from),
            _ => self.put(request.from, key)?,
        }
        self.next.persists = request.list[20] & APTPL != 0;
        self.count();
        Ok(())
    }

    fn reserve(&mut self, kind: Kind) -> Result<(), Refusal> {
        if let Some(held) = &self.next.held {
            let same = held.kind == kind;
            let holds = self.next.standing(self.from) == Standing::Holder;
            return if same && holds { Ok(()) } else { Err(Refusal::CONFLICT) };
        }
        self.hold(kind);
        Ok(())
    }

    fn hold(&mut self, kind: Kind) {
        let by = (!kind.is_for_all()).then(|| self.from.clone());
        self.next.held = Some(Held { kind, by });
    }

    fn release(&mut self, request: &Request) -> Result<(), Refusal> {
        let Some(Held { kind, .. }) = self.next.held else { return Ok(()) };
        if self.next.standing(self.from) != Standing::Holder {
            return Ok(());
        }
        if request.kind != kind as u8 {
            return Err(Sense::illegal(Code::INVALID_RELEASE).into());
        }
        self.next.held = None;
        if kind.is_for_registrants() {
            self.tell_all(Attention::ReservationsReleased);
        }
        Ok(())
    }

    fn clear(&mut self) {
        self.tell_all(Attention::ReservationsPreempted);
        self.next.registered.clear();
        self.next.held = None;
        self.count();
    }

    /// Nothing is left to abort: whoever changes reservations waits for everything before, and
    /// everything after waits for it.
    fn preempt(&mut self, request: &Request) -> Result<(), Refusal> {
        let victim = request.other_key();
        let for_all = self.next.kind().is_some_and(Kind::is_for_all);
        if for_all && victim == Key(0) {
            let kind = request.kind()?;
            self.drop_where(|_| true);
            self.hold(kind);
        } else if victim == Key(0) {
            return Err(Sense::list(8).into());
        } else if self.next.held_with() == Some(victim) {
            let kind = request.kind()?;
            let old = self.next.kind();
            self.drop_where(|entry| entry.key == victim);
            self.hold(kind);
            if old != Some(kind) {
                self.tell_all(Attention::ReservationsReleased);
            }
        } else {
            self.preempt_registrations(victim)?;
        }
        self.count();
        Ok(())
    }

    /// Drops the registrations of others, and tells them.
    fn drop_where(&mut self, which: impl Fn(&Registration) -> bool) {
        let from = self.from;
        let drop = |entry: &Registration| entry.port != *from && which(entry);
        for entry in self.next.registered.clone().iter().filter(|entry| drop(entry)) {
            self.tell(&entry.port, Attention::RegistrationsPreempted);
        }
        self.next.registered.retain(|entry| !drop(entry));
    }

    /// The reservation stays with whom it is; only registrations go.
    fn preempt_registrations(&mut self, victim: Key) -> Result<(), Refusal> {
        if !self.next.registered.iter().any(|entry| entry.key == victim) {
            return Err(Refusal::CONFLICT);
        }
        self.drop_where(|entry| entry.key == victim);
        let from = self.from;
        if self.next.key(from) == Some(victim) {
            self.unregister(from);
        }
        Ok(())
    }

    fn register_and_move(&mut self, request: &Request) -> Result<(), Refusal> {
        let list = request.list;
        let alone = self.next.kind().is_some_and(|kind| !kind.is_for_all());
        if !alone || self.next.standing(self.from) != Standing::Holder {
            return Err(Refusal::CONFLICT);
        }
        if request.other_key() == Key(0) {
            return Err(Sense::list(8).into());
        }
        if u16_at(list, 18) != TARGET_PORT {
            return Err(Sense::list(18).into());
        }
        if index(u32_at(list, 20)) != list.len() - LIST {
            return Err(Sense::illegal(Code::LIST_LENGTH).into());
        }
        let (to, _) = transport_id::decode(&list[LIST..]).ok_or(Sense::list(LIST))?;
        if to == *self.from {
            return Err(Sense::list(LIST).into());
        }
        self.put(&to, request.other_key())?;
        if let Some(held) = &mut self.next.held {
            held.by = Some(to);
        }
        if list[17] & UNREG != 0 {
            let from = self.from;
            self.unregister(from);
        }
        self.next.persists = list[17] & APTPL != 0;
        self.count();
        Ok(())
    }
}

/// The ports that a registration names beside its own.
fn ports(list: &[u8]) -> Result<Vec<InitiatorPort>, Sense> {
    const NAMED: usize = LIST + 4;
    if list.len() < NAMED || index(u32_at(list, LIST)) != list.len() - NAMED {
        return Err(Sense::illegal(Code::LIST_LENGTH));
    }
    let mut ports = Vec::new();
    let mut at = NAMED;
    while at < list.len() {
        let (port, len) = transport_id::decode(&list[at..]).ok_or(Sense::list(at))?;
        if ports.len() >= NAMED_MAX {
            return Err(Sense::illegal(Code::NO_REGISTRATION_ROOM));
        }
        ports.push(port);
        at += len;
    }
    Ok(ports)
}
