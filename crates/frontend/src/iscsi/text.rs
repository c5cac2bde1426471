//! Text of logins and text requests: `key=value`, each ended by a zero byte.
use super::errors::TextError;

/// From the standard (RFC 7143, 6.1).
const KEY_MAX: usize = 63;

/// Far more than the keys that exist.
const PAIRS_MAX: usize = 256;

/// Words that answer an offer, whatever the key. As an offer they mean nothing.
pub const REJECT: &str = "Reject";
pub const IRRELEVANT: &str = "Irrelevant";
pub const NOT_UNDERSTOOD: &str = "NotUnderstood";

pub type Pair<'a> = (&'a str, &'a str);

/// Splits text into pairs. Zeros beside pairs are padding.
pub fn parse(text: &[u8]) -> Result<Vec<Pair<'_>>, TextError> {
    let mut pairs = Vec::new();
    for part in text.split(|byte| *byte == 0).filter(|part| !part.is_empty()) {
        let part = std::str::from_utf8(part).map_err(|_| TextError::NotUtf8)?;
        let (key, value) = part.split_once('=').ok_or(TextError::NoValue)?;
        let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || b".-+@_/".contains(&byte);
        if key.is_empty() || key.len() > KEY_MAX || !key.bytes().all(is_letter) {
            return Err(TextError::BadKey);
        }
        if pairs.len() == PAIRS_MAX {
            return Err(TextError::TooManyKeys);
        }
        pairs.push((key, value));
    }
    Ok(pairs)
}

/// Text that is being written.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Text(Vec<u8>);

impl Text {
    pub fn say(&mut self, key: &str, value: &str) {
        for part in [key, "=", value, "\0"] {
            self.0.extend_from_slice(part.as_bytes());
        }
    }

    pub fn bytes(&self) -> &[u8] {
        &self.0
    }

    pub fn into_bytes(self) -> Vec<u8> {
        self.0
    }
}

/// A number: decimal, or hexadecimal behind `0x`.
pub fn number(value: &str) -> Option<u64> {
    let digits = |digits: &str, radix| {
        let all = digits.bytes().all(|byte| char::from(byte).is_digit(radix));
        all.then(|| u64::from_str_radix(digits, radix).ok()).flatten()
    };
    match value.strip_prefix("0x").or_else(|| value.strip_prefix("0X")) {
        Some(hex) => digits(hex, 16),
        None => digits(value, 10),
    }
}

pub fn boolean(value: &str) -> Option<bool> {
    match value {
        "Yes" => Some(true),
        "No" => Some(false),
        _ => None,
    }
}

/// Bytes as text: hexadecimal behind `0x`, or base64 behind `0b`. At most `max` bytes.
pub fn binary(value: &str, max: usize) -> Option<Vec<u8>> {
    let (prefix, digits) = value.split_at_checked(2)?;
    let bytes = match prefix {
        "0x" | "0X" if digits.len() <= 2 * max => from_hex(digits)?,
        "0b" | "0B" if digits.len() <= max.div_ceil(3) * 4 => from_base64(digits)?,
        _ => return None,
    };
    (bytes.len() <= max).then_some(bytes)
}

pub fn to_hex(bytes: &[u8]) -> String {
    let digit = |nibble: u8| char::from_digit(nibble.into(), 16).unwrap_or('0');
    let digits = bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]);
    "0x".chars().chain(digits).collect()
}

fn from_hex(digits: &str) -> Option<Vec<u8>> {
    let digits = digits.as_bytes();
    // An odd number of digits has a leading zero that was not written.
    let (lead, rest) = digits.split_at(digits.len() % 2);
    let nibble = |digit: u8| u8::try_from(char::from(digit).to_digit(16)?).ok();
    let lead = lead.iter().map(|digit| nibble(*digit));
    let rest = rest.chunks(2).map(|pair| Some(nibble(pair[0])? << 4 | nibble(pair[1])?));
    lead.chain(rest).collect()
}

fn from_base64(digits: &str) -> Option<Vec<u8>> {
    let full = digits.len();
    let digits = digits.trim_end_matches('=').as_bytes();
    if full - digits.len() > 2 || digits.len() % 4 == 1 {
        return None;
    }
    let mut bytes = Vec::with_capacity(full / 4 * 3);
    for group in digits.chunks(4) {
        let mut bits = 0u32;
        for digit in group {
            bits = bits << 6 | sextet(*digit)?;
        }
        bits <<= 6 * (4 - group.len());
        let [_, a, b, c] = bits.to_be_bytes();
        bytes.extend_from_slice(&[a, b, c][..group.len() - 1]);
    }
    Some(bytes)
}

fn sextet(digit: u8) -> Option<u32> {
    Some(u32::from(match digit {
        b'A'..=b'Z' => digit - b'A',
        b'a'..=b'z' => digit - b'a' + 26,
        b'0'..=b'9' => digit - b'0' + 52,
        b'+' => 62,
        b'/' => 63,
        _ => return None,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_split_into_pairs() {
        assert_eq!(parse(b"A=1\0B=x=y\0\0\0"), Ok(vec![("A", "1"), ("B", "x=y")]));
        assert_eq!(parse(b"A="), Ok(vec![("A", "")]));
        assert_eq!(parse(b""), Ok(vec![]));
        assert_eq!(parse(b"A"), Err(TextError::NoValue));
        assert_eq!(parse(b"=x\0"), Err(TextError::BadKey));
        assert_eq!(parse(b"A B=x\0"), Err(TextError::BadKey));
        assert_eq!(parse(&[b"a".repeat(64), b"=".to_vec()].concat()), Err(TextError::BadKey));
        assert_eq!(parse(b"A=\xff\0"), Err(TextError::NotUtf8));
        assert_eq!(parse(&b"A=1\0".repeat(257)), Err(TextError::TooManyKeys));
    }

    #[test]
    fn numbers_are_digits_and_nothing_else() {
        assert_eq!(number("262144"), Some(262_144));
        assert_eq!(number("0x10"), Some(16));
        for odd in ["", "0x", "+1", "-1", " 1", "1k", "99999999999999999999"] {
            assert_eq!(number(odd), None, "{odd}");
        }
        assert_eq!(
            (boolean("Yes"), boolean("No"), boolean("yes")),
            (Some(true), Some(false), None)
        );
    }

    #[test]
    fn bytes_are_hexadecimal_or_base64() {
        assert_eq!(binary("0xdeadBEEF", 4), Some(vec![0xde, 0xad, 0xbe, 0xef]));
        assert_eq!(binary("0xabc", 4), Some(vec![0x0a, 0xbc]));
        assert_eq!(binary("0bZm9vYmE=", 5), Some(b"fooba".to_vec()));
        assert_eq!(binary("0bZm9vYmE", 5), Some(b"fooba".to_vec()));
        assert_eq!(binary("0bZm9vYmFy", 6), Some(b"foobar".to_vec()));
        for odd in ["", "0", "0x123456789a", "0xzz", "xx12", "0bZ", "0bZm9vYmFyeA==", "0b====", "ä"]
        {
            assert_eq!(binary(odd, 4), None, "{odd}");
        }
        assert_eq!(to_hex(&[0, 0xff, 0x1a]), "0x00ff1a");
    }
}
