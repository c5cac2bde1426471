//! One operation at a time for each object.
//!
//! Whoever asks for something while another operation is under way is told so; what the controller does by
//! itself in between is short, and is waited for.
use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use proto::v1::Kind;
use tokio::sync::Notify;

/// An object by its kind and name.
pub type Thing = (Kind, String);

/// How long a caller waits for what the controller does by itself.
const PATIENCE: Duration = Duration::from_secs(10);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Holder {
    /// Somebody asked for it.
    Call,
    /// The controller itself.
    Care,
}

#[derive(Debug, Default)]
pub struct Busy {
    held: Mutex<BTreeMap<(i32, String), Holder>>,
    freed: Notify,
}

/// Objects that are nobody else's until it is dropped.
#[derive(Debug)]
pub struct Claim {
    busy: Arc<Busy>,
    things: Vec<(i32, String)>,
}

impl Busy {
    /// For a caller. `Err`: another operation is under way for this one.
    pub async fn claim(self: &Arc<Busy>, things: &[Thing]) -> Result<Claim, Thing> {
        let until = tokio::time::Instant::now() + PATIENCE;
        loop {
            let mut freed = pin!(self.freed.notified());
            // From here on no end of a claim is missed.
            freed.as_mut().enable();
            let (thing, holder) = match self.take(things, Holder::Call) {
                Ok(claim) => return Ok(claim),
                Err(taken) => taken,
            };
            if holder == Holder::Call {
                return Err(thing);
            }
            if tokio::time::timeout_at(until, freed).await.is_err() {
                return Err(thing);
            }
        }
    }

    /// For the controller itself: at once or not at all.
    pub fn claim_for_care(self: &Arc<Busy>, thing: Thing) -> Option<Claim> {
        self.take(&[thing], Holder::Care).ok()
    }

    fn take(self: &Arc<Busy>, things: &[Thing], by: Holder) -> Result<Claim, (Thing, Holder)> {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        let name = |(kind, name): &Thing| (i32::from(*kind), name.clone());
        for thing in things {
            if let Some(holder) = held.get(&name(thing)) {
                return Err((thing.clone(), *holder));
            }
        }
        let things: Vec<(i32, String)> = things.iter().map(name).collect();
        held.extend(things.iter().map(|thing| (thing.clone(), by)));
        Ok(Claim { busy: Arc::clone(self), things })
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        let mut held = self.busy.held.lock().unwrap_or_else(PoisonError::into_inner);
        self.things.iter().for_each(|thing| {
            held.remove(thing);
        });
        drop(held);
        self.busy.freed.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn thing(name: &str) -> Thing {
        (Kind::Volume, name.into())
    }

    #[tokio::test]
    async fn a_second_call_is_told_and_care_is_waited_for() {
        let busy = Arc::new(Busy::default());
        let first = busy.claim(&[thing("a"), thing("b")]).await.expect("nobody has them");
        assert_eq!(busy.claim(&[thing("c"), thing("b")]).await.expect_err("taken"), thing("b"));
        assert!(busy.claim_for_care(thing("a")).is_none());
        assert!(busy.claim(&[thing("c")]).await.is_ok(), "nothing is left of a claim that failed");
        drop(first);
        let care = busy.claim_for_care(thing("a")).expect("it is free");
        let other = Arc::clone(&busy);
        let waiting = tokio::spawn(async move { other.claim(&[thing("a")]).await.is_ok() });
        tokio::task::yield_now().await;
        drop(care);
        assert!(waiting.await.expect("no panic"));
    }
}
