//! Asks every node, every second, whether it is there; and every other time what it serves.
use std::sync::Arc;
use std::time::Instant;

use proto::v1;
use tokio::task::JoinSet;

use super::Controller;
use super::books::Known;
use super::presence::Targets;

/// Targets are told every so many beats: they are a long list on a large node.
const TARGETS_EVERY: u64 = 2;

pub async fn ask_all(controller: Arc<Controller>) {
    let mut ticks = tokio::time::interval(controller.settings.beat);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut asking = JoinSet::new();
    for round in 0_u64.. {
        ticks.tick().await;
        while asking.try_join_next().is_some() {}
        let nodes = controller.books.all::<v1::Node>();
        let ids: Vec<u64> = nodes.iter().map(|node| node.id).collect();
        controller.pulse.know(&ids, Instant::now());
        for node in nodes {
            if controller.pulse.ask(node.id) {
                let targets = round % TARGETS_EVERY == 0;
                asking.spawn(ask(Arc::clone(&controller), node, targets));
            }
        }
    }
}

async fn ask(controller: Arc<Controller>, node: Known<v1::Node>, targets: bool) {
    let patience = controller.settings.away_after;
    let asked = Instant::now();
    let beat = tokio::time::timeout(patience, beat(&controller, &node)).await;
    let beat = beat.unwrap_or_else(|_| Err(format!("no answer within {patience:?}")));
    let is_here = beat.is_ok();
    // It was there when it was asked; more is not known.
    controller.pulse.heard(node.id, asked, beat);
    if is_here && targets {
        let told = tokio::time::timeout(patience, list(&controller, &node)).await;
        if let Ok(Some(targets)) = told {
            controller.pulse.heard_targets(node.id, asked, targets);
        }
    }
}

async fn beat(controller: &Controller, node: &v1::Node) -> Result<v1::BeatResponse, String> {
    let mut admin = controller.site.admin(node).map_err(|error| error.to_string())?;
    let request = v1::BeatRequest { controller: controller.generation };
    let beat = admin.beat(request).await.map_err(|status| status.message().to_owned())?;
    match beat.get_ref().node == node.id {
        true => Ok(beat.into_inner()),
        false => Err(format!("node {} answers in its place", beat.get_ref().node)),
    }
}

async fn list(controller: &Controller, node: &v1::Node) -> Option<Targets> {
    let mut admin = controller.site.admin(node).ok()?;
    let told = admin.list_targets(v1::ListTargetsRequest {}).await.ok()?.into_inner();
    let by_uid = |target: v1::TargetStatus| Some((target.volume.as_ref()?.uid.clone(), target));
    Some(told.targets.into_iter().filter_map(by_uid).collect())
}
