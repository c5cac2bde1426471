//! Frames of requests.
use std::io::{self, IoSlice, Write};
use std::sync::Arc;

use frontend::nbd::wire::{REQUEST_LEN, REQUEST_MAGIC, command, command_flag};

use super::pending::Work;

/// One request as it is sent. What it writes is not copied.
pub struct Frame {
    head: [u8; REQUEST_LEN],
    work: Option<Arc<Work>>,
}

impl Frame {
    pub fn new(cookie: u64, work: Arc<Work>) -> Frame {
        let (kind, flags, at, len) = match &*work {
            Work::Read { at, len } => (command::READ, 0, at.0, len.0),
            Work::Write { at, data } => (command::WRITE, 0, at.0, data.len() as u64),
            Work::Flush => (command::FLUSH, 0, 0, 0),
            Work::Discard { at, len } => (command::TRIM, 0, at.0, len.0),
            Work::Zero { at, len } => (command::WRITE_ZEROES, command_flag::NO_HOLE, at.0, len.0),
        };
        let len = u32::try_from(len).expect("requests are cut before they come here");
        Frame { head: head(kind, flags, cookie, at, len), work: Some(work) }
    }

    /// Nothing comes after it.
    pub fn goodbye() -> Frame {
        Frame { head: head(command::DISC, 0, 0, 0, 0), work: None }
    }

    pub fn send(&self, to: &mut impl Write) -> io::Result<()> {
        match self.work.as_deref() {
            Some(Work::Write { data, .. }) => write_both(to, &self.head, data),
            _ => to.write_all(&self.head),
        }
    }
}

fn head(kind: u16, flags: u16, cookie: u64, at: u64, len: u32) -> [u8; REQUEST_LEN] {
    let mut head = [0; REQUEST_LEN];
    head[..4].copy_from_slice(&REQUEST_MAGIC.to_be_bytes());
    head[4..6].copy_from_slice(&flags.to_be_bytes());
    head[6..8].copy_from_slice(&kind.to_be_bytes());
    head[8..16].copy_from_slice(&cookie.to_be_bytes());
    head[16..24].copy_from_slice(&at.to_be_bytes());
    head[24..].copy_from_slice(&len.to_be_bytes());
    head
}

/// In one call as a rule: a head that is sent by itself costs a packet.
fn write_both(to: &mut impl Write, head: &[u8], data: &[u8]) -> io::Result<()> {
    let sent = loop {
        match to.write_vectored(&[IoSlice::new(head), IoSlice::new(data)]) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(sent) => break sent,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    };
    match sent.checked_sub(head.len()) {
        Some(of_data) => to.write_all(&data[of_data..]),
        None => {
            to.write_all(&head[sent..])?;
            to.write_all(data)
        }
    }
}
