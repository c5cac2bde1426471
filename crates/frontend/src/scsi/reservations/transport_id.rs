//! Initiator ports as SCSI names them: the iSCSI name, `,i,0x`, and the session identifier.
use crate::scsi::bytes::{short, u16_at};
use crate::scsi::words::InitiatorPort;

const HEADER: usize = 4;
/// iSCSI, with the identifier of a session.
const ISCSI_PORT: u8 = 0x45;
const SEPARATOR: &str = ",i,0x";
const ISID_DIGITS: usize = 12;
/// An iSCSI name is at most this long.
pub(super) const NAME_MAX: usize = 223;

pub(super) fn encode(port: &InitiatorPort) -> Vec<u8> {
    let isid: String = port.isid.iter().map(|byte| format!("{byte:02x}")).collect();
    let text = format!("{}{SEPARATOR}{isid}", port.name);
    let len = (text.len() + 1).next_multiple_of(4).max(20);
    let mut bytes = vec![ISCSI_PORT, 0];
    bytes.extend(short(len));
    bytes.extend(text.into_bytes());
    bytes.resize(HEADER + len, 0);
    bytes
}

/// The port that begins a list, and how many bytes it takes. Names without a session are no
/// ports, and other transports end nowhere here.
pub(super) fn decode(bytes: &[u8]) -> Option<(InitiatorPort, usize)> {
    let header = bytes.get(..HEADER)?;
    let len = usize::from(u16_at(header, 2));
    let text = bytes[HEADER..].get(..len)?;
    if header[0] != ISCSI_PORT || len < 20 || !len.is_multiple_of(4) {
        return None;
    }
    let text = text.split(|byte| *byte == 0).next()?;
    let (name, isid) = std::str::from_utf8(text).ok()?.split_once(SEPARATOR)?;
    if name.is_empty() || name.len() > NAME_MAX {
        return None;
    }
    let port = InitiatorPort { name: name.to_owned(), isid: parse_isid(isid)? };
    Some((port, HEADER + len))
}

fn parse_isid(digits: &str) -> Option<[u8; 6]> {
    if digits.len() != ISID_DIGITS || !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        return None;
    }
    let number = u64::from_str_radix(digits, 16).ok()?;
    let [_, _, isid @ ..] = number.to_be_bytes();
    Some(isid)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn port() -> InitiatorPort {
        InitiatorPort { name: "iqn.2024-01.org.example:a".into(), isid: [0x40, 0, 1, 0x37, 0, 9] }
    }

    #[test]
    fn a_port_is_read_as_it_was_written() {
        let mut bytes = encode(&port());
        assert_eq!(bytes.len() % 4, 0);
        let len = bytes.len();
        bytes.extend([1, 2, 3]);
        assert_eq!(decode(&bytes), Some((port(), len)));
    }

    #[test]
    fn what_is_no_port_is_refused() {
        let good = encode(&port());
        for len in 0..good.len() {
            assert_eq!(decode(&good[..len]), None);
        }
        let with = |at: usize, byte| {
            let mut bytes = good.clone();
            bytes[at] = byte;
            decode(&bytes)
        };
        assert_eq!(with(0, 0x05), None, "a name without a session");
        assert_eq!(with(0, 0x46), None, "another transport");
        assert_eq!(with(3, good[3] - 1), None, "an odd length");
        assert_eq!(with(HEADER + 26, b'x'), None, "another separator");
        assert_eq!(with(HEADER + 31, b'g'), None, "no digit");
        assert_eq!(with(HEADER, 0), None, "no name");
    }
}
