//! One connection: what waits to be sent, and reading with as few system calls as there can be.
//!
//! Nothing blocks. What is pushed goes out with the next [`Socket::flush`], in one call for as many
//! pieces as the kernel takes; received bytes land in the payload that is under way first, and in
//! the owner's scratch memory behind it, in one call as well. With TLS all of that holds, and the
//! scratch memory carries what is encrypted on its way.
use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::time::Duration;

use certs::session::{Session, SessionError};
use certs::{Name, PeerError};
use frontend::piece::Piece;
use mio::event::Source;
use mio::net::{TcpStream, UnixStream};
use mio::{Interest, Registry, Token};
use rustix::net::sockopt;

use super::outbox::Outbox;
use super::secure::Secure;

/// Pieces of one call. The kernel takes up to 1,024; more than this is seldom there at once.
const GATHER: usize = 64;

/// A payload that is copied at a price: where the last one was no shorter, only as much is read
/// beside the landing as the next header needs for sure, so that the next payload lands as well.
const LARGE: usize = 32 << 10;
const NARROW: usize = 8 << 10;

/// When somebody is gone who did not say so: as an initiator that is asked after 30 s whether it lives, and
/// given up after 60 s. Clients of NBD cannot be asked, so the kernel does it, every 10 s from then on.
const IDLE: Duration = Duration::from_secs(30);
const PROBE_EVERY: Duration = Duration::from_secs(10);
const PROBES: u32 = 3;
/// The same where something waits to be taken, and there is no silence: otherwise that takes a quarter of
/// an hour. Who lives and does not read for so long is gone as well.
const UNTAKEN_MAX_MS: u32 = 60_000;

#[derive(Debug)]
pub enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Stream {
    /// For a connection that somebody else made: nothing waits to be joined with more, and the kernel sees
    /// to it that a machine that vanished is noticed.
    pub fn prepare(&self) -> io::Result<()> {
        let Stream::Tcp(tcp) = self else { return Ok(()) };
        tcp.set_nodelay(true)?;
        sockopt::set_socket_keepalive(tcp, true)?;
        sockopt::set_tcp_keepidle(tcp, IDLE)?;
        sockopt::set_tcp_keepintvl(tcp, PROBE_EVERY)?;
        sockopt::set_tcp_keepcnt(tcp, PROBES)?;
        Ok(sockopt::set_tcp_user_timeout(tcp, UNTAKEN_MAX_MS)?)
    }

    pub fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.read_vectored(&mut [IoSliceMut::new(into)])
    }

    fn read_vectored(&mut self, into: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        loop {
            let read = match self {
                Stream::Tcp(stream) => stream.read_vectored(into),
                Stream::Unix(stream) => stream.read_vectored(into),
            };
            match read {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                other => return other,
            }
        }
    }

    pub fn write(&mut self, from: &[u8]) -> io::Result<usize> {
        self.write_vectored(&[IoSlice::new(from)])
    }

    fn write_vectored(&mut self, from: &[IoSlice<'_>]) -> io::Result<usize> {
        match self {
            Stream::Tcp(stream) => stream.write_vectored(from),
            Stream::Unix(stream) => stream.write_vectored(from),
        }
    }
}

/// What a read brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Got {
    Bytes {
        landed: usize,
        scratch: usize,
        /// There may be more to read at once.
        more: bool,
    },
    /// Nothing more for now.
    Nothing,
    /// The other side has closed.
    End,
}

#[derive(Debug)]
pub struct Socket {
    stream: Stream,
    outbox: Outbox,
    /// The last payload was large.
    narrow: bool,
    secure: Option<Box<Secure>>,
}

impl Socket {
    pub fn new(stream: Stream) -> Socket {
        Socket { stream, outbox: Outbox::default(), narrow: false, secure: None }
    }

    /// Whatever is pushed waits until the handshake is over.
    pub fn secured(stream: Stream, session: Session) -> Result<Socket, SessionError> {
        let secure = Some(Box::new(Secure::new(session)?));
        Ok(Socket { stream, outbox: Outbox::default(), narrow: false, secure })
    }

    pub fn tcp(&self) -> Option<&TcpStream> {
        match &self.stream {
            Stream::Tcp(stream) => Some(stream),
            Stream::Unix(_) => None,
        }
    }

    /// Who the other side has proved to be; `None` where nobody has to.
    pub fn peer(&self) -> Option<Result<Name, PeerError>> {
        self.secure.as_ref().map(|secure| secure.peer())
    }

    /// Whether no handshake is to be done any more.
    pub fn is_ready(&self) -> bool {
        self.secure.as_ref().is_none_or(|secure| secure.is_ready())
    }

    /// Whether anything has come for which a handshake has to be done; always, where there is none.
    pub fn is_begun(&self) -> bool {
        self.secure.as_ref().is_none_or(|secure| secure.is_begun())
    }

    pub fn register(&mut self, registry: &Registry, token: Token) -> io::Result<()> {
        let both = Interest::READABLE | Interest::WRITABLE;
        match &mut self.stream {
            Stream::Tcp(stream) => stream.register(registry, token, both),
            Stream::Unix(stream) => stream.register(registry, token, both),
        }
    }

    /// Bytes that wait to be sent.
    pub fn queued(&self) -> usize {
        self.outbox.len() + self.secure.as_ref().map_or(0, |secure| secure.unsent())
    }

    pub fn push(&mut self, piece: Piece) {
        self.outbox.push(piece);
    }

    /// Sends until everything is out or the kernel takes no more.
    pub fn flush(&mut self, scratch: &mut [u8]) -> io::Result<()> {
        if let Some(secure) = &mut self.secure {
            return secure.flush(&mut self.stream, &mut self.outbox, scratch);
        }
        while !self.outbox.is_empty() {
            let mut slices: [IoSlice<'_>; GATHER] = std::array::from_fn(|_| IoSlice::new(&[]));
            let count = self.outbox.slices(&mut slices);
            match self.stream.write_vectored(&slices[..count]) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => self.outbox.forget(written),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// What is wrong with the other side's TLS is an error of the kind `InvalidData`.
    pub fn read(&mut self, landing: &mut [u8], scratch: &mut [u8]) -> io::Result<Got> {
        if let Some(secure) = &mut self.secure {
            return secure.read(&mut self.stream, landing, scratch);
        }
        let room = landing.len();
        if room > 0 {
            self.narrow = room >= LARGE;
        }
        let whole = if self.narrow { scratch.len().min(NARROW) } else { scratch.len() };
        let scratch = &mut scratch[..whole];
        let slices = &mut [IoSliceMut::new(landing), IoSliceMut::new(scratch)];
        let slices = if room == 0 { &mut slices[1..] } else { &mut slices[..] };
        match self.stream.read_vectored(slices) {
            Ok(0) => Ok(Got::End),
            Ok(got) => {
                let landed = got.min(room);
                let scratch = got - landed;
                // Who got less than there was room for has all of it; what comes now is announced.
                Ok(Got::Bytes { landed, scratch, more: got == room + whole })
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(Got::Nothing),
            Err(error) => Err(error),
        }
    }
}

#[cfg(test)]
pub(crate) mod tests;
