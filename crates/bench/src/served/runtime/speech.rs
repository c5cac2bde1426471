//! The server's side of NBD, as far as the load speaks it: bytes in, bytes out.
use anyhow::{Result, ensure};

use crate::served::content::Content;
use crate::served::nbd::{
    CAN_FLUSH, DISCONNECT, MAGIC, OPTION, OPTION_REPLY, READ, REP_ACK, REP_INFO, REPLY, REQUEST,
    WRITE,
};

/// Bytes of an option before its data, with the client's flags in front.
const OPTION_HEAD: usize = 20;
const REQUEST_HEAD: usize = 28;
const LEN_MAX: usize = 1 << 20;

const SIZE: u64 = 1 << 30;
/// That flags are told, and that there is a flush.
const FLAGS: u16 = 1 | CAN_FLUSH;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Options,
    Requests,
    Over,
}

pub struct Speech<'a> {
    phase: Phase,
    content: &'a Content,
}

impl<'a> Speech<'a> {
    pub fn begin(content: &'a Content, out: &mut Vec<u8>) -> Speech<'a> {
        out.extend(MAGIC.to_be_bytes());
        out.extend(OPTION.to_be_bytes());
        out.extend(3u16.to_be_bytes());
        Speech { phase: Phase::Options, content }
    }

    pub fn is_over(&self) -> bool {
        self.phase == Phase::Over
    }

    /// Answers what is complete, and tells how many bytes that was.
    pub fn take(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> Result<usize> {
        let mut taken = 0;
        loop {
            let rest = &bytes[taken..];
            let one = match self.phase {
                Phase::Options => self.option(rest, out),
                Phase::Requests => self.request(rest, out)?,
                Phase::Over => None,
            };
            let Some(one) = one else { return Ok(taken) };
            taken += one;
        }
    }

    /// Whatever it is, it is answered like GO: the load asks nothing else.
    fn option(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> Option<usize> {
        let head = bytes.first_chunk::<OPTION_HEAD>()?;
        let len = OPTION_HEAD + number(&head[16..]);
        bytes.get(..len)?;
        let mut info = 0u16.to_be_bytes().to_vec();
        info.extend(SIZE.to_be_bytes());
        info.extend(FLAGS.to_be_bytes());
        for (kind, len, data) in [(REP_INFO, 12u32, &info[..]), (REP_ACK, 0, &[])] {
            out.extend(OPTION_REPLY.to_be_bytes());
            out.extend(&head[12..16]);
            out.extend(kind.to_be_bytes());
            out.extend(len.to_be_bytes());
            out.extend(data);
        }
        self.phase = Phase::Requests;
        Some(len)
    }

    fn request(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> Result<Option<usize>> {
        let Some(head) = bytes.first_chunk::<REQUEST_HEAD>() else { return Ok(None) };
        let len = number(&head[24..]);
        ensure!(head[..4] == REQUEST.to_be_bytes() && len <= LEN_MAX, "a strange request");
        let command = u16::from_be_bytes([head[6], head[7]]);
        let whole = REQUEST_HEAD + if command == WRITE { len } else { 0 };
        if bytes.len() < whole {
            return Ok(None);
        }
        if command == DISCONNECT {
            self.phase = Phase::Over;
            return Ok(Some(whole));
        }
        out.extend(REPLY.to_be_bytes());
        out.extend([0; 4]);
        out.extend(&head[8..16]);
        if command == READ {
            let (high, low) = (number(&head[16..]) as u64, number(&head[20..]) as u64);
            out.extend(self.content.at(high << 32 | low, len));
        }
        Ok(Some(whole))
    }
}

/// The number that four bytes are.
fn number(bytes: &[u8]) -> usize {
    bytes[..4].iter().fold(0, |number, byte| number << 8 | usize::from(*byte))
}
