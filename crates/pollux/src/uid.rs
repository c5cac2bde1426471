//! Identities of pools, volumes and snapshots.
use anyhow::Result;
use pollux::proof;

/// A random uuid, marked as such (version 4).
pub fn fresh() -> Result<[u8; 16]> {
    let mut uuid: [u8; 16] = proof::entropy()?;
    uuid[6] = uuid[6] & 0x0f | 0x40;
    uuid[8] = uuid[8] & 0x3f | 0x80;
    Ok(uuid)
}

/// 32 hexadecimal digits, as they stand in names.
pub fn hex(uid: &[u8; 16]) -> String {
    format!("{:032x}", u128::from_be_bytes(*uid))
}

pub fn from_hex(text: &str) -> Option<[u8; 16]> {
    let digits = text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    digits.then(|| u128::from_str_radix(text, 16).ok().map(u128::to_be_bytes)).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uid_in_a_name_is_read_back() {
        let uid = fresh().unwrap();
        assert_eq!(from_hex(&hex(&uid)), Some(uid));
        for text in
            ["", "0", "+0000000000000000000000000000000", "g0000000000000000000000000000000"]
        {
            assert_eq!(from_hex(text), None);
        }
    }
}
