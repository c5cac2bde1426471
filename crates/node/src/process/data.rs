//! The thread of the data plane: opens pools, listens, runs the shard.
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use certs::session::Sessions;
use disk::FileDisk;
use engine::Pool;
use mio::Poll;
use mio::net::{TcpListener, UnixListener};
use replication::words::{Boot, Powered};
use thiserror::Error;
use tokio::sync::{mpsc, oneshot};
use tracing::{error, info};

use super::Options;
use super::failures::Failures;
use crate::clock::Clock;
use crate::random;
use crate::shard::{Config, Listener, Order, PoolPlace, Report, Service, Shard, kernel_boot};

/// The lock of a killed process lingers until its last IO is over.
const PATIENCE: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(20);

/// `name=path`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolOption {
    pub name: String,
    pub path: PathBuf,
}

#[derive(Debug, Error)]
pub enum DataError {
    #[error("pool `{name}`: {reason}")]
    Pool { name: String, reason: String },
    #[error("{what}: {error}")]
    System { what: String, error: io::Error },
}

pub struct Data {
    pub peers: SocketAddr,
    pub nbd: Option<SocketAddr>,
    pub iscsi: Option<SocketAddr>,
    pub ended: oneshot::Receiver<Result<(), DataError>>,
}

fn system(what: impl Into<String>) -> impl FnOnce(io::Error) -> DataError {
    move |error| DataError::System { what: what.into(), error }
}

/// Returns when the pools are open and the addresses known.
pub fn start(
    options: &Options,
    failures: Failures,
    tls: Option<Sessions>,
    poll: Poll,
    orders: Receiver<Order>,
    report: mpsc::UnboundedSender<Report>,
) -> Result<Data, DataError> {
    let bind = |address: SocketAddr| {
        TcpListener::bind(address).map_err(system(format!("{address} cannot be listened on")))
    };
    let peers = bind(options.peers)?;
    let nbd = options.nbd.map(bind).transpose()?;
    let iscsi = options.iscsi.map(bind).transpose()?;
    let socket = options.nbd_socket.as_deref().map(bind_unix).transpose()?;
    let local = |listener: &TcpListener| listener.local_addr().map_err(system("a bound address"));
    let (peers_at, nbd_at) = (local(&peers)?, nbd.as_ref().map(local).transpose()?);
    let iscsi_at = iscsi.as_ref().map(local).transpose()?;
    let mut listeners = vec![(Listener::Tcp(peers), Service::Peers)];
    listeners.extend(nbd.map(|it| (Listener::Tcp(it), Service::Nbd)));
    listeners.extend(iscsi.map(|it| (Listener::Tcp(it), Service::Iscsi)));
    listeners.extend(socket.map(|it| (Listener::Unix(it), Service::Nbd)));

    let config =
        Config { node: options.id, boot: Boot(random::number()), tls, clock: Clock::default() };
    let pools = options.pools.clone();
    let noted = failures.clone();
    let report = Box::new(move |it| {
        if let Report::PoolFailed { uuid } = &it {
            note(&noted, *uuid);
        }
        // Without a control side the process is about to end.
        let _ = report.send(it);
    });
    let (opened, is_open) = std::sync::mpsc::channel();
    let (end, ended) = oneshot::channel();
    let run = move || {
        let mut shard = Shard::new(config, poll, orders, report);
        let ready = prepare(&mut shard, &failures, pools, listeners);
        let go = ready.is_ok();
        let _ = opened.send(ready);
        if go {
            let _ = end.send(run(&mut shard));
        }
    };
    let thread = std::thread::Builder::new().name("data".into()).spawn(run);
    thread.map_err(system("the thread of the data plane"))?;
    is_open.recv().expect("the thread tells how it began")?;
    Ok(Data { peers: peers_at, nbd: nbd_at, iscsi: iscsi_at, ended })
}

fn run(shard: &mut Shard) -> Result<(), DataError> {
    shard.run().map_err(system("the data plane cannot wait for events"))?;
    shard
        .close_pools()
        .map_err(|error| DataError::Pool { name: "on closing".into(), reason: error.to_string() })
}

/// Done before anything follows from the failure, by the thread that saw it.
fn note(failures: &Failures, pool: [u8; 16]) {
    if let Err(error) = failures.note(pool) {
        error!(%error, "that a pool failed is noted nowhere but in the pool itself");
    }
}

/// The same where the pool cannot be read.
fn note_every(failures: &Failures) {
    if let Err(error) = failures.note_every() {
        error!(%error, "that a pool failed is noted nowhere");
    }
}

fn bind_unix(path: &Path) -> Result<UnixListener, DataError> {
    // What a killed process left behind answers nobody.
    if std::os::unix::net::UnixStream::connect(path).is_err() {
        match std::fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(system(format!("{} cannot be replaced", path.display()))(error));
            }
            _ => {}
        }
    }
    let listener = UnixListener::bind(path)
        .map_err(system(format!("{} cannot be listened on", path.display())))?;
    let only_us = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    std::fs::set_permissions(path, only_us)
        .map_err(system(format!("{} cannot be closed to others", path.display())))?;
    Ok(listener)
}

fn prepare(
    shard: &mut Shard,
    failures: &Failures,
    pools: Vec<PoolOption>,
    listeners: Vec<(Listener, Service)>,
) -> Result<(), DataError> {
    let kernel = kernel_boot().map_err(system("the kernel's boot id"))?;
    for option in pools {
        let refuse = |reason: String| DataError::Pool { name: option.name.clone(), reason };
        let disk = open_disk(&option.path).map_err(|error| refuse(error.to_string()))?;
        let pool = open_pool(disk, failures)
            .map_err(|error| refuse(format!("{}: {error}", option.path.display())))?;
        let found = pool.info();
        let device = failures.device(found.uuid, found.failures);
        let device = device.map_err(system("whether a pool failed before"))?;
        let powered = Powered { kernel, device };
        info!(pool = option.name, path = %option.path.display(), "pool opened");
        let place = PoolPlace { name: option.name.clone(), path: option.path.clone(), powered };
        shard.add_pool(place, pool).map_err(system("a pool cannot be watched"))?;
    }
    for (listener, service) in listeners {
        shard.listen(listener, service).map_err(system("a listener cannot be watched"))?;
    }
    Ok(())
}

/// A flush that fails while a pool is opened is told once: the next start would find nothing wrong.
fn open_pool(mut disk: FileDisk, failures: &Failures) -> Result<Pool<FileDisk>, engine::OpenError> {
    let uuid = engine::pool_uuid(&mut disk).inspect_err(|error| {
        if error.device_failed() {
            note_every(failures);
        }
    })?;
    Pool::open(disk, engine::OpenOptions::default()).inspect_err(|error| {
        if error.device_failed() {
            note(failures, uuid);
        }
    })
}

fn open_disk(path: &Path) -> Result<FileDisk, disk::OpenError> {
    let begun = Instant::now();
    loop {
        match disk::open(path, &disk::OpenOptions::default()) {
            Err(error) if error.is_transient() && begun.elapsed() < PATIENCE => {
                std::thread::sleep(PAUSE);
            }
            other => return other,
        }
    }
}
