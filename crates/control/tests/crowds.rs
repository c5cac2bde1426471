//! Connections that say nothing, half a word or half a handshake, more of them than a listener has places: clients of the API and of the
//! catalog are answered all the same, and soon.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on says so by its line")]
mod site;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime};

use certs::{Authority, Identity, Name, Trust, Validity};
use control::api::{Client, Endpoint};
use control::catalog;
use control::controller::Settings;
use control::serve::{Options, serve};
use proto::v1::Kind;
use site::Scratch;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::oneshot;

/// More than all places of a listener, those of proved connections included.
const CROWD: usize = 1300;

/// Twice the grace of an idle connection, for two generations of the crowd, and time for a busy machine.
const SOON: Duration = Duration::from_secs(8);

/// The begin of a TLS handshake, and nothing behind it.
const HALF_HANDSHAKE: &[u8] = &[0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3];

/// The first words of HTTP/2.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

struct Control {
    api: SocketAddr,
    catalog: SocketAddr,
    scratch: Scratch,
    trust: Option<Trust>,
    identity: Option<Identity>,
    _stop: oneshot::Sender<()>,
}

fn issue(authority: &Authority, scratch: &Scratch, name: &Name) -> PathBuf {
    let valid = Validity::of_certificate(SystemTime::now());
    let issued = authority.issue(name, &[], valid).unwrap();
    issued.write(&scratch.path("certs")).unwrap()
}

async fn control(secured: bool) -> Control {
    let scratch = Scratch::new();
    let mut catalog: catalog::Options = site::plain(scratch.path("catalog"), 0);
    let (mut trust, mut identity) = (None, None);
    if secured {
        let authority = Authority::make(Validity::of_authority(SystemTime::now())).unwrap();
        let own = issue(&authority, &scratch, &Name::catalog());
        trust = Some(Trust::load(&own.join("ca.crt")).unwrap());
        catalog.tls = Some(own);
        let node = issue(&authority, &scratch, &Name::node(1));
        identity = Some(Identity::load(&node).unwrap());
    }
    let options = Options {
        catalog,
        api: "127.0.0.1:0".parse().unwrap(),
        token_file: scratch.path("admin.token"),
        settings: Settings::default(),
    };
    let (ready, told) = oneshot::channel();
    let (stop, stopped) = oneshot::channel::<()>();
    tokio::spawn(async move {
        let ready = |at| {
            ready.send(at).unwrap();
            Ok(())
        };
        let until = async {
            let _ = stopped.await;
        };
        serve(options, ready, until).await.unwrap();
    });
    let at = told.await.unwrap();
    Control { api: at.api, catalog: at.catalog, scratch, trust, identity, _stop: stop }
}

impl Control {
    /// How long a client of the API waits for its answer.
    async fn ask_api(&self) -> Duration {
        let token = std::fs::read_to_string(self.scratch.path("admin.token")).unwrap();
        let (address, token) = (self.api.to_string(), token.trim().into());
        let client = Client::new(Endpoint { address, token, trust: self.trust.clone() });
        let begun = Instant::now();
        loop {
            // A client gives up after 5 s, and people try again.
            match client.volumes("", 10).await {
                Ok(_) => return begun.elapsed(),
                Err(error) if begun.elapsed() > 2 * SOON => panic!("{error}"),
                Err(_) => {}
            }
        }
    }

    async fn ask_catalog(&self) -> Duration {
        let begun = Instant::now();
        loop {
            let client = site::secured(self.catalog, self.identity.as_ref());
            match client.list(Kind::Volume).await {
                Ok(_) => return begun.elapsed(),
                Err(error) if begun.elapsed() > 2 * SOON => panic!("{error}"),
                Err(_) => {}
            }
        }
    }
}

/// Connections that say this, and no more. Those that the kernel has no place for are not among them.
async fn crowd(at: SocketAddr, word: &[u8]) -> Vec<TcpStream> {
    let mut crowd = Vec::new();
    for _ in 0..CROWD {
        let connect = tokio::time::timeout(Duration::from_millis(500), TcpStream::connect(at));
        let Ok(Ok(mut stream)) = connect.await else { break };
        stream.write_all(word).await.unwrap();
        crowd.push(stream);
    }
    assert!(crowd.len() > 1024, "{} connections are no crowd", crowd.len());
    crowd
}

fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

async fn come_back(before: usize) {
    let begun = Instant::now();
    while descriptors() > before {
        assert!(begun.elapsed() < SOON, "{} descriptors, and {before} before", descriptors());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// One after the other: they count the descriptors of their process.
#[tokio::test(flavor = "current_thread")]
async fn clients_are_answered_in_a_crowd() {
    let plain = control(false).await;
    let secured = control(true).await;
    for control in [&plain, &secured] {
        control.ask_api().await;
        control.ask_catalog().await;
    }
    // The controllers have their own connections to their catalogs by now.
    let before = descriptors() + 4;
    for (what, control, word) in [
        ("headers that do not end", &plain, &b"GET /v1/volumes HTTP/1.1\r\nhost:"[..]),
        ("half handshakes", &secured, HALF_HANDSHAKE),
        ("silence", &secured, b""),
    ] {
        let crowd = crowd(control.api, word).await;
        let took = control.ask_api().await;
        println!("the API behind {} connections of {what}: {took:.1?}", crowd.len());
        assert!(took < SOON, "{what}: {took:?}");
        drop(crowd);
        come_back(before).await;
    }
    for (what, control, word) in [
        ("callers that ask nothing", &plain, PREFACE),
        ("silent callers", &plain, &b""[..]),
        ("half handshakes", &secured, HALF_HANDSHAKE),
    ] {
        let crowd = crowd(control.catalog, word).await;
        let took = control.ask_catalog().await;
        println!("the catalog behind {} connections of {what}: {took:.1?}", crowd.len());
        assert!(took < SOON, "{what}: {took:?}");
        drop(crowd);
        come_back(before).await;
    }
    slow_headers_are_cut_off(&plain).await;
}

/// A client that sends its headers one byte at a time is closed, though it is never silent for long.
async fn slow_headers_are_cut_off(control: &Control) {
    let mut stream = TcpStream::connect(control.api).await.unwrap();
    let begun = Instant::now();
    stream.write_all(b"GET /v1/volumes HTTP/1.1\r\nx-slow: ").await.unwrap();
    let mut answer = [0; 256];
    loop {
        // An error here is a connection that is closed, as it should be.
        let sent = stream.write_all(b"a").await;
        let pause = Duration::from_millis(200);
        let read = tokio::time::timeout(pause, stream.read(&mut answer)).await;
        if sent.is_err() || matches!(read, Ok(Ok(0) | Err(_))) {
            break;
        }
        assert!(begun.elapsed() < SOON, "it is still read");
    }
    println!("slow headers are cut off after {:.1?}", begun.elapsed());
}
