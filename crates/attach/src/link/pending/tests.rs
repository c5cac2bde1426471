use std::sync::mpsc;

use super::*;

const PATIENCE: Duration = Duration::from_secs(10);

fn heads(pending: &mut Pending) -> usize {
    pending.frames().len()
}

fn told() -> (Answer, mpsc::Receiver<Result<usize, Failure>>) {
    let (tell, told) = mpsc::channel();
    let answer = move |result: Result<&[u8], Failure>| {
        tell.send(result.map(<[u8]>::len)).expect("somebody waits");
    };
    (Box::new(answer), told)
}

#[test]
fn what_has_no_answer_is_sent_again() {
    let now = Instant::now();
    let mut pending = Pending::new(PATIENCE);
    let ((first, _keep), (second, answered)) = (told(), told());
    pending.add(Work::Flush, first, now);
    pending.add(Work::Read { at: ByteOffset(0), len: ByteLen(512) }, second, now);
    assert_eq!((pending.awaited(1), pending.awaited(2)), (Some(ByteLen(0)), Some(ByteLen(512))));
    assert_eq!((pending.awaited(3), heads(&mut pending)), (None, 2));
    pending.take(2).expect("it is there")(Ok(&[0; 512]));
    assert_eq!(answered.recv(), Ok(Ok(512)));
    assert!(pending.take(2).is_none(), "an answer is called once");
    assert_eq!(heads(&mut pending), 1);
}

#[test]
fn who_waits_too_long_is_told_once_and_not_sent_again() {
    let begun = Instant::now();
    let mut pending = Pending::new(PATIENCE);
    let ((early, told_early), (late, _keep)) = (told(), told());
    pending.add(Work::Read { at: ByteOffset(0), len: ByteLen(512) }, early, begun);
    pending.add(Work::Flush, late, begun + Duration::from_secs(5));
    assert!(pending.take_late(begun + PATIENCE).is_empty());
    let now = begun + PATIENCE + Duration::from_millis(1);
    pending.take_late(now).into_iter().for_each(|answer| answer(Err(Failure::TooLate)));
    assert_eq!(told_early.recv(), Ok(Err(Failure::TooLate)));
    assert!(pending.take_late(now).is_empty());
    // The target may still reply, with data: it is known how much that is.
    assert_eq!(pending.awaited(1), Some(ByteLen(512)));
    assert!(pending.take(1).is_none());
    assert_eq!(pending.oldest(), Some(begun + Duration::from_secs(5)));
    assert_eq!(heads(&mut pending), 1);
}

#[test]
fn a_reply_to_what_was_given_up_does_not_outlive_its_connection() {
    let begun = Instant::now();
    let mut pending = Pending::new(PATIENCE);
    pending.add(Work::Flush, told().0, begun);
    assert_eq!(pending.take_late(begun + 2 * PATIENCE).len(), 1);
    assert_eq!(heads(&mut pending), 0);
    assert_eq!(pending.awaited(1), None);
}

/// Protects from a flush that failed and is taken for a lost write, and from a lost write that nobody counts.
#[test]
fn writes_that_failed_are_counted_and_nothing_else() {
    let begun = Instant::now();
    let mut pending = Pending::new(PATIENCE);
    let write = || Work::Write { at: ByteOffset(0), data: vec![1; 512] };
    let zero = Work::Zero { at: ByteOffset(0), len: ByteLen(512) };
    for work in [Work::Flush, write(), write(), zero] {
        pending.add(work, Box::new(|_| {}), begun);
    }
    assert!(pending.take_failed(1).is_some() && pending.take(2).is_some());
    assert_eq!(pending.failed_writes(), 0);
    assert!(pending.take_failed(3).is_some());
    assert_eq!(pending.failed_writes(), 1);
    assert_eq!(pending.take_late(begun + 2 * PATIENCE).len(), 1);
    assert_eq!((pending.failed_writes(), pending.take_failed(4).is_some()), (2, false));
    pending.add(write(), Box::new(|_| {}), begun);
    assert_eq!((pending.take_all().len(), pending.failed_writes()), (1, 3));
}

/// Protects from a target that makes the kernel drop an answer: FUSE takes no number above 511.
#[test]
fn a_program_sees_only_errors_that_there_are() {
    for (number, errno) in [(1, 1), (5, 5), (12, 12), (22, 22), (28, 28), (75, 75), (95, 95)] {
        assert_eq!(Failure::Target(number).errno(), errno);
    }
    for number in [0, 2, 512, 4096, i32::MAX.unsigned_abs(), u32::MAX] {
        assert_eq!(Failure::Target(number).errno(), libc::EIO, "{number}");
    }
}
