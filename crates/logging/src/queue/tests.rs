use std::io;
use std::sync::mpsc::{Receiver, Sender, channel};

use super::*;

const PATIENCE: Duration = Duration::from_secs(10);

/// Fails while it is told to, and keeps the rest.
#[derive(Clone, Default)]
struct Failing {
    fails: Arc<Mutex<bool>>,
    text: Arc<Mutex<Vec<u8>>>,
}

impl Write for Failing {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match *self.fails.lock().unwrap() {
            true => Err(io::ErrorKind::StorageFull.into()),
            false => self.text.lock().unwrap().write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Blocks until the test lets it go.
struct Blocked {
    begun: Sender<()>,
    go: Receiver<()>,
}

impl Write for Blocked {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let _ = self.begun.send(());
        let _ = self.go.recv();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn lines_that_cannot_be_written_are_counted_and_told_later() {
    let sink = Failing::default();
    *sink.fails.lock().unwrap() = true;
    let queue = Queue::to(sink.clone());
    queue.push(b"one\n");
    queue.push(b"two\n");
    queue.flush(PATIENCE);
    assert_eq!(queue.dropped(), 2);
    *sink.fails.lock().unwrap() = false;
    queue.push(b"three\n");
    queue.push(b"four\n");
    queue.flush(PATIENCE);
    let text = String::from_utf8(sink.text.lock().unwrap().clone()).unwrap();
    assert_eq!(text, "\nlog: 2 lines were dropped here\nthree\nfour\n");
    assert_eq!(queue.dropped(), 2);
}

#[test]
fn a_sink_that_blocks_makes_no_caller_wait() {
    let (begun, has_begun) = channel();
    let (go, allowed) = channel();
    let queue = Queue::to(Blocked { begun, go: allowed });
    queue.push(b"it blocks over this\n");
    has_begun.recv_timeout(PATIENCE).unwrap();
    for _ in 0..LINES_MAX + 3 {
        queue.push(b"more\n");
    }
    assert_eq!(queue.dropped(), 3, "the queue has a bound");
    queue.push_over_others(b"the last words\n");
    assert_eq!(queue.dropped(), 4);
    let before = Instant::now();
    queue.flush(Duration::from_millis(20));
    assert!(before.elapsed() < PATIENCE, "nothing waits for ever");
    drop(go);
    queue.flush(PATIENCE);
    assert!(queue.lock().lines.is_empty());
}

#[test]
fn a_long_line_is_cut() {
    let sink = Failing::default();
    let queue = Queue::to(sink.clone());
    queue.push(&[b'x'; 2 * LINE_MAX]);
    queue.flush(PATIENCE);
    assert!(sink.text.lock().unwrap().len() < LINE_MAX + 100);
    assert!(sink.text.lock().unwrap().ends_with(b"(cut)\n"));
}

#[test]
fn without_a_writer_lines_are_counted_and_nothing_waits() {
    let queue = Queue::nowhere();
    queue.push(b"one\n");
    queue.push_over_others(b"two\n");
    queue.flush(PATIENCE);
    assert_eq!(queue.dropped(), 2);
}
