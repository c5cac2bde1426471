//! Names of objects. Whoever asks may call them almost anything; the catalog takes labels only.
use crate::api::ApiError;
use crate::catalog::is_name;
use crate::hex;

/// The longest that CSI allows.
const TITLE_MAX: usize = 128;

/// A name of the catalog, and the title if that is another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Named {
    pub name: String,
    pub title: String,
}

/// What is no name becomes a title, and the name is made of its digest: the same for the same title.
pub fn named(asked: &str) -> Result<Named, ApiError> {
    if asked.is_empty() || asked.len() > TITLE_MAX {
        return Err(ApiError::invalid("name", format!("it has 1 to {TITLE_MAX} bytes")));
    }
    // CSI allows these three.
    let control = |c: char| c.is_control() && !matches!(c, '\t' | '\n' | '\r');
    if asked.contains(control) {
        return Err(ApiError::invalid("name", "it has control characters"));
    }
    // A uid is no name, so that an id is never both.
    if is_name(asked) && hex::decode(asked).is_none() {
        return Ok(Named { name: asked.into(), title: String::new() });
    }
    let digest = certs::sha256(asked.as_bytes());
    let name = format!("{}{}", PREFIX, hex::encode(&digest[..16]));
    Ok(Named { name, title: asked.into() })
}

const PREFIX: &str = "x-";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_stay_and_titles_become_names() {
        for name in ["db", "pvc-0b7e6f0e-5a2c-4f0e-9a3e-2f9d7c1b3a11", "a.b"] {
            assert_eq!(named(name), Ok(Named { name: name.into(), title: String::new() }));
        }
        let long = "x".repeat(128);
        for title in ["My Volume", "Ünïcödé", &long, "0123456789abcdef0123456789abcdef"] {
            let made = named(title).expect("it is taken");
            assert_eq!(made.title, title);
            assert!(is_name(&made.name) && made.name.starts_with(PREFIX), "{made:?}");
            assert_eq!(named(title).expect("again"), made);
        }
        for wrong in ["", &"x".repeat(129), "a\0b"] {
            assert!(named(wrong).is_err(), "{wrong}");
        }
    }
}
