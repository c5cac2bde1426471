//! Protects from floods that lock others out. Time is what the tests say it is.
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use certs::Name;
use mio::Poll;
use replication::replica::LinkId;
use replication::words::{Boot, ReplicaId, VolumeUid};

use super::super::unproved::{CALLS_MAX, GRACE, UNPROVED_MAX};
use super::super::{Config, Sender};
use super::*;
use crate::clock::Clock;
use crate::net::socket::tests::sessions;

fn shard() -> Shard {
    let poll = Poll::new().unwrap();
    let (_, orders) = Sender::new(Shard::waker(&poll).unwrap());
    let config = Config { node: NodeId(1), boot: Boot(1), tls: None, clock: Clock::default() };
    Shard::new(config, poll, orders, Box::new(|_| {}))
}

fn listening(shard: &mut Shard, service: Service) -> SocketAddr {
    let listener = TcpListener::bind(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
    let address = listener.local_addr().unwrap();
    shard.listen(Listener::Tcp(listener), service).unwrap();
    address
}

fn connect(to: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect_timeout(&to, Duration::from_millis(500)).unwrap();
    stream.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
    stream
}

/// Everybody who knocks comes in, as far as one tick allows.
fn let_in(shard: &mut Shard) {
    shard.tick_doors();
    shard.knocked(0);
    while shard.somebody_waits() {
        shard.open_doors();
    }
}

fn is_closed(mut stream: &TcpStream) -> bool {
    loop {
        match stream.read(&mut [0; 100]) {
            Ok(0) => return true,
            Ok(_) => {}
            Err(error) => return error.kind() == ErrorKind::ConnectionReset,
        }
    }
}

/// Of every kind: whoever comes waits a moment, and then takes the place of the oldest.
#[test]
fn a_crowd_that_is_silent_makes_room_for_who_comes_behind() {
    for service in [Service::Nbd, Service::Iscsi, Service::Peers] {
        let mut shard = shard();
        let address = listening(&mut shard, service);
        let crowd: Vec<TcpStream> = (0..UNPROVED_MAX).map(|_| connect(address)).collect();
        let_in(&mut shard);
        assert_eq!(shard.lines.len(), UNPROVED_MAX, "{service:?}");

        let late = connect(address);
        let_in(&mut shard);
        assert_eq!(shard.lines.len(), UNPROVED_MAX, "{service:?}: all are young");
        assert!(!is_closed(&crowd[0]) && !is_closed(&late), "{service:?}: nobody is sent away");

        shard.now = shard.now + GRACE;
        let_in(&mut shard);
        assert_eq!(shard.lines.len(), UNPROVED_MAX, "{service:?}");
        assert!(is_closed(&crowd[0]), "{service:?}: the oldest goes");
        assert!(!is_closed(&crowd[1]) && !is_closed(&late), "{service:?}: and nobody else");
        let port = late.local_addr().unwrap().to_string();
        let places = shard.lines.iter().map(|(at, _)| at).collect::<Vec<_>>();
        assert!(places.into_iter().any(|at| shard.address_of(at) == port), "{service:?}: it is in");
    }
}

/// Protects a node with many volumes from itself: its calls push one another out, none is ever answered.
#[test]
fn calls_to_peers_are_paced_and_never_pushed_out() {
    let mut shard = shard();
    let silent = std::net::TcpListener::bind(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
    for node in [2, 3] {
        shard.nodes.insert(NodeId(node), silent.local_addr().unwrap());
    }
    let volume = shard.volumes.number(VolumeUid([1; 16]));
    let call_all = |shard: &mut Shard| {
        for number in 0..1000 {
            let node = NodeId(2 + number % 2);
            shard.call(volume, ReplicaId(number), node, LinkId(number));
        }
    };
    call_all(&mut shard);
    let called = |shard: &Shard| shard.lines.iter().map(|(_, it)| it.number).collect::<Vec<_>>();
    let first = called(&shard);
    assert_eq!(first.len(), 2 * CALLS_MAX, "so many to each");
    shard.now = shard.now + GRACE;
    shard.tick_doors();
    call_all(&mut shard);
    assert_eq!(called(&shard), first, "the first are waited for");
    shard.now = shard.now + GREETING;
    shard.tick_doors();
    assert!(called(&shard).is_empty(), "but not for ever");
    call_all(&mut shard);
    assert_eq!(called(&shard).len(), 2 * CALLS_MAX);
}

/// Protects from clients that vanished without a word, and hold their sessions for ever.
#[test]
fn the_kernel_looks_after_those_who_vanish() {
    for service in [Service::Nbd, Service::Iscsi, Service::Peers] {
        let mut shard = shard();
        let _client = connect(listening(&mut shard, service));
        let_in(&mut shard);
        let (_, line) = shard.lines.iter().next().unwrap();
        let tcp = line.socket.tcp().unwrap();
        assert!(rustix::net::sockopt::socket_keepalive(tcp).unwrap(), "{service:?}");
        let idle = rustix::net::sockopt::tcp_keepidle(tcp).unwrap();
        let every = rustix::net::sockopt::tcp_keepintvl(tcp).unwrap();
        let count = rustix::net::sockopt::tcp_keepcnt(tcp).unwrap();
        assert_eq!(idle + every * count, Duration::from_secs(60), "{service:?}");
        assert_eq!(rustix::net::sockopt::tcp_user_timeout(tcp).unwrap(), 60_000, "{service:?}");
    }
}

/// Takes what has arrived, as the loop does it.
fn read(shard: &mut Shard) {
    let places: Vec<usize> = shard.lines.iter().map(|(at, _)| at).collect();
    places.into_iter().for_each(|at| shard.mark_readable(at));
    shard.read_lines();
    shard.send_lines();
}

/// Protects those who are served from those who ask, and those who log in from those who go on asking.
#[test]
fn time_for_strangers_is_bounded() {
    let mut strangers = Strangers::default();
    let mut readable = Vec::new();
    strangers.begin_turn(&mut readable);
    assert!(strangers.may_read(1, NEW_READS));
    strangers.spent(NEW_READS, TURN_SHARE);
    assert!(!strangers.may_read(2, NEW_READS) && !strangers.may_read(3, 0), "others have a turn");
    assert!(strangers.have_work());
    strangers.begin_turn(&mut readable);
    assert_eq!(readable, [3, 2], "those who came lately are first");
    strangers.spent(NEW_READS, OLD_SHARE);
    strangers.begin_turn(&mut readable);
    assert!(!strangers.may_read(2, NEW_READS), "they wait for the next tick");
    assert!(!strangers.have_work() && strangers.may_read(3, 0));
    strangers.spent(0, NEW_SHARE);
    strangers.begin_turn(&mut readable);
    assert!(!strangers.may_read(3, 0));
    strangers.tick();
    readable.clear();
    strangers.begin_turn(&mut readable);
    assert_eq!(readable, [3, 2]);
    assert!(strangers.may_read(2, NEW_READS) && strangers.may_read(3, 0));
}

/// Protects from memory for answers to questions of whoever comes along: a client asks and does not read.
#[test]
fn who_has_proved_nothing_has_few_answers_waiting() {
    let unknown_option = [&b"IHAVEOPT"[..], &77u32.to_be_bytes(), &0u32.to_be_bytes()].concat();
    let login = iscsi_login_that_goes_on();
    for (service, first, question) in
        [(Service::Nbd, vec![0, 0, 0, 3], unknown_option), (Service::Iscsi, Vec::new(), login)]
    {
        let mut shard = shard();
        let mut client = connect(listening(&mut shard, service));
        let_in(&mut shard);
        client.write_all(&first).unwrap();
        client.set_nonblocking(true).unwrap();
        let questions = question.repeat(1000);
        let (mut sent, mut idle) = (0, 0);
        while idle < 200 && sent < 64 << 20 {
            idle += 1;
            while let Ok(len @ 1..) = client.write(&questions[sent % question.len()..]) {
                sent += len;
                idle = 0;
            }
            shard.tick_doors();
            read(&mut shard);
            let queued: usize = shard.lines.iter().map(|(_, line)| line.socket.queued()).sum();
            let most = STRANGER_UNSENT_MAX + (64 << 10);
            assert!(queued <= most, "{service:?}: {queued} bytes wait for a client");
        }
        assert!(sent < 64 << 20, "{service:?}: {sent} bytes of questions were taken");
    }
}

/// A part of a login that says that more of it follows, and is answered with a head each time.
fn iscsi_login_that_goes_on() -> Vec<u8> {
    let mut head = vec![0; 48];
    (head[0], head[1]) = (0x43, 0x44);
    head
}

/// Protects peers from being kept out by those who never begin a handshake, and the loop from those who do.
#[test]
fn handshakes_are_counted_when_they_begin() {
    let [here, there] = sessions();
    let mut shard = shard();
    shard.config.tls = Some(here);
    let address = listening(&mut shard, Service::Peers);
    let silent: Vec<TcpStream> = (0..2 * HANDSHAKES).map(|_| connect(address)).collect();
    let call = |_| {
        let stream = Stream::Tcp(mio::net::TcpStream::from_std(connect(address)));
        let mut caller = Socket::secured(stream, there.call(&Name::node(1)).unwrap()).unwrap();
        caller.flush(&mut []).unwrap();
        caller
    };
    let mut callers: Vec<Socket> = (0..HANDSHAKES + 1).map(call).collect();
    let_in(&mut shard);
    assert_eq!(shard.lines.len(), silent.len() + callers.len(), "who is silent takes nothing");
    let answered = |callers: &mut Vec<Socket>| {
        let mut scratch = vec![0; 256 << 10];
        for caller in callers.iter_mut() {
            caller.read(&mut [], &mut scratch).unwrap();
        }
        callers.iter().filter(|it| it.is_begun()).count()
    };
    read(&mut shard);
    read(&mut shard);
    assert_eq!(answered(&mut callers), HANDSHAKES);
    shard.tick_doors();
    read(&mut shard);
    assert_eq!(answered(&mut callers), HANDSHAKES + 1, "the last has its turn as well");
}
