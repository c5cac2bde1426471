//! What the log is told of volumes: when a replica comes, goes or falls behind, and when a volume is
//! served or not. Whoever reads it afterwards finds what happened, and when.
use std::collections::BTreeMap;

use replication::target::{Standing, Status};
use replication::words::{Moment, ReplicaId, Span};
use tracing::{info, warn};

use super::Shard;
use super::volumes::VolumeNo;

/// Often enough for people; looking costs a little for each volume.
const EVERY: Span = Span::secs(1);

#[derive(Debug, Default)]
pub struct Logged {
    serving: bool,
    standings: BTreeMap<ReplicaId, (Standing, bool)>,
    /// Since when too few voters answer for a quorum.
    pub without_quorum: Option<Moment>,
}

impl Shard {
    pub(super) fn log_changes(&mut self) {
        if self.now < self.looked + EVERY {
            return;
        }
        self.looked = self.now;
        let now = self.now;
        let numbers: Vec<VolumeNo> = self.volumes.numbers().collect();
        for number in numbers {
            if let Some(target) = self.volumes.target(number) {
                let status = target.machine.status(now);
                target.logged.compare(&target.record.name, &status);
                let logged = &mut target.logged;
                logged.without_quorum = status.without_quorum(logged.without_quorum, now);
            }
        }
    }
}

impl Logged {
    fn compare(&mut self, volume: &str, status: &Status) {
        if std::mem::replace(&mut self.serving, status.serving) != status.serving {
            match status.serving {
                true => info!(volume, term = status.term.0, "the volume is served"),
                false => {
                    let why = status.held_because.as_deref().unwrap_or("it is not known");
                    warn!(volume, why, "the volume is not served");
                }
            }
        }
        let before = std::mem::take(&mut self.standings);
        for peer in &status.peers {
            let (replica, stands) = (peer.member.replica, (peer.standing, peer.votes));
            self.standings.insert(replica, stands);
            if before.get(&replica) == Some(&stands) {
                continue;
            }
            let (standing, votes) = stands;
            let reason = peer.reason.as_deref().unwrap_or("-");
            match standing {
                Standing::Healthy => info!(volume, %replica, votes, "the replica is Healthy"),
                _ => {
                    warn!(volume, %replica, ?standing, votes, reason, "the replica is not Healthy")
                }
            }
        }
        for replica in before.keys().filter(|replica| !self.standings.contains_key(replica)) {
            info!(volume, %replica, "the replica is not one of the volume any more");
        }
    }
}
