//! Spans of time as people write and read them.
use std::time::Duration;

const MINUTE: u64 = 60;
const HOUR: u64 = 60 * MINUTE;
const DAY: u64 = 24 * HOUR;

/// Reads `90`, `90s`, `10m`, `2h` or `30d`.
pub fn parse(text: &str) -> Result<Duration, String> {
    let text = text.trim();
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let unit = match unit.trim() {
        "" | "s" => 1,
        "m" => MINUTE,
        "h" => HOUR,
        "d" => DAY,
        other => return Err(format!("the unit {other:?} is not known: write s, m, h or d")),
    };
    let number: u64 = number.parse().map_err(|_| "it does not begin with a number".to_owned())?;
    number.checked_mul(unit).map(Duration::from_secs).ok_or_else(|| "it is too long".into())
}

/// `2 days`: one number is enough to know what to think of it.
pub fn rounded(span: Duration) -> String {
    let seconds = span.as_secs();
    let (count, unit) = match seconds {
        0..MINUTE => (seconds, "second"),
        MINUTE..HOUR => (seconds / MINUTE, "minute"),
        HOUR..DAY => (seconds / HOUR, "hour"),
        _ => (seconds / DAY, "day"),
    };
    let plural = if count == 1 { "" } else { "s" };
    format!("{count} {unit}{plural}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_read_as_people_write_them() {
        for (text, seconds) in [("90", 90), ("90s", 90), ("10m", 600), ("2 h", 7200), ("1d", DAY)] {
            assert_eq!(parse(text), Ok(Duration::from_secs(seconds)), "{text}");
        }
        for text in
            ["", "m", "-1s", "1.5h", "3 weeks", "99999999999999999999", "999999999999999999d"]
        {
            assert!(parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn spans_are_shown_with_one_number() {
        for (seconds, shown) in [
            (0, "0 seconds"),
            (1, "1 second"),
            (119, "1 minute"),
            (7300, "2 hours"),
            (3 * DAY, "3 days"),
        ] {
            assert_eq!(rounded(Duration::from_secs(seconds)), shown);
        }
    }
}
