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
    /// Whatever is not written is lost: what waits for that fails, and nothing stands in the way of a stop.
    Abandon,
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
    /// Writes that were answered with an error; `None`: the process does not see them.
    #[serde(default)]
    pub failed_writes: Option<u64>,
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
    /// Something that was written would be lost, and why.
    Unwritten(String),
    /// Everything was written, and has to be made durable first.
    NotDurable(String),
}

#[derive(Debug, Error)]
pub enum OrderError {
    /// No process is there.
    #[error("the attachment's process does not answer: {0}")]
    Gone(io::Error),
    /// It is there, and at work.
    #[error("the attachment's process has not answered for {ANSWER_MAX:?}: ask again")]
    Slow,
    #[error("something that was written would be lost: {0}")]
    Unwritten(String),
    #[error("{0}")]
    NotDurable(String),
    #[error("the attachment's process answered in another way than it should: {0}")]
    Strange(String),
    #[error("{0}")]
    Failed(String),
}

/// Tells the process that listens there.
pub fn tell(socket: &Path, order: Order) -> Result<Status, OrderError> {
    tell_within(socket, order, ANSWER_MAX)
}

fn tell_within(socket: &Path, order: Order, within: Duration) -> Result<Status, OrderError> {
    let asked = || {
        let mut stream = UnixStream::connect(socket)?;
        stream.set_read_timeout(Some(within))?;
        stream.set_write_timeout(Some(within))?;
        write_line(&mut stream, &order)?;
        let mut line = String::new();
        BufReader::new(stream.take(LINE_MAX)).read_line(&mut line)?;
        Ok(line)
    };
    let line = asked().map_err(|error: io::Error| match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => OrderError::Slow,
        _ => OrderError::Gone(error),
    })?;
    if line.is_empty() {
        return Err(OrderError::Gone(io::ErrorKind::UnexpectedEof.into()));
    }
    match serde_json::from_str(&line) {
        Ok(Reply::Done(status)) => Ok(status),
        Ok(Reply::Failed(reason)) => Err(OrderError::Failed(reason)),
        Ok(Reply::Unwritten(reason)) => Err(OrderError::Unwritten(reason)),
        Ok(Reply::NotDurable(reason)) => Err(OrderError::NotDurable(reason)),
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

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    /// Protects from taking a process that still writes for one that is gone: what it serves would be cut off.
    #[test]
    fn who_takes_long_is_not_gone() {
        let socket = std::env::temp_dir().join(format!("pollux-orders-{}", std::process::id()));
        // It is in the folder for temporary files.
        let _ = std::fs::remove_file(&socket);
        let gone = tell(&socket, Order::Stop).expect_err("nobody is there");
        assert!(matches!(gone, OrderError::Gone(_)), "{gone}");
        let listener = UnixListener::bind(&socket).expect("a socket");
        let slow = tell_within(&socket, Order::Stop, Duration::from_millis(50));
        assert!(matches!(slow, Err(OrderError::Slow)), "{slow:?}");
        drop(listener);
        let gone = tell(&socket, Order::Stop).expect_err("nobody is there any more");
        assert!(matches!(gone, OrderError::Gone(_)), "{gone}");
        let _ = std::fs::remove_file(&socket);
    }
}
