//! Protects from a catalog that speaks to strangers, or that refuses without a word.
mod site;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use certs::{Authority, Identity, Name, Validity};
use control::catalog::{Options, ServeError};
use proto::catalog_client::CallError;
use proto::v1::Kind;
use site::{Scratch, block_on, key, plain, secured, start, volume};

fn issue(authority: &Authority, scratch: &Scratch, folder: &str, name: &Name) -> PathBuf {
    let valid = Validity::of_certificate(SystemTime::now());
    let issued = authority.issue(name, &[], valid).expect("a certificate");
    issued.write(&scratch.path(folder)).expect("it can be written")
}

fn authority() -> Authority {
    Authority::make(Validity::of_authority(SystemTime::now())).expect("an authority")
}

fn options(scratch: &Scratch, listen: [u8; 4], tls: Option<PathBuf>) -> Options {
    Options { file: scratch.path("catalog"), listen: SocketAddr::from((listen, 0)), tls }
}

fn refusal(address: SocketAddr, identity: Option<&Identity>) -> String {
    let listed = block_on(async { secured(address, identity).list(Kind::Volume).await });
    let error = listed.expect_err("it must be refused");
    assert!(matches!(error, CallError::Unreachable { .. }), "{error}");
    error.to_string()
}

#[test]
fn participants_of_the_site_are_served() {
    let (scratch, authority) = (Scratch::new(), authority());
    let tls = issue(&authority, &scratch, "certs", &Name::catalog());
    let node = issue(&authority, &scratch, "certs", &Name::node(1));
    let catalog = start(options(&scratch, [0, 0, 0, 0], Some(tls))).expect("it serves");
    let node = Identity::load(&node).unwrap();
    let address = SocketAddr::from(([127, 0, 0, 1], catalog.address.port()));
    block_on(async {
        let client = secured(address, Some(&node));
        client.swap(&key("a"), 0, volume("a", 1)).await.expect("it is stored");
        assert_eq!(client.list(Kind::Volume).await.unwrap().len(), 1);
    });
}

#[test]
fn strangers_are_refused_and_told_why() {
    let scratch = Scratch::new();
    let (ours, theirs) = (authority(), authority());
    let tls = issue(&ours, &scratch, "ours", &Name::catalog());
    let catalog = start(options(&scratch, [127, 0, 0, 1], Some(tls))).expect("it serves");

    // Of another site: it does not believe the catalog.
    let stranger = issue(&theirs, &scratch, "theirs", &Name::node(1));
    let stranger_folder = stranger.clone();
    let stranger = Identity::load(&stranger).unwrap();
    let text = refusal(catalog.address, Some(&stranger));
    assert!(text.contains("UnknownIssuer"), "{text}");

    // The same, but it believes both sites: the catalog does not believe it.
    let both = ["ours/catalog", "theirs/node-1"]
        .map(|folder| std::fs::read_to_string(scratch.path(folder).join("ca.crt")).unwrap());
    std::fs::write(stranger_folder.join("ca.crt"), both.concat()).unwrap();
    let stranger = Identity::load(&stranger_folder).unwrap();
    let text = refusal(catalog.address, Some(&stranger));
    assert!(text.contains("alert") && text.contains("UnknownCA"), "{text}");

    // Without any certificate, and without TLS.
    refusal(catalog.address, None);
}

#[test]
fn somebody_else_of_the_site_is_not_the_catalog() {
    let (scratch, authority) = (Scratch::new(), authority());
    let impostor = issue(&authority, &scratch, "certs", &Name::node(2));
    let node = issue(&authority, &scratch, "certs", &Name::node(1));
    let catalog = start(options(&scratch, [127, 0, 0, 1], Some(impostor))).expect("it serves");
    let node = Identity::load(&node).unwrap();
    let text = refusal(catalog.address, Some(&node));
    assert!(text.contains("not valid for name"), "{text}");
}

#[test]
fn a_certificate_that_expired_starts_no_catalog() {
    let (scratch, authority) = (Scratch::new(), authority());
    let day = Duration::from_secs(24 * 60 * 60);
    let now = SystemTime::now();
    let valid = Validity { from: now - 9 * day, until: now - day };
    let old = authority.issue(&Name::catalog(), &[], valid).unwrap();
    let old = old.write(&scratch.path("certs")).unwrap();
    let Err(error) = start(options(&scratch, [127, 0, 0, 1], Some(old))) else {
        panic!("it must be refused");
    };
    assert!(error.to_string().contains("expired on"), "{error}");
}

#[test]
fn without_certificates_no_other_machine_is_served_or_called() {
    let scratch = Scratch::new();
    let Err(error) = start(options(&scratch, [0, 0, 0, 0], None)) else {
        panic!("it must be refused");
    };
    assert!(matches!(error, ServeError::Listen(_)), "{error}");
    assert!(error.to_string().contains("--tls"), "{error}");
    assert!(!scratch.path("catalog").exists(), "nothing was made");
    let text = refusal(SocketAddr::from(([192, 0, 2, 1], 7000)), None);
    assert!(text.contains("another machine"), "{text}");
}

#[test]
fn a_file_that_is_in_use_starts_no_second_catalog() {
    let scratch = Scratch::new();
    let _first = start(plain(scratch.path("catalog"), 0)).expect("it serves");
    let Err(error) = start(plain(scratch.path("catalog"), 0)) else {
        panic!("it must be refused");
    };
    assert!(error.to_string().contains("open in another process"), "{error}");
}
