//! iSCSI connections: the portal between sockets and disks, and each disk between the portal and its
//! target.
use std::collections::{HashMap, VecDeque};
use std::io;
use std::time::Duration;

use frontend::ask::{Ask, AskError, AskId};
use frontend::export::{OpenError, split_stage};
use frontend::iscsi::{
    Access, Chap, ConnNo, Event, Found, Limits, ManageId, Output, Portal, Secret, SessionNo,
    TargetRecord,
};
use frontend::scsi::words::{Command, InitiatorPort, NexusId, Response, Rights, Status};
use frontend::scsi::{Event as UnitEvent, Identity, Output as UnitOutput, Unit};
use replication::client::{Answer, ConnectionId, IoError, Login, LoginError, RequestId};
use replication::state::RESERVATIONS_MAX;
use replication::target::Event as TargetEvent;
use replication::words::{ClientId, ConnectionNumber, StageNumber};
use tracing::{error, info};

use super::Shard;
use super::access::unknown_credentials;
use super::asks::{Asker, Splitter, open_error};
use super::doors::Whom;
use super::lines::Role;
use super::pools::Payloads;
use super::status::Protocol;
use super::targets::User;
use super::volumes::VolumeNo;
use crate::net::socket::Socket;
use crate::random;
use crate::records::Credentials;

/// What stands before the name of a volume.
pub const IQN: &str = "iqn.2026-11.io.pollux:";

const PORTAL_GROUP: u16 = 1;

/// A session that is logged in, or about to be.
struct Nexus {
    volume: VolumeNo,
    connection: ConnectionId,
    session: SessionNo,
    port: InitiatorPort,
    /// Questions of its commands that the target has not answered. They go with the session: nothing is
    /// kept for answers that nobody waits for.
    splitter: Splitter,
}

/// A volume as a disk, for all its sessions.
pub struct DiskUnit {
    unit: Unit,
}

pub struct Iscsi {
    portal: Portal,
    lines: HashMap<ConnNo, usize>,
    nexuses: HashMap<NexusId, Nexus>,
    /// Between the portal and the queue; kept for its memory only.
    out: Vec<Output>,
    /// What the portal wants to have done, in order.
    queue: VecDeque<Output>,
    carrying: bool,
}

impl Default for Iscsi {
    fn default() -> Iscsi {
        let limits = Limits { portal_group: PORTAL_GROUP, ..Limits::default() };
        let portal = Portal::new(limits, Box::new(random::fill));
        Iscsi {
            portal,
            lines: HashMap::new(),
            nexuses: HashMap::new(),
            out: Vec::new(),
            queue: VecDeque::new(),
            carrying: false,
        }
    }
}

impl Iscsi {
    pub fn landing(&mut self, conn: ConnNo) -> &mut [u8] {
        self.portal.landing(conn)
    }

    pub fn is_unproved(&self, conn: ConnNo) -> bool {
        self.portal.is_unproved(conn)
    }

    /// Whether it is not logged in at a volume.
    pub fn has_no_session(&self, conn: ConnNo) -> bool {
        self.portal.nexus(conn).is_none()
    }

    /// Whether it wants to be told how much of what it sent is still unsent.
    pub fn watches_unsent(&self, conn: ConnNo) -> bool {
        self.portal.watches_unsent(conn)
    }

    pub fn wants_bytes(&self, conn: ConnNo) -> bool {
        self.portal.wants_bytes(conn)
    }
}

impl Shard {
    pub(super) fn add_iscsi(&mut self, socket: Socket) -> io::Result<usize> {
        let ends = socket.tcp().map(|tcp| (tcp.local_addr(), tcp.peer_addr()));
        let (portal, peer) = match ends {
            Some((Ok(portal), Ok(peer))) => (portal.to_string(), peer.ip().to_string()),
            // It is gone already.
            Some((_, Err(error)) | (Err(error), _)) => return Err(error),
            None => return Err(io::Error::other("iSCSI is served over TCP")),
        };
        let conn = ConnNo(self.numbers.next());
        let at = self.add_line(socket, Role::Iscsi(conn))?;
        self.iscsi.lines.insert(conn, at);
        self.step_portal(Event::Accepted { conn, portal, peer });
        Ok(at)
    }

    fn since_start(&self) -> Duration {
        Duration::from_micros(self.now.0)
    }

    pub(super) fn step_portal(&mut self, event: Event<'_>) {
        let now = self.since_start();
        let pool = self.payload_pool(None);
        let payloads = &mut Payloads(pool.map(|pool| &mut self.pools[pool].host));
        self.iscsi.portal.step(now, event, payloads, &mut self.iscsi.out);
        self.iscsi.queue.extend(self.iscsi.out.drain(..));
        if !std::mem::replace(&mut self.iscsi.carrying, true) {
            self.carry_portal();
            self.iscsi.carrying = false;
        }
    }

    /// What is carried may make the portal say more, which has its place behind what it said before:
    /// numbers on a connection grow.
    fn carry_portal(&mut self) {
        while let Some(output) = self.iscsi.queue.pop_front() {
            match output {
                Output::Send { conn, piece } => {
                    if let Some(at) = self.iscsi.lines.get(&conn).copied() {
                        self.send_piece(at, piece);
                    }
                }
                Output::Close { conn, reason } => self.close_iscsi(conn, reason),
                Output::List { conn, name } => {
                    let targets = match name {
                        None => self.iscsi_targets(),
                        Some(name) => self.iscsi_target(&name).into_iter().collect(),
                    };
                    self.step_portal(Event::Listed { conn, targets });
                }
                Output::Find { conn, name, initiator } => {
                    let result = self.find_iscsi(&name, &initiator);
                    self.step_portal(Event::Found { conn, result });
                }
                Output::Login { session, nexus, target, port, replaces } => {
                    self.login_iscsi((session, nexus), &target, port, replaces);
                }
                Output::Command { nexus, task, command } => {
                    self.scsi_command(nexus, task, command);
                }
                Output::Manage { nexus, id, lun, function } => {
                    let event = UnitEvent::Manage { nexus, id: id.0, lun, function };
                    if !self.tell_unit(nexus, event) {
                        let result = frontend::scsi::words::Managed::NoUnit;
                        self.step_portal(Event::Managed { nexus, id, result });
                    }
                }
                Output::Ended { nexus } => self.nexus_ended(nexus),
            }
        }
    }

    fn close_iscsi(&mut self, conn: ConnNo, reason: Option<frontend::iscsi::CloseReason>) {
        let Some(at) = self.iscsi.lines.remove(&conn) else { return };
        if let Some(reason) = &reason {
            self.complain(at, Whom::Initiator, &reason.to_string());
        }
        self.flush_line(at);
        self.close_line(at, "the session has ended");
    }

    pub(super) fn iscsi_lost(&mut self, conn: ConnNo) {
        if self.iscsi.lines.remove(&conn).is_some() {
            self.step_portal(Event::Lost { conn });
        }
    }

    fn iscsi_targets(&self) -> Vec<TargetRecord> {
        let names = self.served_names().into_iter();
        names
            .map(|name| TargetRecord { iqn: format!("{IQN}{name}"), portals: Vec::new() })
            .collect()
    }

    fn iscsi_target(&self, iqn: &str) -> Option<TargetRecord> {
        self.volume_of_iqn(iqn).0?;
        Some(TargetRecord { iqn: split_stage(iqn).0.into(), portals: Vec::new() })
    }

    fn volume_of_iqn(&self, name: &str) -> (Option<VolumeNo>, Option<u64>) {
        let (iqn, stage) = split_stage(name);
        let volume = iqn.strip_prefix(IQN).and_then(|name| self.volumes.served(name));
        (volume, stage)
    }

    fn find_iscsi(&mut self, name: &str, initiator: &str) -> Result<Found, OpenError> {
        let (found, stage) = self.volume_of_iqn(name);
        let volume = found.ok_or(OpenError::Unknown)?;
        self.admit_initiator(volume, initiator, stage)?;
        let target = self.volumes.get(volume).target.as_ref().ok_or(OpenError::Unknown)?;
        let known = match &target.record.access.credentials {
            Credentials::Nothing => None,
            Credentials::Chap(chap) => Some(chap),
            Credentials::Unknown => return Err(unknown_credentials()),
        };
        let chap = known.map(|chap| Chap {
            user: chap.user.clone(),
            secret: Secret::new(chap.secret.as_bytes()),
            mutual: chap
                .mutual
                .as_ref()
                .map(|(user, secret)| (user.clone(), Secret::new(secret.as_bytes()))),
        });
        Ok(Found { access: Access { chap } })
    }

    fn login_iscsi(
        &mut self,
        (session, nexus): (SessionNo, NexusId),
        target: &str,
        port: InitiatorPort,
        replaces: Option<NexusId>,
    ) {
        // What the older session has under way is dropped or finished before this one begins (P9).
        if let Some(older) = replaces {
            self.nexus_ended(older);
        }
        let (found, stage) = self.volume_of_iqn(target);
        let found = found.ok_or(OpenError::Unknown);
        // Once more: what the volume's record says may have changed since the login began.
        let admitted = found.and_then(|volume| {
            self.admit_initiator(volume, &port.name, stage).map(|rights| (volume, rights))
        });
        let (volume, rights) = match admitted {
            Ok(admitted) => admitted,
            Err(error) => {
                let result = Err(error);
                return self.step_portal(Event::LoggedIn { session, result });
            }
        };
        let connection = ConnectionId(self.numbers.next());
        let login = Login {
            client: client_of(&port),
            number: ConnectionNumber(self.numbers.next()),
            stage: stage.map(StageNumber),
        };
        let since = self.now;
        let target = self.volumes.target(volume).expect("it is served");
        let (volume_name, initiator) = (&target.record.name, &port.name);
        let what = format!("{volume_name} {initiator}");
        if let Some(before) = self.complaints.due("initiator logs in", &what, since) {
            info!(volume = volume_name, initiator, before, "an iSCSI initiator logs in");
        }
        let user = User {
            asker: Asker::Iscsi { nexus },
            protocol: Protocol::Iscsi,
            initiator: port.name.clone(),
            address: String::new(),
            login,
            rights,
            since,
            is_in: false,
            under_way: 0,
        };
        target.users.insert(connection, user);
        let splitter = Splitter::default();
        self.iscsi.nexuses.insert(nexus, Nexus { volume, connection, session, port, splitter });
        self.tell_target(volume, TargetEvent::Login { connection, login });
    }

    pub(super) fn iscsi_logged_in(
        &mut self,
        nexus: NexusId,
        volume: VolumeNo,
        result: Result<(), LoginError>,
    ) {
        let Some(known) = self.iscsi.nexuses.get(&nexus) else { return };
        let (session, port, connection) = (known.session, known.port.clone(), known.connection);
        let result = match result {
            Ok(()) => self.ensure_unit(volume),
            Err(error) => Err(open_error(&error)),
        };
        match &result {
            Ok(()) => {
                let users = self.volumes.target(volume).map(|target| &target.users);
                let user = users.and_then(|users| users.get(&connection));
                let rights = user.map_or(Rights::Read, |user| user.rights);
                self.tell_unit(nexus, UnitEvent::NexusUp { nexus, port, rights });
            }
            // It has asked nothing.
            Err(_) => {
                self.iscsi.nexuses.remove(&nexus);
            }
        }
        self.step_portal(Event::LoggedIn { session, result });
    }

    /// The disk of a volume; made with the first session.
    fn ensure_unit(&mut self, volume: VolumeNo) -> Result<(), OpenError> {
        let export = self.export_of(volume).ok_or(OpenError::Unknown)?;
        let target = self.volumes.target(volume).ok_or(OpenError::Unknown)?;
        if target.unit.is_some() {
            return Ok(());
        }
        let identity = Identity {
            vendor: "POLLUX".into(),
            product: "Replicated disk".into(),
            revision: env!("CARGO_PKG_VERSION").chars().take(4).collect(),
            iqn: format!("{IQN}{}", export.name),
            portal_group: PORTAL_GROUP,
        };
        let kept = target.machine.reservations();
        match Unit::new(export, identity, kept, RESERVATIONS_MAX) {
            Ok(unit) => {
                target.unit = Some(Box::new(DiskUnit { unit }));
                Ok(())
            }
            Err(bad) => {
                error!(volume = target.record.name, %bad, "its reservations cannot be read");
                Err(OpenError::NotReady { reason: bad.to_string() })
            }
        }
    }

    fn scsi_command(
        &mut self,
        nexus: NexusId,
        task: frontend::scsi::words::TaskId,
        command: Command,
    ) {
        if !self.tell_unit(nexus, UnitEvent::Command { nexus, task, command }) {
            // The target has moved: the session is about to be asked to log out.
            let response = Response {
                status: Status::Busy,
                sense: Vec::new(),
                data_in: Vec::new(),
                took_out: 0,
            };
            self.step_portal(Event::Response { nexus, task, response });
        }
    }

    /// Whether there is a disk behind a session.
    fn tell_unit(&mut self, nexus: NexusId, event: UnitEvent) -> bool {
        let Some(volume) = self.iscsi.nexuses.get(&nexus).map(|nexus| nexus.volume) else {
            return false;
        };
        self.step_unit(volume, event)
    }

    pub(super) fn step_unit(&mut self, volume: VolumeNo, event: UnitEvent) -> bool {
        let pool = self.payload_pool(Some(volume));
        let Some(target) = self.volumes.target(volume) else { return false };
        let Some(mut disk) = target.unit.take() else { return false };
        let payloads = &mut Payloads(pool.map(|pool| &mut self.pools[pool].host));
        let mut out = Vec::new();
        disk.unit.step(event, payloads, &mut out);
        let mut done = Vec::new();
        for output in out {
            match output {
                UnitOutput::Ask { nexus, id, ask } => self.unit_asks(nexus, id, ask),
                other => done.push(other),
            }
        }
        if let Some(target) = self.volumes.target(volume) {
            target.unit = Some(disk);
        }
        for output in done {
            match output {
                UnitOutput::Done { nexus, task, response } => {
                    self.step_portal(Event::Response { nexus, task, response });
                }
                UnitOutput::Managed { nexus, id, result } => {
                    self.step_portal(Event::Managed { nexus, id: ManageId(id), result });
                }
                UnitOutput::Ask { .. } => unreachable!("questions were taken out"),
            }
        }
        true
    }

    fn unit_asks(&mut self, nexus: NexusId, id: AskId, ask: Ask) {
        let Some(known) = self.iscsi.nexuses.get_mut(&nexus) else { return };
        known.splitter.submit(id, ask);
        self.iscsi_asks(nexus);
    }

    /// Asks the target what a session has to ask, as far as its reads have room. `true`: it waits for others.
    pub(super) fn iscsi_asks(&mut self, nexus: NexusId) -> bool {
        let Some(known) = self.iscsi.nexuses.get_mut(&nexus) else { return false };
        let (volume, connection) = (known.volume, known.connection);
        let Some(target) = self.volumes.target(volume) else { return false };
        let mut asked = 0;
        let asker = Asker::Iscsi { nexus };
        let is_blocked = known.splitter.ask(asker, &mut self.reads, |id, request| {
            asked += 1;
            target.events.push(TargetEvent::Request { connection, id, request });
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

    pub(super) fn iscsi_replied(
        &mut self,
        nexus: NexusId,
        id: RequestId,
        result: Result<Answer, IoError>,
    ) {
        let Some(known) = self.iscsi.nexuses.get_mut(&nexus) else { return };
        let volume = known.volume;
        let Some((id, result)) = known.splitter.answered(id, result, &mut self.reads) else {
            return;
        };
        // What it gave back is for those who wait, before it asks again itself.
        let has_waiting = known.splitter.has_waiting();
        self.unblock_reads();
        if has_waiting {
            self.iscsi_asks(nexus);
        }
        self.step_unit(volume, UnitEvent::Answered { id, result });
    }

    /// A session is over. What it asked was given its place in the sequence or is dropped with the
    /// connection; either way nothing that is asked later comes before it, so the disk may take it
    /// for answered.
    fn nexus_ended(&mut self, nexus: NexusId) {
        let Some(known) = self.iscsi.nexuses.remove(&nexus) else { return };
        let Nexus { volume, connection, splitter, .. } = known;
        let asks = splitter.end(Asker::Iscsi { nexus }, &mut self.reads);
        if let Some(target) = self.volumes.target(volume)
            && target.users.remove(&connection).is_some()
        {
            self.tell_target(volume, TargetEvent::Gone { connection });
        }
        self.step_unit(volume, UnitEvent::NexusLost { nexus });
        for id in asks {
            self.step_unit(volume, UnitEvent::Answered { id, result: Err(AskError::Superseded) });
        }
        self.unblock_reads();
    }

    /// The target is gone: its sessions log in elsewhere.
    pub(super) fn iscsi_turn_away(&mut self, nexus: NexusId, name: &str) {
        if let Some(known) = self.iscsi.nexuses.remove(&nexus) {
            known.splitter.end(Asker::Iscsi { nexus }, &mut self.reads);
        }
        self.step_portal(Event::Drain { iqn: format!("{IQN}{name}") });
        // Its memory is free: logins of other volumes may wait for that alone.
        self.unblock_reads();
    }

    /// Once a second is often enough for the portal.
    pub(super) fn tick_iscsi(&mut self) {
        self.step_portal(Event::Tick);
    }
}

/// The same initiator port is the same client, whichever connection it comes over.
fn client_of(port: &InitiatorPort) -> ClientId {
    let mut bytes = port.name.as_bytes().to_vec();
    bytes.push(0);
    bytes.extend_from_slice(&port.isid);
    ClientId(block_hash(&bytes) | 1 << 63)
}

/// Any good spread will do: names are not secret, and a client that imitates another one only
/// replaces its sessions, which logging in as it does anyway. Plain clients of NBD have small numbers.
pub fn block_hash(bytes: &[u8]) -> u64 {
    use std::hash::{DefaultHasher, Hasher};
    let mut hasher = DefaultHasher::new();
    hasher.write(bytes);
    hasher.finish()
}
