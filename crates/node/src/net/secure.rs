//! TLS between a socket and what it carries.
//!
//! Content is encrypted from where it waits into scratch memory, and what arrived is decrypted in scratch
//! memory and put where it belongs. A connection itself keeps the beginning of a record, and what the
//! kernel did not take: never more than one scratch memory has.
//!
//! An end without the word for it (`close_notify`) is an end: frames tell by themselves where they
//! end, so nothing that was cut off is taken for whole.
use std::io;

use certs::session::{CONTENT_MAX, Received, SEALED_MORE, Session, SessionError};
use certs::{Name, PeerError};

use super::outbox::Outbox;
use super::socket::{Got, Stream};

/// What waits goes out together with new records, if it is no more than this.
const JOIN_MAX: usize = CONTENT_MAX;

/// Less scratch memory has no room for what is put there at once.
const SCRATCH_MIN: usize = 4 * (CONTENT_MAX + 4096);

/// What peers without TLS begin with.
const PLAIN: [u8; 3] = *b"PLX";

#[derive(Debug)]
pub struct Secure {
    session: Session,
    /// Encrypted, and not taken by the kernel yet.
    unsent: Vec<u8>,
    /// Something of the other side has arrived.
    begun: bool,
    ended: bool,
}

/// What is wrong with the bytes, not with the connection.
fn bad(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}

/// Where content goes: into the landing as long as there is room.
struct Sink<'a> {
    landing: &'a mut [u8],
    landed: usize,
    scratch: &'a mut [u8],
    len: usize,
}

impl Sink<'_> {
    fn take(&mut self, content: &[u8]) {
        let room = self.landing.len() - self.landed;
        let (now, later) = content.split_at(content.len().min(room));
        self.landing[self.landed..self.landed + now.len()].copy_from_slice(now);
        self.landed += now.len();
        self.scratch[self.len..self.len + later.len()].copy_from_slice(later);
        self.len += later.len();
    }
}

impl Secure {
    pub fn new(mut session: Session) -> Result<Secure, SessionError> {
        let mut unsent = Vec::new();
        session.receive(&mut [], |_| {}, &mut unsent)?;
        Ok(Secure { session, unsent, begun: false, ended: false })
    }

    pub fn is_ready(&self) -> bool {
        self.session.is_ready()
    }

    pub fn is_begun(&self) -> bool {
        self.begun
    }

    pub fn unsent(&self) -> usize {
        self.unsent.len()
    }

    pub fn peer(&self) -> Result<Name, PeerError> {
        self.session.peer()
    }

    /// Content is shorter than the records that it comes in: with one half of the scratch memory for
    /// each, all that arrived finds room.
    pub fn read(
        &mut self,
        stream: &mut Stream,
        landing: &mut [u8],
        scratch: &mut [u8],
    ) -> io::Result<Got> {
        if self.ended {
            return Ok(Got::End);
        }
        let (scratch, wire) = scratch.split_at_mut(scratch.len() / 2);
        let rest = self.session.rest().len();
        wire[..rest].copy_from_slice(self.session.rest());
        let got = match stream.read(&mut wire[rest..]) {
            Ok(0) => return Ok(Got::End),
            Ok(got) => got,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(Got::Nothing),
            Err(error) => return Err(error),
        };
        self.begun = true;
        let more = rest + got == wire.len();
        let wire = &mut wire[..rest + got];
        if !self.session.is_ready() && wire.starts_with(&PLAIN) {
            return Err(bad(
                "it speaks without TLS; both sides have to be started with --tls, or neither",
            ));
        }
        let mut sink = Sink { landing, landed: 0, scratch, len: 0 };
        let received = self.session.receive(wire, |content| sink.take(content), &mut self.unsent);
        self.ended = received.map_err(bad)? == Received::End;
        Ok(Got::Bytes { landed: sink.landed, scratch: sink.len, more: more || self.ended })
    }

    /// Sends until everything is out or the kernel takes no more. Without scratch memory only
    /// what is encrypted already leaves.
    pub fn flush(
        &mut self,
        stream: &mut Stream,
        outbox: &mut Outbox,
        scratch: &mut [u8],
    ) -> io::Result<()> {
        loop {
            let can_seal =
                self.session.is_ready() && !outbox.is_empty() && scratch.len() >= SCRATCH_MIN;
            if !can_seal || self.unsent.len() > JOIN_MAX {
                self.push(stream)?;
                if !can_seal || !self.unsent.is_empty() {
                    return Ok(());
                }
            }
            let (stage, wire) = scratch.split_at_mut(CONTENT_MAX);
            let filled = self.seal(outbox, stage, wire)?;
            let written = write(stream, &wire[..filled])?;
            if written < filled {
                self.unsent.extend_from_slice(&wire[written..filled]);
                return Ok(());
            }
        }
    }

    /// What waits, and new records behind it.
    fn seal(
        &mut self,
        outbox: &mut Outbox,
        stage: &mut [u8],
        wire: &mut [u8],
    ) -> io::Result<usize> {
        let mut filled = self.unsent.len();
        wire[..filled].copy_from_slice(&self.unsent);
        self.unsent = Vec::new();
        while !outbox.is_empty() && wire.len() - filled >= CONTENT_MAX + SEALED_MORE {
            let content = outbox.first(stage);
            let len = content.len();
            filled += self.session.seal(content, &mut wire[filled..]).map_err(bad)?;
            outbox.forget(len);
        }
        Ok(filled)
    }

    fn push(&mut self, stream: &mut Stream) -> io::Result<()> {
        let written = write(stream, &self.unsent)?;
        match written == self.unsent.len() {
            true => self.unsent = Vec::new(),
            false => drop(self.unsent.drain(..written)),
        }
        Ok(())
    }
}

/// As much as the kernel takes.
fn write(stream: &mut Stream, bytes: &[u8]) -> io::Result<usize> {
    let mut written = 0;
    while written < bytes.len() {
        match stream.write(&bytes[written..]) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(now) => written += now,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(written)
}
