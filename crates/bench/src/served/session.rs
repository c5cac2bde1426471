//! One connection of the load to a server, whatever it speaks.
use std::io::{ErrorKind, Read};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};

use super::content::Content;
use super::outbox::Outbox;
use crate::load::Step;

const DIAL: Duration = Duration::from_secs(5);

/// A server that says nothing for so long is broken.
const SILENCE_MAX: Duration = Duration::from_secs(30);

/// What is taken from the kernel at once, at the most.
const INBOX: usize = 1 << 20;

/// What is said on a connection after its beginning. A lane has one step under way at a time.
pub trait Protocol {
    /// Says it now, or as soon as the server allows it.
    fn begin(&mut self, lane: usize, step: Step, out: &mut Outbox);

    /// Takes what came, as far as it is complete, and tells how many bytes that was. Lanes whose
    /// step is over are added to `done`.
    fn take(&mut self, bytes: &[u8], out: &mut Outbox, done: &mut Vec<usize>) -> Result<usize>;

    /// The last words.
    fn farewell(&mut self, out: &mut Outbox);

    /// Bytes that the server offers.
    fn size(&self) -> u64;
}

/// Whether to wait for something to come.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Patience {
    Wait,
    Look,
}

pub struct Session {
    stream: TcpStream,
    protocol: Box<dyn Protocol>,
    outbox: Outbox,
    inbox: Box<[u8]>,
    /// Bytes of the inbox that were not taken yet.
    kept: usize,
}

/// A connection on which nothing was said yet.
pub fn dial(at: SocketAddr) -> Result<TcpStream> {
    let stream = TcpStream::connect_timeout(&at, DIAL).with_context(|| format!("dialling {at}"))?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(SILENCE_MAX))?;
    stream.set_write_timeout(Some(SILENCE_MAX))?;
    Ok(stream)
}

pub fn exactly<const N: usize>(stream: &mut impl Read) -> Result<[u8; N]> {
    let mut bytes = [0; N];
    stream.read_exact(&mut bytes)?;
    Ok(bytes)
}

impl Session {
    pub fn new(stream: TcpStream, protocol: Box<dyn Protocol>, content: Content) -> Session {
        let (outbox, inbox) = (Outbox::new(content), vec![0; INBOX].into());
        Session { stream, protocol, outbox, inbox, kept: 0 }
    }

    pub fn size(&self) -> u64 {
        self.protocol.size()
    }

    /// It leaves with the next [`Session::send`].
    pub fn begin(&mut self, lane: usize, step: Step) {
        self.protocol.begin(lane, step, &mut self.outbox);
    }

    pub fn send(&mut self) -> Result<()> {
        self.outbox.send(&mut self.stream).context("the server does not take requests")
    }

    /// Takes what came.
    pub fn receive(&mut self, patience: Patience, done: &mut Vec<usize>) -> Result<()> {
        let flags = match patience {
            Patience::Wait => RecvFlags::empty(),
            Patience::Look => RecvFlags::DONTWAIT,
        };
        let came = match recv(&self.stream, &mut self.inbox[self.kept..], flags) {
            Ok((0, _)) => bail!("the server hung up"),
            Ok((came, _)) => came,
            Err(Errno::AGAIN) if patience == Patience::Look => return Ok(()),
            Err(Errno::INTR) => return Ok(()),
            Err(Errno::AGAIN) => bail!("no answer within {SILENCE_MAX:?}"),
            Err(error) => return Err(error).context("the connection is gone"),
        };
        let full = self.kept + came;
        let taken = self.protocol.take(&self.inbox[..full], &mut self.outbox, done)?;
        ensure!(taken > 0 || full < INBOX, "an answer without an end");
        self.inbox.copy_within(taken..full, 0);
        self.kept = full - taken;
        Ok(())
    }

    /// Says good-bye, and waits until the server has heard it: what it still does for this
    /// session must not fall into the next measurement.
    pub fn end(mut self) -> Result<()> {
        self.protocol.farewell(&mut self.outbox);
        self.send()?;
        loop {
            match self.stream.read(&mut self.inbox) {
                Ok(0) => return Ok(()),
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::ConnectionReset => return Ok(()),
                Err(error) => return Err(error).context("the server does not hang up"),
            }
        }
    }
}

impl AsFd for Session {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}
