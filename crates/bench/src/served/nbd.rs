//! NBD as the load speaks it: newstyle with GO, simple replies, as many requests as are begun.
use std::io::Write;
use std::net::SocketAddr;

use anyhow::{Context, Result, bail, ensure};

use super::content::Content;
use super::outbox::Outbox;
use super::session::{Protocol, Session, dial, exactly};
use crate::load::Step;

pub const MAGIC: u64 = 0x4e42_444d_4147_4943;
pub const OPTION: u64 = 0x4948_4156_454f_5054;
pub const OPTION_REPLY: u64 = 0x0003_e889_0455_65a9;
pub const REQUEST: u32 = 0x2560_9513;
pub const REPLY: u32 = 0x6744_6698;
const REPLY_LEN: usize = 16;

const FIXED_NO_ZEROES: u32 = 3;
const OPT_GO: u32 = 7;
pub const REP_ACK: u32 = 1;
pub const REP_INFO: u32 = 3;
const INFO_EXPORT: u16 = 0;
const OPTION_REPLY_MAX: u32 = 4096;

pub const CAN_FLUSH: u16 = 1 << 2;

pub const READ: u16 = 0;
pub const WRITE: u16 = 1;
pub const DISCONNECT: u16 = 2;
const FLUSH: u16 = 3;

struct Nbd {
    size: u64,
    content: Content,
    lanes: Vec<Option<Step>>,
    /// Data that is still to come: to whom, from which offset on, and how much.
    coming: Option<(usize, u64, usize)>,
}

pub fn connect(at: SocketAddr, export: &str, depth: usize, content: &Content) -> Result<Session> {
    let mut stream = dial(at)?;
    let greeting: [u8; 18] = exactly(&mut stream)?;
    let magic = [MAGIC.to_be_bytes(), OPTION.to_be_bytes()].concat();
    ensure!(greeting[..16] == magic, "{at} does not speak newstyle NBD");
    let name_len = u32::try_from(export.len())?;
    let mut hello = FIXED_NO_ZEROES.to_be_bytes().to_vec();
    hello.extend(OPTION.to_be_bytes());
    hello.extend(OPT_GO.to_be_bytes());
    hello.extend((name_len + 6).to_be_bytes());
    hello.extend(name_len.to_be_bytes());
    hello.extend(export.as_bytes());
    hello.extend(0u16.to_be_bytes());
    stream.write_all(&hello)?;
    let mut offered = None;
    loop {
        let magic = u64::from_be_bytes(exactly(&mut stream)?);
        let [_option, kind, len] = [(); 3].map(|()| exactly(&mut stream).map(u32::from_be_bytes));
        let (kind, len) = (kind?, len?);
        ensure!(magic == OPTION_REPLY && len <= OPTION_REPLY_MAX, "a strange answer to GO");
        let mut data = vec![0; usize::try_from(len)?];
        std::io::Read::read_exact(&mut stream, &mut data)?;
        match kind {
            REP_ACK => break,
            REP_INFO => offered = offered.or(export_info(&data)),
            _ => bail!("the export `{export}` was refused with {kind:#x}"),
        }
    }
    let (size, flags) = offered.context("the server does not tell a size")?;
    ensure!(flags & CAN_FLUSH != 0, "the server cannot flush");
    let nbd = Nbd { size, content: content.clone(), lanes: vec![None; depth], coming: None };
    Ok(Session::new(stream, Box::new(nbd), content.clone()))
}

/// Size and flags, if that is what this tells.
fn export_info(data: &[u8]) -> Option<(u64, u16)> {
    let (kind, rest) = data.split_first_chunk()?;
    let (size, rest) = rest.split_first_chunk()?;
    let flags = rest.first_chunk()?;
    let is_export = u16::from_be_bytes(*kind) == INFO_EXPORT;
    is_export.then(|| (u64::from_be_bytes(*size), u16::from_be_bytes(*flags)))
}

fn request(command: u16, cookie: u64, offset: u64, len: usize) -> [u8; 28] {
    let len = u32::try_from(len).expect("a request of the load is short");
    let mut head = [0; 28];
    head[..4].copy_from_slice(&REQUEST.to_be_bytes());
    head[6..8].copy_from_slice(&command.to_be_bytes());
    head[8..16].copy_from_slice(&cookie.to_be_bytes());
    head[16..24].copy_from_slice(&offset.to_be_bytes());
    head[24..].copy_from_slice(&len.to_be_bytes());
    head
}

impl Nbd {
    /// The head of a reply.
    fn reply(&mut self, head: &[u8; REPLY_LEN], done: &mut Vec<usize>) -> Result<()> {
        let [magic, errno, high, low] = [0, 4, 8, 12]
            .map(|at| u32::from_be_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]));
        ensure!(magic == REPLY, "a reply with another magic: {magic:#x}");
        let lane = usize::try_from(low).ok().filter(|_| high == 0);
        let step = lane.and_then(|lane| self.lanes.get_mut(lane)?.take());
        let (Some(lane), Some(step)) = (lane, step) else { bail!("a reply to nothing") };
        ensure!(errno == 0, "{step:?} failed with errno {errno}");
        match step {
            Step::Read { offset, len } => self.coming = Some((lane, offset, len)),
            Step::Write { .. } | Step::Flush => done.push(lane),
        }
        Ok(())
    }
}

impl Protocol for Nbd {
    fn begin(&mut self, lane: usize, step: Step, out: &mut Outbox) {
        let cookie = lane as u64;
        match step {
            Step::Read { offset, len } => out.head(&request(READ, cookie, offset, len)),
            Step::Write { offset, len } => {
                out.head(&request(WRITE, cookie, offset, len));
                out.data(offset, len);
            }
            Step::Flush => out.head(&request(FLUSH, cookie, 0, 0)),
        }
        self.lanes[lane] = Some(step);
    }

    fn take(&mut self, bytes: &[u8], _: &mut Outbox, done: &mut Vec<usize>) -> Result<usize> {
        let mut rest = bytes;
        loop {
            if let Some((lane, offset, len)) = self.coming.take() {
                let (data, after) = rest.split_at(len.min(rest.len()));
                ensure!(self.content.is_like(offset, data), "wrong data was read at {offset}");
                rest = after;
                if data.len() < len {
                    self.coming = Some((lane, offset + data.len() as u64, len - data.len()));
                    return Ok(bytes.len());
                }
                done.push(lane);
            }
            let Some((head, after)) = rest.split_first_chunk() else {
                return Ok(bytes.len() - rest.len());
            };
            self.reply(head, done)?;
            rest = after;
        }
    }

    fn farewell(&mut self, out: &mut Outbox) {
        out.head(&request(DISCONNECT, 0, 0, 0));
    }

    fn size(&self) -> u64 {
        self.size
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reply(errno: u32, lane: u64) -> Vec<u8> {
        [&REPLY.to_be_bytes()[..], &errno.to_be_bytes(), &lane.to_be_bytes()].concat()
    }

    #[test]
    fn replies_may_come_in_any_pieces() {
        let content = Content::new();
        let mut stream = reply(0, 1);
        stream.extend(reply(0, 0));
        stream.extend(content.at(8192, 4096));
        stream.extend(reply(0, 2));
        for cut in 1..stream.len() {
            let lanes = vec![None; 3];
            let mut nbd = Nbd { size: 1 << 20, content: content.clone(), lanes, coming: None };
            let mut out = Outbox::new(content.clone());
            nbd.begin(0, Step::Read { offset: 8192, len: 4096 }, &mut out);
            nbd.begin(1, Step::Write { offset: 0, len: 4096 }, &mut out);
            nbd.begin(2, Step::Flush, &mut out);
            let mut done = Vec::new();
            let taken = nbd.take(&stream[..cut], &mut out, &mut done).unwrap();
            assert!(taken <= cut && cut - taken < REPLY_LEN);
            let rest = nbd.take(&stream[taken..], &mut out, &mut done).unwrap();
            assert_eq!((taken + rest, done), (stream.len(), vec![1, 0, 2]));
        }
    }

    #[test]
    fn errors_and_wrong_data_are_not_overlooked() {
        let content = Content::new();
        let mut out = Outbox::new(content.clone());
        let wrong = [reply(0, 0), vec![0; 4096]].concat();
        for bad in [reply(5, 0), reply(0, 1), reply(0, 1 << 32), wrong, vec![0; 16]] {
            let lanes = vec![None; 2];
            let mut nbd = Nbd { size: 1 << 20, content: content.clone(), lanes, coming: None };
            nbd.begin(0, Step::Read { offset: 0, len: 4096 }, &mut out);
            assert!(nbd.take(&bad, &mut out, &mut Vec::new()).is_err());
        }
    }
}
