//! The time of day, for people.
use std::time::{SystemTime, UNIX_EPOCH};

const DAY_MS: u64 = 24 * 60 * 60 * 1000;

/// Milliseconds since 1970.
pub fn now_ms() -> u64 {
    // A clock before 1970 was never set; the time is shown to people and decides nothing.
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// `2026-07-30 12:34:56`, in UTC.
pub fn utc(ms: u64) -> String {
    let (year, month, day) = date(ms / DAY_MS);
    let seconds = ms % DAY_MS / 1000;
    let (hour, minute, second) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}")
}

/// The Gregorian date of a day, counted from 1970-01-01: the days of whole 400 years are always
/// the same, and within them years that begin in March have their leap day at the end.
fn date(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468;
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day_of_month = day - (153 * month + 2) / 5 + 1;
    let (month, next) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    (era * 400 + year + next, month, day_of_month)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_shown_as_the_calendar_has_them() {
        for (ms, shown) in [
            (0, "1970-01-01 00:00:00"),
            (951_782_400_000, "2000-02-29 00:00:00"),
            (951_868_799_999, "2000-02-29 23:59:59"),
            (951_868_800_000, "2000-03-01 00:00:00"),
            (1_709_164_800_000, "2024-02-29 00:00:00"),
            (1_735_689_599_000, "2024-12-31 23:59:59"),
            (4_107_542_400_000, "2100-03-01 00:00:00"),
        ] {
            assert_eq!(utc(ms), shown);
        }
        assert!(utc(u64::MAX).ends_with(|c: char| c.is_ascii_digit()), "any number has a date");
    }
}
