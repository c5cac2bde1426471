use super::*;
use crate::api::types::{Attachment as Attached, Target};
use crate::csi::fixture::volume;

#[test]
fn only_what_the_target_offers_is_chosen() {
    let mut volume = volume();
    let offering = |nbd: &str| Target {
        node: "node-1".into(),
        serving: true,
        iqn: String::new(),
        iscsi: String::new(),
        nbd: nbd.into(),
    };
    volume.target = Some(offering(""));
    let error = choose(&volume, Some(Way::Fuse)).unwrap_err().to_string();
    assert!(error.contains("no fuse: the volume's node does not offer it"), "{error}");
    assert!(choose(&volume, None).is_err());
    // Nobody serves it now: whoever does later will offer what all do.
    volume.target = None;
    let error = choose(&volume, Some(Way::Fuse)).err().map(|error| error.to_string());
    assert!(error.is_none_or(|error| !error.contains("does not offer")));
}

#[test]
fn a_host_that_may_only_read_gets_a_device_to_read() {
    let attached = |host: &str, read_only| Attached {
        host: host.into(),
        initiator: "iqn.w".into(),
        read_only,
        since_ms: 1,
    };
    let mut volume = volume();
    volume.attachments = vec![attached("worker-1", true), attached("worker-2", false)];
    assert!(is_read_only(&volume, "worker-1"));
    assert!(!is_read_only(&volume, "worker-2"));
    assert!(!is_read_only(&volume, "worker-3"));
}

/// Protects from a secret in a log of the driver.
#[test]
fn a_secret_is_handed_on_and_not_shown() {
    let of = Credential {
        user: "ann".into(),
        secret: "open sesame open".into(),
        mutual_user: "target".into(),
        mutual_secret: "close sesame close".into(),
    };
    let handed = secret(of);
    assert_eq!((&*handed.user, &*handed.secret), ("ann", "open sesame open"));
    assert_eq!(handed.mutual_secret, "close sesame close");
    assert!(!format!("{handed:?}").contains("sesame"));
}
