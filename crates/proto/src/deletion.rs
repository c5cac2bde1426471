//! Marks of deletion: the uids of the objects that were deleted under a name, oldest first.
//!
//! A name keeps the last few of them. Content is wiped by the very mark of its volume alone; what is said here about marks
//! that were dropped is for decisions that destroy nothing.
use crate::v1::Object;
use crate::v1::object::Body;

/// Replicas of the last few volumes of a name may still be on nodes that were away.
pub const DELETED_UIDS_MAX: usize = 16;

/// Whether marks may have been dropped from what is stored under a name.
pub fn is_full(object: &Object) -> bool {
    object.deleted_uids.len() >= DELETED_UIDS_MAX
}

/// Whether an object must have been deleted so long before `later`, a later state of its name, that its mark was dropped.
/// Every mark that `earlier` does not know is of a deletion after it, and its own was the first of them. A full list of
/// such marks has no room for it any more. Marks that it knows were there before it, and say nothing about it.
///
/// A catalog that began anew counts from 1 again, so versions alone do not say which state is later: what was made before
/// `earlier` is not.
pub fn mark_was_dropped(earlier: &Object, later: &Object) -> bool {
    is_full(later)
        && later.version > earlier.version
        && !later.deleted_uids.iter().any(|uid| earlier.deleted_uids.contains(uid))
        && created_ms(later).is_none_or(|it| it >= created_ms(earlier).unwrap_or(0))
}

fn created_ms(object: &Object) -> Option<u64> {
    match object.body.as_ref()? {
        Body::Volume(volume) => Some(volume.created_ms),
        Body::Token(token) => Some(token.created_ms),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::v1::Volume;

    fn volume(version: u64, created_ms: u64, marks: std::ops::Range<u8>) -> Object {
        let volume = Volume { created_ms, ..Volume::default() };
        let deleted_uids = marks.map(|uid| vec![uid; 16]).collect();
        Object { version, deleted_uids, body: Some(Body::Volume(volume)), ..Object::default() }
    }

    /// Protects a volume that a catalog lost from being taken for one that was deleted.
    #[test]
    fn only_a_full_list_of_later_marks_has_dropped_one() {
        let earlier = volume(5, 100, 1..4);
        assert!(mark_was_dropped(&earlier, &volume(40, 200, 10..26)));
        assert!(
            !mark_was_dropped(&earlier, &volume(40, 200, 10..25)),
            "there is room for one more"
        );
        assert!(!mark_was_dropped(&earlier, &volume(5, 200, 10..26)), "it is no later one");
        assert!(!mark_was_dropped(&earlier, &volume(40, 200, 3..19)), "its own would be behind 3");
        assert!(!mark_was_dropped(&earlier, &volume(40, 99, 10..26)), "it was made before");
        let left = Object { body: None, ..volume(40, 0, 10..26) };
        assert!(mark_was_dropped(&earlier, &left));
    }
}
