//! Protects from an API that is spoken in the clear beyond this machine, or with a false site.
use std::path::Path;
use std::sync::mpsc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_stream::StreamExt;

use super::*;
use crate::Authority;
use crate::scratch::{Scratch, authority, issue};

const LOOPBACK: SocketAddr =
    SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 0);

fn block_on<T>(work: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let timed = async { tokio::time::timeout(Duration::from_secs(20), work).await };
    runtime.block_on(timed).expect("it comes to an end")
}

fn somebody(authority: &Authority, name: &Name) -> Identity {
    let scratch = Scratch::new();
    Identity::load(&issue(authority, name, scratch.path())).expect("it is in order")
}

fn trust(authority: &Authority) -> Trust {
    let scratch = Scratch::new();
    authority.write(scratch.path()).expect("it can be written");
    Trust::load(&scratch.path().join("ca/ca.crt")).expect("it is an authority")
}

/// A listener that says back what it hears, its address, and whom it turned away.
async fn echo(identity: Option<&Identity>) -> (String, mpsc::Receiver<String>) {
    let (tell, told) = mpsc::channel();
    let refused = move |_: Option<SocketAddr>, why: &Refused| {
        // Most tests do not listen.
        let _ = tell.send(why.to_string());
    };
    let (address, mut incoming) = listen(LOOPBACK, identity, refused).await.expect("it listens");
    tokio::spawn(async move {
        while let Some(Ok(mut connection)) = incoming.next().await {
            assert!(connection.caller().ip().is_loopback());
            let mut heard = [0; 5];
            connection.read_exact(&mut heard).await.expect("five bytes come");
            connection.write_all(&heard).await.expect("they go back");
            connection.shutdown().await.expect("it is closed");
        }
    });
    (address.to_string(), told)
}

async fn say_hello(io: &mut Box<dyn Io>) -> std::io::Result<String> {
    io.write_all(b"hello").await?;
    io.flush().await?;
    let mut heard = [0; 5];
    io.read_exact(&mut heard).await?;
    Ok(String::from_utf8_lossy(&heard).into())
}

async fn refusal(told: &mpsc::Receiver<String>) -> String {
    loop {
        match told.try_recv() {
            Ok(why) => return why,
            Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
        }
    }
}

#[test]
fn a_client_without_certificate_is_served_by_the_site_that_it_trusts() {
    let authority = authority();
    let (site, trust) = (somebody(&authority, &Name::catalog()), trust(&authority));
    block_on(async {
        let (address, _told) = echo(Some(&site)).await;
        let mut io = connect(&address, Some(&trust)).await.expect("it connects");
        assert_eq!(say_hello(&mut io).await.unwrap(), "hello");
    });
}

#[test]
fn without_certificates_this_machine_is_served() {
    block_on(async {
        let (address, _told) = echo(None).await;
        let mut io = connect(&address, None).await.expect("it connects");
        assert_eq!(say_hello(&mut io).await.unwrap(), "hello");
    });
}

/// A token must not be shown to whoever answers at the address of a site.
#[test]
fn somebody_else_is_not_taken_for_the_site() {
    let (ours, theirs) = (authority(), authority());
    let trust = trust(&ours);
    for other in [somebody(&theirs, &Name::catalog()), somebody(&ours, &Name::node(1))] {
        block_on(async {
            let (address, told) = echo(Some(&other)).await;
            let error = connect(&address, Some(&trust)).await.err();
            assert!(matches!(error, Some(ConnectError::Handshake(_))), "{error:?}");
            assert!(refusal(&told).await.contains("handshake failed"));
        });
    }
}

#[test]
fn nothing_is_said_in_the_clear_beyond_this_machine() {
    block_on(async {
        let everywhere = SocketAddr::from(([0, 0, 0, 0], 0));
        let listened = listen(everywhere, None, |_, _| {}).await.err();
        assert!(matches!(listened, Some(ListenError::PlainBeyondThisMachine { .. })));
        let called = connect("192.0.2.1:7470", None).await.err();
        assert!(matches!(called, Some(ConnectError::NobodyTrusted { .. })), "{called:?}");
    });
}

#[test]
fn whoever_speaks_tls_to_a_plain_end_or_plainly_to_a_secured_one_is_told() {
    let authority = authority();
    let (site, trust) = (somebody(&authority, &Name::catalog()), trust(&authority));
    block_on(async {
        let (address, told) = echo(None).await;
        let error = connect(&address, Some(&trust)).await.err();
        assert!(matches!(error, Some(ConnectError::Handshake(_))), "{error:?}");
        assert!(refusal(&told).await.contains("without, or start it with --tls"));

        let (address, told) = echo(Some(&site)).await;
        let mut io = connect(&address, None).await.expect("a plain connection is made");
        assert_ne!(say_hello(&mut io).await.unwrap_or_default(), "hello", "an alert at the most");
        assert!(refusal(&told).await.contains("handshake failed"));
    });
}

/// Protects from callers that take all places and say nothing.
#[test]
fn whoever_says_nothing_is_let_go() {
    let authority = authority();
    let (site, trust) = (somebody(&authority, &Name::catalog()), trust(&authority));
    block_on(async {
        let (address, told) = echo(Some(&site)).await;
        let _silent = connect(&address, Some(&trust)).await.expect("it connects");
        assert!(refusal(&told).await.contains("took more than"));
        drop(connect(&address, Some(&trust)).await.expect("it connects"));
        let gone = refusal(&told).await;
        assert!(gone.contains("without a word") || gone.contains("handshake"), "{gone}");
    });
}

#[test]
fn what_is_no_address_is_said_to_be_none() {
    for bad in ["", "host", "host:", ":1", "host:x", "host:70000", "[::1:1", "http://host:1"] {
        let error = block_on(connect(bad, None)).err();
        assert!(
            matches!(error, Some(ConnectError::BadAddress { .. } | ConnectError::Connect(_))),
            "{bad}: {error:?}"
        );
    }
}

#[test]
fn what_is_no_authority_is_not_trusted() {
    let missing = Trust::load(Path::new("/nowhere/ca.crt")).expect_err("there is none");
    assert!(missing.to_string().contains("certs issue"), "{missing}");
}
