//! Protects from two ends that wait for one another.
use std::net::SocketAddr;

use block::{ByteLen, ByteOffset, Data, Seq, Term};
use mio::Poll;
use mio::net::TcpStream;
use replication::entry::{Change, Entry};
use replication::message::{
    AskId, Encoded, ForReplica, ForTarget, ToReplica, ToTarget, encode_to_replica, encode_to_target,
};
use replication::replica::LinkId;
use replication::words::{Boot, NodeId, ReplicaId, VolumeUid};

use super::super::{Config, Sender};
use super::*;
use crate::clock::Clock;
use crate::net::frames::Frames;
use crate::net::socket::Stream;

fn shard() -> Shard {
    let poll = Poll::new().unwrap();
    let (_, orders) = Sender::new(Shard::waker(&poll).unwrap());
    let config = Config { node: NodeId(1), boot: Boot(1), tls: None, clock: Clock::default() };
    Shard::new(config, poll, orders, Box::new(|_| {}))
}

/// Two ends of one connection, both in this shard: that of a target, and that of a replica.
fn link(shard: &mut Shard) -> (usize, usize) {
    let any = SocketAddr::from(([127, 0, 0, 1], 0));
    let listener = std::net::TcpListener::bind(any).unwrap();
    let calls = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (called, _) = listener.accept().unwrap();
    let [calls, called] = [calls, called].map(|stream| {
        stream.set_nonblocking(true).unwrap();
        Socket::new(Stream::Tcp(TcpStream::from_std(stream)))
    });
    let volume = shard.volumes.number(VolumeUid([1; 16]));
    let outgoing = Outgoing {
        node: NodeId(2),
        volume,
        replica: ReplicaId(1),
        link: LinkId(1),
        stage: Stage::Up(Frames::default()),
    };
    let incoming = Incoming::Up { volume, link: LinkId(1), frames: Frames::default() };
    let target = shard.add_line(calls, Role::Outgoing(outgoing)).unwrap();
    (target, shard.add_line(called, Role::Incoming(incoming)).unwrap())
}

fn frames(data: &Data) -> [Encoded; 2] {
    let change = Change::write(ByteLen(4096), ByteOffset(0), data.clone());
    let body = ToReplica::Entries(vec![Entry { seq: Seq(1), change }]);
    let entries = encode_to_replica(&ForReplica { term: Term(1), body });
    let body = ToTarget::ReadDone { id: AskId(1), result: Ok(data.clone()) };
    [entries, encode_to_target(&ForTarget { term: Term(1), body })]
}

/// A replica's answers and a target's entries fill one link from both sides.
#[test]
fn a_link_that_is_full_in_both_directions_moves_on() {
    let mut shard = shard();
    let (target, replica) = link(&mut shard);
    let data = Data::copy_of(&vec![7; 1 << 20]);
    for _ in 0..(UNSENT_MAX >> 20) + 32 {
        let [entries, answer] = frames(&data);
        shard.send_frame(target, entries);
        shard.send_frame(replica, answer);
    }
    shard.send_lines();
    let queued = |shard: &Shard| [target, replica].map(|at| shard.lines[at].socket.queued());
    assert!(queued(&shard).into_iter().all(|len| len > UNSENT_MAX), "both are full");
    for _ in 0..10_000 {
        [target, replica].into_iter().for_each(|at| shard.mark_readable(at));
        shard.read_lines();
        [target, replica].into_iter().for_each(|at| shard.mark_unsent(at));
        shard.send_lines();
        if queued(&shard) == [0, 0] {
            return;
        }
    }
    panic!("neither reads before the other does: {:?}", queued(&shard));
}

/// Protects from an allocation in every turn.
#[test]
fn turns_share_their_vectors() {
    let mut shard = shard();
    let places: Vec<usize> =
        (0..50).map(|_| link(&mut shard)).flat_map(<[usize; 2]>::from).collect();
    // Three vectors go round: what is read, what is sent, and one in the place of either.
    for _ in 0..3 {
        for at in &places {
            shard.mark_readable(*at);
            shard.send_piece(*at, Piece::Bytes(vec![0]));
        }
        shard.read_lines();
        shard.send_lines();
    }
    let kept = [&shard.readable, &shard.unsent, &shard.spare].map(Vec::capacity);
    assert!(kept.into_iter().all(|room| room >= places.len()), "{kept:?}");
}
