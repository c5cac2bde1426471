//! Memory of reads, between logins that have more to read than there is room for.
use std::collections::{BTreeMap, HashMap, VecDeque};

use block::ByteOffset;
use mio::Poll;
use mio::net::UnixStream;
use replication::catalog::VolumeObject;
use replication::target::Begin;
use replication::words::{Boot, NodeId, Span, Start, VolumeUid};

use super::super::{Config, Sender};
use super::*;
use crate::clock::Clock;
use crate::net::socket::Stream;
use crate::records::{Access, VolumeRecord};

const MIB: u64 = 1 << 20;

/// A shard with a volume, and clients that are logged in. The target never runs: the test answers what it is asked.
struct Site {
    shard: Shard,
    volume: VolumeNo,
    /// The line of each client, and the parts of its reads that are not answered.
    lines: Vec<usize>,
    asked: HashMap<ConnectionId, VecDeque<RequestId>>,
    last: u64,
}

impl Site {
    fn new(clients: usize) -> Site {
        let poll = Poll::new().unwrap();
        let (_, orders) = Sender::new(Shard::waker(&poll).unwrap());
        let config = Config { node: NodeId(1), boot: Boot(1), tls: None, clock: Clock::default() };
        let mut shard = Shard::new(config, poll, orders, Box::new(|_| {}));
        let uid = VolumeUid([1; 16]);
        let record = VolumeRecord {
            uid,
            name: "db".into(),
            size: ByteLen(1 << 30),
            block_size: ByteLen(4096),
            object: VolumeObject::default(),
            places: BTreeMap::new(),
            hold_deadline: Span::secs(60),
            workers: None,
            access: Access::default(),
        };
        shard.start_target(record, Begin::TakeOver, Start(0)).unwrap();
        let volume = shard.volumes.number(uid);
        let mut site = Site { shard, volume, lines: Vec::new(), asked: HashMap::new(), last: 0 };
        (0..clients).for_each(|client| site.log_in(client));
        site
    }

    /// Its protocol has ended: then nobody looks at answers, whatever they are.
    fn log_in(&mut self, client: usize) {
        let (here, _) = UnixStream::pair().unwrap();
        let mut machine = Connection::new([0; 32], &mut Vec::new());
        machine.receive(&[0xff; 64], &mut Payloads(None), &mut Vec::new());
        let open = Some(Open {
            volume: self.volume,
            connection: ConnectionId(client as u64),
            admitted: Admitted { rights: Rights::Write, target_mac: None },
        });
        let nbd = NbdLine { machine, open, splitter: Splitter::default(), out: Vec::new() };
        let role = Role::Nbd(Box::new(nbd));
        self.lines.push(self.shard.add_line(Socket::new(Stream::Unix(here)), role).unwrap());
    }

    fn read(&mut self, client: usize, bytes: u64) {
        self.last += 1;
        let id = AskId(self.last);
        let at = self.lines[client];
        let ask = Ask::Read { offset: ByteOffset(0), len: ByteLen(bytes) };
        self.shard.with_nbd(at, |shard, nbd| shard.nbd_asks(at, nbd, id, ask));
        self.look();
    }

    /// What the target was asked.
    fn look(&mut self) {
        let target = self.shard.volumes.target(self.volume).unwrap();
        for event in target.events.drain(..) {
            if let Event::Request { connection, id, .. } = event {
                self.asked.entry(connection).or_default().push_back(id);
            }
        }
    }

    fn is_asked(&self, client: usize) -> bool {
        let asked = self.asked.get(&ConnectionId(client as u64));
        asked.is_some_and(|asked| !asked.is_empty())
    }

    /// All parts of the oldest read of a client are answered. Whether there was one.
    fn answer(&mut self, client: usize, bytes: u64) -> bool {
        let asked = self.asked.entry(ConnectionId(client as u64)).or_default();
        let parts = usize::try_from(bytes / MIB).unwrap().min(asked.len());
        let parts: Vec<RequestId> = asked.drain(..parts).collect();
        for id in &parts {
            self.shard.nbd_replied(self.lines[client], *id, Err(IoError::NoSpace));
        }
        self.look();
        !parts.is_empty()
    }
}

/// Protects a client's large read from those who always have the next one ready: what they give back gathers for it.
#[test]
fn a_large_read_is_asked_beside_clients_that_always_have_more_to_read() {
    for large in [16 * MIB, 32 * MIB] {
        let mut site = Site::new(17);
        for client in 0..16 {
            (0..4).for_each(|_| site.read(client, 8 * MIB));
        }
        site.read(16, large);
        assert!(!site.is_asked(16), "there is no room for {large} bytes");
        let mut answers = 0;
        'asked: while answers < 64 {
            for client in 0..16 {
                answers += usize::from(site.answer(client, 8 * MIB));
                if site.is_asked(16) {
                    break 'asked;
                }
                site.read(client, 8 * MIB);
            }
        }
        assert!(site.is_asked(16), "{large} bytes are not asked after {answers} answers");
        // Nobody is forgotten: all of it is asked and answered in the end.
        let mut left = 10_000;
        while (0..17).any(|client| site.is_asked(client)) {
            for client in 0..16 {
                site.answer(client, 8 * MIB);
            }
            site.answer(16, large);
            left -= 1;
            assert!(left > 0, "it does not end");
        }
        for at in site.lines.clone() {
            site.shard.with_nbd(at, |_, nbd| assert!(!nbd.splitter.has_waiting()));
        }
    }
}

/// Protects from a read that waits for ever: room was made while its connection was taken out, and nothing else is
/// under way that would make more.
#[test]
fn a_client_whose_turn_comes_while_it_is_busy_is_asked_behind_that() {
    let mut site = Site::new(2);
    site.read(0, 120 * MIB);
    site.read(1, 16 * MIB);
    assert!(site.is_asked(0) && !site.is_asked(1));
    let at = site.lines[1];
    let role = std::mem::replace(&mut site.shard.lines[at].role, Role::Busy);
    site.answer(0, 120 * MIB);
    assert!(!site.is_asked(1), "it is not there");
    site.shard.put_back(at, role);
    site.look();
    assert!(site.is_asked(1));
}

/// Protects those who wait from one that waits before them and goes, and from whoever gets its number.
#[test]
fn a_client_that_goes_while_it_waits_leaves_its_place_to_the_next() {
    let mut site = Site::new(4);
    // Two of them do not fit beside one another.
    let large = 100 * MIB;
    (0..4).for_each(|client| site.read(client, large));
    site.shard.close_line(site.lines[2], "it goes");
    site.log_in(4);
    assert_eq!(site.lines[4], site.lines[2], "places are given anew");
    site.read(4, large);
    for (done, next) in [(0, 1), (1, 3), (3, 4)] {
        assert!(!site.is_asked(next), "there is no room yet");
        site.answer(done, large);
        assert!(site.is_asked(next));
    }
    assert!(!site.is_asked(2));
}
