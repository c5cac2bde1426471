//! Links to replicas and targets of other nodes.
use std::io;
use std::net::SocketAddr;

use certs::Name;
use frontend::piece::Piece;
use mio::net::TcpStream;
use replication::message::{Encoded, decode_parts_to_replica, decode_parts_to_target};
use replication::replica::{Event as ReplicaEvent, LinkId};
use replication::target::Event as TargetEvent;
use replication::words::{NodeId, ReplicaId};
use tracing::{debug, warn};

use super::Shard;
use super::doors::Whom;
use super::lines::Role;
use super::replicas::End;
use super::targets::Link;
use super::volumes::VolumeNo;
use crate::net::frames::{Frame, Frames};
use crate::net::greeting::{Answered, CALL_LEN, Call, Stranger, answer};
use crate::net::socket::{Socket, Stream};

/// A connection that a target of this node made.
#[derive(Debug)]
pub struct Outgoing {
    pub node: NodeId,
    pub volume: VolumeNo,
    pub replica: ReplicaId,
    pub link: LinkId,
    pub stage: Stage,
}

#[derive(Debug)]
pub enum Stage {
    Connecting,
    Greeting(Answered),
    Up(Frames),
}

/// A connection that a target of another node made.
#[derive(Debug)]
pub enum Incoming {
    Greeting(Vec<u8>),
    Up { volume: VolumeNo, link: LinkId, frames: Frames },
}

impl Shard {
    pub(super) fn call(
        &mut self,
        number: VolumeNo,
        replica: ReplicaId,
        node: NodeId,
        link: LinkId,
    ) {
        let Some(address) = self.nodes.get(&node).copied() else {
            return debug!(%node, "the catalog does not tell yet where the node is");
        };
        if !self.may_call(node) {
            return debug!(%node, "enough calls to the node wait for their answer");
        }
        let outgoing = Outgoing { node, volume: number, replica, link, stage: Stage::Connecting };
        match self.dial(address, outgoing) {
            Ok(line) => {
                if let Some(target) = self.volumes.target(number) {
                    target.calling.insert(replica, line);
                }
            }
            Err(error) => debug!(%node, %address, %error, "a peer cannot be called"),
        }
    }

    fn dial(&mut self, address: SocketAddr, outgoing: Outgoing) -> io::Result<usize> {
        let node = outgoing.node;
        let socket = match &self.config.tls {
            None if !address.ip().is_loopback() => {
                let reason = "it is another machine, and this node was started without --tls";
                if self.complaints.due("called", &format!("{node} {reason}"), self.now).is_some() {
                    warn!(%node, %address, reason, "a peer is not called");
                }
                return Err(io::Error::other(reason));
            }
            None => Socket::new(dial(address)?),
            Some(sessions) => {
                let session = sessions.call(&Name::node(node.0)).map_err(io::Error::other)?;
                Socket::secured(dial(address)?, session).map_err(io::Error::other)?
            }
        };
        let at = self.add_line(socket, Role::Outgoing(outgoing))?;
        self.await_proof(at);
        Ok(at)
    }

    /// The socket can be written for the first time: it is connected, or it never will be.
    pub(super) fn dialled(&mut self, at: usize) {
        let from = self.config.node;
        let Some(line) = self.lines.get_mut(at) else { return };
        let Role::Outgoing(outgoing) = &mut line.role else { return };
        if !matches!(outgoing.stage, Stage::Connecting) {
            return;
        }
        let tcp = line.socket.tcp().expect("peers are called by TCP");
        match tcp.take_error().and_then(|error| error.map_or(Ok(()), Err)).and(tcp.peer_addr()) {
            Ok(_) => {
                outgoing.stage = Stage::Greeting(Answered::default());
                let (volume, replica) = (outgoing.volume, outgoing.replica);
                let volume = self.volumes.get(volume).uid;
                let call = Call { from, volume, replica };
                self.send_piece(at, Piece::Bytes(call.to_bytes()));
            }
            Err(error) if error.kind() == io::ErrorKind::NotConnected => {}
            Err(error) => self.close_line(at, &error.to_string()),
        }
    }

    pub(super) fn outgoing_received(&mut self, at: usize, outgoing: &mut Outgoing, bytes: &[u8]) {
        let mut rest = bytes;
        if let Stage::Greeting(answered) = &mut outgoing.stage {
            match answered.receive(bytes) {
                Ok(None) => return,
                Ok(Some(used)) => {
                    rest = &bytes[used..];
                    outgoing.stage = Stage::Up(Frames::default());
                    self.link_is_up(at, outgoing);
                }
                Err(stranger) => {
                    self.complain(at, Whom::Called(outgoing.node), &stranger.to_string());
                    return self.close_line(at, &stranger.to_string());
                }
            }
        }
        let Stage::Up(frames) = &mut outgoing.stage else {
            return self.close_line(at, "a peer spoke before it was called");
        };
        let mut got = Vec::new();
        let mut take = self.memory(Some(outgoing.volume));
        let received = frames.receive(rest, &mut take, &mut got);
        drop(take);
        self.outgoing_frames(at, outgoing, got);
        if let Err(malformed) = received {
            warn!(%malformed, "a replica's connection is closed");
            self.close_line(at, &malformed.to_string());
        }
    }

    fn link_is_up(&mut self, at: usize, outgoing: &Outgoing) {
        let Outgoing { volume, replica, link, .. } = *outgoing;
        let Some(target) = self.volumes.target(volume) else { return };
        target.calling.remove(&replica);
        target.links.insert(link, Link { replica, end: End::Line(at) });
        self.tell_target(volume, TargetEvent::LinkUp { replica, link });
    }

    pub(super) fn outgoing_frames(&mut self, at: usize, outgoing: &Outgoing, frames: Vec<Frame>) {
        let Outgoing { volume, replica, link, .. } = *outgoing;
        for (front, data) in frames {
            match decode_parts_to_target(&front, data) {
                Ok(message) => {
                    self.tell_target(volume, TargetEvent::Message { replica, link, message });
                }
                Err(malformed) => {
                    warn!(%malformed, "a replica's connection is closed");
                    return self.close_line(at, &malformed.to_string());
                }
            }
        }
    }

    pub(super) fn incoming_received(&mut self, at: usize, incoming: &mut Incoming, bytes: &[u8]) {
        let mut rest = bytes;
        if let Incoming::Greeting(have) = incoming {
            let (now, later) = bytes.split_at(bytes.len().min(CALL_LEN - have.len()));
            have.extend_from_slice(now);
            let greeted = match have.first_chunk::<CALL_LEN>() {
                Some(call) => self.greeted(at, call).map(Some),
                None => Call::check_begin(have).map(|()| None).map_err(|it| it.to_string()),
            };
            match greeted {
                Ok(None) => return,
                Ok(Some(up)) => *incoming = up,
                Err(reason) => return self.refuse_call(at, &reason),
            }
            rest = later;
        }
        let Incoming::Up { volume, frames, .. } = incoming else {
            unreachable!("whoever was greeted is up")
        };
        let mut got = Vec::new();
        let mut take = self.memory(Some(*volume));
        let received = frames.receive(rest, &mut take, &mut got);
        drop(take);
        self.incoming_frames(at, incoming, got);
        if let Err(malformed) = received {
            warn!(%malformed, "a target's connection is closed");
            self.close_line(at, &malformed.to_string());
        }
    }

    fn refuse_call(&mut self, at: usize, reason: &str) {
        self.complain(at, Whom::Caller, reason);
        self.send_piece(at, Piece::Bytes(answer(Some(reason))));
        self.close_line(at, reason);
    }

    fn greeted(&mut self, at: usize, call: &[u8; CALL_LEN]) -> Result<Incoming, String> {
        let call = Call::from_bytes(call).map_err(|stranger: Stranger| stranger.to_string())?;
        self.check_name(at, call.from)?;
        let link = LinkId(self.numbers.next());
        let number = self.volumes.known(call.volume);
        let replica = number.and_then(|number| self.volumes.replica(number));
        let (Some(volume), Some(replica)) = (number, replica) else {
            return Err("the volume has no replica here".into());
        };
        replica.links.insert(link, End::Line(at));
        self.send_piece(at, Piece::Bytes(answer(None)));
        Ok(Incoming::Up { volume, link, frames: Frames::default() })
    }

    /// A name is proved: whoever calls as a node has its certificate.
    fn check_name(&self, at: usize, from: NodeId) -> Result<(), String> {
        match self.lines.get(at).and_then(|line| line.socket.peer()) {
            None => Ok(()),
            Some(Ok(name)) if name.node_id() == Some(from.0) => Ok(()),
            Some(Ok(name)) => {
                Err(format!("it calls as node {}, and its certificate is that of {name}", from.0))
            }
            Some(Err(error)) => Err(error.to_string()),
        }
    }

    pub(super) fn incoming_frames(&mut self, at: usize, incoming: &Incoming, frames: Vec<Frame>) {
        let Incoming::Up { volume, link, .. } = *incoming else { return };
        for (front, data) in frames {
            match decode_parts_to_replica(&front, data) {
                Ok(message) => self.tell_replica(volume, ReplicaEvent::Message { link, message }),
                Err(malformed) => {
                    warn!(%malformed, "a target's connection is closed");
                    return self.close_line(at, &malformed.to_string());
                }
            }
        }
    }

    pub(super) fn send_frame(&mut self, at: usize, frame: Encoded) {
        self.send_piece(at, Piece::Bytes(frame.front));
        frame.data.into_iter().for_each(|data| self.send_piece(at, Piece::Data(data)));
    }

    pub(super) fn outgoing_lost(&mut self, outgoing: &Outgoing) {
        let Outgoing { volume, replica, link, .. } = *outgoing;
        let Some(target) = self.volumes.target(volume) else { return };
        if target.links.remove(&link).is_some() {
            self.tell_target(volume, TargetEvent::LinkLost { replica, link });
        } else {
            target.calling.remove(&replica);
        }
    }

    pub(super) fn incoming_lost(&mut self, incoming: &Incoming) {
        let Incoming::Up { volume, link, .. } = *incoming else { return };
        let known = self.volumes.replica(volume).and_then(|replica| replica.links.remove(&link));
        if known.is_some() {
            self.tell_replica(volume, ReplicaEvent::LinkLost { link });
        }
    }
}

fn dial(address: SocketAddr) -> io::Result<Stream> {
    let stream = TcpStream::connect(address)?;
    stream.set_nodelay(true)?;
    Ok(Stream::Tcp(stream))
}
