//! Who serves a volume.
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use proto::v1;

use super::books::Known;
use super::{Answer, Controller};
use crate::api::{ApiError, Code};
use crate::steps::{faults, reference};

/// Between two questions whether a target serves; doubled up to the last.
const PAUSE: Duration = Duration::from_millis(2);
const PAUSE_MAX: Duration = Duration::from_millis(50);

impl Controller {
    /// Has it served by somebody, and waits until it is.
    pub(super) async fn serve(&self, volume: &v1::Volume) -> Answer<()> {
        let found = self.site.known(&volume.name).await?;
        let node = match self
            .books
            .node(holder(&found.volume))
            .filter(|it| !self.presence(it.id).is_away())
        {
            Some(node) => node,
            None => {
                let node = self.server_for(&found.volume, None)?;
                self.start_target(&found.volume, &node).await?;
                node
            }
        };
        self.wait_serving(&found.volume, &node).await
    }

    /// Has this node serve it, whoever did before.
    pub(super) async fn serve_on(&self, volume: &v1::Volume, node: &v1::Node) -> Answer<()> {
        self.start_target(volume, node).await?;
        self.wait_serving(volume, node).await
    }

    async fn start_target(&self, volume: &v1::Volume, node: &v1::Node) -> Answer<()> {
        let request = v1::StartTargetRequest { volume: Some(reference(volume)), take_over: true };
        self.site.admin(node)?.start_target(request).await?;
        self.site.fault(faults::TARGET_STARTED).await;
        Ok(())
    }

    /// Until it is served: by this node, or by another that has got the grant meanwhile. One that was asked by
    /// an earlier controller may have asked the catalog only now.
    async fn wait_serving(&self, volume: &v1::Volume, node: &v1::Node) -> Answer<()> {
        let name = &volume.name;
        let before = holder(volume);
        let until = Instant::now() + self.settings.patience;
        let mut pause = PAUSE;
        loop {
            let now = self.books.get::<v1::Volume>(name).map_or(before, |it| holder(&it));
            let other = self.books.node(now).filter(|it| now != before && it.id != node.id);
            let why = match self.ask_target(volume, other.as_deref().unwrap_or(node)).await {
                Ok(target) if target.serving => {
                    // It has the grant: who looks at the volume now is to see that.
                    self.fresh::<v1::Volume>(name).await?;
                    return Ok(());
                }
                Ok(target) => target.held_because.unwrap_or_else(|| "it is not ready yet".into()),
                Err(error) => error.message,
            };
            if Instant::now() > until {
                let message = format!("the volume `{name}` is not served yet: {why}");
                return Err(ApiError::new(Code::Unavailable, message));
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    async fn ask_target(&self, volume: &v1::Volume, node: &v1::Node) -> Answer<v1::TargetStatus> {
        let asked = Instant::now();
        let request = v1::GetTargetRequest { volume: Some(reference(volume)) };
        let target = self.site.admin(node)?.get_target(request).await?.into_inner();
        if target.serving {
            self.pulse.heard_target(node.id, asked, target.clone());
        }
        Ok(target)
    }

    /// Where a target is best: with a replica that votes, in a node that is there, with the fewest
    /// others.
    pub(super) fn server_for(
        &self,
        volume: &v1::Volume,
        not: Option<u64>,
    ) -> Answer<Known<v1::Node>> {
        let membership = volume.quorum.as_ref().and_then(|quorum| quorum.membership.as_ref());
        let voters = membership.and_then(|membership| membership.voters.as_ref());
        let votes = |place: &&v1::Place| {
            voters.is_some_and(|it| it.members.iter().any(|it| it.replica == place.replica))
        };
        let mut load = BTreeMap::<u64, usize>::new();
        for other in self.books.all::<v1::Volume>() {
            *load.entry(other.quorum.as_ref().map_or(0, |it| it.holder)).or_default() += 1;
        }
        let here = volume.places.iter().filter(votes).map(|place| place.node);
        let here = here.filter(|node| self.presence(*node).is_here() && Some(*node) != not);
        let best = here.min_by_key(|node| (load.get(node).copied().unwrap_or(0), *node));
        best.and_then(|node| self.books.node(node)).ok_or_else(|| {
            let message =
                format!("no node with a replica of `{}` that votes is there", volume.name);
            ApiError::new(Code::Unavailable, message)
        })
    }
}

/// The node that has the grant; 0: none.
fn holder(volume: &v1::Volume) -> u64 {
    volume.quorum.as_ref().map_or(0, |quorum| quorum.holder)
}
