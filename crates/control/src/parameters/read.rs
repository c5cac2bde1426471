//! Values of parameters, and names that were nearly right.
use std::time::Duration;

use crate::catalog::limits::{BLOCK_SIZE_MAX, BLOCK_SIZE_MIN, HOLD_DEADLINE_MAX};

use super::{FS_TYPES, SHOWN_MAX, TABLE};

/// Two slips of a finger, or one letter too many and one wrong.
const DISTANCE_MAX: usize = 2;

/// Digits alone: no sign, no space.
fn digits<N: std::str::FromStr>(text: &str) -> Option<N> {
    let plain = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    plain.then(|| text.parse().ok()).flatten()
}

pub fn number(text: &str, least: u32, most: u32) -> Option<u32> {
    digits(text).filter(|number| (least..=most).contains(number))
}

/// By 1024, whichever way it is written: a thousand is no power of two.
pub fn block_size(text: &str) -> Option<u32> {
    let thousands = ["KiB", "Ki", "K"].into_iter().find_map(|unit| text.strip_suffix(unit));
    let size: u32 = match thousands {
        Some(number) => digits::<u32>(number)?.checked_mul(1024)?,
        None => digits(text)?,
    };
    let fits = size.is_power_of_two() && (BLOCK_SIZE_MIN..=BLOCK_SIZE_MAX).contains(&size);
    fits.then_some(size)
}

pub fn compression(text: &str) -> Option<String> {
    let gzip = |level: &str| number(level, 1, 9).is_some() && level.len() == 1;
    let known = matches!(text, "off" | "on" | "lz4" | "gzip" | "zle" | "lzjb")
        || text.strip_prefix("gzip-").is_some_and(gzip);
    known.then(|| text.to_owned())
}

/// Spaces around commas are forgiven.
pub fn names(text: &str) -> Option<Vec<String>> {
    text.split(',').map(|name| word(name.trim())).collect()
}

pub fn word(text: &str) -> Option<String> {
    let fits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic());
    fits.then(|| text.to_owned())
}

pub fn duration_ms(text: &str) -> Option<u64> {
    const UNITS: [(&str, u64); 4] = [("ms", 1), ("s", 1000), ("m", 60_000), ("h", 3_600_000)];
    let (number, unit) =
        UNITS.into_iter().find_map(|(unit, ms)| Some((text.strip_suffix(unit)?, ms)))?;
    let ms = digits::<u64>(number)?.checked_mul(unit)?;
    let fits = ms > 0 && Duration::from_millis(ms) <= HOLD_DEADLINE_MAX;
    fits.then_some(ms)
}

pub fn fs_type(text: &str) -> Option<&'static str> {
    FS_TYPES.into_iter().find(|known| *known == text)
}

/// The parameter that somebody may have meant.
pub fn near(name: &str) -> Option<&'static str> {
    if name.len() > SHOWN_MAX {
        return None;
    }
    let name = name.to_lowercase();
    let far = |known: &str| distance(name.as_bytes(), known.to_lowercase().as_bytes());
    let nearest = TABLE.iter().map(|row| (far(row.name), row.name)).min()?;
    (nearest.0 <= DISTANCE_MAX).then_some(nearest.1)
}

/// How many letters have to be added, taken away or changed.
fn distance(one: &[u8], other: &[u8]) -> usize {
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (at, letter) in one.iter().enumerate() {
        let mut before = row[0];
        row[0] = at + 1;
        for (column, another) in other.iter().enumerate() {
            let changed = before + usize::from(letter != another);
            before = row[column + 1];
            row[column + 1] = changed.min(before + 1).min(row[column] + 1);
        }
    }
    row[other.len()]
}
