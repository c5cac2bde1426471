//! A bounded queue of lines, and the thread that writes them.
//!
//! Invariant: the lock is never held while something is written, so that a sink which blocks makes nothing
//! wait but its own thread.
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::io::Write;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// A burst of a second, as of a node whose peers all fail at the same moment.
const LINES_MAX: usize = 1024;
/// Longer lines are cut. Together with the number of lines this bounds the memory: 16 MiB.
const LINE_MAX: usize = 16 << 10;

#[derive(Debug)]
pub struct Queue {
    state: Mutex<State>,
    /// There is a line to write.
    filled: Condvar,
    /// Everything was written.
    emptied: Condvar,
}

#[derive(Debug, Default)]
struct State {
    lines: VecDeque<Vec<u8>>,
    /// The thread has taken a line and is not done with it.
    writing: bool,
    /// Nothing writes lines: each is dropped.
    dead: bool,
    dropped: u64,
}

impl Queue {
    pub fn to(sink: impl Write + Send + 'static) -> Arc<Queue> {
        let queue = Queue::new(false);
        let writer = Arc::clone(&queue);
        let thread = thread::Builder::new().name("log".into());
        match thread.spawn(move || writer.write_to(sink)) {
            Ok(_) => queue,
            Err(_) => Queue::nowhere(),
        }
    }

    /// Drops and counts every line.
    pub fn nowhere() -> Arc<Queue> {
        Queue::new(true)
    }

    fn new(dead: bool) -> Arc<Queue> {
        let state = Mutex::new(State { dead, ..State::default() });
        Arc::new(Queue { state, filled: Condvar::new(), emptied: Condvar::new() })
    }

    pub fn dropped(&self) -> u64 {
        self.lock().dropped
    }

    /// The newest line is dropped if there is no room.
    pub fn push(&self, line: &[u8]) {
        let mut state = self.lock();
        match state.dead || state.lines.len() >= LINES_MAX {
            true => state.dropped += 1,
            false => self.add(&mut state, line),
        }
    }

    /// The oldest line is dropped if there is no room.
    pub fn push_over_others(&self, line: &[u8]) {
        let mut state = self.lock();
        if state.dead {
            state.dropped += 1;
            return;
        }
        if state.lines.len() >= LINES_MAX {
            state.lines.pop_front();
            state.dropped += 1;
        }
        self.add(&mut state, line);
    }

    fn add(&self, state: &mut State, line: &[u8]) {
        state.lines.push_back(cut(line));
        self.filled.notify_one();
    }

    /// Until everything was written or dropped, or the time is over.
    pub fn flush(&self, at_most: Duration) {
        let end = Instant::now() + at_most;
        let mut state = self.lock();
        while !state.dead && (state.writing || !state.lines.is_empty()) {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            let waited = self.emptied.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn write_to(&self, mut sink: impl Write) {
        let mut told = 0;
        loop {
            let (line, dropped) = self.take();
            let notice = match dropped - told {
                0 => Vec::new(),
                // It begins with an end: the line before may have been written in part.
                lost => format!("\nlog: {lost} lines were dropped here\n").into_bytes(),
            };
            let written = sink.write_all(&notice).and_then(|()| {
                told = dropped;
                sink.write_all(&line)
            });
            self.finished(written.is_ok());
        }
    }

    /// The next line, and how many were dropped before it.
    fn take(&self) -> (Vec<u8>, u64) {
        let mut state = self.lock();
        loop {
            if let Some(line) = state.lines.pop_front() {
                state.writing = true;
                return (line, state.dropped);
            }
            state = self.filled.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn finished(&self, written: bool) {
        let mut state = self.lock();
        state.writing = false;
        state.dropped += u64::from(!written);
        if state.lines.is_empty() {
            self.emptied.notify_all();
        }
    }
}

fn cut(line: &[u8]) -> Vec<u8> {
    match line.get(..LINE_MAX) {
        None => line.to_vec(),
        Some(start) => {
            let mut line = start.to_vec();
            line.extend_from_slice(b"... (cut)\n");
            line
        }
    }
}
