//! A portal of iSCSI that serves nobody: it tells every initiator where its target is now.
//!
//! Of the protocol it knows the login request, and one answer to it: class 1, "the target moved temporarily".
//! Initiators come back here when they lose the connection that they were sent to.
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use tracing::warn;

use crate::link::Whereabouts;

const HEAD_LEN: usize = 48;
const LOGIN_REQUEST: u8 = 0x03;
const LOGIN_RESPONSE: u8 = 0x23;
/// "Redirection", "target moved temporarily".
const MOVED: [u8; 2] = [1, 1];
/// "Target error", "service unavailable": try again.
const UNAVAILABLE: [u8; 2] = [3, 1];
/// Far more than the names in a login have.
const DATA_MAX: usize = 64 << 10;
const WORD_MAX: Duration = Duration::from_secs(5);
/// Initiators of this machine that are told at the same time; there is one, but anybody can knock.
const VISITORS_MAX: usize = 32;
const PORTS: std::ops::Range<u16> = 600..1024;

/// Open until it is dropped.
pub struct Portal {
    address: SocketAddr,
    closed: Arc<AtomicBool>,
}

impl Portal {
    pub fn open(whereabouts: Box<dyn Whereabouts>) -> io::Result<Portal> {
        let listener = listen()?;
        let address = listener.local_addr()?;
        let closed = Arc::new(AtomicBool::new(false));
        let is_closed = Arc::clone(&closed);
        let whereabouts: Arc<dyn Whereabouts> = whereabouts.into();
        let visitors = Arc::new(());
        thread::spawn(move || {
            for stream in listener.incoming() {
                if is_closed.load(Ordering::SeqCst) {
                    return;
                }
                match stream {
                    // Who comes now comes again.
                    Ok(_) if Arc::strong_count(&visitors) > VISITORS_MAX => {}
                    Ok(stream) => {
                        let (visitor, whereabouts) =
                            (Arc::clone(&visitors), Arc::clone(&whereabouts));
                        thread::spawn(move || {
                            if let Err(error) = redirect(stream, &*whereabouts) {
                                warn!(%error, "an initiator was not told where its target is");
                            }
                            drop(visitor);
                        });
                    }
                    Err(error) => {
                        warn!(%error, "an initiator could not be let in");
                        thread::sleep(WORD_MAX / 10);
                    }
                }
            }
        });
        Ok(Portal { address, closed })
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Portal {
    fn drop(&mut self) {
        self.closed.store(true, Ordering::SeqCst);
        // So that it looks. If it cannot be reached, it is not there any more.
        let _ = TcpStream::connect_timeout(&self.address, WORD_MAX);
    }
}

/// On a port that only root can have: if this process dies, nobody else can send its initiator elsewhere.
fn listen() -> io::Result<TcpListener> {
    let own = PORTS.rev().find_map(|port| TcpListener::bind(("127.0.0.1", port)).ok());
    own.map_or_else(|| TcpListener::bind("127.0.0.1:0"), Ok)
}

fn redirect(mut stream: TcpStream, whereabouts: &dyn Whereabouts) -> io::Result<()> {
    stream.set_read_timeout(Some(WORD_MAX))?;
    stream.set_write_timeout(Some(WORD_MAX))?;
    let mut head = [0; HEAD_LEN];
    stream.read_exact(&mut head)?;
    if head[0] & 0x3f != LOGIN_REQUEST {
        return Err(io::Error::other("this is no login"));
    }
    let len = usize::from(head[4]) * 4 + length(&head);
    if len > DATA_MAX {
        return Err(io::Error::other("this login is too long"));
    }
    io::copy(&mut (&mut stream).take(padded(len) as u64), &mut io::sink())?;
    stream.write_all(&answer(&head, whereabouts.find().and_then(portal)))
}

fn length(head: &[u8; HEAD_LEN]) -> usize {
    usize::from(head[5]) << 16 | usize::from(head[6]) << 8 | usize::from(head[7])
}

fn padded(len: usize) -> usize {
    len.next_multiple_of(4)
}

/// Initiators take numbers for addresses, names not always.
fn portal(found: crate::link::Where) -> Result<SocketAddr, String> {
    let resolved = found.iscsi.to_socket_addrs().map_err(|error| error.to_string())?.next();
    resolved.ok_or_else(|| "the volume's node does not offer iSCSI".into())
}

fn answer(request: &[u8; HEAD_LEN], found: Result<SocketAddr, String>) -> Vec<u8> {
    let (status, data) = match found {
        Ok(portal) => (MOVED, format!("TargetAddress={portal},1\0").into_bytes()),
        Err(reason) => {
            warn!(reason, "it is not known where the target is");
            (UNAVAILABLE, Vec::new())
        }
    };
    let mut answer = vec![0; HEAD_LEN];
    answer[0] = LOGIN_RESPONSE;
    // The stages that the request was for; without the bit that says that the login goes on.
    answer[1] = request[1] & 0x0f;
    answer[5..8].copy_from_slice(
        &u32::try_from(data.len()).expect("an address is short").to_be_bytes()[1..],
    );
    // The session's number and the task's tag are the initiator's.
    answer[8..20].copy_from_slice(&request[8..20]);
    let command = u32::from_be_bytes([request[24], request[25], request[26], request[27]]);
    answer[28..32].copy_from_slice(&command.to_be_bytes());
    answer[32..36].copy_from_slice(&command.wrapping_add(1).to_be_bytes());
    answer[36..38].copy_from_slice(&status);
    answer.extend_from_slice(&data);
    answer.resize(HEAD_LEN + padded(data.len()), 0);
    answer
}

#[cfg(test)]
mod tests;
