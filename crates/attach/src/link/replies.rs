//! What comes back.
use std::io::{self, Read};
use std::sync::Mutex;

use frontend::nbd::wire::{SIMPLE_REPLY_MAGIC, u32_at, u64_at};

use super::locked;
use super::pending::{Failure, Pending};

const REPLY_LEN: usize = 16;
/// The number of "I am going": the request may be asked of the next one.
const SHUTTING_DOWN: u32 = 108;
/// What is read from the socket at a time: many small replies, or a good part of a large one.
const BUFFER: usize = 256 << 10;

/// Until the connection ends, and why it did.
pub fn receive(stream: impl Read, pending: &Mutex<Pending>) -> String {
    let mut stream = io::BufReader::with_capacity(BUFFER, stream);
    let mut data = Vec::new();
    loop {
        if let Err(reason) = one(&mut stream, pending, &mut data) {
            return reason;
        }
    }
}

fn one(stream: &mut impl Read, pending: &Mutex<Pending>, data: &mut Vec<u8>) -> Result<(), String> {
    let mut head = [0; REPLY_LEN];
    stream.read_exact(&mut head).map_err(ended)?;
    let (magic, error, cookie) = (u32_at(&head, 0), u32_at(&head, 4), u64_at(&head, 8));
    if magic != SIMPLE_REPLY_MAGIC {
        return Err(format!("the target does not speak NBD: a reply begins with {magic:#x}"));
    }
    if error == SHUTTING_DOWN {
        return Err("the target is shutting down".into());
    }
    // One that was given up is still answered by the target, with its data.
    let Some(len) = locked(pending).awaited(cookie) else {
        return Err(format!("a reply came for request {cookie}, which is not under way"));
    };
    if error == 0 {
        let len = usize::try_from(len.0).expect("reads are cut before they come here");
        data.resize(len, 0);
        stream.read_exact(data).map_err(ended)?;
    }
    let answer = match error {
        0 => locked(pending).take(cookie),
        _ => locked(pending).take_failed(cookie),
    };
    if let Some(answer) = answer {
        answer(if error == 0 { Ok(data) } else { Err(Failure::Target(error)) });
    }
    Ok(())
}

fn ended(error: io::Error) -> String {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => "the target closed the connection".into(),
        _ => error.to_string(),
    }
}
