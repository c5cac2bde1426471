//! The second phase: requests and their replies.
mod reply;
mod request;
mod under_way;

use block::{Buf, ByteLen};

use self::reply::Echo;
use self::request::{Plan, Request};
use self::under_way::{Asked, Expects, UnderWay};
use super::connection::{Output, Step};
use super::errors::{ProtocolError, Refusal};
use super::session::Session;
use super::stream::{Head, split_off};
use crate::ask::{Answer, Ask, AskError, AskId, Buffers};
use crate::piece::Piece;

#[derive(Debug)]
pub struct Transmission {
    session: Session,
    incoming: Incoming,
    under_way: UnderWay,
}

/// What the next bytes are.
#[derive(Debug)]
enum Incoming {
    Request(Head),
    Payload(Payload),
    /// The payload of a request that was refused; the client is told when all of it has come.
    Refused {
        left: u64,
        reply: Vec<u8>,
    },
    /// Nothing: the client disconnects.
    Ended,
}

#[derive(Debug)]
struct Payload {
    echo: Echo,
    fua: bool,
    buf: Buf,
    filled: usize,
}

impl Transmission {
    pub fn new(session: Session) -> Transmission {
        Transmission {
            session,
            incoming: Incoming::Request(Head::default()),
            under_way: UnderWay::default(),
        }
    }

    /// Uses all of the input, unless it ends the connection.
    pub fn receive(
        &mut self,
        input: &mut &[u8],
        stopping: bool,
        buffers: &mut dyn Buffers,
        out: &mut Vec<Output>,
    ) -> Step {
        while !input.is_empty() {
            match &mut self.incoming {
                Incoming::Request(head) => {
                    let style = self.session.style;
                    let read = |head: &[u8]| Request::parse(head, style);
                    let begun = match head.take(style.request_len(), input, read) {
                        None => return Step::Continue,
                        Some(Ok(request)) => self.begin(request, stopping, buffers, out),
                        Some(Err(error)) => Err(error),
                    };
                    if let Err(error) = begun {
                        return Step::Close(Some(error));
                    }
                }
                Incoming::Payload(payload) => {
                    let part = split_off(input, payload.rest().len());
                    payload.rest()[..part.len()].copy_from_slice(part);
                    self.landed(part.len(), out);
                }
                Incoming::Refused { left, reply } => {
                    let len = usize::try_from(*left).unwrap_or(usize::MAX);
                    *left -= split_off(input, len).len() as u64;
                    if *left == 0 {
                        out.push(send(std::mem::take(reply)));
                        self.incoming = Incoming::Request(Head::default());
                    }
                }
                Incoming::Ended => *input = &[],
            }
        }
        self.step()
    }

    fn begin(
        &mut self,
        request: Request,
        stopping: bool,
        buffers: &mut dyn Buffers,
        out: &mut Vec<Output>,
    ) -> Result<(), ProtocolError> {
        let payload = request.payload(self.session.style)?;
        let echo = request.echo();
        match request.judge(&self.session, stopping) {
            Err(refusal) => {
                let reply = self.refusal(echo, request.len, &refusal);
                match payload {
                    0 => out.push(send(reply)),
                    left => self.incoming = Incoming::Refused { left, reply },
                }
            }
            Ok(Plan::Disconnect) => self.incoming = Incoming::Ended,
            Ok(Plan::Done) => out.push(send(reply::done(self.session.style, echo))),
            Ok(Plan::Ask { ask, expects }) => {
                let asked = Asked { echo, len: request.len, expects };
                self.under_way.submit(asked, ask, out);
            }
            Ok(Plan::Write { fua }) => {
                let len = usize::try_from(payload).expect("it was compared with 32 MiB");
                let buf = buffers.take(len);
                assert_eq!(buf.len(), len, "a buffer is as long as it was asked for");
                self.incoming = Incoming::Payload(Payload { echo, fua, buf, filled: 0 });
            }
        }
        Ok(())
    }

    /// The part of a payload that has not come yet.
    pub fn landing(&mut self) -> &mut [u8] {
        match &mut self.incoming {
            Incoming::Payload(payload) => payload.rest(),
            Incoming::Request(_) | Incoming::Refused { .. } | Incoming::Ended => &mut [],
        }
    }

    /// So much of [`Transmission::landing`] was filled.
    pub fn landed(&mut self, len: usize, out: &mut Vec<Output>) {
        assert!(len <= self.landing().len(), "no more lands than there is room for");
        let Incoming::Payload(payload) = &mut self.incoming else {
            return;
        };
        payload.filled += len;
        if payload.filled < payload.buf.len() {
            return;
        }
        let whole = std::mem::replace(&mut self.incoming, Incoming::Request(Head::default()));
        if let Incoming::Payload(Payload { echo, fua, buf, filled }) = whole {
            let asked = Asked { echo, len: ByteLen(filled as u64), expects: Expects::Written };
            let ask = Ask::Write { offset: echo.offset, data: buf.into_data(), fua };
            self.under_way.submit(asked, ask, out);
        }
    }

    pub fn answered(
        &mut self,
        id: AskId,
        result: Result<Answer, AskError>,
        out: &mut Vec<Output>,
    ) -> Step {
        let asked = self.under_way.finish(id);
        match result {
            Ok(answer) => self.reply(asked, answer, out),
            Err(error) => out.push(send(self.refusal(asked.echo, asked.len, &error.into()))),
        }
        self.under_way.ask_waiting(out);
        self.step()
    }

    fn reply(&self, Asked { echo, len, expects }: Asked, answer: Answer, out: &mut Vec<Output>) {
        let style = self.session.style;
        match (expects, answer) {
            (Expects::Done | Expects::Written, Answer::Done) => {
                out.push(send(reply::done(style, echo)))
            }
            (Expects::Read, Answer::Read(data)) => {
                assert_eq!(data.len() as u64, len.0, "a read is answered with all of its bytes");
                out.push(send(reply::data_head(style, echo, &data)));
                out.push(Output::Send(Piece::Data(data)));
            }
            (Expects::Extents { heads, one }, Answer::Extents(extents)) => {
                out.push(send(reply::extents(heads, echo, len, one, &extents)));
            }
            (expects, answer) => unreachable!("{expects:?} was answered with {answer:?}"),
        }
    }

    fn refusal(&self, echo: Echo, len: ByteLen, refusal: &Refusal) -> Vec<u8> {
        reply::refusal(self.session.style, echo, len, refusal)
    }

    /// A client that disconnects still gets its replies.
    fn step(&self) -> Step {
        match self.incoming {
            Incoming::Ended if self.under_way.is_idle() => Step::Close(None),
            _ => Step::Continue,
        }
    }

    pub fn wants_bytes(&self) -> bool {
        match &self.incoming {
            Incoming::Ended => false,
            Incoming::Payload(payload) => self.under_way.wants_more(payload.buf.len()),
            Incoming::Request(_) | Incoming::Refused { .. } => self.under_way.wants_more(0),
        }
    }

    pub fn unsent(&mut self, bytes: usize) {
        self.under_way.unsent(bytes);
    }

    /// Whether a request that waited may go on.
    pub fn can_go_on(&self) -> bool {
        self.under_way.can_ask()
    }

    pub fn go_on(&mut self, out: &mut Vec<Output>) {
        self.under_way.ask_waiting(out);
    }

    pub fn under_way(&self) -> usize {
        self.under_way.len()
    }

    pub fn resized(&mut self, size: ByteLen) {
        self.session.size = size;
    }
}

impl Payload {
    fn rest(&mut self) -> &mut [u8] {
        &mut self.buf[self.filled..]
    }
}

fn send(reply: Vec<u8>) -> Output {
    Output::Send(Piece::Bytes(reply))
}
