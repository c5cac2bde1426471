//! Uids as text: 32 hex digits.
use std::fmt::Write;

pub fn encode(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut text, byte| {
        write!(text, "{byte:02x}").expect("a string takes everything");
        text
    })
}

/// `None`: it is no uid.
pub fn decode(text: &str) -> Option<Vec<u8>> {
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|it| u8::try_from(it).ok());
    if text.len() != 32 {
        return None;
    }
    text.as_bytes().chunks(2).map(|pair| Some(digit(pair[0])? << 4 | digit(pair[1])?)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uid_comes_back_and_nothing_else_is_one() {
        let uid: Vec<u8> = (100..116).collect();
        assert_eq!(decode(&encode(&uid)), Some(uid));
        for text in ["", "ab", "not a uid", "zz000000000000000000000000000000", "é"] {
            assert_eq!(decode(text), None, "{text}");
        }
    }
}
