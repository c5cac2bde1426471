//! Which nodes are there, by asking each of them every second; and what they say of themselves.
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use proto::v1;

/// Whether a node is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Presence {
    /// The controller has just begun, and has not heard of it yet.
    Unknown,
    Here,
    Away {
        since: Instant,
    },
}

impl Presence {
    pub fn is_here(self) -> bool {
        self == Presence::Here
    }

    pub fn is_away(self) -> bool {
        matches!(self, Presence::Away { .. })
    }

    /// It has been away for so long.
    pub fn is_away_for(self, time: Duration, now: Instant) -> bool {
        matches!(self, Presence::Away { since } if now.duration_since(since) >= time)
    }
}

/// Targets of a node, by the uid of their volume.
pub type Targets = BTreeMap<Vec<u8>, v1::TargetStatus>;

/// What is known of a node.
#[derive(Clone, Debug)]
struct Life {
    /// When this controller first heard that there is such a node.
    first: Instant,
    last: Option<(Instant, Arc<v1::BeatResponse>)>,
    targets: Option<(Instant, Arc<Targets>)>,
    /// Why its last beat failed.
    trouble: String,
    /// A beat is under way.
    asked: bool,
}

/// All nodes.
#[derive(Debug)]
pub struct Pulse {
    away_after: Duration,
    lives: Mutex<BTreeMap<u64, Life>>,
}

impl Pulse {
    pub fn new(away_after: Duration) -> Pulse {
        Pulse { away_after, lives: Mutex::default() }
    }

    fn lives(&self) -> MutexGuard<'_, BTreeMap<u64, Life>> {
        self.lives.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// These are all the nodes that there are.
    pub fn know(&self, nodes: &[u64], now: Instant) {
        let mut lives = self.lives();
        lives.retain(|id, _| nodes.contains(id));
        for id in nodes {
            lives.entry(*id).or_insert_with(|| Life {
                first: now,
                last: None,
                targets: None,
                trouble: "it has not been heard of yet".into(),
                asked: false,
            });
        }
    }

    /// Whether to ask it now: not while it is being asked.
    pub fn ask(&self, id: u64) -> bool {
        self.lives().get_mut(&id).is_some_and(|life| !std::mem::replace(&mut life.asked, true))
    }

    pub fn heard(&self, id: u64, at: Instant, beat: Result<v1::BeatResponse, String>) {
        let mut lives = self.lives();
        let Some(life) = lives.get_mut(&id) else { return };
        life.asked = false;
        match beat {
            Ok(beat) => {
                // Whatever ran there before its start runs no more.
                if life.last.as_ref().is_some_and(|(_, last)| last.boot != beat.boot) {
                    life.targets = None;
                }
                life.last = Some((at, Arc::new(beat)));
                life.trouble.clear();
            }
            Err(why) => life.trouble = why,
        }
    }

    pub fn heard_targets(&self, id: u64, at: Instant, targets: Targets) {
        if let Some(life) = self.lives().get_mut(&id) {
            life.targets = Some((at, Arc::new(targets)));
        }
    }

    /// What somebody who asked for one of its targets was told.
    pub fn heard_target(&self, id: u64, at: Instant, target: v1::TargetStatus) {
        let Some(uid) = target.volume.as_ref().map(|volume| volume.uid.clone()) else { return };
        // Without a list nothing is known of its other targets, and must not seem to be.
        let mut lives = self.lives();
        let list = lives.get_mut(&id).and_then(|life| life.targets.as_mut());
        if let Some((_, targets)) = list.filter(|(told, _)| *told <= at) {
            Arc::make_mut(targets).insert(uid, target);
        }
    }

    pub fn presence(&self, id: u64, now: Instant) -> Presence {
        self.lives().get(&id).map_or(Presence::Unknown, |life| self.judge(life, now))
    }

    fn judge(&self, life: &Life, now: Instant) -> Presence {
        let since = life.last.as_ref().map_or(life.first, |(at, _)| *at);
        match now.duration_since(since) < self.away_after {
            true if life.last.is_some() => Presence::Here,
            true => Presence::Unknown,
            false => Presence::Away { since },
        }
    }

    pub fn beat(&self, id: u64) -> Option<Arc<v1::BeatResponse>> {
        let lives = self.lives();
        lives.get(&id)?.last.as_ref().map(|(_, beat)| Arc::clone(beat))
    }

    /// What runs there, and when that was told.
    pub fn targets(&self, id: u64) -> Option<(Instant, Arc<Targets>)> {
        self.lives().get(&id)?.targets.clone()
    }

    pub fn trouble(&self, id: u64) -> String {
        self.lives().get(&id).map(|life| life.trouble.clone()).unwrap_or_default()
    }

    /// Nobody is unknown any more.
    pub fn is_settled(&self, now: Instant) -> bool {
        self.lives().values().all(|life| self.judge(life, now) != Presence::Unknown)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_is_away_when_nothing_was_heard_for_long_enough() {
        let begun = Instant::now();
        let at = |seconds| begun + Duration::from_secs(seconds);
        let pulse = Pulse::new(Duration::from_secs(5));
        pulse.know(&[1, 2], begun);
        assert_eq!(pulse.presence(1, at(4)), Presence::Unknown);
        assert!(!pulse.is_settled(at(4)));
        pulse.heard(1, at(4), Ok(v1::BeatResponse::default()));
        assert_eq!(pulse.presence(1, at(8)), Presence::Here);
        assert_eq!(pulse.presence(1, at(9)), Presence::Away { since: at(4) });
        assert_eq!(pulse.presence(2, at(9)), Presence::Away { since: begun });
        pulse.heard(1, at(10), Err("gone".into()));
        assert_eq!(pulse.presence(1, at(10)), Presence::Away { since: at(4) });
        assert!(pulse.presence(1, at(14)).is_away_for(Duration::from_secs(10), at(14)));
    }

    #[test]
    fn a_node_that_started_again_runs_nothing_until_it_says_so() {
        let now = Instant::now();
        let pulse = Pulse::new(Duration::from_secs(5));
        pulse.know(&[1], now);
        let beat = |boot| Ok(v1::BeatResponse { boot, ..v1::BeatResponse::default() });
        pulse.heard(1, now, beat(7));
        pulse.heard_targets(1, now, Targets::from([(vec![1], v1::TargetStatus::default())]));
        pulse.heard(1, now, beat(7));
        assert!(pulse.targets(1).is_some());
        pulse.heard(1, now, beat(8));
        assert!(pulse.targets(1).is_none());
    }

    #[test]
    fn a_node_is_asked_once_at_a_time() {
        let now = Instant::now();
        let pulse = Pulse::new(Duration::from_secs(5));
        pulse.know(&[1], now);
        assert!(pulse.ask(1) && !pulse.ask(1) && !pulse.ask(2));
        pulse.heard(1, now, Err("refused".into()));
        assert!(pulse.ask(1));
    }
}
