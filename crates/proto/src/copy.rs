//! A copy of the catalog as a file: a line that says what it is, SHA-256 of the rest, and the objects.
//!
//! It has everything that the catalog has, secrets included: whoever writes one closes it to others.
use prost::Message;
use thiserror::Error;

use crate::v1::CatalogCopy;

/// 1: the first.
const MARK: &[u8] = b"pollux catalog copy 1\n";
const DIGEST_LEN: usize = 32;

/// SHA-256, by whatever the caller has it from.
pub type Digest = fn(&[u8]) -> [u8; DIGEST_LEN];

#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum CopyError {
    #[error("it is no copy of a catalog, or of a version that this one does not know")]
    OtherFile,
    #[error("it is cut short or damaged: use another copy")]
    Damaged,
}

pub fn encode(copy: &CatalogCopy, digest: Digest) -> Vec<u8> {
    let objects = copy.encode_to_vec();
    [MARK, &digest(&objects)[..], &objects].concat()
}

pub fn decode(bytes: &[u8], digest: Digest) -> Result<CatalogCopy, CopyError> {
    let rest = bytes.strip_prefix(MARK).ok_or(CopyError::OtherFile)?;
    let (stored, objects) = rest.split_at_checked(DIGEST_LEN).ok_or(CopyError::Damaged)?;
    if stored != digest(objects) {
        return Err(CopyError::Damaged);
    }
    CatalogCopy::decode(objects).map_err(|_| CopyError::Damaged)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::v1::Object;

    /// Good enough to notice that a byte is another one.
    fn digest(bytes: &[u8]) -> [u8; DIGEST_LEN] {
        let mut sum = [0_u8; DIGEST_LEN];
        for (at, byte) in bytes.iter().enumerate() {
            let place = &mut sum[at % DIGEST_LEN];
            *place = place.wrapping_mul(31).wrapping_add(*byte);
        }
        sum
    }

    #[test]
    fn a_copy_is_read_back_whole_or_not_at_all() {
        let objects = vec![Object { version: 7, ..Object::default() }];
        let copy = CatalogCopy { revision: 9, taken_ms: 5, objects };
        let bytes = encode(&copy, digest);
        assert_eq!(decode(&bytes, digest), Ok(copy));
        assert_eq!(decode(&bytes[..bytes.len() - 1], digest), Err(CopyError::Damaged));
        assert_eq!(decode(&bytes[..MARK.len() + 4], digest), Err(CopyError::Damaged));
        assert_eq!(decode(b"SQLite format 3", digest), Err(CopyError::OtherFile));
        let mut other = bytes;
        *other.last_mut().unwrap() ^= 1;
        assert_eq!(decode(&other, digest), Err(CopyError::Damaged));
    }
}
