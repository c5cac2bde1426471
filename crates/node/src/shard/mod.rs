//! The loop that owns the data plane of a node: pools, replicas, targets, and every socket.
//!
//! One turn: whatever arrived on sockets, from the disks and from outside is given to the machines;
//! what they want goes to other machines, to the disks and to sockets, until nothing moves any more, or
//! until the sockets have waited for long enough; then everything that is to be sent leaves in one call per
//! socket, and the loop sleeps. So a turn batches by itself: the busier the node, the more goes with
//! each system call. Only entries for other nodes leave before, so that their disks work at the same
//! time as ours.
//!
//! The way of a write: `read_lines` (lines.rs) takes it off a socket, `nbd.rs` or `iscsi.rs` turns it
//! into a request, the target's machine (`targets.rs`) sends entries to replicas here (`replicas.rs`)
//! and elsewhere (`peers.rs`), pools answer, and the reply goes back the same way.
mod access;
mod asks;
mod boot;
mod doors;
mod extents;
mod iscsi;
mod journal;
mod lines;
mod nbd;
mod orders;
mod peers;
mod pools;
mod reads;
mod replicas;
mod sender;
mod status;
mod targets;
mod unproved;
mod vigil;
mod volumes;
mod workers;

use std::io;
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use certs::session::Sessions;
use mio::{Events, Poll, Token, Waker};
use replication::words::{Boot, Moment, NodeId, Span};
use slab::Slab;

use crate::clock::Clock;
use crate::complaints::Complaints;
use crate::records::NodeBook;
use doors::{Door, Handshakes, Strangers};
use iscsi::Iscsi;
use lines::{Line, Role};
use pools::PoolRun;
use reads::Reads;
use unproved::Unproved;
use vigil::Vigil;
use volumes::Volumes;

pub use boot::kernel_boot;
pub use doors::{Listener, Service};
pub use extents::{Extent, Extents, ExtentsAsk};
pub use iscsi::IQN;
pub use orders::{Answer, Order, Refusal, ReplicaSpec, Reply, Report};
pub use pools::PoolPlace;
pub use sender::Sender;
pub use status::{
    ConnectionStatus, PoolStatus, Protocol, Pulse, ReplicaStatus, ShardStatus, TargetStatus,
};

/// Machines are told the time this often.
const TICK: Span = Span::millis(100);

/// How long one turn may be. Most take some ten microseconds.
const TURN_MAX: Span = Span::millis(2);

/// The token of orders from outside; lines and pools have others.
const ORDERS: Token = Token(usize::MAX);

/// Pools come behind all lines, and listeners behind all pools: more lines than this are not
/// accepted.
const POOLS_FROM: usize = 1 << 20;
const LISTENERS_FROM: usize = 2 << 20;

#[derive(Clone, Debug)]
pub struct Config {
    pub node: NodeId,
    /// This run of the process.
    pub boot: Boot,
    /// What peers have to be met with; without it they are plain, and on this machine only.
    pub tls: Option<Sessions>,
    pub clock: Clock,
}

/// Numbers that are never given twice in one run.
#[derive(Debug, Default)]
struct Numbers {
    last: u64,
}

impl Numbers {
    fn next(&mut self) -> u64 {
        self.last += 1;
        self.last
    }
}

pub struct Shard {
    config: Config,
    poll: Poll,
    orders: Receiver<Order>,
    /// To whoever talks to the catalog.
    report: Box<dyn Fn(Report) + Send>,
    pools: Vec<PoolRun>,
    volumes: Volumes,
    doors: Vec<Door>,
    lines: Slab<Line>,
    unproved: Unproved,
    handshakes: Handshakes,
    strangers: Strangers,
    reads: Reads,
    complaints: Complaints,
    iscsi: Iscsi,
    /// Lines that may have more to read than was taken.
    readable: Vec<usize>,
    /// Lines that have something to send.
    unsent: Vec<usize>,
    /// Takes the place of one of these while it is worked at, and is kept for its memory.
    spare: Vec<usize>,
    nodes: NodeBook,
    numbers: Numbers,
    /// As of the beginning of this pass over machines; until then, of this turn.
    now: Moment,
    ticked: Moment,
    /// When changes were last looked for.
    looked: Moment,
    /// Set by the order to end: the loop stops when everything is closed.
    ending: Option<orders::Ending>,
    scratch: Vec<u8>,
    vigil: Vigil,
}

/// Whether it was not a signal that ended it.
fn polled(done: io::Result<()>) -> io::Result<bool> {
    match done {
        Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(false),
        other => other.map(|()| true),
    }
}

impl Shard {
    pub fn new(
        config: Config,
        poll: Poll,
        orders: Receiver<Order>,
        report: Box<dyn Fn(Report) + Send>,
    ) -> Shard {
        let now = config.clock.now();
        Shard {
            config,
            poll,
            orders,
            report,
            pools: Vec::new(),
            volumes: Volumes::default(),
            doors: Vec::new(),
            lines: Slab::new(),
            unproved: Unproved::default(),
            handshakes: Handshakes::default(),
            strangers: Strangers::default(),
            reads: Reads::default(),
            complaints: Complaints::default(),
            iscsi: Iscsi::default(),
            readable: Vec::new(),
            unsent: Vec::new(),
            spare: Vec::new(),
            nodes: NodeBook::new(),
            numbers: Numbers::default(),
            now,
            ticked: Moment(0),
            looked: Moment(0),
            ending: None,
            scratch: vec![0; lines::SCRATCH],
            vigil: Vigil::default(),
        }
    }

    /// Rings when an order was sent.
    pub fn waker(poll: &Poll) -> io::Result<Waker> {
        Waker::new(poll.registry(), ORDERS)
    }

    /// Runs until it is told to end.
    pub fn run(&mut self) -> io::Result<()> {
        let mut events = Events::with_capacity(1024);
        while !self.has_ended() {
            if !self.wait(&mut events)? {
                continue;
            }
            self.now = self.config.clock.now();
            for event in &events {
                match event.token() {
                    ORDERS => self.take_orders(),
                    Token(at) if at >= LISTENERS_FROM => self.knocked(at - LISTENERS_FROM),
                    // Pools are polled in every turn.
                    Token(at) if at >= POOLS_FROM => {}
                    Token(at) => self.line_event(at, event),
                }
            }
            self.open_doors();
            self.read_lines();
            self.tick();
            self.turn();
            self.send_lines();
        }
        Ok(())
    }

    /// Until something happens or it is time to tick. Not, if a signal came first.
    fn wait(&mut self, events: &mut Events) -> io::Result<bool> {
        // Sending may have closed lines, which others have to hear of.
        let more = !self.unsent.is_empty()
            || self.volumes.has_awake()
            || self.pools.iter().any(|pool| pool.asked || pool.is_ready());
        let reads_on = !self.readable.is_empty() || self.strangers.have_work();
        if more || reads_on || self.somebody_waits() {
            return polled(self.poll.poll(events, Some(Duration::ZERO)));
        }
        let begun = Instant::now();
        while self.vigil.is_kept() && begun.elapsed() < vigil::SHORT {
            let done = polled(self.poll.poll(events, Some(Duration::ZERO)))?;
            if !done || !events.is_empty() {
                self.vigil.waited(begun.elapsed(), self.is_from_client(events));
                return Ok(done);
            }
        }
        let done = polled(self.poll.poll(events, Some(self.until_tick())));
        self.vigil.waited(begun.elapsed(), self.is_from_client(events));
        done
    }

    /// Nothing but one client's connection has moved.
    fn is_from_client(&self, events: &Events) -> bool {
        let mut events = events.iter();
        let (Some(only), None) = (events.next(), events.next()) else { return false };
        let line = self.lines.get(only.token().0);
        line.is_some_and(|line| matches!(line.role, Role::Nbd(_) | Role::Iscsi(_)))
    }

    fn until_tick(&self) -> Duration {
        let next = self.ticked + TICK;
        Duration::from_micros(next.since(self.config.clock.now()).0)
    }

    fn tick(&mut self) {
        if self.now < self.ticked + TICK {
            return;
        }
        self.ticked = self.now;
        // First: a volume that is awake is not forgotten, and ticks wake all of them.
        self.forget_volumes();
        self.tick_machines();
        self.tick_pools();
        self.tick_doors();
        self.tick_iscsi();
        self.expire_logins();
        self.log_changes();
        self.go_on_ending();
    }

    /// Carries everything between machines and pools until nothing moves, or until sockets have
    /// waited for long enough: a pool in memory is ready again and again while it has work.
    ///
    /// The machines get a time that is not older than anything they are told in the same pass (P5):
    /// it is taken after sockets and pools were read. A process that was stopped in between would
    /// otherwise answer a read that came after its lease had ended, or begin to serve before an
    /// older lease has.
    fn turn(&mut self) {
        let (mut quiet, mut first) = (false, true);
        let end = self.config.clock.now() + TURN_MAX;
        loop {
            let stored = self.poll_pools();
            let mut awake = self.volumes.take_awake();
            if awake.is_empty() && !stored && !self.pools.iter().any(PoolRun::is_ready) {
                self.volumes.give_back(awake);
                // What a pool began just now may be done already: looking once more is cheaper than
                // going to sleep and being woken.
                if !self.pools.iter().any(PoolRun::is_waiting)
                    || std::mem::replace(&mut quiet, true)
                {
                    return;
                }
                continue;
            }
            quiet = false;
            self.now = self.config.clock.now();
            for volume in awake.drain(..) {
                self.run_replica(volume);
                self.run_target(volume);
            }
            self.volumes.give_back(awake);
            if std::mem::replace(&mut first, false) {
                self.send_ahead();
            }
            // Behind the first pass: a disk rings once, and has to be looked at then.
            if self.config.clock.now() >= end {
                return;
            }
        }
    }
}
