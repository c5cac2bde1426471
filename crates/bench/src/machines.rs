//! What the machines of a volume cost by themselves: a target and replicas whose stores answer at
//! once, without sockets, encoding and disks. Microseconds of processor for each request, all
//! machines together.
use std::collections::VecDeque;

use anyhow::{Result, ensure};
use block::{ByteLen, ByteOffset, Data};
use comfy_table::{CellAlignment, Table, presets};
use replication::catalog::{CatalogAnswer, CatalogAsk, VolumeObject};
use replication::client::{ConnectionId, Login, Request, RequestId};
use replication::cost::Costs;
use replication::membership::{Member, Membership, Voters};
use replication::replica::{self, CREDIT, LinkId, Replica, Run};
use replication::state::ReplicaState;
use replication::store::{StoreFacts, StoreOp, StoreReply};
use replication::target::{self, Begin, Config, Target};
use replication::words::{
    Boot, CatalogVersion, ClientId, ConnectionNumber, Incarnation, Moment, NodeId, Powered,
    ReplicaId, Span,
};

use crate::cost::{Spread, Stopwatch};

const SIZE: u64 = 1 << 30;
const BLOCK: u64 = 4096;
const BLOCK_LEN: usize = 4096;
const ROUNDS: usize = 5;
/// Time between two turns, and between two ticks.
const TURN: Span = Span(20);
const TICK: Span = Span::millis(100);

/// How a machine takes what came.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Taking {
    Together,
    OneByOne,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Load {
    Writes,
    Reads,
}

/// One replica with a store that keeps nothing.
struct Copy {
    machine: Replica,
    came: Vec<replica::Event>,
    content: Data,
}

struct Rig {
    now: Moment,
    next_tick: Moment,
    taking: Taking,
    target: Target,
    catalog: VolumeObject,
    copies: Vec<Copy>,
    for_target: Vec<target::Event>,
    out: Vec<target::Output>,
    out_of_copy: Vec<replica::Output>,
    answered: u64,
    logged_in: bool,
}

fn member(id: usize) -> Member {
    Member { replica: ReplicaId(id as u64 + 1), incarnation: Incarnation(1) }
}

impl Copy {
    fn open(now: Moment, out: &mut Vec<replica::Output>) -> Result<Copy> {
        let facts = StoreFacts {
            state: ReplicaState::fresh(Incarnation(1), ByteLen(SIZE)).encode(),
            size: ByteLen(SIZE),
            block_size: ByteLen(BLOCK),
            costs: Costs {
                granule: ByteLen(BLOCK),
                per_write: ByteLen(BLOCK),
                per_granule: ByteLen(BLOCK + 64),
                is_clone: false,
            },
            ..StoreFacts::default()
        };
        let powered = Powered { kernel: 1, device: 1 };
        let run = Run { boot: Boot(1), powered, credit: CREDIT };
        let machine = Replica::open(facts, run, now, out)?;
        let content = Data::copy_of(&[7; BLOCK_LEN]);
        Ok(Copy { machine, came: Vec::new(), content })
    }

    fn store(&mut self, tag: replication::store::StoreTag, op: &StoreOp) {
        let reply = match op {
            StoreOp::Read { .. } => StoreReply::Read(self.content.clone()),
            StoreOp::Flush => StoreReply::Flushed,
            _ => StoreReply::Done,
        };
        self.came.push(replica::Event::Stored { tag, result: Ok(reply) });
    }
}

impl Rig {
    fn new(replicas: usize, taking: Taking) -> Result<Rig> {
        let now = Moment(1_000_000);
        let members: Vec<Member> = (0..replicas).map(member).collect();
        let catalog = VolumeObject {
            version: CatalogVersion(1),
            membership: Membership { version: 1, voters: Voters::of(&members), next: None },
            desired: members,
            ..VolumeObject::default()
        };
        let mut out = Vec::new();
        let config = Config::new(NodeId(1), Boot(1));
        let target = Target::begin(config, Begin::TakeOver, now, &mut out);
        let mut rig = Rig {
            now,
            next_tick: now,
            taking,
            target,
            catalog,
            copies: Vec::new(),
            for_target: Vec::new(),
            out,
            out_of_copy: Vec::new(),
            answered: 0,
            logged_in: false,
        };
        for at in 0..replicas {
            let mut out = Vec::new();
            let copy = Copy::open(now, &mut out)?;
            rig.copies.push(copy);
            rig.out_of_copy.append(&mut out);
            rig.carry_from(at);
        }
        rig.carry_from_target();
        Ok(rig)
    }

    /// Serves, with one client logged in.
    fn begin(&mut self) -> Result<()> {
        let (client, number) = (ClientId(1), ConnectionNumber(1));
        let login = Login { client, number, stage: None };
        self.for_target.push(target::Event::Login { connection: ConnectionId(1), login });
        for _ in 0..100_000 {
            self.turn();
            if self.logged_in {
                return Ok(());
            }
        }
        ensure!(self.logged_in, "the volume was never served");
        Ok(())
    }

    /// Everybody takes what came, once.
    fn turn(&mut self) {
        self.now = self.now + TURN;
        if self.now >= self.next_tick {
            self.next_tick = self.now + TICK;
            self.for_target.push(target::Event::Tick);
            self.copies.iter_mut().for_each(|copy| copy.came.push(replica::Event::Tick));
        }
        let mut events = std::mem::take(&mut self.for_target);
        match self.taking {
            Taking::Together => self.target.step_all(self.now, &mut events, &mut self.out),
            Taking::OneByOne => {
                for event in events.drain(..) {
                    self.target.step(self.now, event, &mut self.out);
                }
            }
        }
        self.for_target = events;
        self.carry_from_target();
        for at in 0..self.copies.len() {
            // Once for what the target said, and once for what the store answered.
            for _ in 0..2 {
                self.turn_of(at);
            }
        }
    }

    fn turn_of(&mut self, at: usize) {
        let copy = &mut self.copies[at];
        let mut events = std::mem::take(&mut copy.came);
        match self.taking {
            Taking::Together => {
                copy.machine.step_all(self.now, &mut events, &mut self.out_of_copy);
            }
            Taking::OneByOne => {
                for event in events.drain(..) {
                    copy.machine.step(self.now, event, &mut self.out_of_copy);
                }
            }
        }
        copy.came = events;
        self.carry_from(at);
    }

    fn carry_from(&mut self, at: usize) {
        let mut out = std::mem::take(&mut self.out_of_copy);
        for output in out.drain(..) {
            match output {
                replica::Output::Store { tag, op } => self.copies[at].store(tag, &op),
                replica::Output::Send { link, message } => {
                    let replica = member(at).replica;
                    self.for_target.push(target::Event::Message { replica, link, message });
                }
                replica::Output::Drop { .. } | replica::Output::Closed => {}
            }
        }
        self.out_of_copy = out;
    }

    fn carry_from_target(&mut self) {
        let mut out = std::mem::take(&mut self.out);
        for output in out.drain(..) {
            match output {
                target::Output::Reply { result, .. } => {
                    assert!(result.is_ok(), "nothing fails here: {result:?}");
                    self.answered += 1;
                }
                target::Output::Send { replica, link, message } => {
                    let copy = self.copies.iter_mut().zip(1..).find(|(_, id)| *id == replica.0);
                    let (copy, _) = copy.expect("only replicas are sent to");
                    copy.came.push(replica::Event::Message { link, message });
                }
                target::Output::Connect { replica } => {
                    let link = LinkId(replica.0);
                    self.for_target.push(target::Event::LinkUp { replica, link });
                }
                target::Output::Catalog(ask) => self.catalog_asked(ask),
                target::Output::LoggedIn { result, .. } => self.logged_in = result.is_ok(),
                target::Output::Disconnect { .. }
                | target::Output::Answer { .. }
                | target::Output::Stopped { .. } => {}
            }
        }
        self.out = out;
    }

    fn catalog_asked(&mut self, ask: CatalogAsk) {
        let answer = match ask {
            CatalogAsk::Swap { object, .. } => {
                let version = CatalogVersion(self.catalog.version.0 + 1);
                self.catalog = VolumeObject { version, ..*object };
                CatalogAnswer::Swapped(Box::new(self.catalog.clone()))
            }
            _ => CatalogAnswer::Object(Box::new(self.catalog.clone())),
        };
        self.for_target.push(target::Event::Catalog(answer));
    }

    /// Keeps so many requests under way until so many were answered. Microseconds for each.
    fn run(&mut self, load: Load, depth: u64, requests: u64) -> f64 {
        let data = Data::copy_of(&[9; BLOCK_LEN]);
        let (mut sent, end) = (self.answered, self.answered + requests);
        let watch = Stopwatch::start();
        while self.answered < end {
            while sent < self.answered + depth {
                let offset = ByteOffset(sent.wrapping_mul(0x9e37_79b9) % (SIZE / BLOCK) * BLOCK);
                let request = match load {
                    Load::Writes => Request::Write { offset, data: data.clone(), fua: false },
                    Load::Reads => Request::Read { offset, len: ByteLen(BLOCK) },
                };
                let (connection, id) = (ConnectionId(1), RequestId(sent));
                self.for_target.push(target::Event::Request { connection, id, request });
                sent += 1;
            }
            self.turn();
        }
        while self.answered < sent {
            self.turn();
        }
        let round = watch.stop(self.answered + requests - end, 0);
        round.cpu.as_secs_f64() * 1e6 / round.ios as f64
    }
}

fn measure(replicas: usize, taking: Taking, load: Load, depth: u64) -> Result<Spread> {
    let mut rig = Rig::new(replicas, taking)?;
    rig.begin()?;
    let requests = 100_000;
    rig.run(load, depth, requests / 10);
    let rounds: VecDeque<f64> = (0..ROUNDS).map(|_| rig.run(load, depth, requests)).collect();
    Ok(Spread::of(rounds))
}

pub fn run() -> Result<()> {
    let mut table = Table::new();
    table.load_style(presets::ASCII_MARKDOWN);
    table.set_header(["µs of CPU for each", "replicas", "depth", "together", "one by one"]);
    for (name, load) in [("write of 4 KiB", Load::Writes), ("read of 4 KiB", Load::Reads)] {
        for replicas in [1, 3] {
            for depth in [1, 32, 128, 512] {
                let together = measure(replicas, Taking::Together, load, depth)?;
                let apart = measure(replicas, Taking::OneByOne, load, depth)?;
                let shown = |spread: Spread| format!("{:.2}", spread.median);
                table.add_row([
                    name.to_owned(),
                    replicas.to_string(),
                    depth.to_string(),
                    shown(together),
                    shown(apart),
                ]);
            }
        }
    }
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    println!("{table}");
    Ok(())
}
