//! The target of one volume: one reign, from the claim of a term to its end.
//!
//! A request comes in at `front.rs`, gets its seq in `sequence.rs`, goes out to the replicas in
//! `stream.rs`, and is answered when `sequence.rs` sees that a quorum holds it. Who may vote is in
//! `steps.rs`, how a reign begins in `claim.rs` and `activate.rs`, how replicas catch up in
//! `rounds.rs` and `sources.rs`.
mod activate;
mod claim;
mod commands;
mod front;
mod holds;
mod lease;
mod pace;
mod peer;
mod plan;
mod reads;
mod repairs;
mod residue;
mod rounds;
mod sequence;
mod sources;
pub mod starting;
mod status;
mod steps;
mod stream;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use block::Term;

use crate::catalog::{CatalogAnswer, CatalogAsk, VolumeObject};
use crate::client::{
    Answer, Command, CommandAnswer, CommandError, ConnectionId, IoError, Login, LoginError,
    Request, RequestId,
};
use crate::constants::{BACKLOG, HOLD_DEADLINE};
use crate::message::{AskId, ForReplica, ForTarget, ToReplica, ToTarget};
use crate::replica::LinkId;
use crate::state::{Promise, SharedState, SnapshotEntry};
use crate::words::{Boot, Grant, Moment, NodeId, ReplicaId, Span, Start};

use claim::Claim;
use commands::Commands;
use front::Front;
use holds::Holds;
use peer::Peer;
use reads::Reads;
use repairs::Repairs;
use rounds::Rounds;
use sequence::Sequence;
use steps::Steps;

pub use status::{PeerStatus, Progress, Standing, Status};

#[derive(Debug)]
pub enum Event {
    /// To a get, a swap or a watch.
    Catalog(CatalogAnswer),
    /// A connection that was asked for is there.
    LinkUp {
        replica: ReplicaId,
        link: LinkId,
    },
    LinkLost {
        replica: ReplicaId,
        link: LinkId,
    },
    Message {
        replica: ReplicaId,
        link: LinkId,
        message: ForTarget,
    },
    Login {
        connection: ConnectionId,
        login: Login,
    },
    Request {
        connection: ConnectionId,
        id: RequestId,
        request: Request,
    },
    /// The front end lost the connection: nobody waits for its answers.
    Gone {
        connection: ConnectionId,
    },
    Command {
        id: RequestId,
        command: Command,
    },
    /// The owner is to take the volume over, and this run is there already: if it still waits for
    /// the grant, it asks for it.
    TakeOver,
    /// Time passed. At least every 100 ms.
    Tick,
}

impl Event {
    /// Whether nothing may be put off around it. What is not rare need not.
    fn stands_alone(&self) -> bool {
        match self {
            Event::Request { .. } => false,
            Event::Message { message, .. } => !matches!(
                message.body,
                ToTarget::Ack { .. }
                    | ToTarget::ReadDone { .. }
                    | ToTarget::ExtentsDone { .. }
                    | ToTarget::Renewed { .. }
            ),
            Event::Catalog(_)
            | Event::LinkUp { .. }
            | Event::LinkLost { .. }
            | Event::Login { .. }
            | Event::Gone { .. }
            | Event::Command { .. }
            | Event::TakeOver
            | Event::Tick => true,
        }
    }
}

#[derive(Debug)]
pub enum Output {
    Catalog(CatalogAsk),
    /// A connection is wanted; asked again from time to time until there is one.
    Connect {
        replica: ReplicaId,
    },
    Disconnect {
        replica: ReplicaId,
        link: LinkId,
    },
    Send {
        replica: ReplicaId,
        link: LinkId,
        message: ForReplica,
    },
    LoggedIn {
        connection: ConnectionId,
        result: Result<(), LoginError>,
    },
    Reply {
        connection: ConnectionId,
        id: RequestId,
        result: Result<Answer, IoError>,
    },
    Answer {
        id: RequestId,
        result: Result<CommandAnswer, CommandError>,
    },
    /// This reign is over. The owner drops the machine, and may start another.
    Stopped {
        reason: Stopped,
    },
}

/// Why a reign ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stopped {
    /// Cleanly, as it was asked to.
    Closed,
    /// Another node has the grant, or a higher term was promised.
    Superseded,
    /// A replica promised the same or a higher start under this grant: start again above it.
    Outnumbered { promised: Promise },
    /// The volume was deleted, or the catalog did not have it when the target began.
    NoVolume,
}

/// How a reign begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Begin {
    /// Under the grant that this node has; if it has none, nothing happens until it gets one.
    Granted,
    /// Asks the catalog for the grant, whoever has it.
    TakeOver,
}

#[derive(Clone, Copy, Debug)]
pub struct Config {
    pub node: NodeId,
    /// This run of the target; never used twice.
    pub run: Boot,
    /// The replica on the same node, if there is one: reads and rounds prefer it.
    pub local: Option<ReplicaId>,
    pub hold_deadline: Span,
    /// Bytes that a replica may lag behind, and that are kept for replay.
    pub backlog: u64,
    /// Bytes that one catch-up may bring in a second; 0: as fast as it goes.
    pub catch_up_rate: u64,
    /// Starts up to here are known to be promised under this node's grant.
    pub start_above: Start,
}

/// How far the reign has come.
#[derive(Debug)]
enum Phase {
    /// The catalog has to say that this node has the grant.
    Asking(Claim),
    /// Hellos are out; a quorum has to welcome.
    Claiming {
        patient_until: Option<Moment>,
    },
    /// The history is chosen; the barrier has to settle, and older leases have to run out.
    Preparing {
        serve_from: Moment,
        /// Since when nobody is left who has the chosen history.
        alone_since: Option<Moment>,
    },
    Serving,
    /// No requests are taken; the close has to settle.
    Closing {
        id: RequestId,
    },
    Ended,
}

impl Config {
    /// A target that has no local replica, with the class's defaults.
    pub fn new(node: NodeId, run: Boot) -> Config {
        Config {
            node,
            run,
            local: None,
            hold_deadline: HOLD_DEADLINE,
            backlog: BACKLOG,
            catch_up_rate: 0,
            start_above: Start(0),
        }
    }
}

pub struct Target {
    config: Config,
    phase: Phase,
    term: Term,
    /// As the catalog last said.
    object: VolumeObject,
    steps: Steps,
    peers: BTreeMap<ReplicaId, Peer>,
    sequence: Sequence,
    /// The small state behind the last entry.
    shared: SharedState,
    /// Snapshots behind the last entry, doomed ones included.
    snapshots: Vec<SnapshotEntry>,
    front: Front,
    reads: Reads,
    repairs: Repairs,
    commands: Commands,
    holds: Holds,
    rounds: Rounds,
    next_ask: u64,
    /// Something came that the books may depend on.
    uncounted: bool,
    last_renewal: Option<Moment>,
    #[cfg(feature = "faults")]
    off: Option<crate::Switch>,
}

/// What one step needs beside the machine.
struct Cx<'a> {
    now: Moment,
    out: &'a mut Vec<Output>,
}

impl Cx<'_> {
    fn send(&mut self, replica: ReplicaId, link: LinkId, term: Term, body: ToReplica) {
        self.out.push(Output::Send { replica, link, message: ForReplica { term, body } });
    }
}

impl Target {
    pub fn begin(config: Config, begin: Begin, now: Moment, out: &mut Vec<Output>) -> Target {
        let mut target = Target {
            config,
            phase: Phase::Asking(Claim::new(begin)),
            term: Term(0),
            object: VolumeObject::default(),
            steps: Steps::default(),
            peers: BTreeMap::new(),
            sequence: Sequence::default(),
            shared: SharedState::default(),
            snapshots: Vec::new(),
            front: Front::default(),
            reads: Reads::default(),
            repairs: Repairs::default(),
            commands: Commands::default(),
            holds: Holds::default(),
            rounds: Rounds::default(),
            next_ask: 1,
            uncounted: false,
            last_renewal: None,
            #[cfg(feature = "faults")]
            off: None,
        };
        target.ask_catalog(&mut Cx { now, out });
        target
    }

    /// A batch of one.
    pub fn step(&mut self, now: Moment, event: Event, out: &mut Vec<Output>) {
        self.step_all(now, &mut vec![event], out);
    }

    /// The one entry: takes what came, in order. Everything that follows is in `out` when it
    /// returns. What many of them have in common is done once: requests that came together leave in
    /// one message, and many acks are counted together.
    ///
    /// Events that stand alone find done what follows from those before them, and what follows from
    /// them is done before the next: as if each had come by itself. So only between those that do
    /// not (`Event::stands_alone`), something is put off, and none of them needs it:
    ///
    /// - A request looks at its connection, at the size, and at how many wait; then it waits in a
    ///   queue, or among the reads. Nobody is asked before all are in, so a read may overtake a
    ///   write that came before it. That one is not acknowledged, so either content is right.
    /// - An ack raises the books of its replica, which are looked at when all are in. None of the
    ///   others can take them back.
    /// - A read's answer cannot have a write of this batch: those get their seqs when all are in.
    ///   Whether what it may have is committed is looked at behind all acks.
    /// - A renewal only raises the lease.
    pub fn step_all(&mut self, now: Moment, events: &mut Vec<Event>, out: &mut Vec<Output>) {
        let cx = &mut Cx { now, out };
        self.holds.expire(now);
        let mut put_off = false;
        for event in events.drain(..) {
            let alone = event.stands_alone();
            if alone && std::mem::take(&mut put_off) {
                self.go_on(cx);
            }
            if matches!(self.phase, Phase::Ended) {
                return;
            }
            // Acks, and whatever stands alone: who is in the stream, who votes, what a round needs.
            self.uncounted |= alone;
            self.take(event, cx);
            match alone {
                true => self.go_on(cx),
                false => put_off = true,
            }
        }
        if put_off {
            self.go_on(cx);
        }
    }

    fn take(&mut self, event: Event, cx: &mut Cx<'_>) {
        match event {
            Event::Catalog(answer) => self.catalog_said(answer, cx),
            Event::LinkUp { replica, link } => self.link_up(replica, link, cx),
            Event::LinkLost { replica, link } => self.link_lost(replica, link, cx),
            Event::Message { replica, link, message } => {
                self.message(replica, link, message, cx);
            }
            Event::Login { connection, login } => self.login(connection, login, cx),
            Event::Request { connection, id, request } => {
                self.request(connection, id, request, cx);
            }
            Event::Gone { connection } => self.front.gone(connection),
            Event::Command { id, command } => self.command(id, command, cx),
            Event::TakeOver => self.take_over(cx),
            Event::Tick => self.tick(cx),
        }
    }

    /// Everything that can go on after an event, in the order in which one waits for another.
    fn go_on(&mut self, cx: &mut Cx<'_>) {
        if matches!(self.phase, Phase::Ended) {
            return;
        }
        self.go_on_activating(cx);
        self.count_books();
        self.answer_settled(cx);
        self.answer_logins(cx);
        // Behind the books: what they gave up leaves room in the window.
        self.sequence_requests(cx);
        self.go_on_reading(cx);
        self.recover_regressed(cx);
        self.send_entries(cx);
        self.go_on_closing(cx);
    }

    fn tick(&mut self, cx: &mut Cx<'_>) {
        self.ask_catalog_again(cx);
        self.connect_peers(cx);
        self.renew_lease(cx);
        self.expire_requests(cx);
        self.drop_laggards(cx);
        self.go_on_with_rounds(cx);
        self.go_on_with_steps(cx);
        self.take_back_step(cx);
        self.give_up_choice(cx);
    }

    fn stop(&mut self, reason: Stopped, cx: &mut Cx<'_>) {
        self.phase = Phase::Ended;
        self.refuse_everything(cx);
        cx.out.push(Output::Stopped { reason });
    }

    fn grant(&self) -> Grant {
        Grant::of(self.term)
    }

    fn ask_id(&mut self) -> AskId {
        self.next_ask += 1;
        AskId(self.next_ask)
    }

    fn is_serving(&self) -> bool {
        matches!(self.phase, Phase::Serving)
    }

    /// Whether there is a chosen history and a sequence on top of it.
    fn is_active(&self) -> bool {
        matches!(self.phase, Phase::Preparing { .. } | Phase::Serving | Phase::Closing { .. })
    }

    pub fn term(&self) -> Term {
        self.term
    }

    #[cfg(feature = "faults")]
    pub fn turn_off(&mut self, switch: crate::Switch) {
        self.off = Some(switch);
    }

    #[cfg(feature = "faults")]
    fn is_off(&self, switch: crate::Switch) -> bool {
        self.off == Some(switch)
    }
}

/// Whether a mechanism was turned off; never outside the simulator.
macro_rules! off {
    ($target:expr, $switch:ident) => {{
        #[cfg(feature = "faults")]
        let off = $target.is_off(crate::Switch::$switch);
        #[cfg(not(feature = "faults"))]
        let off = {
            let _ = &$target;
            false
        };
        off
    }};
}
use off;
