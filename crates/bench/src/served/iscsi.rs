//! An iSCSI initiator, as small as the load needs it: one connection, reads, writes and cache
//! synchronisation, without digests and without recovery. What goes wrong ends the measurement.
mod login;
mod pdu;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Context, Result, bail, ensure};

use super::content::Content;
use super::outbox::Outbox;
use super::session::{Protocol, Session, dial};
use crate::load::Step;
use login::Begun;
use pdu::{HEAD, Head};

const READ_10: u8 = 0x28;
const WRITE_10: u8 = 0x2a;
const SYNCHRONIZE_CACHE_10: u8 = 0x35;

/// Flags of a command: what it moves, and that its order does not matter.
const READS: u8 = 0x40;
const WRITES: u8 = 0x20;
const SIMPLE: u8 = 1;
/// Of a Data-In: the status is in it.
const HAS_STATUS: u8 = 1;

/// A command that is under way.
#[derive(Clone, Copy, Debug)]
struct Task {
    step: Step,
    /// Bytes that came of a read.
    came: usize,
}

/// The rest of a segment of data, which may come in pieces.
#[derive(Clone, Copy, Debug)]
struct Segment {
    offset: u64,
    left: usize,
    padding: usize,
    /// The lane that is done with its last byte.
    ends: Option<usize>,
}

struct Iscsi {
    begun: Begun,
    content: Content,
    tasks: Vec<Option<Task>>,
    /// Steps that the target's window has no room for yet.
    waiting: VecDeque<(usize, Step)>,
    segment: Option<Segment>,
}

pub fn connect(
    at: SocketAddr,
    target: &str,
    lun: u8,
    depth: usize,
    content: &Content,
) -> Result<Session> {
    static SESSIONS: AtomicU32 = AtomicU32::new(1);
    let mut stream = dial(at)?;
    let isid = SESSIONS.fetch_add(1, Ordering::Relaxed);
    let begun = login::login(&mut stream, target, lun, isid)
        .with_context(|| format!("login to {target} at {at}"))?;
    let iscsi = Iscsi::new(begun, depth, content.clone());
    Ok(Session::new(stream, Box::new(iscsi), content.clone()))
}

fn number(len: usize) -> u32 {
    u32::try_from(len).expect("a transfer of the load is short")
}

impl Iscsi {
    fn new(begun: Begun, depth: usize, content: Content) -> Iscsi {
        let (tasks, waiting) = (vec![None; depth], VecDeque::new());
        Iscsi { begun, content, tasks, waiting, segment: None }
    }

    /// Whether the target takes one more command. Numbers go round.
    fn has_room(&self) -> bool {
        self.begun.max_cmd_sn.wrapping_sub(self.begun.cmd_sn) < 1 << 31
    }

    fn command(&mut self, lane: usize, step: Step, out: &mut Outbox) {
        self.tasks[lane] = Some(Task { step, came: 0 });
        let (opcode, flags, offset, len) = match step {
            Step::Read { offset, len } => (READ_10, READS, offset, len),
            Step::Write { offset, len } => (WRITE_10, WRITES, offset, len),
            // All of the unit.
            Step::Flush => (SYNCHRONIZE_CACHE_10, 0, 0, 0),
        };
        let block = self.begun.block;
        let place = u32::try_from(offset / block).expect("a measured volume is small");
        let blocks = u16::try_from(len as u64 / block).expect("a transfer of the load is short");
        let mut cdb = [opcode; 10];
        cdb[1] = 0;
        cdb[2..6].copy_from_slice(&place.to_be_bytes());
        cdb[6] = 0;
        cdb[7..9].copy_from_slice(&blocks.to_be_bytes());
        cdb[9] = 0;
        let immediate = match step {
            Step::Write { .. } if self.begun.immediate_data => {
                len.min(self.begun.first_burst).min(self.begun.segment_max)
            }
            _ => 0,
        };
        let head = Head::new(pdu::COMMAND, pdu::FINAL | flags | SIMPLE)
            .with_lun(self.begun.lun)
            .with(pdu::TASK, number(lane))
            .with(pdu::TRANSFER, number(len))
            .with_bytes(32, &cdb)
            .with_data(immediate);
        out.head(&self.numbered(head).0);
        self.begun.cmd_sn = self.begun.cmd_sn.wrapping_add(1);
        if immediate > 0 {
            out.data(offset, immediate);
        }
    }

    fn numbered(&self, head: Head) -> Head {
        head.with(pdu::CMD_SN, self.begun.cmd_sn).with(pdu::EXP_STAT_SN, self.begun.exp_stat_sn)
    }

    fn task(&mut self, head: &Head) -> Result<(usize, &mut Task)> {
        let lane = usize::try_from(head.number(pdu::TASK))?;
        let task = self.tasks.get_mut(lane).and_then(Option::as_mut);
        Ok((lane, task.with_context(|| format!("{:#04x} for no task", head.opcode()))?))
    }

    /// One PDU, whose data comes as a segment after it.
    fn pdu(&mut self, head: &Head, out: &mut Outbox, done: &mut Vec<usize>) -> Result<()> {
        ensure!(!head.has_more_heads(), "more heads than one");
        self.begun.max_cmd_sn = head.number(pdu::MAX_CMD_SN);
        let left = head.data_len();
        let padding = pdu::padding(left);
        match head.opcode() {
            pdu::DATA_IN => self.data_in(head, Segment { offset: 0, left, padding, ends: None }),
            pdu::RESPONSE => {
                self.heard(head);
                let (lane, task) = self.task(head)?;
                check(head, task)?;
                ensure!(left == 0, "a good response has no data, and this has {left} bytes");
                self.tasks[lane] = None;
                done.push(lane);
                Ok(())
            }
            pdu::R2T => self.solicited(head, out),
            pdu::NOP_IN => {
                ensure!(left == 0, "a ping with {left} bytes");
                self.pong(head, out);
                Ok(())
            }
            other => bail!("the target sends {other:#04x}: {:02x?}", head.0),
        }
    }

    /// It has a number of its own, which tells the target that we have it.
    fn heard(&mut self, head: &Head) {
        self.begun.exp_stat_sn = head.number(pdu::STAT_SN).wrapping_add(1);
    }

    fn data_in(&mut self, head: &Head, segment: Segment) -> Result<()> {
        let has_status = head.flags() & HAS_STATUS != 0;
        if has_status {
            self.heard(head);
        }
        let from = usize::try_from(head.number(40))?;
        let (lane, task) = self.task(head)?;
        let Step::Read { offset, len } = task.step else { bail!("data for {:?}", task.step) };
        let fits = from == task.came && from + segment.left <= len;
        ensure!(fits, "{} bytes from {from} on, of {len}", segment.left);
        task.came += segment.left;
        if has_status {
            check(head, task)?;
        }
        let ends = has_status.then_some(lane);
        self.segment = Some(Segment { offset: offset + from as u64, ends, ..segment });
        Ok(())
    }

    /// Sends what the target asks for.
    fn solicited(&mut self, head: &Head, out: &mut Outbox) -> Result<()> {
        let (from, wanted) = (usize::try_from(head.number(40))?, usize::try_from(head.number(44))?);
        let (_, task) = self.task(head)?;
        let Step::Write { offset, len } = task.step else { bail!("R2T for {:?}", task.step) };
        let fits = wanted > 0 && from.checked_add(wanted).is_some_and(|end| end <= len);
        ensure!(fits, "{wanted} bytes from {from} on are wanted, of {len}");
        let mut sent = 0;
        for sequence in 0.. {
            let part = (wanted - sent).min(self.begun.segment_max);
            let is_last = sent + part == wanted;
            let data = Head::new(pdu::DATA_OUT, if is_last { pdu::FINAL } else { 0 })
                .with_lun(self.begun.lun)
                .with(pdu::TASK, head.number(pdu::TASK))
                .with(20, head.number(20))
                .with(pdu::EXP_STAT_SN, self.begun.exp_stat_sn)
                .with(36, sequence)
                .with(40, number(from + sent))
                .with_data(part);
            out.head(&data.0);
            out.data(offset + (from + sent) as u64, part);
            sent += part;
            if is_last {
                break;
            }
        }
        Ok(())
    }

    fn pong(&mut self, head: &Head, out: &mut Outbox) {
        let tag = head.number(20);
        if tag != pdu::NONE {
            let nop = Head::new(pdu::NOP_OUT | pdu::IMMEDIATE, pdu::FINAL)
                .with_bytes(pdu::LUN, &head.0[pdu::LUN..pdu::TASK])
                .with(pdu::TASK, pdu::NONE)
                .with(20, tag);
            out.head(&self.numbered(nop).0);
        }
    }

    /// The rest of a segment; `None` if more of it is to come.
    fn data<'a>(&mut self, bytes: &'a [u8], done: &mut Vec<usize>) -> Result<Option<&'a [u8]>> {
        let Some(segment) = &mut self.segment else { return Ok(Some(bytes)) };
        let (data, rest) = bytes.split_at(segment.left.min(bytes.len()));
        ensure!(self.content.is_like(segment.offset, data), "wrong data at {}", segment.offset);
        segment.offset += data.len() as u64;
        segment.left -= data.len();
        let (padding, rest) = rest.split_at(segment.padding.min(rest.len()));
        segment.padding -= padding.len();
        if segment.left + segment.padding > 0 {
            return Ok(None);
        }
        if let Some(lane) = segment.ends {
            self.tasks[lane] = None;
            done.push(lane);
        }
        self.segment = None;
        Ok(Some(rest))
    }
}

/// Status, and that nothing is missing.
fn check(head: &Head, task: &Task) -> Result<()> {
    let status = head.0[3];
    ensure!(status == 0, "{:?} ended with status {status:#04x}", task.step);
    match task.step {
        Step::Read { len, .. } => ensure!(task.came == len, "{} of {len} bytes came", task.came),
        Step::Write { .. } | Step::Flush => {}
    }
    Ok(())
}

impl Protocol for Iscsi {
    fn begin(&mut self, lane: usize, step: Step, out: &mut Outbox) {
        if self.has_room() && self.waiting.is_empty() {
            self.command(lane, step, out);
        } else {
            self.waiting.push_back((lane, step));
        }
    }

    fn take(&mut self, bytes: &[u8], out: &mut Outbox, done: &mut Vec<usize>) -> Result<usize> {
        let mut rest = bytes;
        while let Some(after) = self.data(rest, done)? {
            rest = after;
            let Some((head, after)) = rest.split_first_chunk::<HEAD>() else {
                break;
            };
            self.pdu(&Head(*head), out, done)?;
            rest = after;
        }
        while self.has_room() {
            let Some((lane, step)) = self.waiting.pop_front() else { break };
            self.command(lane, step, out);
        }
        let left = if self.segment.is_some() { 0 } else { rest.len() };
        Ok(bytes.len() - left)
    }

    fn farewell(&mut self, out: &mut Outbox) {
        let head = Head::new(pdu::LOGOUT | pdu::IMMEDIATE, pdu::FINAL);
        out.head(&self.numbered(head).0);
    }

    fn size(&self) -> u64 {
        self.begun.block * self.begun.blocks
    }
}
