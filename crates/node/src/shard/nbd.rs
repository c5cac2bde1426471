//! NBD connections: the protocol's machine between a socket and a target.
use std::io;

use block::ByteLen;
use frontend::export::{Export, OpenError, split_stage};
use frontend::nbd::{Connection, Output};
use replication::client::Answer;
use replication::client::{ConnectionId, IoError, Login, LoginError, RequestId};
use replication::target::Event;
use replication::words::{ClientId, ConnectionNumber, StageNumber};
use tracing::info;

use super::Shard;
use super::asks::{Asker, Splitter, open_error};
use super::doors::Whom;
use super::lines::Role;
use super::pools::Payloads;
use super::status::Protocol;
use super::targets::User;
use super::volumes::VolumeNo;
use crate::net::socket::Socket;

pub struct NbdLine {
    pub machine: Connection,
    /// The volume that it has open, and the connection by which the target knows it.
    open: Option<(VolumeNo, ConnectionId)>,
    splitter: Splitter,
    out: Vec<Output>,
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
        let machine = Connection::new(&mut out);
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
        let volume = nbd.open.map(|(volume, _)| volume);
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

    fn carry_nbd(&mut self, at: usize, nbd: &mut NbdLine) {
        let mut out = std::mem::take(&mut nbd.out);
        loop {
            for output in out.drain(..) {
                match output {
                    Output::Send(piece) => self.send_piece(at, piece),
                    Output::List => {
                        let names = self.served_names();
                        nbd.machine.listed(&names, &mut nbd.out);
                    }
                    Output::Open { name, for_use } => self.open_nbd(at, nbd, &name, for_use),
                    Output::Ask { id, ask } => self.nbd_asks(nbd, id, ask),
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

    fn nbd_asks(&mut self, nbd: &mut NbdLine, id: frontend::ask::AskId, ask: frontend::ask::Ask) {
        let Some((volume, connection)) = nbd.open else { return };
        let target = self.volumes.target(volume);
        let Some(target) = target else {
            let stopped = Err(frontend::ask::AskError::Stopped);
            return nbd.machine.answered(id, stopped, &mut nbd.out);
        };
        let mut asked = 0;
        nbd.splitter.split(id, ask, |id, request| {
            asked += 1;
            target.events.push(Event::Request { connection, id, request });
        });
        if let Some(user) = target.users.get_mut(&connection) {
            user.under_way += asked;
        }
        self.volumes.wake(volume);
    }

    pub(super) fn served_names(&self) -> Vec<String> {
        let targets = self.volumes.iter().filter_map(|(_, run)| run.target.as_ref());
        targets.map(|target| target.record.name.clone()).collect()
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

    fn open_nbd(&mut self, at: usize, nbd: &mut NbdLine, name: &str, for_use: bool) {
        let (name, stage) = split_stage(name);
        // Without a name whatever there is, if there is one: what clients expect of a default.
        let found = match name {
            "" => self.only_served(),
            name => self.volumes.served(name),
        };
        let Some(volume) = found else {
            let reason = format!("volume {name:?} is not served here");
            self.complain(at, Whom::Client, &reason);
            return nbd.machine.opened(Err(OpenError::Unknown), &mut nbd.out);
        };
        let rights = match self.admit_client(volume, at) {
            Ok(rights) => rights,
            Err(denied) => {
                self.complain(at, Whom::Client, &format!("volume {name:?}: {denied}"));
                return nbd.machine.opened(Err(denied), &mut nbd.out);
            }
        };
        if !for_use {
            let export = self.export_of(volume).ok_or(OpenError::Unknown);
            return nbd.machine.opened(export, &mut nbd.out);
        }
        let connection = ConnectionId(self.numbers.next());
        nbd.open = Some((volume, connection));
        // Several connections of one client are as good as several clients: each sends only what
        // it may send beside the others.
        let login = Login {
            client: ClientId(connection.0),
            number: ConnectionNumber(1),
            stage: stage.map(StageNumber),
        };
        let address = self.address_of(at);
        let since = self.now;
        let target = self.volumes.target(volume).expect("it is served");
        let host = address.rsplit_once(':').map_or(&address[..], |(host, _)| host);
        let what = format!("{} {host}", target.record.name);
        if let Some(before) = self.complaints.due("client logs in", &what, since) {
            info!(volume = target.record.name, address, before, "an NBD client logs in");
        }
        let user = User {
            asker: Asker::Nbd { line: at },
            protocol: Protocol::Nbd,
            initiator: String::new(),
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

    fn only_served(&self) -> Option<VolumeNo> {
        let mut served = self.volumes.iter().filter(|(_, run)| run.target.is_some());
        let first = served.next().map(|(number, _)| number);
        if served.next().is_some() { None } else { first }
    }

    fn with_nbd(&mut self, at: usize, act: impl FnOnce(&mut Shard, &mut NbdLine)) {
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
        let export = match result {
            Ok(()) => self.export_of(volume).ok_or(OpenError::Unknown),
            Err(error) => Err(open_error(&error)),
        };
        let failed = export.is_err();
        self.with_nbd(at, |_, nbd| {
            if failed {
                nbd.open = None;
            }
            nbd.machine.opened(export, &mut nbd.out);
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
        self.with_nbd(at, |_, nbd| {
            if let Some((id, result)) = nbd.splitter.answered(id, result) {
                nbd.machine.answered(id, result, &mut nbd.out);
            }
        });
    }

    pub(super) fn nbd_resized(&mut self, at: usize, size: ByteLen) {
        self.with_nbd(at, |_, nbd| nbd.machine.resized(size));
    }

    pub(super) fn nbd_lost(&mut self, nbd: &NbdLine) {
        let Some((volume, connection)) = nbd.open else { return };
        if let Some(target) = self.volumes.target(volume)
            && target.users.remove(&connection).is_some()
        {
            self.tell_target(volume, Event::Gone { connection });
        }
    }
}
