//! Nodes.
use proto::v1::Node;

use crate::catalog::check::{Checked, ensure, pairs};
use crate::catalog::limits::ADDRESS_LEN_MAX;

pub fn check(key: &str, node: &Node) -> Checked {
    ensure(node.id > 0, "node.id", || "nodes are numbered from 1".into())?;
    ensure(node.name == key, "node.name", || format!("the key says {key}"))?;
    for (field, address) in [
        ("node.peer_address", &node.peer_address),
        ("node.admin_address", &node.admin_address),
        ("node.iscsi_address", &node.iscsi_address),
        ("node.nbd_address", &node.nbd_address),
    ] {
        ensure(address.is_empty() || is_address(address), field, || {
            "it is no host:port, such as 10.0.0.1:7000 or [fd00::1]:7000".into()
        })?;
    }
    pairs("node.topology", &node.topology)
}

pub fn step(old: &Node, new: &Node) -> Checked {
    ensure(old.id == new.id, "node.id", || format!("it stays {}", old.id))
}

fn is_address(text: &str) -> bool {
    if text.len() > ADDRESS_LEN_MAX {
        return false;
    }
    if let Ok(address) = text.parse::<std::net::SocketAddr>() {
        return address.port() != 0;
    }
    let Some((host, port)) = text.rsplit_once(':') else { return false };
    let digits = !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'.' || byte == b'-';
    let named = host.bytes().all(plain) && host.starts_with(|c: char| c.is_ascii_alphanumeric());
    named && digits && port.parse::<u16>().is_ok_and(|port| port != 0)
}
