//! The names that users know, and the bytes that the device has.
use std::collections::BTreeSet;

use super::*;

#[test]
fn every_name_is_understood_and_told_in_its_canonical_form() {
    let canonical = |name: &str| name.parse::<Compression>().map(|found| found.to_string());
    for (name, told) in [("on", "lz4"), ("gzip", "gzip-6"), ("off", "off"), ("lz4", "lz4")] {
        assert_eq!(canonical(name).as_deref(), Ok(told));
    }
    for name in ["zle", "lzjb"] {
        assert_eq!(canonical(name).as_deref(), Ok(name));
    }
    for level in 1..=9 {
        let name = format!("gzip-{level}");
        assert_eq!(canonical(&name), Ok(name));
    }
    assert_eq!(Compression::default(), compression("off"));
    assert_eq!(format!("{:>7}|{:7}|", compression("gzip"), compression("zle")), " gzip-6|zle    |");
}

#[test]
fn any_other_name_is_refused_with_those_that_are_allowed() {
    for name in [
        "", "LZ4", "Off", "gzip-0", "gzip-10", "gzip-", "gzip-06", "gzip--1", "gzip-x", "gzip6",
        "zstd", "lz4 ", " on", "true", "lz4-1", "zle-1", "gzip-6 ", "gzip-٣",
    ] {
        let error = name.parse::<Compression>().expect_err(name).to_string();
        assert!(error.starts_with(&format!("{name:?} is no compression")), "{error}");
        for allowed in ["off", "on", "lz4", "gzip", "gzip-1 to gzip-9", "zle", "lzjb"] {
            assert!(error.contains(allowed), "{error}");
        }
    }
}

/// Protects from a choice that is read back as another, and from a byte of a later version that is
/// taken for one of this.
#[test]
fn every_choice_and_encoding_has_a_byte_of_its_own() {
    let known: Vec<u8> = (0..=255).filter(|byte| Encoding::from_byte(*byte).is_some()).collect();
    assert_eq!(known, [1, 2, 4, 5, 0x31, 0x32, 0x33, 0x34, 0x35, 0x36, 0x37, 0x38, 0x39]);
    for byte in known {
        assert_eq!(Encoding::from_byte(byte).map(Encoding::byte), Some(byte));
    }
    let mut bytes = BTreeSet::new();
    for compression in all().into_iter().chain([Compression::Off]) {
        assert_eq!(Compression::from_byte(compression.byte()), Some(compression));
        assert!(bytes.insert(compression.byte()), "{compression} shares its byte");
    }
    for byte in (0..=255).filter(|byte| !bytes.contains(byte)) {
        assert_eq!(Compression::from_byte(byte), None, "byte {byte}");
    }
    assert_eq!(Compression::Off.byte(), 0, "as it ever was");
}

#[test]
fn a_stored_length_is_possible_only_as_whole_pages() {
    let [raw, lz4] = [Encoding::Raw, Encoding::Lz4];
    for page in [1, 8] {
        let granule = 16 * page;
        assert!(can_be(raw, granule, granule, page) && !can_be(raw, granule - page, granule, page));
        for sectors in 0..2 * granule {
            let possible = sectors % page == 0 && (page..granule).contains(&sectors);
            assert_eq!(can_be(lz4, sectors, granule, page), possible, "{sectors} of {granule}");
        }
        assert!(!can_be(lz4, page, page, page), "a granule of one page is raw");
        assert!(!can_be(Encoding::Unknown, granule, granule, page));
    }
}
