//! Connections that have not proved yet who is at their other end.
//!
//! There are only so many of them, and when one more comes the oldest is evicted, but not before it had [`GRACE`]: until then
//! newcomers wait in the kernel. So connections that say nothing lock nobody out, however many come. Handshakes have a
//! bound of their own, and evict one another: they do not push out those that have got further. A connection that is
//! proved is never evicted, and is counted elsewhere.
//!
//! The data plane of a node has the same rule for its own sockets.
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use std::future::Future;
use std::pin::Pin;

use tokio::sync::{Notify, oneshot};
use tokio::time::Instant;

/// No connection is evicted before. A client on the other side of the world needs half of it for TLS and a request.
pub const GRACE: Duration = Duration::from_secs(1);

/// How many connections a listener has at a time.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// In their handshake.
    pub handshakes: usize,
    /// That have not proved anything, handshakes included.
    pub unproved: usize,
    /// That have.
    pub proved: usize,
}

impl Limits {
    /// Nodes, controllers, operators and clients of a site have a few connections each. As many handshakes as the kernel queues
    /// (1024) get their grace within two seconds, so that a client's turn comes before it gives up.
    pub const SITE: Limits = Limits { handshakes: 512, unproved: 768, proved: 1024 };
    /// For what nobody has to prove anything for, such as figures: a few programs ask now and then.
    pub const PUBLIC: Limits = Limits { handshakes: 32, unproved: 32, proved: 0 };
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Handshake,
    Greeted,
}

#[derive(Debug)]
struct Waiting {
    since: Instant,
    stage: Stage,
    evict: oneshot::Sender<()>,
}

/// Numbers are given in the order of arrival: the first of a map is the oldest.
#[derive(Debug, Default)]
struct State {
    last: u64,
    waiting: BTreeMap<u64, Waiting>,
    proved: BTreeSet<u64>,
}

impl State {
    fn handshakes(&self) -> usize {
        self.waiting.values().filter(|it| it.stage == Stage::Handshake).count()
    }

    /// The oldest of those that are too many, once there is one more.
    fn next_to_go(&self, limits: Limits) -> Option<(u64, Instant)> {
        let mut waiting = self.waiting.iter();
        let oldest = match self.handshakes() >= limits.handshakes {
            true => waiting.find(|(_, it)| it.stage == Stage::Handshake),
            false if self.waiting.len() >= limits.unproved => waiting.next(),
            false => None,
        };
        oldest.map(|(number, it)| (*number, it.since))
    }
}

/// All of a listener.
#[derive(Debug)]
pub struct Unproved {
    limits: Limits,
    state: Mutex<State>,
    /// One has gone, or has proved itself.
    fewer: Notify,
}

impl Unproved {
    pub fn new(limits: Limits) -> Arc<Unproved> {
        Arc::new(Unproved { limits, state: Mutex::default(), fewer: Notify::new() })
    }

    /// No invariant spans a panic: each use is one change.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Until one more may come in.
    pub async fn room(&self) {
        loop {
            let fewer = self.fewer.notified();
            let next = self.state().next_to_go(self.limits);
            let Some((_, since)) = next else { return };
            if since.elapsed() >= GRACE {
                return;
            }
            tokio::select! {
                () = fewer => {}
                () = tokio::time::sleep_until(since + GRACE) => {}
            }
        }
    }

    /// One more has come in; another may have to go for it.
    pub fn enter(self: &Arc<Self>) -> Place {
        let (evict, evicted) = oneshot::channel();
        let mut state = self.state();
        let goes = state.next_to_go(self.limits);
        state.last += 1;
        let number = state.last;
        let waiting = Waiting { since: Instant::now(), stage: Stage::Handshake, evict };
        state.waiting.insert(number, waiting);
        if let Some((oldest, _)) = goes {
            state.evict(oldest);
        }
        drop(state);
        let proof = Proof { of: Arc::clone(self), number };
        Place { proof, eviction: Eviction::Possible(evicted) }
    }

    /// Nothing can be accepted, for want of descriptors: the oldest gives its own back.
    pub fn shed(&self) {
        let mut state = self.state();
        let oldest = state.waiting.first_key_value();
        let oldest =
            oldest.filter(|(_, it)| it.since.elapsed() >= GRACE).map(|(number, _)| *number);
        if let Some(oldest) = oldest {
            state.evict(oldest);
        }
    }

    #[cfg(test)]
    fn counts(&self) -> (usize, usize, usize) {
        let state = self.state();
        (state.handshakes(), state.waiting.len(), state.proved.len())
    }
}

impl State {
    fn evict(&mut self, number: u64) {
        if let Some(waiting) = self.waiting.remove(&number) {
            // It may be gone by itself.
            let _ = waiting.evict.send(());
        }
    }
}

/// By which a connection proves who is at its other end.
#[derive(Clone)]
pub struct Proof {
    of: Arc<Unproved>,
    number: u64,
}

impl fmt::Debug for Proof {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Proof({})", self.number)
    }
}

impl Proof {
    /// From now on the connection is not evicted. Not, if there are too many such connections, or it is gone.
    pub fn accept(&self) -> bool {
        let mut state = self.of.state();
        if state.proved.contains(&self.number) {
            return true;
        }
        if state.proved.len() >= self.of.limits.proved || !state.waiting.contains_key(&self.number)
        {
            return false;
        }
        state.waiting.remove(&self.number);
        state.proved.insert(self.number);
        drop(state);
        self.of.fewer.notify_one();
        true
    }
}

/// What a connection takes of its listener until it is dropped.
#[derive(Debug)]
pub struct Place {
    proof: Proof,
    eviction: Eviction,
}

/// What becomes of a connection that has proved nothing. The last two are for good.
#[derive(Debug)]
enum Eviction {
    Possible(oneshot::Receiver<()>),
    Done,
    /// It has proved itself.
    Over,
}

impl Place {
    pub fn proof(&self) -> Proof {
        self.proof.clone()
    }

    /// Its handshake is over.
    pub fn greeted(&self) {
        if let Some(waiting) = self.proof.of.state().waiting.get_mut(&self.proof.number) {
            waiting.stage = Stage::Greeted;
        }
        self.proof.of.fewer.notify_one();
    }

    /// Whether it was evicted; otherwise the task is woken when it is. The receiver must not be polled again once it
    /// has answered: a server may ask again after an error.
    pub fn is_evicted(&mut self, cx: &mut Context<'_>) -> bool {
        if let Eviction::Possible(evicted) = &mut self.eviction {
            self.eviction = match Pin::new(evicted).poll(cx) {
                Poll::Pending => return false,
                Poll::Ready(Ok(())) => Eviction::Done,
                Poll::Ready(Err(_)) => Eviction::Over,
            };
        }
        matches!(self.eviction, Eviction::Done)
    }

    /// Until it is evicted.
    pub async fn evicted(&mut self) {
        std::future::poll_fn(|cx| match self.is_evicted(cx) {
            true => Poll::Ready(()),
            false => Poll::Pending,
        })
        .await;
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut state = self.proof.of.state();
        state.waiting.remove(&self.proof.number);
        state.proved.remove(&self.proof.number);
        drop(state);
        self.proof.of.fewer.notify_one();
    }
}

#[cfg(test)]
mod tests;
