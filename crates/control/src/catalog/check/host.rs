//! Hosts.
use proto::v1::Host;

use crate::catalog::check::{Checked, ensure, pairs};

pub fn check(key: &str, host: &Host) -> Checked {
    ensure(host.name == key, "host.name", || format!("the key says {key}"))?;
    pairs("host.topology", &host.topology)
}
