//! The connection to whoever serves a volume, wherever that is by now.
//!
//! A request that was handed in is answered once, through any number of lost connections: what has no answer
//! when a connection ends is sent again over the next, in the order in which it came. That is safe because the
//! target drops or finishes what an older connection left before it answers a newer login (P9), and no request
//! of the protocol does something else when it is done twice.
//!
//! A request waits as long as the volume's class allows (P6), then it fails; the link goes on trying. Only two
//! answers end it for good: the writes of this stage may be lost (P8), and somebody newer has taken its place.
//!
//! The life of a request: [`Link::submit`] -> `pending.rs` (it is kept) -> `wire.rs` (its frame) -> the socket ->
//! `replies.rs` -> `pending.rs` (its answer is called).
mod connect;
mod handshake;
mod pending;
mod replies;
mod watch;
mod wire;

use std::io::Write;
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use tracing::{error, info, warn};

pub use connect::{Identity, Secret, Where, Whereabouts};
pub use handshake::{Disk, HandshakeError};
pub use pending::{Answer, Failure, Work};

use pending::Pending;

/// Between two attempts to reach a target, at first and at last.
const PAUSE_MIN: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// What a link is made of.
pub struct Plan {
    pub identity: Identity,
    pub whereabouts: Box<dyn Whereabouts>,
    /// How long a request waits at the most (P6).
    pub patience: Duration,
}

/// How a link is, for whoever asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// With whom.
    Up { target: String },
    /// Since when, and why.
    Away { since: Instant, reason: String },
    /// There is a target, and it lets this machine in no more. It may again.
    Denied { reason: String },
    /// For good.
    Ended { reason: String },
}

pub struct Link {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

struct Shared {
    plan: Plan,
    /// Locked while a frame is sent, and never by whoever receives: a target that is slow to take requests has to
    /// get rid of its replies.
    sending: Mutex<Option<TcpStream>>,
    /// The same socket for whoever has to end it while somebody is stuck in sending.
    current: Mutex<Option<TcpStream>>,
    pending: Mutex<Pending>,
    state: Mutex<State>,
    disk: Mutex<Disk>,
    stopping: AtomicBool,
    /// Told when the link ends or is to stop.
    wake: (Mutex<()>, Condvar),
}

/// A lock that a panicking thread had is as good as before: every change under it is made at once.
fn locked<T>(lock: &Mutex<T>) -> MutexGuard<'_, T> {
    lock.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

impl Link {
    /// Connects before it returns: a volume that cannot be reached now is an error of whoever wants it now.
    /// Tries for as long as `within`.
    pub fn open(plan: Plan, within: Duration) -> Result<Link, HandshakeError> {
        let begun = Instant::now();
        let first = loop {
            match connect::connect(&plan) {
                Ok(connected) => break connected,
                Err(error @ HandshakeError::Geometry { .. }) => return Err(error),
                Err(error) if error.is_final() || begun.elapsed() > within => return Err(error),
                Err(_) => thread::sleep(PAUSE_MIN),
            }
        };
        let shared = Arc::new(Shared {
            sending: Mutex::new(None),
            current: Mutex::new(None),
            pending: Mutex::new(Pending::new(plan.patience)),
            state: Mutex::new(State::Away { since: Instant::now(), reason: "starting".into() }),
            disk: Mutex::new(first.disk),
            stopping: AtomicBool::new(false),
            wake: (Mutex::new(()), Condvar::new()),
            plan,
        });
        let carrying = Arc::clone(&shared);
        let watching = Arc::clone(&shared);
        let threads = vec![
            thread::spawn(move || carrying.carry(first)),
            thread::spawn(move || watching.watch()),
        ];
        Ok(Link { shared, threads })
    }

    /// The answer is called once, from any thread.
    pub fn submit(&self, work: Work, answer: Answer) {
        self.shared.submit(work, answer);
    }

    pub fn state(&self) -> State {
        locked(&self.shared.state).clone()
    }

    /// Writes that were answered with an error.
    pub fn failed_writes(&self) -> u64 {
        locked(&self.shared.pending).failed_writes()
    }

    /// As of the last login, or of the last [`Link::refresh`].
    pub fn disk(&self) -> Disk {
        *locked(&self.shared.disk)
    }

    /// Asks the target how large the volume is by now.
    pub fn refresh(&self) -> Result<Disk, HandshakeError> {
        let disk = connect::ask(&self.shared.plan, self.disk())?;
        let mut known = locked(&self.shared.disk);
        // A target that does not serve yet tells what it has on record; a volume never shrinks.
        known.size = known.size.max(disk.size);
        Ok(*known)
    }

    /// The end: what is still under way fails, and the target is told.
    pub fn stop(&self) {
        self.shared.stop();
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.shared.stop();
        for thread in self.threads.drain(..) {
            // One that panicked has said so, and the link is at its end anyway.
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn submit(&self, work: Work, answer: Answer) {
        if let State::Ended { .. } = *locked(&self.state) {
            return answer(Err(Failure::Ended));
        }
        let mut sending = locked(&self.sending);
        let frame = locked(&self.pending).add(work, answer, Instant::now());
        if let Some(stream) = sending.as_mut()
            && let Err(error) = frame.send(stream)
        {
            self.lost(&mut sending, &error.to_string());
        }
        drop(sending);
        // It may have ended between the first look and the queue, where nobody would look again.
        if let State::Ended { .. } = *locked(&self.state) {
            self.fail_all();
        }
    }

    fn lost(&self, sending: &mut Option<TcpStream>, reason: &str) {
        if sending.take().is_some() {
            warn!(reason, "the connection to the target is lost");
        }
        self.cut();
    }

    /// Whoever sends or receives on this connection finds its end, and a new one is made.
    fn cut(&self) {
        if let Some(stream) = locked(&self.current).take() {
            // It may be closed already.
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    /// Connection after connection.
    fn carry(&self, first: connect::Connected) {
        let mut next = Some(first);
        loop {
            let connected = match next.take() {
                Some(connected) => connected,
                None => match self.reconnect() {
                    Some(connected) => connected,
                    None => return,
                },
            };
            let reason = self.serve(connected);
            if !self.set_state(State::Away { since: Instant::now(), reason }) {
                return;
            }
        }
    }

    /// The end is for good. Whether it has not come yet.
    fn set_state(&self, state: State) -> bool {
        let mut now = locked(&self.state);
        let goes_on = !matches!(*now, State::Ended { .. });
        if goes_on {
            *now = state;
        }
        goes_on
    }

    /// One connection until its end, and why it ended.
    fn serve(&self, connected: connect::Connected) -> String {
        let connect::Connected { stream, target, disk } = connected;
        let (receiving, current) = match (stream.try_clone(), stream.try_clone()) {
            (Ok(receiving), Ok(current)) => (receiving, current),
            (Err(error), _) | (_, Err(error)) => return error.to_string(),
        };
        *locked(&self.current) = Some(current);
        // Whoever stops the link says so first and ends the current connection then: one of both sees the other.
        if self.stopping.load(Ordering::SeqCst) {
            self.cut();
            return "the link was stopped".into();
        }
        info!(target, "the volume is reached");
        self.take_note(disk);
        self.set_state(State::Up { target });
        thread::scope(|scope| {
            // Receives already while everything that has no answer is sent again.
            let receiver = scope.spawn(|| replies::receive(receiving, &self.pending));
            let mut sending = locked(&self.sending);
            let mut stream = stream;
            match self.send_again(&mut stream) {
                Ok(()) => *sending = Some(stream),
                Err(error) => self.lost(&mut Some(stream), &error.to_string()),
            }
            drop(sending);
            let reason = receiver.join().unwrap_or_else(|_| "the receiver panicked".into());
            self.lost(&mut locked(&self.sending), &reason);
            reason
        })
    }

    fn take_note(&self, disk: Disk) {
        let mut known = locked(&self.disk);
        // A target that is behind may know an older size; a volume never shrinks.
        let size = known.size.max(disk.size);
        *known = Disk { size, ..disk };
    }

    fn send_again(&self, stream: &mut TcpStream) -> std::io::Result<()> {
        let frames = locked(&self.pending).frames();
        frames.iter().try_for_each(|frame| frame.send(stream))?;
        stream.flush()
    }

    /// `None`: it is over.
    fn reconnect(&self) -> Option<connect::Connected> {
        let mut pause = PAUSE_MIN;
        loop {
            if self.stopping.load(Ordering::SeqCst) {
                return None;
            }
            match self.connect() {
                Ok(connected) => return Some(connected),
                Err(error) if error.is_final() => {
                    error!(%error, "the volume cannot be used any more by this attachment");
                    self.set_state(State::Ended { reason: error.to_string() });
                    self.fail_all();
                    return None;
                }
                Err(error) => {
                    self.note(&error);
                    self.rest(pause);
                    pause = (pause * 2).min(PAUSE_MAX);
                }
            }
        }
    }

    fn connect(&self) -> Result<connect::Connected, HandshakeError> {
        let connected = connect::connect(&self.plan)?;
        connect::same_block(*locked(&self.disk), connected.disk, &connected.target)?;
        Ok(connected)
    }

    /// Why there is no connection.
    fn note(&self, error: &HandshakeError) {
        let reason = error.to_string();
        let since = match *locked(&self.state) {
            State::Away { since, .. } => since,
            _ => Instant::now(),
        };
        self.set_state(match error {
            HandshakeError::Denied(_) => State::Denied { reason },
            _ => State::Away { since, reason },
        });
    }

    fn fail_all(&self) {
        let all = locked(&self.pending).take_all();
        all.into_iter().for_each(|answer| answer(Err(Failure::Ended)));
    }

    fn rest(&self, pause: Duration) {
        let (lock, told) = &self.wake;
        let guard = locked(lock);
        // Whether it was told or not, the caller looks again.
        drop(told.wait_timeout(guard, pause));
    }

    fn stop(&self) {
        self.stopping.store(true, Ordering::SeqCst);
        if let Ok(mut sending) = self.sending.try_lock()
            && let Some(stream) = sending.as_mut()
        {
            // The target sees the end of the connection, with or without these words.
            let _ = wire::Frame::goodbye().send(stream);
        }
        self.set_state(State::Ended { reason: "the volume was given back".into() });
        self.cut();
        self.fail_all();
        self.wake.1.notify_all();
    }
}

#[cfg(test)]
mod tests;
