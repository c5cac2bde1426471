//! What a client may cost before it has a volume. Nobody knows who it is.
use super::client::*;
use crate::nbd::limits::{LIST_PAGE, OPTIONS_AT_ONCE, REPLIES_UNSENT_MAX};
use crate::nbd::{Output, ProtocolError};

const LIST: u32 = 3;

/// An owner with volumes, whose client reads as much as the test says.
struct Owner {
    client: Client,
    names: Vec<String>,
    unsent: usize,
    lists: usize,
}

impl Owner {
    fn new(volumes: usize) -> Owner {
        let names = (0..volumes).map(|number| format!("volume-{number:05}")).collect();
        Owner { client: Client::new(), names, unsent: 0, lists: 0 }
    }

    /// Carries out what the connection wants.
    fn carry(&mut self) -> Option<Option<ProtocolError>> {
        while !self.client.out.is_empty() {
            for output in std::mem::take(&mut self.client.out) {
                match output {
                    Output::Send(piece) => self.unsent += piece.as_bytes().len(),
                    Output::List { from } => {
                        self.lists += 1;
                        let end = self.names.len().min(from + LIST_PAGE);
                        let next = Some(end).filter(|end| *end < self.names.len());
                        let Client { connection, out } = &mut self.client;
                        connection.listed(&self.names[from..end], next, out);
                    }
                    Output::Close { reason } => return Some(reason),
                    other => panic!("{other:?}"),
                }
            }
        }
        None
    }

    fn send(&mut self, bytes: &[u8]) {
        self.client.connection.unsent(self.unsent);
        self.client.send(bytes);
        assert!(self.carry().is_none());
    }

    fn read(&mut self, len: usize) {
        self.unsent -= len;
        self.client.connection.unsent(self.unsent);
    }

    /// Turns until nothing more can be done; how many there were.
    fn go_on(&mut self) -> usize {
        let mut turns = 0;
        while self.client.connection.can_go_on() {
            turns += 1;
            let lists = self.lists;
            self.client.connection.go_on(&mut Memory, &mut self.client.out);
            assert!(self.carry().is_none());
            assert!(self.lists - lists <= OPTIONS_AT_ONCE, "others have their turn");
        }
        turns
    }
}

/// Protects from memory for answers that nobody fetches: a list of 500 volumes is 20 KiB, and asking
/// for it takes 16 bytes.
#[test]
fn answers_are_made_as_fast_as_they_are_read() {
    let mut owner = Owner::new(500);
    let asked = 4096;
    owner.send(&option(LIST, &[]).repeat(asked));
    owner.go_on();
    let whole = 500 * (20 + 4 + 12) + 20;
    let page = LIST_PAGE * (20 + 4 + 12);
    let most = REPLIES_UNSENT_MAX + page;
    assert!(owner.unsent <= most, "{} bytes wait", owner.unsent);
    assert!(!owner.client.connection.wants_bytes(), "nor are more questions wanted");
    let mut read = 0;
    while owner.unsent > 0 {
        let len = owner.unsent.min(5000);
        owner.read(len);
        read += len;
        owner.go_on();
        assert!(owner.unsent <= most, "{} bytes wait", owner.unsent);
    }
    assert_eq!(read, asked * whole, "every list is answered whole");
    assert!(owner.client.connection.wants_bytes());
}

/// Protects the thread that serves volumes from a client that asks for everything at once.
#[test]
fn a_client_has_so_many_options_answered_at_once() {
    let mut owner = Owner::new(0);
    let asked = 500;
    owner.send(&option(LIST, &[]).repeat(asked));
    assert_eq!(owner.lists, OPTIONS_AT_ONCE);
    assert!(owner.client.connection.can_go_on());
    assert_eq!(owner.go_on(), asked.div_ceil(OPTIONS_AT_ONCE) - 1);
    assert_eq!(owner.lists, asked);
}

/// Protects from bytes that are copied again for every option before them.
#[test]
fn what_waits_for_its_turn_stays_where_it_is() {
    let mut owner = Owner::new(1);
    owner.send(&option(LIST, &[]).repeat(10_000));
    let place = owner.client.connection.waiting().as_ptr();
    for _ in 0..100 {
        let before = owner.client.connection.waiting();
        let (at, len) = (before.as_ptr() as usize, before.len());
        owner.read(owner.unsent);
        owner.client.connection.go_on(&mut Memory, &mut owner.client.out);
        assert!(owner.carry().is_none());
        let after = owner.client.connection.waiting();
        let used = len - after.len();
        assert_eq!(used, 16 * OPTIONS_AT_ONCE);
        assert_eq!(after.as_ptr() as usize, at + used, "it was moved");
    }
    assert!(place < owner.client.connection.waiting().as_ptr());
}

/// What came behind the choice of a volume is served, though it had to wait for its turn.
#[test]
fn requests_behind_many_options_are_served() {
    let mut client = Client::new();
    let options = option(8, &[]).repeat(40);
    let go = option(7, &question("disk", &[]));
    client.send(&[options, go, request(Headers::Structured, 0, 3, 9, 0, 0)].concat());
    while client.connection.can_go_on() {
        client.connection.go_on(&mut Memory, &mut client.out);
    }
    client.out.retain(|output| matches!(output, Output::Open { .. }));
    assert_eq!(client.out.len(), 1);
    client.out.clear();
    client.opened(Ok(export()));
    assert!(matches!(client.out.last(), Some(Output::Ask { .. })));
}
