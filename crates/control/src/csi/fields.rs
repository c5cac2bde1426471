//! Single fields of requests: what must be there, what an id is, what a name is.
//!
//! An id is a uid, 32 hexadecimal digits. The API takes names as well; a caller that sends something
//! else must not reach whatever has it for a name, so that what is no uid is not asked for at all.
use tonic::Status;

use super::status::{invalid, missing, not_found};
use crate::catalog::limits::TITLE_LEN_MAX;

/// A text that has to be given.
pub fn given<'a>(field: &str, value: &'a str) -> Result<&'a str, Status> {
    match value.is_empty() {
        true => Err(missing(field)),
        false => Ok(value),
    }
}

/// What could be the id of something here.
pub fn uid(value: &str) -> Option<&str> {
    let digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    (value.len() == 32 && value.bytes().all(digit)).then_some(value)
}

/// The id of something that has to be there.
pub fn id<'a>(kind: &str, field: &str, value: &'a str) -> Result<&'a str, Status> {
    uid(given(field, value)?).ok_or_else(|| not_found(kind, value))
}

/// The name of something that is to be made.
pub fn name(field: &str, value: &str) -> Result<String, Status> {
    let value = given(field, value)?;
    if value.len() > TITLE_LEN_MAX {
        let problem = format!("it has {} bytes, and {TITLE_LEN_MAX} at the most", value.len());
        return Err(invalid(field, problem));
    }
    let space = |letter: char| matches!(letter, '\t' | '\n' | '\r');
    match value.chars().find(|letter| letter.is_control() && !space(*letter)) {
        Some(letter) => {
            Err(invalid(field, format!("it has the character {}", letter.escape_unicode())))
        }
        None => Ok(value.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use tonic::Code;

    use super::*;

    const UID: &str = "0123456789abcdef0123456789abcdef";

    #[test]
    fn an_id_is_a_uid() {
        assert_eq!(id("volume", "volume_id", UID).unwrap(), UID);
        assert_eq!(id("volume", "volume_id", "").unwrap_err().code(), Code::InvalidArgument);
        for other in ["data", "0", &UID.to_uppercase(), &UID[1..], &format!("{UID}0"), "../etc"] {
            let status = id("volume", "volume_id", other).unwrap_err();
            assert_eq!(status.code(), Code::NotFound, "{other}");
            assert!(status.message().contains(other), "{status}");
        }
    }

    #[test]
    fn a_name_has_up_to_128_bytes_and_no_control_characters() {
        for fine in ["pvc-1", "Größe 2", "a\tb", &"x".repeat(128), "sl/ash", "\u{a0}"] {
            assert_eq!(name("name", fine).unwrap(), fine);
        }
        for bad in ["", &"x".repeat(129), &"ü".repeat(65), "a\0", "\u{7f}", "\u{9f}", "\u{b}"] {
            let status = name("name", bad).unwrap_err();
            assert_eq!(status.code(), Code::InvalidArgument, "{bad:?}");
            assert!(status.message().starts_with("name"), "{status}");
        }
    }
}
