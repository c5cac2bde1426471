//! How a target is found, and how it is told who comes.
use std::fmt;
use std::net::{TcpStream, ToSocketAddrs};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rustix::net::sockopt;

use super::Plan;
use super::handshake::{self, Disk, HandshakeError};

/// A machine that takes longer to say a word is as good as gone.
const CONNECT_MAX: Duration = Duration::from_secs(3);
/// A login may wait until what an older connection left is finished, and for a target that is about to serve.
const LOGIN_MAX: Duration = Duration::from_secs(30);
/// A peer that is gone without a word is noticed after so long.
const SILENCE_MAX: Duration = Duration::from_secs(8);

/// Where a volume is served, as host:port; empty: not in this way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Where {
    pub nbd: String,
    pub iscsi: String,
}

/// Somebody who knows.
pub trait Whereabouts: Send + Sync {
    /// An error is a sentence: why it is not known.
    fn find(&self) -> Result<Where, String>;
}

/// Name and secret of CHAP, for both sides.
#[derive(Clone, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Secret {
    pub user: String,
    pub secret: String,
    /// Whom the target says to be, and what it has to know; empty: it need not prove anything.
    #[serde(default)]
    pub mutual_user: String,
    #[serde(default)]
    pub mutual_secret: String,
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Secret").field("user", &self.user).finish_non_exhaustive()
    }
}

/// Who comes, and for what.
#[derive(Debug)]
pub struct Identity {
    /// The name that this machine logs in with.
    pub initiator: String,
    /// The volume with its stage, as an export is named.
    pub export: String,
    /// The same for every stage of a volume on this machine: what an earlier one left is replaced (P9).
    pub client: u64,
    /// Of the newest connection; rises with every one, and from stage to stage.
    pub number: AtomicU64,
    pub secret: Option<Secret>,
}

impl Identity {
    fn next_number(&self) -> u64 {
        self.number.fetch_add(1, Ordering::SeqCst) + 1
    }
}

pub struct Connected {
    pub stream: TcpStream,
    pub target: String,
    pub disk: Disk,
}

/// Logs in.
pub fn connect(plan: &Plan) -> Result<Connected, HandshakeError> {
    let target = find(plan)?;
    let mut stream = dial(&target)?;
    let number = plan.identity.next_number();
    let disk = possible(&target, handshake::go(&mut stream, &plan.identity, number)?)?;
    patient(&stream)?;
    Ok(Connected { stream, target, disk })
}

/// How the volume is, over a connection of its own that uses nothing.
pub fn ask(plan: &Plan, known: Disk) -> Result<Disk, HandshakeError> {
    let target = find(plan)?;
    let mut stream = dial(&target)?;
    let disk = possible(&target, handshake::info(&mut stream, &plan.identity)?)?;
    same_block(known, disk, &target)?;
    Ok(disk)
}

fn possible(target: &str, disk: Disk) -> Result<Disk, HandshakeError> {
    match disk.problem() {
        None => Ok(disk),
        Some(problem) => Err(HandshakeError::Geometry { target: target.to_owned(), problem }),
    }
}

/// A volume keeps its block size: what says another one is not this volume.
pub fn same_block(known: Disk, now: Disk, target: &str) -> Result<(), HandshakeError> {
    if known.block == now.block {
        return Ok(());
    }
    let problem = format!("a block size of {}, where it was {}", now.block.0, known.block.0);
    Err(HandshakeError::Geometry { target: target.to_owned(), problem })
}

fn find(plan: &Plan) -> Result<String, HandshakeError> {
    let nowhere = |reason| HandshakeError::Nowhere { reason };
    let found = plan.whereabouts.find().map_err(nowhere)?;
    match found.nbd.is_empty() {
        true => Err(nowhere("its node does not offer NBD".into())),
        false => Ok(found.nbd),
    }
}

fn dial(address: &str) -> Result<TcpStream, HandshakeError> {
    let unreached = |error| HandshakeError::Unreached { address: address.to_owned(), error };
    let mut last = std::io::ErrorKind::AddrNotAvailable.into();
    for address in address.to_socket_addrs().map_err(unreached)? {
        match TcpStream::connect_timeout(&address, CONNECT_MAX) {
            Ok(stream) => {
                stream.set_nodelay(true)?;
                stream.set_read_timeout(Some(LOGIN_MAX))?;
                stream.set_write_timeout(Some(CONNECT_MAX))?;
                return Ok(stream);
            }
            Err(error) => last = error,
        }
    }
    Err(unreached(last))
}

/// From now on replies may take as long as a target holds requests; but a peer that is gone is noticed.
fn patient(stream: &TcpStream) -> Result<(), HandshakeError> {
    stream.set_read_timeout(None)?;
    stream.set_write_timeout(None)?;
    let milliseconds = u32::try_from(SILENCE_MAX.as_millis()).unwrap_or(u32::MAX);
    let set = || {
        sockopt::set_socket_keepalive(stream, true)?;
        sockopt::set_tcp_keepidle(stream, Duration::from_secs(2))?;
        sockopt::set_tcp_keepintvl(stream, Duration::from_secs(2))?;
        sockopt::set_tcp_keepcnt(stream, 3)?;
        sockopt::set_tcp_user_timeout(stream, milliseconds)
    };
    Ok(set().map_err(std::io::Error::from)?)
}
