//! TLS without IO: whoever has sockets of its own carries the bytes.
//!
//! Bytes of the wire go in, content and answers come out, and the other way round. Nothing blocks and
//! nothing is kept but the beginning of a record, which is copied here and back. What comes in is decrypted
//! where it lies. What is to go out ends in the owner's memory; the library encrypts each record in memory
//! that it allocates for it, and copies it from there. New keys are agreed on by themselves when a pair of them
//! has seen as many records as it may.
//!
//! A client believes to be ready before the server has looked at its certificate; whether it was
//! let in it learns from the first content, or from an error in its place.
use std::fmt;
use std::sync::Arc;

use rustls::client::UnbufferedClientConnection;
use rustls::server::UnbufferedServerConnection;
use rustls::unbuffered::{ConnectionState, EncodeError, EncryptError, UnbufferedStatus};
use rustls::{AlertDescription, ClientConfig, CommonState, ServerConfig};
use thiserror::Error;

use crate::errors::PeerError;
use crate::identity::Identity;
use crate::name::Name;
use crate::tls::{self, Protocol};

/// Content of one record, by the protocol.
pub const CONTENT_MAX: usize = 16 << 10;

/// What a record has beside its content, and the message with which keys are changed before it.
pub const SEALED_MORE: usize = 128;

/// What may be kept until more of it arrives: one record at its largest. Our handshakes have less.
const REST_MAX: usize = CONTENT_MAX + 2048 + 5;

#[derive(Debug, Error)]
pub enum SessionError {
    #[error("it refuses us ({})", told(*.0))]
    Refused(AlertDescription),
    #[error("{0}")]
    Tls(rustls::Error),
    #[error("it speaks another protocol than this door is for")]
    OtherProtocol,
    #[error("it sends a message that is larger than any of ours")]
    TooLarge,
    #[error("nothing can be sent before the handshake is over, or after it failed")]
    TooEarly,
    #[error("it has failed before")]
    Failed,
}

/// Alerts in words that lead to the cause.
fn told(alert: AlertDescription) -> String {
    let cause = match alert {
        AlertDescription::UnknownCA | AlertDescription::DecryptError => {
            "our certificate is not of its authority"
        }
        AlertDescription::CertificateExpired => "our certificate has expired, by its clock",
        AlertDescription::CertificateRequired => "it wants a certificate",
        AlertDescription::BadCertificate | AlertDescription::CertificateUnknown => {
            "it does not take our certificate"
        }
        AlertDescription::NoApplicationProtocol => "another protocol is spoken at this door",
        _ => return format!("{alert:?}"),
    };
    format!("{alert:?}: {cause}")
}

impl From<rustls::Error> for SessionError {
    fn from(error: rustls::Error) -> SessionError {
        match error {
            rustls::Error::AlertReceived(alert) => SessionError::Refused(alert),
            other => SessionError::Tls(other),
        }
    }
}

/// Makes sessions of one participant.
#[derive(Clone, Debug)]
pub struct Sessions {
    client: Arc<ClientConfig>,
    server: Arc<ServerConfig>,
}

impl Sessions {
    pub fn new(identity: &Identity, protocol: Protocol) -> Sessions {
        Sessions {
            client: tls::client(identity, protocol),
            server: tls::server(identity, protocol),
        }
    }

    /// To whoever proves to be the one who is meant.
    pub fn call(&self, whom: &Name) -> Result<Session, SessionError> {
        let config = Arc::clone(&self.client);
        let end = UnbufferedClientConnection::new(config, tls::server_name(whom))?;
        Ok(Session::new(End::Calling(Box::new(end))))
    }

    pub fn accept(&self) -> Result<Session, SessionError> {
        let end = UnbufferedServerConnection::new(Arc::clone(&self.server))?;
        Ok(Session::new(End::Called(Box::new(end))))
    }
}

enum End {
    Calling(Box<UnbufferedClientConnection>),
    Called(Box<UnbufferedServerConnection>),
}

/// One connection.
pub struct Session {
    end: End,
    rest: Vec<u8>,
    /// Nothing is sent or received any more.
    failed: bool,
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session").field("peer", &self.peer()).finish_non_exhaustive()
    }
}

/// Where a step leads.
enum Step {
    On {
        more: usize,
    },
    /// Nothing is left to do with what is there.
    Rests,
    /// The other side has said that it sends no more.
    Ends,
}

/// Whether more is to come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Received {
    Open,
    End,
}

impl Session {
    fn new(end: End) -> Session {
        Session { end, rest: Vec::new(), failed: false }
    }

    fn common(&self) -> &CommonState {
        match &self.end {
            End::Calling(end) => end,
            End::Called(end) => end,
        }
    }

    /// Whether content may be sent.
    pub fn is_ready(&self) -> bool {
        !self.failed && !self.common().is_handshaking()
    }

    /// Who the other side is.
    pub fn peer(&self) -> Result<Name, PeerError> {
        tls::peer_name(self.common())
    }

    /// What was left over: the next bytes belong behind it.
    pub fn rest(&self) -> &[u8] {
        &self.rest
    }

    /// Takes what was left over, and what arrived behind it. Content goes to `content`, in order; what is
    /// to be sent, an alert included, is put behind `answer`. With nothing a client begins.
    pub fn receive(
        &mut self,
        wire: &mut [u8],
        mut content: impl FnMut(&[u8]),
        answer: &mut Vec<u8>,
    ) -> Result<Received, SessionError> {
        if self.failed {
            return Err(SessionError::Failed);
        }
        let mut used = 0;
        let end = loop {
            let step = match &mut self.end {
                End::Calling(end) => {
                    let UnbufferedStatus { discard, state, .. } =
                        end.process_tls_records(&mut wire[used..]);
                    used += discard;
                    state.map(|state| step(state, &mut content, answer))
                }
                End::Called(end) => {
                    let UnbufferedStatus { discard, state, .. } =
                        end.process_tls_records(&mut wire[used..]);
                    used += discard;
                    state.map(|state| step(state, &mut content, answer))
                }
            };
            match step {
                Ok(Ok(Step::On { more })) => used += more,
                Ok(Ok(Step::Rests)) => break Received::Open,
                Ok(Ok(Step::Ends)) => break Received::End,
                Ok(Err(error)) => return Err(self.failed(error)),
                Err(error) => {
                    self.alert(answer);
                    return Err(self.failed(error.into()));
                }
            }
        };
        match self.keep(&wire[used..]).and_then(|()| self.check_protocol()) {
            Ok(()) => Ok(end),
            Err(error) => Err(self.failed(error)),
        }
    }

    fn failed(&mut self, error: SessionError) -> SessionError {
        self.failed = true;
        error
    }

    /// What the other side is told of an error. The library is not given the bytes again that it failed
    /// at: it only has something to send.
    fn alert(&mut self, answer: &mut Vec<u8>) {
        while self.common().wants_write() {
            let told = match &mut self.end {
                End::Calling(end) => pending(end.process_tls_records(&mut []), answer),
                End::Called(end) => pending(end.process_tls_records(&mut []), answer),
            };
            if !told {
                return;
            }
        }
    }

    fn keep(&mut self, rest: &[u8]) -> Result<(), SessionError> {
        if rest.len() > REST_MAX {
            return Err(SessionError::TooLarge);
        }
        self.rest.clear();
        self.rest.extend_from_slice(rest);
        Ok(())
    }

    /// Whoever names no protocol at all gets through the handshake.
    fn check_protocol(&self) -> Result<(), SessionError> {
        match self.is_ready() && self.common().alpn_protocol().is_none() {
            true => Err(SessionError::OtherProtocol),
            false => Ok(()),
        }
    }

    /// Encrypts content, at most [`CONTENT_MAX`] bytes, into `wire`, which has room for [`SEALED_MORE`]
    /// beside it. How many bytes of `wire` it takes.
    pub fn seal(&mut self, content: &[u8], wire: &mut [u8]) -> Result<usize, SessionError> {
        if !self.is_ready() {
            return Err(SessionError::TooEarly);
        }
        match &mut self.end {
            End::Calling(end) => sealed(end.process_tls_records(&mut self.rest), content, wire),
            End::Called(end) => sealed(end.process_tls_records(&mut self.rest), content, wire),
        }
    }
}

fn step<Data>(
    state: ConnectionState<'_, '_, Data>,
    content: &mut dyn FnMut(&[u8]),
    answer: &mut Vec<u8>,
) -> Result<Step, SessionError> {
    let mut more = 0;
    match state {
        ConnectionState::ReadTraffic(mut traffic) => {
            while let Some(record) = traffic.next_record() {
                let record = record?;
                more += record.discard;
                content(record.payload);
            }
        }
        ConnectionState::EncodeTlsData(mut data) => encode(|into| data.encode(into), answer)?,
        // What was encoded is the owner's from now on.
        ConnectionState::TransmitTlsData(data) => data.done(),
        ConnectionState::BlockedHandshake | ConnectionState::WriteTraffic(_) => {
            return Ok(Step::Rests);
        }
        ConnectionState::PeerClosed | ConnectionState::Closed => return Ok(Step::Ends),
        // Neither is offered.
        _ => return Err(SessionError::OtherProtocol),
    }
    Ok(Step::On { more })
}

fn pending<Data>(status: UnbufferedStatus<'_, '_, Data>, answer: &mut Vec<u8>) -> bool {
    match status.state {
        Ok(ConnectionState::EncodeTlsData(mut data)) => {
            encode(|into| data.encode(into), answer).is_ok()
        }
        _ => false,
    }
}

/// Asks how much room it takes, and makes it.
fn encode(
    mut into: impl FnMut(&mut [u8]) -> Result<usize, EncodeError>,
    answer: &mut Vec<u8>,
) -> Result<(), SessionError> {
    let before = answer.len();
    let encoded = match into(&mut []) {
        Err(EncodeError::InsufficientSize(size)) => {
            answer.resize(before + size.required_size, 0);
            into(&mut answer[before..])
        }
        other => other,
    };
    let failed = |error: EncodeError| rustls::Error::General(error.to_string());
    answer.truncate(before + encoded.map_err(failed)?);
    Ok(())
}

fn sealed<Data>(
    status: UnbufferedStatus<'_, '_, Data>,
    content: &[u8],
    wire: &mut [u8],
) -> Result<usize, SessionError> {
    let failed = |error: EncryptError| rustls::Error::General(error.to_string());
    match status.state? {
        ConnectionState::WriteTraffic(mut traffic) => {
            Ok(traffic.encrypt(content, wire).map_err(failed)?)
        }
        _ => Err(SessionError::TooEarly),
    }
}

#[cfg(test)]
mod tests;
