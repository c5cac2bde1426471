//! The answer to a command: its data in PDUs that the initiator can take, and its status.
//!
//! Data is passed on as it came, in slices. Only headers are written, with the end of the PDU
//! before in front of them.
use crate::piece::Piece;
use crate::scsi::words::{Response, Status};

use super::digest::{Crc, DIGEST_LEN};
use super::events::Output;
use super::line::Span;
use super::negotiate::Params;
use super::pdu::{DataIn, HEADER_LEN, Residual, ScsiReply, padding};
use super::session::Cx;
use super::task::{Direction, Task};

fn code(status: Status) -> u8 {
    match status {
        Status::Good => 0x00,
        Status::CheckCondition => 0x02,
        Status::ConditionMet => 0x04,
        Status::Busy => 0x08,
        Status::ReservationConflict => 0x18,
        Status::TaskSetFull => 0x28,
        Status::AcaActive => 0x30,
        Status::TaskAborted => 0x40,
    }
}

pub fn answer(
    cx: &mut Cx<'_>,
    params: &Params,
    span: Span,
    itt: u32,
    task: &Task,
    response: Response,
) {
    let total: u64 = response.data_in.iter().map(|piece| piece.as_bytes().len() as u64).sum();
    let (residual, room) = match task.direction {
        Direction::Out => (Residual::between(response.took_out.into(), task.expected), 0),
        Direction::In => (Residual::between(total, task.expected), task.expected),
        Direction::None => (Residual::between(total.max(response.took_out.into()), 0), 0),
    };
    let len = u32::try_from(total).unwrap_or(u32::MAX).min(room);
    // A good status comes with the last data.
    let good = (response.status == Status::Good && len > 0).then_some(residual);
    let mut sender = Sender::new(cx, params, span, itt);
    sender.send(cut(response.data_in, len as usize, total), len, good);
    let (tail, sent) = (sender.tail, sender.data_sn);
    if good.is_some() {
        if !tail.bytes().is_empty() {
            let piece = Piece::Bytes(tail.bytes().to_vec());
            cx.out.push(Output::Send { conn: cx.line.conn, piece });
        }
        return;
    }
    let pdus = task.r2ts.wrapping_add(sent);
    let reply = ScsiReply { itt, status: code(response.status), pdus, residual };
    let header = reply.encode(cx.line.status(span));
    let sense = with_length(&response.sense);
    cx.line.send_behind(cx.out, tail.bytes(), header, &sense);
}

/// Of data that is cut to less than half only that much is kept in memory until it is sent.
fn cut(data: Vec<Piece>, len: usize, total: u64) -> Vec<Piece> {
    if len as u64 >= total.div_ceil(2) {
        return data;
    }
    let bytes = data.iter().flat_map(|piece| piece.as_bytes()).take(len).copied().collect();
    vec![Piece::Bytes(bytes)]
}

/// Sense data stands behind its length.
fn with_length(sense: &[u8]) -> Vec<u8> {
    if sense.is_empty() {
        return Vec::new();
    }
    // As SCSI has it, sense data is at most 252 bytes.
    let sense = &sense[..sense.len().min(252)];
    let len = u16::try_from(sense.len()).unwrap_or(u16::MAX);
    [&len.to_be_bytes(), sense].concat()
}

/// The end of a PDU: padding and digest.
#[derive(Clone, Copy, Default)]
struct Tail {
    bytes: [u8; 3 + DIGEST_LEN],
    len: usize,
}

impl Tail {
    fn new(len: usize, crc: Option<Crc>) -> Tail {
        let mut tail = Tail { len: padding(len), ..Tail::default() };
        if let Some(mut crc) = crc {
            crc.update(tail.bytes());
            tail.bytes[tail.len..tail.len + DIGEST_LEN].copy_from_slice(&crc.finish());
            tail.len += DIGEST_LEN;
        }
        tail
    }

    fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

struct Sender<'a, 'b> {
    cx: &'a mut Cx<'b>,
    params: &'a Params,
    span: Span,
    itt: u32,
    data_sn: u32,
    tail: Tail,
}

impl<'a, 'b> Sender<'a, 'b> {
    fn new(cx: &'a mut Cx<'b>, params: &'a Params, span: Span, itt: u32) -> Sender<'a, 'b> {
        Sender { cx, params, span, itt, data_sn: 0, tail: Tail::default() }
    }

    /// Sends the first `len` bytes.
    fn send(&mut self, data: Vec<Piece>, len: u32, good: Option<Residual>) {
        let mut source = Source::new(data);
        let mut offset = 0;
        while offset < len {
            let burst_left = self.params.burst - offset % self.params.burst;
            let part = (len - offset).min(burst_left).min(self.params.segment_max);
            let is_end = offset + part == len;
            let data_in = DataIn {
                last: is_end || part == burst_left,
                good: good.filter(|_| is_end),
                itt: self.itt,
                data_sn: self.data_sn,
                offset,
            };
            self.send_one(&data_in, part as usize, &mut source);
            self.data_sn += 1;
            offset += part;
        }
    }

    fn send_one(&mut self, data_in: &DataIn, len: usize, source: &mut Source) {
        let line = &mut self.cx.line;
        let numbers = match data_in.good {
            Some(_) => line.status(self.span),
            None => line.note(self.span),
        };
        let mut header = data_in.encode(numbers);
        header.set_segment_len(len);
        let mut bytes = Vec::with_capacity(self.tail.len + HEADER_LEN + DIGEST_LEN);
        bytes.extend_from_slice(self.tail.bytes());
        line.put_header(&mut bytes, &header);
        let conn = line.conn;
        let mut crc = line.data_digest.then(Crc::new);
        self.cx.out.push(Output::Send { conn, piece: Piece::Bytes(bytes) });
        let mut left = len;
        while let Some(piece) = source.take(left) {
            left -= piece.as_bytes().len();
            if let Some(crc) = &mut crc {
                crc.update(piece.as_bytes());
            }
            self.cx.out.push(Output::Send { conn, piece });
        }
        self.tail = Tail::new(len, crc);
    }
}

/// Pieces that are handed on bit by bit.
struct Source {
    pieces: std::vec::IntoIter<Piece>,
    /// The piece at the front, and how much of it is gone.
    front: Option<(Piece, usize)>,
}

impl Source {
    fn new(pieces: Vec<Piece>) -> Source {
        Source { pieces: pieces.into_iter(), front: None }
    }

    /// The next bytes, as many as the piece at the front has, up to `max`.
    fn take(&mut self, max: usize) -> Option<Piece> {
        if max == 0 {
            return None;
        }
        let (piece, at) = loop {
            let (piece, at) = match self.front.take() {
                Some(front) => front,
                None => (self.pieces.next()?, 0),
            };
            if at < piece.as_bytes().len() {
                break (piece, at);
            }
        };
        let end = piece.as_bytes().len().min(at + max);
        if (at, end) == (0, piece.as_bytes().len()) {
            return Some(piece);
        }
        let part = match &piece {
            Piece::Bytes(bytes) => Piece::Bytes(bytes[at..end].to_vec()),
            Piece::Data(data) => Piece::Data(data.slice(at..end)),
        };
        self.front = Some((piece, end));
        Some(part)
    }
}
