//! Sizes as people write them.
use block::ByteLen;

/// By 1024, like the tools that make disks: `G` and `GiB` are the same.
const UNITS: [(&str, &str, u32); 5] =
    [("", "b", 0), ("k", "kib", 10), ("m", "mib", 20), ("g", "gib", 30), ("t", "tib", 40)];

/// Reads `4096`, `512M`, `10G` or `1GiB`.
pub fn parse(text: &str) -> Result<ByteLen, String> {
    let text = text.trim();
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let number: u64 = match number.parse() {
        Ok(number) => number,
        Err(_) if number.is_empty() => return Err("it does not begin with a number".into()),
        Err(_) => return Err("the number is too large".into()),
    };
    let unit = unit.trim().to_lowercase();
    let known = UNITS.iter().find(|(short, long, _)| unit == *short || unit == *long);
    let Some((_, _, shift)) = known else {
        return Err(format!(
            "the unit {unit:?} is not known: write bytes, or K, M, G, T (KiB, MiB, GiB, TiB), \
             which count by 1024"
        ));
    };
    number.checked_mul(1 << shift).map(ByteLen).ok_or_else(|| "the number is too large".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_as_people_write_them() {
        for (text, bytes) in [
            ("0", 0),
            ("4096", 4096),
            ("7b", 7),
            ("512M", 512 << 20),
            ("10G", 10 << 30),
            ("1GiB", 1 << 30),
            ("1 gib", 1 << 30),
            ("2T", 2 << 40),
        ] {
            assert_eq!(parse(text), Ok(ByteLen(bytes)), "{text}");
        }
    }

    /// Protects from a size that is guessed: `GB` is 7 % less than `GiB` to some, and the same to
    /// others.
    #[test]
    fn what_is_not_a_size_is_refused() {
        for text in
            ["", "G", "-1", "1.5G", "1GB", "10 apples", "99999999999T", "9".repeat(30).as_str()]
        {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
