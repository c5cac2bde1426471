//! A catalog in a thread or in a process of its own, clients, and what they store.
#![allow(dead_code, reason = "each test uses its part")]

use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::thread::JoinHandle;

use certs::{Identity, Name};
use control::catalog::{Options, ServeError, serve};
use proto::catalog_client::Client;
use proto::v1::swap_request::Change;
use proto::v1::{Deletion, Key, Kind, Membership, Object, Quorum, Role, Volume};
use tokio::sync::oneshot;

pub struct Scratch(PathBuf);

impl Scratch {
    pub fn new() -> Scratch {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("pollux-site-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        fs::create_dir(&path).expect("a folder for the test");
        Scratch(path)
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A catalog that runs in a thread, until it is stopped or dropped.
pub struct Running {
    pub address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<Result<(), ServeError>>>,
}

pub fn start(options: Options) -> Result<Running, ServeError> {
    let (ready, told) = mpsc::channel();
    let (stop, stopped) = oneshot::channel::<()>();
    let thread = std::thread::spawn(move || {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.enable_all().build().expect("a runtime");
        let ready = |address| {
            ready.send(address).expect("somebody waits");
            Ok(())
        };
        runtime.block_on(serve(&options, ready, async {
            let _ = stopped.await;
        }))
    });
    match told.recv() {
        Ok(address) => Ok(Running { address, stop: Some(stop), thread: Some(thread) }),
        Err(_) => Err(thread.join().expect("no panic").expect_err("it was never ready")),
    }
}

impl Running {
    pub fn stop(mut self) {
        self.end().expect("it ends well");
    }

    fn end(&mut self) -> Result<(), ServeError> {
        if let Some(stop) = self.stop.take() {
            let _ = stop.send(());
        }
        self.thread.take().map_or(Ok(()), |thread| thread.join().expect("no panic"))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.end();
    }
}

/// A catalog has an address of its own on this machine, so that nobody takes its port while it is away.
pub fn plain(file: PathBuf, port: u16) -> Options {
    let print = file
        .to_string_lossy()
        .bytes()
        .fold(7_u32, |print, byte| print.wrapping_mul(16_777_619) ^ u32::from(byte));
    let [a, b, c, _] = print.to_be_bytes();
    Options { file, listen: SocketAddr::from(([127, a, b, c.clamp(1, 254)], port)), tls: None }
}

pub fn client(address: SocketAddr) -> Client {
    secured(address, None)
}

pub fn secured(address: SocketAddr, identity: Option<&Identity>) -> Client {
    let channel = certs::channel(&address.to_string(), &Name::catalog(), identity);
    Client::new(channel.expect("an address"))
}

/// Runs a test's clients.
pub fn block_on<T>(future: impl Future<Output = T>) -> T {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    runtime.enable_all().build().expect("a runtime").block_on(future)
}

pub fn key(name: &str) -> Key {
    Key { kind: Kind::Volume.into(), name: name.into() }
}

/// A volume of so many blocks: what tells one change from another.
pub fn volume(name: &str, blocks: u64) -> Change {
    let quorum = Quorum {
        role: Role::Primary.into(),
        membership: Some(Membership::default()),
        ..Quorum::default()
    };
    Change::Volume(Volume {
        uid: name.bytes().cycle().take(16).collect(),
        name: name.into(),
        size: blocks * 4096,
        block_size: 4096,
        compression: "off".into(),
        quorum: Some(quorum),
        ..Volume::default()
    })
}

pub fn deletion() -> Change {
    Change::Delete(Deletion {})
}

/// How many blocks an object has; `None`: it was deleted.
pub fn blocks(object: &Object) -> Option<u64> {
    use proto::v1::object::Body;
    match object.body.as_ref()? {
        Body::Volume(volume) => Some(volume.size / 4096),
        other => panic!("nobody stored {other:?}"),
    }
}

pub fn name(object: &Object) -> String {
    object.key.as_ref().expect("an object has a key").name.clone()
}

/// Numbers by chance, the same for the same seed.
pub struct Rng(pub u64);

impl Rng {
    pub fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % bound
    }

    pub fn one_in(&mut self, bound: u64) -> bool {
        self.below(bound) == 0
    }
}
