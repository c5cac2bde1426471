//! Figures for Prometheus: what the shard shows, not older than a second.
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use certs::{ListenError, Refused};
use hyper_util::service::TowerToHyperService;
use prometheus_client::encoding::{EncodeLabelSet, text};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use replication::target::{PeerStatus, Standing};
use tokio::sync::{Mutex, oneshot};

use crate::shard::{Order, PoolStatus, ReplicaStatus, Sender, ShardStatus, TargetStatus};

/// How old an answer may be. Looking at all volumes takes the data plane's time, and Prometheus asks every 15 s or so.
const FRESH: Duration = Duration::from_secs(1);

/// For a request and its answer, however slowly it is read.
const CONNECTION_MAX: Duration = Duration::from_secs(10);

const CONTENT: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct PoolLabel {
    pool: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct VolumeLabel {
    volume: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct PeerLabel {
    volume: String,
    replica: u64,
}

/// Serves `/metrics` until the process ends; the address that it has. `refused` is told of connections that are turned away.
pub async fn serve(
    at: SocketAddr,
    shard: Sender,
    refused: impl Fn(Option<SocketAddr>, &Refused) + Send + Sync + 'static,
) -> Result<SocketAddr, ListenError> {
    let (bound, incoming) = certs::http::listen_public(at, refused).await?;
    let figures = Arc::new(Figures { shard, last: Mutex::default() });
    let answer = move || {
        let figures = Arc::clone(&figures);
        async move { figures.answer().await }
    };
    let app = TowerToHyperService::new(Router::new().route("/metrics", get(answer)));
    tokio::spawn(certs::http::serve(incoming, CONNECTION_MAX, app));
    Ok(bound)
}

/// What was last told, and when: however many ask, the data plane is asked once in [`FRESH`].
struct Figures {
    shard: Sender,
    last: Mutex<Option<(Instant, String)>>,
}

impl Figures {
    async fn answer(&self) -> Response {
        // Those who ask at the same time wait for the one answer.
        let mut last = self.last.lock().await;
        if last.as_ref().is_none_or(|(at, _)| at.elapsed() >= FRESH) {
            *last = self.ask().await.map(|text| (Instant::now(), text));
        }
        match &*last {
            Some((_, text)) => ([(header::CONTENT_TYPE, CONTENT)], text.clone()).into_response(),
            None => StatusCode::SERVICE_UNAVAILABLE.into_response(),
        }
    }

    async fn ask(&self) -> Option<String> {
        let (tell, told) = oneshot::channel();
        self.shard.send(Order::Status(Box::new(move |status| {
            // Whoever asked may have gone.
            let _ = tell.send(status);
        })));
        render(&told.await.ok()?).ok()
    }
}

pub fn render(status: &ShardStatus) -> Result<String, std::fmt::Error> {
    let mut registry = Registry::with_prefix("pollux");
    pools(&mut registry, &status.pools);
    replicas(&mut registry, &status.replicas);
    volumes(&mut registry, &status.targets);
    peers(&mut registry, &status.targets);
    log(&mut registry);
    let mut out = String::new();
    text::encode(&mut out, &registry)?;
    Ok(out)
}

/// Registers one figure with a value for each of some things.
fn gauge<L, T>(
    registry: &mut Registry,
    (name, help): (&str, &str),
    things: &[T],
    figure: impl Fn(&T) -> (L, u64),
) where
    L: Clone + std::hash::Hash + Eq + EncodeLabelSet + std::fmt::Debug + Send + Sync + 'static,
{
    let family = Family::<L, Gauge>::default();
    registry.register(name, help, family.clone());
    for thing in things {
        let (label, value) = figure(thing);
        family.get_or_create(&label).set(i64::try_from(value).unwrap_or(i64::MAX));
    }
}

fn pools(registry: &mut Registry, pools: &[PoolStatus]) {
    let of = |pool: &PoolStatus| PoolLabel { pool: pool.name.clone() };
    gauge(registry, ("pool_size_bytes", "Size of a pool"), pools, |it| (of(it), it.size.0));
    gauge(
        registry,
        ("pool_free_bytes", "Free space of a pool, the reserve included"),
        pools,
        |it| (of(it), it.free.0),
    );
    gauge(
        registry,
        ("pool_reserve_bytes", "What only deletes and discards may use"),
        pools,
        |it| (of(it), it.reserve.0),
    );
    gauge(registry, ("pool_reclaimable_bytes", "What comes back by itself"), pools, |it| {
        (of(it), it.reclaimable.0)
    });
    gauge(registry, ("pool_failed", "1: the pool takes no operations"), pools, |it| {
        (of(it), u64::from(it.failed.is_some()))
    });
    gauge(registry, ("pool_damaged_blocks", "Blocks found damaged since the start"), pools, |it| {
        (of(it), it.counters.damaged_blocks)
    });
}

fn replicas(registry: &mut Registry, replicas: &[ReplicaStatus]) {
    let of = |replica: &ReplicaStatus| VolumeLabel { volume: replica.name.clone() };
    gauge(
        registry,
        ("replica_held_seq", "Last operation that the replica here has"),
        replicas,
        |it| (of(it), it.position.seq.0),
    );
    gauge(registry, ("replica_durable_seq", "The same, durably"), replicas, |it| {
        (of(it), it.durable.0)
    });
    gauge(registry, ("replica_logical_bytes", "What its allocated blocks hold"), replicas, |it| {
        (of(it), it.logical.0)
    });
    gauge(registry, ("replica_stored_bytes", "What they take in the pool"), replicas, |it| {
        (of(it), it.stored.0)
    });
}

fn volumes(registry: &mut Registry, targets: &[TargetStatus]) {
    let of = |target: &TargetStatus| VolumeLabel { volume: target.name.clone() };
    gauge(registry, ("volume_serving", "1: the target here serves"), targets, |it| {
        (of(it), u64::from(it.status.serving))
    });
    gauge(registry, ("volume_size_bytes", "Size of the volume"), targets, |it| {
        (of(it), it.status.size.0)
    });
    gauge(
        registry,
        ("volume_committed_seq", "A quorum holds everything up to here"),
        targets,
        |it| (of(it), it.status.committed.0),
    );
    gauge(
        registry,
        ("volume_settled_seq", "A quorum has everything up to here durably"),
        targets,
        |it| (of(it), it.status.settled.0),
    );
    gauge(
        registry,
        ("volume_queued_requests", "Requests that wait for their turn"),
        targets,
        |it| (of(it), it.status.queued as u64),
    );
    gauge(registry, ("volume_connections", "Front ends that are logged in"), targets, |it| {
        (of(it), it.connections.len() as u64)
    });
    gauge(registry, ("volume_rounds", "Rounds of catching up in this reign"), targets, |it| {
        (of(it), it.status.rounds)
    });
}

fn peers(registry: &mut Registry, targets: &[TargetStatus]) {
    let all: Vec<(&str, &PeerStatus)> = targets
        .iter()
        .flat_map(|target| target.status.peers.iter().map(|peer| (target.name.as_str(), peer)))
        .collect();
    let of = |(volume, peer): &(&str, &PeerStatus)| PeerLabel {
        volume: (*volume).into(),
        replica: peer.member.replica.0,
    };
    gauge(registry, ("peer_healthy", "1: the replica is in the stream and votes"), &all, |it| {
        (of(it), u64::from(it.1.standing == Standing::Healthy))
    });
    gauge(registry, ("peer_lag_bytes", "What the replica has still to get"), &all, |it| {
        (of(it), it.1.lag.0)
    });
    gauge(registry, ("peer_inflight_reads", "Reads that it was given"), &all, |it| {
        (of(it), it.1.reads as u64)
    });
    gauge(
        registry,
        ("peer_inflight_writes", "Entries that it was sent and does not hold"),
        &all,
        |it| (of(it), it.1.writes),
    );
    gauge(
        registry,
        ("peer_inflight_syncs", "Flushes that it was sent and has not done"),
        &all,
        |it| (of(it), it.1.syncs),
    );
    gauge(registry, ("peer_catch_up_bytes", "What the present round has brought"), &all, |it| {
        (of(it), it.1.progress.map_or(0, |progress| progress.brought.0))
    });
}

fn log(registry: &mut Registry) {
    let dropped: Counter = Counter::default();
    dropped.inc_by(logging::lines_dropped());
    let help = "Lines of the log that could not be written, or not fast enough";
    registry.register("log_lines_dropped", help, dropped);
}

#[cfg(test)]
mod tests;
