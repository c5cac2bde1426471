//! What is noted of a sync, and how many are under way.
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc;

use super::*;

const SOON: Duration = Duration::from_secs(20);

fn notes(lost: &Path) -> Notes {
    Notes { lost: lost.to_owned(), unsettled: None }
}

fn note(name: &str) -> PathBuf {
    let note = std::env::temp_dir().join(format!("pollux-sync-{name}-{}", std::process::id()));
    // Of an earlier run.
    let _ = fs::remove_file(&note);
    note
}

fn noted(note: &Path) -> String {
    let begun = Instant::now();
    loop {
        match fs::read_to_string(note) {
            Ok(text) if !text.is_empty() => break,
            _ => assert!(begun.elapsed() < SOON, "nothing is noted"),
        }
        thread::yield_now();
    }
    let text = fs::read_to_string(note).expect("it is there");
    fs::remove_file(note).expect("it is there");
    text
}

#[test]
fn what_is_written_leaves_no_note() {
    let note = note("done");
    within(SOON, notes(&note), || Ok(()), || true).expect("it is written");
    assert!(!note.exists());
}

#[test]
fn a_flush_that_failed_can_be_repeated() {
    let note = note("flush");
    let failed = || Err(io::Error::from_raw_os_error(libc::EIO));
    let error = within(SOON, notes(&note), failed, || false);
    assert!(matches!(&error, Err(SyncError::Failed(_))), "{error:?}");
    assert!(!note.exists(), "nothing is lost");
}

#[test]
fn a_failure_is_told_and_noted() {
    let at = note("failed");
    let failed = || Err(io::Error::from_raw_os_error(libc::EIO));
    let error = within(SOON, notes(&at), failed, || true);
    assert!(matches!(&error, Err(SyncError::Lost(_))), "{error:?}");
    assert!(noted(&at).contains("Input/output error"));
}

/// Protects from a second attempt that finds nothing wrong: the first one was told, and was not listening.
#[test]
fn a_failure_that_nobody_waits_for_is_noted() {
    let at = note("late");
    let (go_on, held) = mpsc::channel::<()>();
    let stuck = move || {
        held.recv().expect("somebody lets it go on");
        Err(io::Error::from_raw_os_error(libc::EIO))
    };
    let error = within(Duration::from_millis(20), notes(&at), stuck, || true);
    assert!(matches!(&error, Err(SyncError::Late(_))), "{error:?}");
    assert!(!at.exists(), "nothing is lost yet");
    go_on.send(()).expect("it waits");
    assert!(noted(&at).contains("Input/output error"));
}

/// Protects from an attachment that is told of a loss which the one before it had.
#[test]
fn a_late_note_is_not_of_the_next_attachment() {
    let folder = note("folder");
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir(&folder).expect("a folder");
    let at = folder.join("unwritten");
    let before = Place::of(&at);
    write_note(&before.at(&at), "lost");
    assert!(at.exists());
    fs::remove_dir_all(&folder).expect("it is given up");
    fs::create_dir(&folder).expect("the next one");
    write_note(&before.at(&at), "lost");
    assert!(!at.exists());
    assert_ne!(
        before.key(),
        Place::of(&at).key(),
        "nor does it wait for what the one before syncs"
    );
    fs::remove_dir_all(&folder).expect("it is there");
}

/// The kernel tells of a failure once. Protects from a driver that is killed while it asks what was lost: the next
/// one would find nothing wrong.
#[test]
fn a_failure_is_noted_before_it_is_asked_what_was_lost() {
    let at = note("asking");
    let (_never, held) = mpsc::channel::<()>();
    let failed = || Err(io::Error::from_raw_os_error(libc::EIO));
    let is_lost = move || {
        let _ = held.recv();
        false
    };
    let error = within(Duration::from_millis(20), notes(&at), failed, is_lost);
    assert!(matches!(&error, Err(SyncError::Late(_))), "{error:?}");
    assert!(noted(&at).contains("Input/output error"));
}

/// Protects from a thread for each time that somebody asks again.
#[test]
fn a_sync_that_is_stuck_is_begun_once() {
    let at = note("stuck");
    let begun = Arc::new(AtomicU32::new(0));
    let (go_on, held) = mpsc::channel::<()>();
    let held = Arc::new(Mutex::new(held));
    for _ in 0..100 {
        let (begun, held) = (Arc::clone(&begun), Arc::clone(&held));
        let stuck = move || {
            begun.fetch_add(1, Ordering::SeqCst);
            let _ = held.lock().expect("nobody panics").recv();
            Ok(())
        };
        let error = within(Duration::from_millis(2), notes(&at), stuck, || true);
        assert!(matches!(&error, Err(SyncError::Late(_))), "{error:?}");
    }
    let since = Instant::now();
    while begun.load(Ordering::SeqCst) == 0 {
        assert!(since.elapsed() < SOON, "it does not begin");
        thread::yield_now();
    }
    assert_eq!(begun.load(Ordering::SeqCst), 1);
    drop(go_on);
}

/// What was written after the first one began may not be in it.
#[test]
fn who_waited_for_a_sync_that_went_well_begins_another_one() {
    let at = note("again");
    let (begin, begun) = mpsc::channel::<()>();
    let (go_on, held) = mpsc::channel::<()>();
    let stuck = move || {
        begin.send(()).expect("somebody waits");
        held.recv().expect("somebody lets it go on");
        Ok(())
    };
    let (first, second) = (notes(&at), notes(&at));
    let count = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&count);
    thread::scope(|scope| {
        let first = scope.spawn(|| within(SOON, first, stuck, || true));
        begun.recv().expect("it begins");
        let second = scope.spawn(|| {
            let sync = move || {
                counted.fetch_add(1, Ordering::SeqCst);
                Ok(())
            };
            within(SOON, second, sync, || true)
        });
        assert_eq!(count.load(Ordering::SeqCst), 0, "one at a time");
        go_on.send(()).expect("it waits");
        first.join().expect("no panic").expect("it is written");
        second.join().expect("no panic").expect("it is written");
    });
    assert_eq!(count.load(Ordering::SeqCst), 1);
}

/// The kernel would tell the second one nothing.
#[test]
fn who_waited_for_a_sync_that_failed_is_told_the_same() {
    let at = note("both");
    let (begin, begun) = mpsc::channel::<()>();
    let (go_on, held) = mpsc::channel::<()>();
    let fails = move || {
        begin.send(()).expect("somebody waits");
        held.recv().expect("somebody lets it go on");
        Err(io::Error::from_raw_os_error(libc::EIO))
    };
    let begins = notes(&at);
    thread::scope(|scope| {
        let first = scope.spawn(|| within(SOON, begins, fails, || true));
        begun.recv().expect("it begins");
        let other = UnderWay::begin(Place::of(&at).key()).err().expect("it is under way");
        go_on.send(()).expect("it waits");
        let told = other.wait(Instant::now() + SOON).expect("it ends");
        assert!(matches!(told, Err(SyncError::Lost(_))), "{told:?}");
        let first = first.join().expect("no panic");
        assert!(matches!(first, Err(SyncError::Lost(_))), "{first:?}");
    });
    assert!(noted(&at).contains("Input/output error"));
}

/// Protects from a driver that ends, with everything still in memory, because it got no thread.
#[test]
fn a_system_without_a_thread_for_it_is_asked_again() {
    let at = note("no-thread");
    let refused = |_: Job| Err(io::Error::from_raw_os_error(libc::EAGAIN));
    let error = within_by(refused, SOON, notes(&at), || Ok(()), || true);
    assert!(matches!(&error, Err(SyncError::NotBegun(_))), "{error:?}");
    within(SOON, notes(&at), || Ok(()), || true).expect("now there is one");
}

#[test]
fn a_mark_is_left_only_by_who_was_killed() {
    let at = note("mark");
    assert!(!Mark::is_left_at(&at));
    let mark = Mark::set(&at).expect("it can be made");
    assert!(!Mark::is_left_at(&at), "somebody is at it");
    drop(mark);
    assert!(!at.exists());
    Mark::set(&at).expect("it can be made").leave();
    assert!(Mark::is_left_at(&at));
    fs::remove_file(&at).expect("it is there");
}

/// Protects from a driver that is killed while the kernel syncs: the next one would not know that it has to ask.
#[test]
fn a_sync_is_marked_until_its_result_is_noted() {
    let at = note("marked");
    let mark = note("marked-mark");
    let with_mark = Notes { lost: at.clone(), unsettled: Some(mark.clone()) };
    let (during, asking) = (mark.clone(), (at.clone(), mark.clone()));
    let fails = move || match during.exists() {
        true => Err(io::Error::from_raw_os_error(libc::EIO)),
        false => Ok(()),
    };
    let is_lost = move || asking.0.exists() && asking.1.exists();
    let error = within(SOON, with_mark, fails, is_lost);
    assert!(matches!(&error, Err(SyncError::Lost(_))), "{error:?}");
    assert!(at.exists() && !mark.exists());
    fs::remove_file(&at).expect("it is there");
}
