//! Volumes on their way out: target, votes, replicas, mark, object. In this order nothing is left that
//! nobody knows of.
use std::time::Duration;

use futures_util::future::try_join_all;
use proto::catalog_client::Swapped;
use proto::v1;
use proto::v1::swap_request::Change;
use tonic::Code;

use super::create::has_voters;
use super::{Found, Site, StepError, faults, key};

/// Who deletes.
#[derive(Clone, Copy)]
pub enum Manner<'a> {
    /// An operator, who is told what is in the way, and says it again.
    ByHand,
    /// A controller, which comes back to it. What it has in nodes that are away is left for later.
    Controlled { away: &'a (dyn Fn(u64) -> bool + Sync) },
}

impl Manner<'_> {
    fn is_away(self, node: u64) -> bool {
        match self {
            Manner::ByHand => false,
            Manner::Controlled { away } => away(node),
        }
    }
}

/// What is left of a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Left {
    Nothing,
    /// Its object, and replicas in these nodes, which are away.
    Replicas {
        nodes: Vec<u64>,
    },
    /// Its object was changed meanwhile: once more.
    Changed,
}

/// How long a target may take to end its reign cleanly.
const CLOSING: Duration = Duration::from_secs(15);

impl Site {
    pub async fn delete(&self, name: &str) -> Result<(), StepError> {
        match self.volume(name).await? {
            Some(found) => self.delete_this(&found.volume, Manner::ByHand).await.map(|_| ()),
            None => Ok(()),
        }
    }

    /// This very volume, not another that has its name by now.
    pub async fn delete_this(
        &self,
        volume: &v1::Volume,
        manner: Manner<'_>,
    ) -> Result<Left, StepError> {
        // Whoever changes the object meanwhile may have added something.
        while let Some(found) = self.volume(&volume.name).await?
            && found.volume.uid == volume.uid
        {
            match self.delete_found(&found.volume, manner).await? {
                Left::Changed => {}
                left => return Ok(left),
            }
        }
        Ok(Left::Nothing)
    }

    async fn delete_found(
        &self,
        volume: &v1::Volume,
        manner: Manner<'_>,
    ) -> Result<Left, StepError> {
        self.begin_deleting(volume).await?;
        self.fault(faults::DELETION_INTENDED).await;
        if has_voters(volume) {
            self.end_reign(volume, manner).await?;
        }
        self.fault(faults::TARGET_STOPPED).await;
        let found = self.take_votes(volume).await?;
        self.fault(faults::VOTES_TAKEN).await;
        let (away, here): (Vec<_>, Vec<_>) =
            found.volume.places.iter().partition(|place| manner.is_away(place.node));
        try_join_all(here.iter().map(|place| self.wipe(&found, place.replica))).await?;
        self.fault(faults::CONTENT_WIPED).await;
        if !away.is_empty() {
            let nodes = away.iter().map(|place| place.node).collect();
            let left: Vec<v1::Place> = away.into_iter().cloned().collect();
            self.change_of(volume, |volume| {
                volume.places.clone_from(&left);
                Ok(())
            })
            .await?;
            return Ok(Left::Replicas { nodes });
        }
        self.unmark(&found).await?;
        self.fault(faults::CLONE_UNMARKED).await;
        let change = Change::Delete(v1::Deletion {});
        let swapped = self.client.swap(&key(&volume.name), found.version, change).await?;
        Ok(match swapped {
            Swapped::Done(object) => {
                self.tell(&object);
                Left::Nothing
            }
            Swapped::Conflict(_) => Left::Changed,
        })
    }

    /// Nobody serves it any more.
    async fn end_reign(&self, volume: &v1::Volume, manner: Manner<'_>) -> Result<(), StepError> {
        let holder = volume.quorum.as_ref().map_or(0, |quorum| quorum.holder);
        if holder == 0 || manner.is_away(holder) {
            return Ok(());
        }
        let stopped = tokio::time::timeout(CLOSING, self.stop(&volume.name)).await;
        let Ok(stopped) = stopped else {
            // It waits for a quorum that may never come: without votes it ends anyway.
            return match manner {
                Manner::Controlled { .. } => Ok(()),
                Manner::ByHand => Err(StepError::TooLong {
                    what: "the end of its target",
                    name: volume.name.clone(),
                    seconds: CLOSING.as_secs(),
                }),
            };
        };
        match (stopped, manner) {
            (Ok(_), _) => Ok(()),
            (Err(StepError::NoNode { .. }), Manner::Controlled { .. }) => Ok(()),
            // It does not serve, for want of a quorum.
            (Err(StepError::Node(status)), Manner::Controlled { .. })
                if status.code() == Code::Unavailable =>
            {
                Ok(())
            }
            // It does not run where it may: after a restart that saw the intent.
            (Err(StepError::Node(status)), Manner::Controlled { .. })
                if status.code() == Code::NotFound =>
            {
                Ok(())
            }
            (Err(refused), Manner::Controlled { .. }) => Err(refused),
            (Err(refused), Manner::ByHand) => {
                // It can still be served elsewhere, and must be for being deleted.
                self.mark_deleting(volume, false).await?;
                Err(refused)
            }
        }
    }

    /// Nobody votes any more: whatever has a copy may wipe it.
    async fn take_votes(&self, volume: &v1::Volume) -> Result<Found, StepError> {
        self.change_of(volume, |volume| {
            let quorum = volume.quorum.get_or_insert_default();
            if let Some(membership) = &mut quorum.membership {
                let voters = membership.voters.as_ref().map(|it| it.members.len());
                if voters != Some(0) {
                    membership.version += 1;
                    membership.voters = Some(v1::Voters::default());
                    membership.next = None;
                }
            }
            quorum.desired.clear();
            Ok(())
        })
        .await
    }

    /// Refused while it has clones. One that is begun at this moment stores its intent first and looks at
    /// this object then, so one of both sees the other.
    async fn begin_deleting(&self, volume: &v1::Volume) -> Result<(), StepError> {
        if !volume.deleting {
            self.without_clones(volume, None).await?;
            self.mark_deleting(volume, true).await?;
        }
        if let Err(refused) = self.without_clones(volume, None).await {
            self.mark_deleting(volume, false).await?;
            return Err(refused);
        }
        Ok(())
    }

    async fn mark_deleting(&self, volume: &v1::Volume, deleting: bool) -> Result<(), StepError> {
        self.change_of(volume, |volume| {
            // Without votes there is no way back.
            volume.deleting = deleting || !has_voters(volume);
            Ok(())
        })
        .await?;
        Ok(())
    }
}
