//! What an attachment's process is told, and what it answers: a line of JSON each, over a socket that only root opens.
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::ways::Way;

/// Longer than any line of ours.
const LINE_MAX: u64 = 64 << 10;
/// Giving a volume back flushes it first, which may wait for a quorum.
const ANSWER_MAX: Duration = Duration::from_secs(90);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Order {
    Status,
    /// Look how large the volume is by now.
    Resize,
    /// Flush, give the device back, and end.
    Stop,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Status {
    pub device: String,
    pub way: Way,
    pub why: String,
    pub stage: u64,
    pub size: u64,
    pub health: Health,
    pub process: u32,
}

/// How the way to the target is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Health {
    Up {
        target: String,
    },
    Away {
        since_ms: u64,
        reason: String,
    },
    /// The target lets this machine in no more: the volume is not attached to it, as the site sees it.
    Denied {
        reason: String,
    },
    Ended {
        reason: String,
    },
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Reply {
    Done(Status),
    Failed(String),
}

#[derive(Debug, Error)]
pub enum OrderError {
    /// No process is there.
    #[error("the attachment's process does not answer: {0}")]
    Gone(io::Error),
    #[error("the attachment's process answered in another way than it should: {0}")]
    Strange(String),
    #[error("{0}")]
    Failed(String),
}

/// Tells the process that listens there.
pub fn tell(socket: &Path, order: Order) -> Result<Status, OrderError> {
    let asked = || {
        let mut stream = UnixStream::connect(socket)?;
        stream.set_read_timeout(Some(ANSWER_MAX))?;
        stream.set_write_timeout(Some(ANSWER_MAX))?;
        write_line(&mut stream, &order)?;
        let mut line = String::new();
        BufReader::new(stream.take(LINE_MAX)).read_line(&mut line)?;
        Ok(line)
    };
    let line = asked().map_err(OrderError::Gone)?;
    if line.is_empty() {
        return Err(OrderError::Gone(io::ErrorKind::UnexpectedEof.into()));
    }
    match serde_json::from_str(&line) {
        Ok(Reply::Done(status)) => Ok(status),
        Ok(Reply::Failed(reason)) => Err(OrderError::Failed(reason)),
        Err(error) => Err(OrderError::Strange(error.to_string())),
    }
}

/// One order from whoever connected, and its answer.
pub fn answer(stream: UnixStream, act: impl FnOnce(Order) -> Reply) -> io::Result<()> {
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    stream.set_write_timeout(Some(Duration::from_secs(5)))?;
    let mut line = String::new();
    BufReader::new((&stream).take(LINE_MAX)).read_line(&mut line)?;
    let reply = match serde_json::from_str(&line) {
        Ok(order) => act(order),
        Err(error) => Reply::Failed(format!("this is no order: {error}")),
    };
    write_line(&mut &stream, &reply)
}

fn write_line(to: &mut impl Write, what: &impl Serialize) -> io::Result<()> {
    let mut line = serde_json::to_vec(what)?;
    line.push(b'\n');
    to.write_all(&line)
}
