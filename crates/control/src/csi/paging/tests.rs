use tonic::Code;

use super::*;
use crate::api::Code as ApiCode;

/// A site with so many names, which gives at most `most` at a time.
struct Site {
    names: Vec<String>,
    most: usize,
}

impl Site {
    fn new(count: usize, most: usize) -> Site {
        Site { names: (0..count).map(|number| format!("v-{number:06}")).collect(), most }
    }

    fn ask(&self, after: &str, limit: usize) -> Page<String> {
        let behind = self.names.partition_point(|name| name.as_str() <= after);
        let behind = &self.names[behind..];
        let items = behind[..behind.len().min(limit).min(self.most)].to_vec();
        let next = items.last().filter(|_| items.len() < behind.len()).cloned();
        Page { items, next }
    }

    fn part(&self, max: i32, token: &str, keep: fn(&String) -> bool) -> (Vec<String>, String) {
        let mut part = part(List::Volumes, max, token).unwrap();
        while let Some((after, limit)) = part.question() {
            part.take(Ok(self.ask(&after, limit)), keep).unwrap();
        }
        part.end()
    }

    /// How many parts, and how many entries.
    fn all(&self, max: i32, keep: fn(&String) -> bool) -> (usize, usize) {
        let (mut token, mut parts, mut entries) = (String::new(), 0, 0);
        loop {
            let (some, next) = self.part(max, &token, keep);
            assert!(max == 0 || some.len() <= usize::try_from(max).unwrap());
            (parts, entries, token) = (parts + 1, entries + some.len(), next);
            if token.is_empty() {
                return (parts, entries);
            }
        }
    }
}

#[test]
fn every_entry_is_in_one_part() {
    for (count, most, max, parts) in [
        (0, 10, 0, 1),
        (3, 10, 0, 1),
        (5, 10, 2, 3),
        (4, 10, 2, 2),
        (1200, 500, 0, 1),
        (1200, 7, 1000, 2),
        (9000, 500, 0, 3),
        (9000, 500, i32::MAX, 3),
    ] {
        let told = Site::new(count, most).all(max, |_| true);
        assert_eq!(told, (parts, count), "{count} by {max}");
    }
}

#[test]
fn what_is_left_out_does_not_shorten_a_part() {
    let odd = |name: &String| name.ends_with(['1', '3', '5', '7', '9']);
    assert_eq!(Site::new(20, 3).all(4, odd), (3, 10));
}

#[test]
fn tokens_of_others_are_refused_and_those_of_deleted_names_are_not() {
    for token in [
        "invalid-token",
        "snapshots-after:v-000001",
        "volumes-after:",
        "volumes-after:V",
        "volumes-after:a/b",
        &format!("volumes-after:{}", "v".repeat(64)),
    ] {
        let status = part::<()>(List::Volumes, 0, token).unwrap_err();
        assert_eq!(status.code(), Code::Aborted, "{token}");
    }
    let status = part::<()>(List::Volumes, -1, "").unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument);
    let (entries, next) = Site::new(4, 10).part(0, "volumes-after:v-0000015", |_| true);
    assert_eq!((entries, next), (vec!["v-000002".into(), "v-000003".into()], String::new()));
}

/// Protects from asking a broken site for ever.
#[test]
fn a_site_that_does_not_get_further_is_not_asked_again() {
    for (page, code) in [
        (Ok(Page { items: vec!["a"], next: Some(String::new()) }), Code::Internal),
        (Ok(Page { items: vec!["a"; 3], next: None }), Code::Internal),
        (Err(ApiError::new(ApiCode::Unavailable, "away")), Code::Unavailable),
    ] {
        let mut part = part(List::Volumes, 2, "").unwrap();
        assert_eq!(part.take(page, |_| true).unwrap_err().code(), code);
    }
}
