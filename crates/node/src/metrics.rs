//! Figures for Prometheus: what the shard shows, at the moment somebody asks.
use std::net::SocketAddr;

use axum::Router;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use prometheus_client::encoding::{EncodeLabelSet, text};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use replication::target::{PeerStatus, Standing};
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tracing::error;

use crate::shard::{Order, PoolStatus, ReplicaStatus, Sender, ShardStatus, TargetStatus};

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

/// Serves `/metrics` until the process ends; the address that it has.
pub async fn serve(at: SocketAddr, shard: Sender) -> std::io::Result<SocketAddr> {
    let listener = TcpListener::bind(at).await?;
    let bound = listener.local_addr()?;
    let app = Router::new().route("/metrics", get(move || figures(shard.clone())));
    tokio::spawn(async move {
        if let Err(error) = axum::serve(listener, app).await {
            error!(%error, "figures are not served any more");
        }
    });
    Ok(bound)
}

async fn figures(shard: Sender) -> Response {
    let (tell, told) = oneshot::channel();
    shard.send(Order::Status(Box::new(move |status| {
        // Whoever asked may have gone.
        let _ = tell.send(status);
    })));
    match told.await.ok().and_then(|status| render(&status).ok()) {
        Some(text) => ([(header::CONTENT_TYPE, CONTENT)], text).into_response(),
        None => StatusCode::SERVICE_UNAVAILABLE.into_response(),
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
mod tests {
    use super::*;

    fn pool() -> PoolStatus {
        PoolStatus {
            name: "main".into(),
            path: "pool".into(),
            uuid: [1; 16],
            format_version: 1,
            sector: block::SectorSize::B4096,
            size: block::ByteLen(100),
            free: block::ByteLen(70),
            reserve: block::ByteLen(7),
            pending: block::ByteLen(0),
            reclaimable: block::ByteLen(3),
            mode: block::IoMode::Direct,
            backend: "io_uring",
            failed: Some("it is gone".into()),
            counters: engine::Counters::default(),
            replicas: 2,
        }
    }

    #[test]
    fn a_pool_is_shown_with_its_figures() {
        let (replicas, targets) = (Vec::new(), Vec::new());
        let status = ShardStatus { pools: vec![pool()], replicas, targets, lines: 0 };
        let text = render(&status).unwrap();
        for line in [
            "# TYPE pollux_pool_free_bytes gauge",
            "pollux_pool_free_bytes{pool=\"main\"} 70",
            "pollux_pool_failed{pool=\"main\"} 1",
            "pollux_log_lines_dropped_total 0",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} is not in\n{text}");
        }
        assert!(text.ends_with("# EOF\n"));
    }
}
