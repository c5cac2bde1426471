//! NBD connections: the protocol's machine between a socket and a target.
use std::io;

use block::ByteLen;
use frontend::ask::{Ask, AskError, AskId};
use frontend::export::{Export, OpenError, split_stage};
use frontend::nbd::hello::{Hello, Introduction};
use frontend::nbd::{Connection, LIST_PAGE, Opened, Output};
use frontend::scsi::words::Rights;
use replication::client::Answer;
use replication::client::{ConnectionId, IoError, Login, LoginError, RequestId};
use replication::target::Event;
use replication::words::{ClientId, ConnectionNumber, StageNumber};
use tracing::info;

use super::Shard;
use super::access::Admitted;
use super::asks::{Asker, Splitter, open_error};
use super::doors::Whom;
use super::iscsi::block_hash;
use super::lines::Role;
use super::pools::Payloads;
use super::status::Protocol;
use super::targets::User;
use super::volumes::VolumeNo;
use crate::net::socket::Socket;
use crate::random;

/// Logged-in clients of NBD, in all, of one volume, and over TCP from one address: fewer than in all, so
/// that no machine keeps the others out. A client has up to 16 connections.
const LOGINS_MAX: usize = 2048;
const VOLUME_LOGINS_MAX: usize = 256;
const ADDRESS_LOGINS_MAX: usize = 1024;

pub struct NbdLine {
    pub machine: Connection,
    open: Option<Open>,
    splitter: Splitter,
    out: Vec<Output>,
}

/// A volume that somebody has, or is about to.
#[derive(Clone, Copy)]
struct Open {
    volume: VolumeNo,
    /// By which the target knows it.
    connection: ConnectionId,
    admitted: Admitted,
}

impl NbdLine {
    /// Whether it has a volume, or is about to.
    pub fn is_open(&self) -> bool {
        self.open.is_some()
    }
}

impl Shard {
    pub(super) fn add_nbd(&mut self, socket: Socket) -> io::Result<usize> {
        let mut out = Vec::new();
        let mut challenge = [0; 32];
        random::fill(&mut challenge);
        let machine = Connection::new(challenge, &mut out);
        let nbd = NbdLine { machine, open: None, splitter: Splitter::default(), out };
        let at = self.add_line(socket, Role::Busy)?;
        let mut nbd = Box::new(nbd);
        self.carry_nbd(at, &mut nbd);
        self.put_back(at, Role::Nbd(nbd));
        Ok(at)
    }

    pub(super) fn nbd_received(
        &mut self,
        at: usize,
        nbd: &mut NbdLine,
        landed: usize,
        bytes: &[u8],
    ) {
        let volume = nbd.open.map(|open| open.volume);
        let pool = self.payload_pool(volume);
        let payloads = &mut Payloads(pool.map(|pool| &mut self.pools[pool].host));
        if landed > 0 {
            nbd.machine.landed(landed, payloads, &mut nbd.out);
        }
        if !bytes.is_empty() {
            nbd.machine.receive(bytes, payloads, &mut nbd.out);
        }
        self.carry_nbd(at, nbd);
    }

    /// Goes on with what a client sent before.
    pub(super) fn nbd_goes_on(&mut self, nbd: &mut NbdLine) {
        let volume = nbd.open.map(|open| open.volume);
        let pool = self.payload_pool(volume);
        let payloads = &mut Payloads(pool.map(|pool| &mut self.pools[pool].host));
        nbd.machine.go_on(payloads, &mut nbd.out);
    }

    fn carry_nbd(&mut self, at: usize, nbd: &mut NbdLine) {
        let mut out = std::mem::take(&mut nbd.out);
        loop {
            for output in out.drain(..) {
                match output {
                    Output::Send(piece) => self.send_piece(at, piece),
                    Output::List { from } => {
                        let (names, next) = self.names_from(from);
                        nbd.machine.listed(&names, next, &mut nbd.out);
                    }
                    Output::Open { name, for_use, by } => {
                        self.open_nbd(at, nbd, &name, for_use, by.as_deref());
                    }
                    Output::Ask { id, ask } => self.nbd_asks(at, nbd, id, ask),
                    Output::Close { reason } => {
                        if let Some(reason) = &reason {
                            self.complain(at, Whom::Client, &reason.to_string());
                        }
                        self.flush_line(at);
                        self.close_line(at, "the protocol has ended");
                    }
                }
            }
            if nbd.out.is_empty() {
                break;
            }
            std::mem::swap(&mut out, &mut nbd.out);
        }
        nbd.out = out;
    }

    fn nbd_asks(&mut self, at: usize, nbd: &mut NbdLine, id: AskId, ask: Ask) {
        let Some(Open { volume, .. }) = nbd.open else { return };
        if self.volumes.target(volume).is_none() {
            return nbd.machine.answered(id, Err(AskError::Stopped), &mut nbd.out);
        }
        nbd.splitter.submit(id, ask);
        self.nbd_asks_on(at, nbd);
    }

    /// Asks the target what a client has to ask, as far as its reads have room. `true`: it waits for others.
    fn nbd_asks_on(&mut self, at: usize, nbd: &mut NbdLine) -> bool {
        let Some(Open { volume, connection, .. }) = nbd.open else { return false };
        let Some(target) = self.volumes.target(volume) else { return false };
        let mut asked = 0;
        let asker = Asker::Nbd { line: at };
        let is_blocked = nbd.splitter.ask(asker, &mut self.reads, |id, request| {
            asked += 1;
            target.events.push(Event::Request { connection, id, request });
        });
        if is_blocked {
            self.reads.block(asker);
        }
        if let Some(user) = target.users.get_mut(&connection) {
            user.under_way += asked;
        }
        self.volumes.wake(volume);
        is_blocked
    }

    pub(super) fn served_names(&self) -> Vec<String> {
        let targets = self.volumes.iter().filter_map(|(_, run)| run.target.as_ref());
        targets.map(|target| target.record.name.clone()).collect()
    }

    /// Some names of served volumes from a place in the list on, and the place behind them.
    fn names_from(&self, from: usize) -> (Vec<String>, Option<usize>) {
        let all = self.volumes.iter_from(from);
        let mut served =
            all.filter_map(|(at, _, run)| Some((at, &run.target.as_ref()?.record.name)));
        let names = served.by_ref().take(LIST_PAGE).map(|(_, name)| name.clone()).collect();
        (names, served.next().map(|(at, _)| at))
    }

    pub(super) fn export_of(&self, volume: VolumeNo) -> Option<Export> {
        let target = self.volumes.get(volume).target.as_ref()?;
        let (record, status) = (&target.record, target.machine.status(self.now));
        let size = if status.serving { status.size } else { record.size };
        Some(Export {
            name: record.name.clone(),
            uid: record.uid.0,
            size,
            block: ByteLen(record.block_size.0.clamp(512, 4096)),
            granule: ByteLen(record.block_size.0.max(4096)),
            read_only: false,
        })
    }

    fn open_nbd(
        &mut self,
        at: usize,
        nbd: &mut NbdLine,
        export: &str,
        for_use: bool,
        by: Option<&Introduction>,
    ) {
        let (name, stage) = split_stage(export);
        let admitted = self.find_nbd(name).and_then(|volume| {
            self.admit_client(volume, at, export, by).map(|admitted| (volume, admitted))
        });
        let (volume, admitted) = match admitted {
            Ok(admitted) => admitted,
            Err(error) => {
                let who = by.map(|by| format!(", initiator {:?}", by.hello.initiator));
                let reason = format!("volume {name:?}{}: {error}", who.unwrap_or_default());
                self.complain(at, Whom::Client, &reason);
                return nbd.machine.opened(Err(error), &mut nbd.out);
            }
        };
        if !for_use {
            let opened = self.opened_nbd(volume, admitted);
            return nbd.machine.opened(opened, &mut nbd.out);
        }
        if let Err(error) = self.count_logins(at, volume, by.map(|by| client_of(&by.hello))) {
            self.complain(at, Whom::Client, &format!("volume {name:?}: {error}"));
            return nbd.machine.opened(Err(error), &mut nbd.out);
        }
        let connection = ConnectionId(self.numbers.next());
        nbd.open = Some(Open { volume, connection, admitted });
        let hello = by.map(|by| &by.hello);
        let (client, number) = match hello {
            Some(hello) => (client_of(hello), ConnectionNumber(hello.number)),
            // Several connections of one client are as good as several clients: each sends only
            // what it may send beside the others.
            None => (ClientId(connection.0), ConnectionNumber(1)),
        };
        let login = Login { client, number, stage: stage.map(StageNumber) };
        self.log_in_nbd(at, volume, connection, login, admitted.rights, hello);
    }

    /// Whether one more client may log in, beside an older connection of its own that it replaces.
    fn count_logins(
        &self,
        at: usize,
        volume: VolumeNo,
        client: Option<ClientId>,
    ) -> Result<(), OpenError> {
        let address = self.address_of(at);
        let host = host_of(&address);
        let (mut all, mut of_volume, mut from_address) = (0, 0, 0);
        for (number, run) in self.volumes.iter() {
            let users = run.target.iter().flat_map(|target| target.users.values());
            let others = users.filter(|user| {
                user.protocol == Protocol::Nbd
                    && !(number == volume && Some(user.login.client) == client)
            });
            for user in others {
                all += 1;
                of_volume += usize::from(number == volume);
                from_address += usize::from(host.is_some() && host_of(&user.address) == host);
            }
        }
        let rows = [
            ("this node", all, LOGINS_MAX),
            ("the volume", of_volume, VOLUME_LOGINS_MAX),
            ("your address", from_address, ADDRESS_LOGINS_MAX),
        ];
        match rows.into_iter().find(|(_, open, max)| open >= max) {
            Some((what, _, max)) => Err(OpenError::TooMany { what, max }),
            None => Ok(()),
        }
    }

    fn log_in_nbd(
        &mut self,
        at: usize,
        volume: VolumeNo,
        connection: ConnectionId,
        login: Login,
        rights: Rights,
        hello: Option<&Hello>,
    ) {
        self.replace_older(volume, login);
        let initiator = hello.map(|hello| hello.initiator.clone()).unwrap_or_default();
        let address = self.address_of(at);
        let since = self.now;
        let target = self.volumes.target(volume).expect("it is served");
        let host = address.rsplit_once(':').map_or(&address[..], |(host, _)| host);
        let what = format!("{} {host} {initiator}", target.record.name);
        if let Some(before) = self.complaints.due("client logs in", &what, since) {
            let volume = &target.record.name;
            info!(volume, initiator, address, before, "an NBD client logs in");
        }
        let user = User {
            asker: Asker::Nbd { line: at },
            protocol: Protocol::Nbd,
            initiator,
            address,
            login,
            rights,
            since,
            is_in: false,
            under_way: 0,
        };
        target.users.insert(connection, user);
        self.tell_target(volume, Event::Login { connection, login });
    }

    /// The target drops the older connection of a client when a newer one logs in, and never answers what
    /// waited there: so it is closed. What it has in the sequence is done before the login is answered (P9).
    fn replace_older(&mut self, volume: VolumeNo, login: Login) {
        let Some(target) = self.volumes.target(volume) else { return };
        let is_older =
            |user: &&User| user.login.client == login.client && user.login.number < login.number;
        let older: Vec<Asker> =
            target.users.values().filter(is_older).map(|user| user.asker).collect();
        for asker in older {
            match asker {
                Asker::Nbd { line } => {
                    self.close_line(line, "a newer connection of the client came");
                }
                // Its clients are others.
                Asker::Iscsi { .. } => {}
            }
        }
    }

    fn find_nbd(&self, name: &str) -> Result<VolumeNo, OpenError> {
        // Without a name whatever there is, if there is one: what clients expect of a default.
        let found = match name {
            "" => self.only_served(),
            name => self.volumes.served(name),
        };
        found.ok_or(OpenError::Unknown)
    }

    fn opened_nbd(&self, volume: VolumeNo, admitted: Admitted) -> Result<Opened, OpenError> {
        let export = self.export_of(volume).ok_or(OpenError::Unknown)?;
        let read_only = admitted.rights == Rights::Read;
        Ok(Opened { export: Export { read_only, ..export }, target_mac: admitted.target_mac })
    }

    fn only_served(&self) -> Option<VolumeNo> {
        let mut served = self.volumes.iter().filter(|(_, run)| run.target.is_some());
        let first = served.next().map(|(number, _)| number);
        if served.next().is_some() { None } else { first }
    }

    pub(super) fn with_nbd(&mut self, at: usize, act: impl FnOnce(&mut Shard, &mut NbdLine)) {
        let Some(line) = self.lines.get_mut(at) else { return };
        match std::mem::replace(&mut line.role, Role::Busy) {
            Role::Nbd(mut nbd) => {
                act(self, &mut nbd);
                self.carry_nbd(at, &mut nbd);
                self.put_back(at, Role::Nbd(nbd));
                self.go_on_reading(at);
            }
            other => self.put_back(at, other),
        }
    }

    pub(super) fn nbd_logged_in(
        &mut self,
        at: usize,
        volume: VolumeNo,
        result: Result<(), LoginError>,
    ) {
        let mut failed = false;
        self.with_nbd(at, |shard, nbd| {
            let Some(open) = nbd.open else { return };
            let opened = match result {
                Ok(()) => shard.opened_nbd(volume, open.admitted),
                Err(error) => Err(open_error(&error)),
            };
            failed = opened.is_err();
            if failed {
                nbd.open = None;
            }
            nbd.machine.opened(opened, &mut nbd.out);
        });
        if failed {
            // It may ask for something else, but not wait for ever before it does.
            self.await_proof(at);
        }
    }

    pub(super) fn nbd_replied(
        &mut self,
        at: usize,
        id: RequestId,
        result: Result<Answer, IoError>,
    ) {
        let Some(Role::Nbd(nbd)) = self.lines.get_mut(at).map(|line| &mut line.role) else {
            return;
        };
        let answered = nbd.splitter.answered(id, result, &mut self.reads);
        let Some((id, result)) = answered else { return };
        // What it gave back is for those who wait, before it asks again itself.
        self.unblock_reads();
        self.with_nbd(at, |shard, nbd| {
            if nbd.splitter.has_waiting() {
                shard.nbd_asks_on(at, nbd);
            }
            nbd.machine.answered(id, result, &mut nbd.out);
        });
    }

    /// Goes on with reads that waited for others to make room. `true`: they still wait.
    pub(super) fn nbd_unblocked(&mut self, at: usize) -> bool {
        if matches!(self.lines.get(at).map(|line| &line.role), Some(Role::Busy)) {
            self.reads.miss_turn();
            return true;
        }
        let mut is_blocked = false;
        self.with_nbd(at, |shard, nbd| is_blocked = shard.nbd_asks_on(at, nbd));
        is_blocked
    }

    pub(super) fn nbd_resized(&mut self, at: usize, size: ByteLen) {
        self.with_nbd(at, |_, nbd| nbd.machine.resized(size));
    }

    pub(super) fn nbd_lost(&mut self, at: usize, nbd: NbdLine) {
        nbd.splitter.end(Asker::Nbd { line: at }, &mut self.reads);
        self.unblock_reads();
        let Some(Open { volume, connection, .. }) = nbd.open else { return };
        if let Some(target) = self.volumes.target(volume)
            && target.users.remove(&connection).is_some()
        {
            self.tell_target(volume, Event::Gone { connection });
        }
    }
}

/// Where a client is that came over TCP, from its address with port.
fn host_of(address: &str) -> Option<&str> {
    address.rsplit_once(':').map(|(host, _)| host)
}

/// All connections of a host's client are of the same one, whatever node they come to. Plain clients have small
/// numbers, and initiators of iSCSI have less behind their names.
fn client_of(hello: &Hello) -> ClientId {
    let mut bytes = hello.initiator.as_bytes().to_vec();
    bytes.push(0);
    bytes.extend_from_slice(&hello.client.to_be_bytes());
    ClientId(block_hash(&bytes) | 1 << 63)
}

#[cfg(test)]
mod tests;
