#![allow(clippy::unwrap_used, reason = "a test that cannot go on says so by its line")]
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, channel};

use block::ByteLen;
use engine::{BlockSize, Compression, CreateOptions, Op, Pool, RequestId};
use mio::Poll;
use replication::membership::Voters;
use replication::words::{Boot, NodeId, Powered};

use super::*;
use crate::clock::Clock;
use crate::shard::{Config, PoolPlace, Sender};

const VOLUME: VolumeUid = VolumeUid([4; 16]);
const MEMBER: Member = Member { replica: ReplicaId(1), incarnation: Incarnation(7) };

/// A shard with one pool, whose turns are counted by hand.
struct Bench {
    shard: Shard,
    path: PathBuf,
}

impl Drop for Bench {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

impl Bench {
    /// With a replica that nobody follows.
    fn new(name: &str) -> Bench {
        let file = format!("pollux-replicas-{name}-{}", std::process::id());
        let path = std::env::temp_dir().join(file);
        let create = Some(ByteLen(32 << 20));
        let options = disk::OpenOptions { create, ..disk::OpenOptions::default() };
        let mut disk = disk::open(&path, &options).unwrap();
        engine::create(&mut disk, &CreateOptions::default()).unwrap();
        let poll = Poll::new().unwrap();
        let (_, orders) = Sender::new(Shard::waker(&poll).unwrap());
        let config = Config { node: NodeId(1), boot: Boot(1), tls: None, clock: Clock::default() };
        let mut shard = Shard::new(config, poll, orders, Box::new(|_| {}));
        let powered = Powered { kernel: 1, device: 1 };
        let place = PoolPlace { name: "main".into(), path: path.clone(), powered };
        let pool = Pool::open(disk, engine::OpenOptions::default()).unwrap();
        shard.add_pool(place, pool).unwrap();
        let mut bench = Bench { shard, path };
        let made = bench.create();
        assert_eq!(bench.answer(&made).unwrap(), MEMBER.incarnation);
        bench
    }

    fn create(&mut self) -> Receiver<Result<Incarnation, Refusal>> {
        let spec = ReplicaSpec {
            volume: VOLUME,
            name: "db".into(),
            pool: "main".into(),
            size: ByteLen(1 << 20),
            block_size: BlockSize::new(4096).unwrap(),
            compression: Compression::Off,
            incarnation: MEMBER.incarnation,
            workers: Some(3),
            origin: None,
        };
        let (answer, answered) = channel();
        self.shard.create_replica(spec, Box::new(move |result| answer.send(result).unwrap()));
        answered
    }

    fn delete(&mut self, membership: &Membership) -> Receiver<Result<(), Refusal>> {
        let (answer, answered) = channel();
        let answer = Box::new(move |result| answer.send(result).unwrap());
        let member = (MEMBER.replica, MEMBER.incarnation);
        self.shard.delete_replica(VOLUME, member, membership, answer);
        answered
    }

    fn answer<T>(&mut self, answered: &Receiver<T>) -> T {
        loop {
            self.shard.turn();
            if let Ok(answer) = answered.try_recv() {
                return answer;
            }
            self.shard.pools[0].host.pool_mut().wait();
            self.shard.pools[0].asked = true;
        }
    }

    /// The pool takes nothing more until it is polled.
    fn fill(&mut self) {
        for number in 0..2048 {
            self.shard.pools[0].host.pool_mut().submit(RequestId(u64::MAX - number), Op::Flush);
        }
    }

    fn runs(&self) -> Option<&ReplicaRun> {
        let number = self.shard.volumes.known(VOLUME)?;
        self.shard.volumes.get(number).replica.as_ref()
    }
}

fn nobody() -> Membership {
    Membership { version: 9, ..Membership::default() }
}

/// Protects from content that nobody knows of: a pool that is busy refuses the deletion, and who says it
/// again is told that there is nothing.
#[test]
fn a_replica_that_could_not_be_deleted_is_there_and_can_be() {
    let mut bench = Bench::new("busy");
    bench.fill();
    let refused = bench.delete(&nobody());
    let again = bench.delete(&nobody());
    for answer in [refused, again] {
        let answer = bench.answer(&answer);
        assert!(matches!(answer, Err(Refusal::Store(StoreError::Busy))), "{answer:?}");
    }
    let run = bench.runs().expect("it is taken up again");
    assert_eq!((run.workers.limit(), bench.shard.pools[0].host.has(VOLUME)), (Some(3), true));
    let done = bench.delete(&nobody());
    bench.answer(&done).unwrap();
    assert!(bench.runs().is_none() && !bench.shard.pools[0].host.has(VOLUME));
    let gone = bench.delete(&nobody());
    assert!(matches!(bench.answer(&gone), Err(Refusal::NoReplica)));
}

/// Protects from an operator who goes on while the content is still there.
#[test]
fn who_says_it_again_waits_for_the_same_end() {
    let mut bench = Bench::new("again");
    let (first, second) = (bench.delete(&nobody()), bench.delete(&nobody()));
    assert!(second.try_recv().is_err(), "it is not gone yet");
    bench.answer(&first).unwrap();
    bench.answer(&second).unwrap();
}

/// Protects from a deletion that takes what is made behind it, or is told of it too early.
#[test]
fn what_is_made_behind_a_deletion_stays() {
    let mut bench = Bench::new("behind");
    let (deleted, made) = (bench.delete(&nobody()), bench.create());
    let refused = bench.delete(&nobody());
    assert!(matches!(refused.try_recv(), Ok(Err(Refusal::BeingMade))));
    bench.answer(&deleted).unwrap();
    bench.answer(&made).unwrap();
    assert!(bench.runs().is_some());
}

/// Protects from content that can never be deleted because its state cannot be read, and from a vote that
/// goes with it.
#[test]
fn what_cannot_be_read_is_deleted_if_it_has_no_vote() {
    let mut bench = Bench::new("unread");
    let number = bench.shard.volumes.known(VOLUME).unwrap();
    bench.shard.volumes.get_mut(number).replica = None;
    let voters = Voters::of(&[Member { incarnation: Incarnation(1), ..MEMBER }]);
    let refused = bench.delete(&Membership { version: 9, voters, next: None });
    let answer = bench.answer(&refused);
    assert!(matches!(answer, Err(Refusal::Wipe(WipeRefusal::Voter))), "{answer:?}");
    let done = bench.delete(&nobody());
    bench.answer(&done).unwrap();
    assert!(!bench.shard.pools[0].host.has(VOLUME));
}
