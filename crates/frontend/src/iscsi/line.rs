//! The sending side of a connection: numbers of statuses, and digests.
use crate::piece::Piece;

use super::digest::crc;
use super::events::{ConnNo, Output};
use super::pdu::{HEADER_LEN, Header, Numbers, padding};

/// The first number of a status. Any would do; clients show it beside their own.
const STAT_SN_FIRST: u32 = 1;

/// The commands that an initiator may send, as every PDU tells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    pub exp_cmd_sn: u32,
    pub max_cmd_sn: u32,
}

#[derive(Debug)]
pub struct Line {
    pub conn: ConnNo,
    pub header_digest: bool,
    pub data_digest: bool,
    stat_sn: u32,
}

impl Line {
    pub fn new(conn: ConnNo) -> Line {
        Line { conn, header_digest: false, data_digest: false, stat_sn: STAT_SN_FIRST }
    }

    /// Numbers of a PDU that carries a status.
    pub fn status(&mut self, span: Span) -> Numbers {
        let numbers = self.note(span);
        self.stat_sn = self.stat_sn.wrapping_add(1);
        numbers
    }

    /// Numbers of a PDU that carries none: the next status has this number too.
    pub fn note(&self, span: Span) -> Numbers {
        let Span { exp_cmd_sn, max_cmd_sn } = span;
        Numbers { stat_sn: self.stat_sn, exp_cmd_sn, max_cmd_sn }
    }

    /// Sends a whole PDU.
    pub fn send(&self, out: &mut Vec<Output>, header: Header, segment: &[u8]) {
        self.send_behind(out, &[], header, segment);
    }

    /// Sends a whole PDU behind the end of the one before.
    pub fn send_behind(
        &self,
        out: &mut Vec<Output>,
        tail: &[u8],
        mut header: Header,
        segment: &[u8],
    ) {
        header.set_segment_len(segment.len());
        let mut bytes = Vec::with_capacity(tail.len() + HEADER_LEN + segment.len() + 12);
        bytes.extend_from_slice(tail);
        self.put_header(&mut bytes, &header);
        let start = bytes.len();
        bytes.extend_from_slice(segment);
        bytes.resize(bytes.len() + padding(segment.len()), 0);
        if self.data_digest && !segment.is_empty() {
            let digest = crc(&bytes[start..]);
            bytes.extend_from_slice(&digest);
        }
        out.push(Output::Send { conn: self.conn, piece: Piece::Bytes(bytes) });
    }

    /// Puts a header and its digest.
    pub fn put_header(&self, bytes: &mut Vec<u8>, header: &Header) {
        bytes.extend_from_slice(&header.0);
        if self.header_digest {
            bytes.extend_from_slice(&crc(&header.0));
        }
    }
}
