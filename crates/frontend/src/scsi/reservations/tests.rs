//! What each request makes of the reservations.
use super::*;
use crate::scsi::bytes::u32_at;
use crate::scsi::cdb::{ReserveIn, ReserveOut};
use crate::scsi::sense::{Code, Refusal, Sense};

mod conflict_table;
mod keeping;

fn port(number: u8) -> InitiatorPort {
    InitiatorPort { name: format!("iqn.2024-01.org.example:host{number}"), isid: [number; 6] }
}

fn list(key: u64, other: u64) -> Vec<u8> {
    let mut list = key.to_be_bytes().to_vec();
    list.extend(other.to_be_bytes());
    list.extend([0; 8]);
    list
}

/// What came of a request: who was told what.
type Told = Result<Vec<(u8, Attention)>, Refusal>;

struct Book(Reservations);

impl Book {
    /// Hosts 1 to 3 with the keys 1 to 3.
    fn of_three() -> Book {
        let mut book = Book(Reservations::default());
        for host in 1..=3 {
            book.ask(host, ReserveOut::Register, 0, &list(0, host.into())).unwrap();
        }
        book
    }

    fn ask(&mut self, host: u8, action: ReserveOut, kind: u8, list: &[u8]) -> Told {
        let from = port(host);
        let request = Request { action, kind, list, from: &from };
        let change = apply(&self.0, &request)?;
        let Some(Change { next, told }) = change else { return Ok(Vec::new()) };
        // Whatever is made can be kept.
        assert_eq!(decode(&encode(&next)).as_ref(), Ok(&next));
        self.0 = next;
        let host = |port: &InitiatorPort| port.isid[0];
        Ok(told.iter().map(|(port, attention)| (host(port), *attention)).collect())
    }

    fn with(&mut self, host: u8, action: ReserveOut, kind: u8, other: u64) -> Told {
        self.ask(host, action, kind, &list(host.into(), other))
    }

    fn keys(&self) -> Vec<u64> {
        self.0.registered.iter().map(|entry| entry.key.0).collect()
    }

    /// The kind that is held, and by which host; 0 for all.
    fn held(&self) -> Option<(u8, u8)> {
        let held = self.0.held.as_ref()?;
        Some((held.kind as u8, held.by.as_ref().map_or(0, |port| port.isid[0])))
    }
}

const CONFLICT: Told = Err(Refusal::CONFLICT);

fn nobody() -> Told {
    Ok(Vec::new())
}

fn refused(code: Code) -> Told {
    Err(Refusal::Check(Sense::illegal(code)))
}

fn code(told: Told) -> Option<Code> {
    match told {
        Err(Refusal::Check(sense)) => Some(sense.code),
        _ => None,
    }
}

#[test]
fn registering_needs_the_key_that_is_registered() {
    let mut book = Book(Reservations::default());
    assert_eq!(book.ask(1, ReserveOut::Register, 0, &list(7, 8)), CONFLICT);
    assert_eq!(book.ask(1, ReserveOut::Register, 0, &list(0, 0)), nobody());
    assert_eq!(book.0.generation, 0);
    assert_eq!(book.ask(1, ReserveOut::Register, 0, &list(0, 8)), nobody());
    assert_eq!(book.ask(1, ReserveOut::Register, 0, &list(0, 9)), CONFLICT);
    assert_eq!(book.ask(1, ReserveOut::Register, 0, &list(8, 9)), nobody());
    assert_eq!((book.keys(), book.0.generation), (vec![9], 2));
    assert_eq!(book.ask(1, ReserveOut::Register, 0, &list(9, 0)), nobody());
    assert_eq!((book.keys(), book.0.generation), (vec![], 3));
}

#[test]
fn registering_may_ignore_the_key() {
    let mut book = Book(Reservations::default());
    let action = ReserveOut::RegisterAndIgnore;
    assert_eq!(book.ask(1, action, 0, &list(77, 0)), nobody());
    assert_eq!(book.ask(1, action, 0, &list(77, 8)), nobody());
    assert_eq!(book.ask(1, action, 0, &list(0, 9)), nobody());
    assert_eq!((book.keys(), book.0.generation), (vec![9], 2));
    assert_eq!(book.ask(1, action, 0, &list(0, 0)), nobody());
    assert_eq!(book.keys(), []);
}

#[test]
fn whoever_is_not_registered_can_do_nothing_else() {
    let mut book = Book::of_three();
    for action in [
        ReserveOut::Reserve,
        ReserveOut::Release,
        ReserveOut::Clear,
        ReserveOut::Preempt,
        ReserveOut::PreemptAndAbort,
        ReserveOut::RegisterAndMove,
    ] {
        assert_eq!(book.ask(4, action, 1, &list(4, 1)), CONFLICT);
        assert_eq!(book.ask(1, action, 1, &list(2, 1)), CONFLICT, "a wrong key");
    }
    assert_eq!(book.0.generation, 3);
}

#[test]
fn one_reserves_and_the_others_conflict() {
    for kind in [1, 3, 5, 6] {
        let mut book = Book::of_three();
        assert_eq!(book.with(1, ReserveOut::Reserve, kind, 0), nobody());
        assert_eq!(book.held(), Some((kind, 1)));
        assert_eq!(book.with(1, ReserveOut::Reserve, kind, 0), nobody());
        assert_eq!(book.with(1, ReserveOut::Reserve, 7, 0), CONFLICT);
        assert_eq!(book.with(2, ReserveOut::Reserve, kind, 0), CONFLICT);
        assert_eq!(book.with(2, ReserveOut::Release, kind, 0), nobody());
        assert_eq!(book.held(), Some((kind, 1)));
        let other = if kind == 1 { 3 } else { 1 };
        assert_eq!(book.with(1, ReserveOut::Release, other, 0), refused(Code::INVALID_RELEASE));
        let told = book.with(1, ReserveOut::Release, kind, 0);
        let released = Attention::ReservationsReleased;
        let expected = if kind < 5 { vec![] } else { vec![(2, released), (3, released)] };
        assert_eq!(told, Ok(expected));
        assert_eq!((book.held(), book.0.generation), (None, 3));
    }
}

#[test]
fn a_reservation_for_all_is_everybodys() {
    for kind in [7, 8] {
        let mut book = Book::of_three();
        assert_eq!(book.with(1, ReserveOut::Reserve, kind, 0), nobody());
        assert_eq!(book.with(2, ReserveOut::Reserve, kind, 0), nobody());
        assert_eq!(book.held(), Some((kind, 0)));
        for host in [1, 2] {
            assert_eq!(book.ask(host, ReserveOut::Register, 0, &list(host.into(), 0)), nobody());
            assert_eq!(book.held(), Some((kind, 0)));
        }
        assert_eq!(book.ask(3, ReserveOut::Register, 0, &list(3, 0)), nobody());
        assert_eq!(book.held(), None, "the last one is gone");
    }
}

#[test]
fn unregistering_gives_up_what_is_held() {
    for kind in [1, 3, 5, 6] {
        let mut book = Book::of_three();
        book.with(1, ReserveOut::Reserve, kind, 0).unwrap();
        let told = book.ask(1, ReserveOut::RegisterAndIgnore, 0, &list(0, 0));
        let released = Attention::ReservationsReleased;
        let expected = if kind < 5 { vec![] } else { vec![(2, released), (3, released)] };
        assert_eq!(told, Ok(expected));
        assert_eq!((book.held(), book.keys()), (None, vec![2, 3]));
    }
}

#[test]
fn wrong_kinds_and_scopes_are_refused() {
    let mut book = Book::of_three();
    for kind in [0, 2, 4, 9, 15, 0x11, 0x23] {
        let told = book.with(1, ReserveOut::Reserve, kind, 0);
        assert_eq!(code(told), Some(Code::INVALID_FIELD_IN_CDB), "{kind}");
    }
}

#[test]
fn clearing_takes_everything_from_everybody() {
    let mut book = Book::of_three();
    book.with(1, ReserveOut::Reserve, 1, 0).unwrap();
    let preempted = Attention::ReservationsPreempted;
    let told = book.with(2, ReserveOut::Clear, 0, 0);
    assert_eq!(told, Ok(vec![(1, preempted), (3, preempted)]));
    assert_eq!((book.held(), book.keys(), book.0.generation), (None, vec![], 4));
}

#[test]
fn preempting_a_registration_leaves_the_reservation() {
    let gone = Attention::RegistrationsPreempted;
    for action in [ReserveOut::Preempt, ReserveOut::PreemptAndAbort] {
        let mut book = Book::of_three();
        assert_eq!(book.with(1, action, 0, 2), Ok(vec![(2, gone)]));
        book.with(1, ReserveOut::Reserve, 1, 0).unwrap();
        assert_eq!(book.with(1, action, 0, 3), Ok(vec![(3, gone)]));
        assert_eq!((book.held(), book.keys(), book.0.generation), (Some((1, 1)), vec![1], 5));
        assert_eq!(book.with(1, action, 0, 9), CONFLICT, "nobody has that key");
        assert_eq!(code(book.with(1, action, 0, 0)), Some(Code::INVALID_FIELD_IN_LIST));
    }
}

#[test]
fn preempting_the_holder_takes_its_place() {
    let gone = Attention::RegistrationsPreempted;
    let released = Attention::ReservationsReleased;
    let mut book = Book::of_three();
    book.with(1, ReserveOut::Reserve, 3, 0).unwrap();
    assert_eq!(book.with(2, ReserveOut::Preempt, 3, 1), Ok(vec![(1, gone)]));
    assert_eq!((book.held(), book.keys()), (Some((3, 2)), vec![2, 3]));
    let told = book.with(3, ReserveOut::Preempt, 7, 2);
    assert_eq!(told, Ok(vec![(2, gone)]));
    assert_eq!((book.held(), book.keys()), (Some((7, 0)), vec![3]));
    let mut book = Book::of_three();
    book.with(1, ReserveOut::Reserve, 3, 0).unwrap();
    assert_eq!(book.with(2, ReserveOut::Preempt, 1, 1), Ok(vec![(1, gone), (3, released)]));
    // Also with its own key, to change the kind.
    assert_eq!(book.with(2, ReserveOut::Preempt, 3, 2), Ok(vec![(3, released)]));
    assert_eq!((book.held(), book.keys()), (Some((3, 2)), vec![2, 3]));
    assert_eq!(code(book.with(3, ReserveOut::Preempt, 2, 2)), Some(Code::INVALID_FIELD_IN_CDB));
}

#[test]
fn preempting_a_reservation_for_all() {
    let gone = Attention::RegistrationsPreempted;
    let mut book = Book::of_three();
    book.with(1, ReserveOut::Reserve, 7, 0).unwrap();
    assert_eq!(book.with(2, ReserveOut::Preempt, 1, 3), Ok(vec![(3, gone)]));
    assert_eq!((book.held(), book.keys()), (Some((7, 0)), vec![1, 2]));
    assert_eq!(book.with(2, ReserveOut::Preempt, 1, 0), Ok(vec![(1, gone)]));
    assert_eq!((book.held(), book.keys()), (Some((1, 2)), vec![2]));
    let mut book = Book::of_three();
    book.with(1, ReserveOut::Reserve, 8, 0).unwrap();
    assert_eq!(book.with(2, ReserveOut::Preempt, 1, 2), nobody());
    assert_eq!((book.held(), book.keys()), (Some((8, 0)), vec![1, 3]));
}

fn with_ports(key: u64, other: u64, hosts: &[u8]) -> Vec<u8> {
    let ports: Vec<u8> = hosts.iter().flat_map(|host| transport_id::encode(&port(*host))).collect();
    let mut list = list(key, other);
    list[20] = 0x08;
    list.extend(u32::try_from(ports.len()).unwrap().to_be_bytes());
    list.extend(ports);
    list
}

#[test]
fn one_may_register_for_others() {
    let mut book = Book(Reservations::default());
    book.ask(2, ReserveOut::Register, 0, &list(0, 2)).unwrap();
    assert_eq!(book.ask(1, ReserveOut::Register, 0, &with_ports(0, 7, &[2, 3, 4])), nobody());
    assert_eq!((book.keys(), book.0.generation), (vec![2, 7, 7, 7], 2));
    let told = book.ask(1, ReserveOut::Register, 0, &with_ports(7, 8, &[5]));
    assert_eq!(code(told), Some(Code::INVALID_FIELD_IN_LIST));
    let told = book.ask(5, ReserveOut::RegisterAndIgnore, 0, &with_ports(0, 8, &[6]));
    assert_eq!(code(told), Some(Code::INVALID_FIELD_IN_LIST));
    let mut cut = with_ports(0, 8, &[6]);
    cut.pop();
    assert_eq!(book.ask(5, ReserveOut::Register, 0, &cut), refused(Code::LIST_LENGTH));
    let many = with_ports(0, 8, &[6; 33]);
    assert_eq!(book.ask(5, ReserveOut::Register, 0, &many), refused(Code::NO_REGISTRATION_ROOM));
}

fn moving(key: u64, other: u64, flags: u8, to: u8) -> Vec<u8> {
    let port = transport_id::encode(&port(to));
    let mut list = list(key, other);
    list[17] = flags;
    list[19] = 1;
    list[20..24].copy_from_slice(&u32::try_from(port.len()).unwrap().to_be_bytes());
    list.extend(port);
    list
}

#[test]
fn a_reservation_moves_to_another_port() {
    let action = ReserveOut::RegisterAndMove;
    let mut book = Book::of_three();
    assert_eq!(book.ask(1, action, 0, &moving(1, 9, 0, 4)), CONFLICT, "nothing is held");
    book.with(1, ReserveOut::Reserve, 1, 0).unwrap();
    assert_eq!(book.ask(2, action, 0, &moving(2, 9, 0, 4)), CONFLICT, "not by this one");
    for wrong in [moving(1, 0, 0, 4), moving(1, 9, 0, 1)] {
        assert_eq!(code(book.ask(1, action, 0, &wrong)), Some(Code::INVALID_FIELD_IN_LIST));
    }
    let mut wrong_port = moving(1, 9, 0, 4);
    wrong_port[19] = 2;
    assert_eq!(code(book.ask(1, action, 0, &wrong_port)), Some(Code::INVALID_FIELD_IN_LIST));
    let mut cut = moving(1, 9, 0, 4);
    cut.pop();
    assert_eq!(book.ask(1, action, 0, &cut), refused(Code::LIST_LENGTH));
    assert_eq!(book.ask(1, action, 0, &moving(1, 9, 0, 4)), nobody());
    assert_eq!((book.held(), book.keys()), (Some((1, 4)), vec![1, 2, 3, 9]));
    assert_eq!(book.ask(4, action, 0, &moving(9, 5, 2, 2)), nobody());
    assert_eq!((book.held(), book.keys()), (Some((1, 2)), vec![1, 5, 3]));
    assert_eq!(book.0.generation, 5);
    let mut book = Book::of_three();
    book.with(1, ReserveOut::Reserve, 7, 0).unwrap();
    assert_eq!(book.ask(1, action, 0, &moving(1, 9, 0, 4)), CONFLICT, "everybody has it");
}

#[test]
fn the_reports() {
    let mut book = Book::of_three();
    let keys = report(&book.0, ReserveIn::Keys);
    assert_eq!((u32_at(&keys, 0), u32_at(&keys, 4), keys.len()), (3, 24, 32));
    assert_eq!(report(&book.0, ReserveIn::Reservation), [0, 0, 0, 3, 0, 0, 0, 0]);
    book.with(2, ReserveOut::Reserve, 6, 0).unwrap();
    let held = report(&book.0, ReserveIn::Reservation);
    assert_eq!(held[7..], [16, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 6, 0, 0]);
    let capabilities = report(&book.0, ReserveIn::Capabilities);
    assert_eq!(capabilities, [0, 8, 0x1D, 0x80, 0xEA, 1, 0, 0]);
    let mut persists = list(1, 1);
    persists[20] = 1;
    book.ask(1, ReserveOut::Register, 0, &persists).unwrap();
    assert_eq!(report(&book.0, ReserveIn::Capabilities)[3], 0x81);
    let full = report(&book.0, ReserveIn::FullStatus);
    let len = 24 + transport_id::encode(&port(1)).len();
    assert_eq!(full.len(), 8 + 3 * len);
    let second = &full[8 + len..];
    assert_eq!((second[7], second[12], second[13], second[19]), (2, 1, 6, 1));
    assert_eq!(transport_id::decode(&second[24..]).unwrap().0, port(2));
    assert_eq!((full[8 + 12], full[8 + 13]), (0, 0));
    book.with(2, ReserveOut::Release, 6, 0).unwrap();
    book.with(2, ReserveOut::Reserve, 7, 0).unwrap();
    assert_eq!(report(&book.0, ReserveIn::Reservation)[8..16], [0; 8], "no key for all");
}
