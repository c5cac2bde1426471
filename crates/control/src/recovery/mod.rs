//! Brings a catalog back that was lost or restored: from a copy, from what nodes know, and from what replicas hold.
//!
//! `plan.rs` says what is brought back, `adopt.rs` how the object of a volume follows from its replicas. What is here
//! asks the catalog and the nodes, and stores the plan. Every part of it can be said again.
mod adopt;
mod forget;
mod plan;

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use proto::v1;
use proto::v1::object::Body;
use tokio::task::JoinSet;

use crate::steps::{Admin, Site, StepError};

pub use adopt::Evidence;
pub use forget::{ForgetError, Lost, find_lost, forget};
pub use plan::{Action, Plan, Source, Step};

/// A node that runs answers at once; one that is off does not.
const NODE_PATIENCE: Duration = Duration::from_secs(10);

/// What the nodes of a site know.
#[derive(Clone, Debug, Default)]
pub struct Gathered {
    pub sources: Vec<Source>,
    /// By the uid of the volume.
    pub evidence: BTreeMap<Vec<u8>, Evidence>,
    /// Nodes that did not answer, and why.
    pub silent: Vec<(String, String)>,
}

/// What one node knows.
struct Told {
    objects: Vec<v1::Object>,
    replicas: Vec<v1::Replica>,
    targets: Vec<v1::TargetStatus>,
}

/// Everything that the catalog has, deleted objects included, as of one moment.
pub async fn copy(site: &Site) -> Result<v1::CatalogCopy, StepError> {
    let (revision, objects) = site.client().backup().await?;
    Ok(v1::CatalogCopy { revision, taken_ms: now_ms(), objects })
}

/// Asks all nodes: those that the catalog lists, those of the sources, and those that the caller names.
pub async fn gather(
    site: &Site,
    present: &[v1::Object],
    sources: &[Source],
    named: &[v1::Node],
) -> Result<Gathered, StepError> {
    let mut nodes: BTreeMap<u64, v1::Node> = BTreeMap::new();
    let listed = sources.iter().flat_map(|source| &source.objects).chain(present);
    for object in listed {
        if let Some(Body::Node(node)) = &object.body {
            nodes.insert(node.id, node.clone());
        }
    }
    nodes.extend(named.iter().map(|node| (node.id, node.clone())));
    let mut asked = JoinSet::new();
    for node in nodes.into_values() {
        let admin = site.admin(&node)?;
        asked.spawn(async move {
            let told = tokio::time::timeout(NODE_PATIENCE, ask(admin)).await;
            let told = told.unwrap_or_else(|_| Err(format!("no answer within {NODE_PATIENCE:?}")));
            (node, told)
        });
    }
    let mut gathered = Gathered::default();
    for (node, told) in asked.join_all().await {
        match told {
            Ok(told) => gathered.take(&node, told),
            Err(why) => gathered.silent.push((node.name.clone(), why)),
        }
    }
    gathered.sources.sort_by(|a, b| a.what.cmp(&b.what));
    gathered.silent.sort();
    Ok(gathered)
}

async fn ask(mut admin: Admin) -> Result<Told, String> {
    let why = |status: tonic::Status| status.message().to_owned();
    let stream = admin.recall_catalog(v1::RecallCatalogRequest {}).await.map_err(why)?;
    let (mut stream, mut objects) = (stream.into_inner(), Vec::new());
    while let Some(part) = stream.message().await.map_err(why)? {
        objects.extend(part.objects);
    }
    let replicas = admin.list_replicas(v1::ListReplicasRequest {}).await.map_err(why)?;
    let targets = admin.list_targets(v1::ListTargetsRequest {}).await.map_err(why)?;
    let (replicas, targets) = (replicas.into_inner().replicas, targets.into_inner().targets);
    Ok(Told { objects, replicas, targets })
}

impl Gathered {
    fn take(&mut self, node: &v1::Node, told: Told) {
        self.sources.push(Source { what: node.name.clone(), objects: told.objects });
        for replica in told.replicas {
            let uid = replica.volume.as_ref().map(|it| it.uid.clone()).unwrap_or_default();
            self.evidence.entry(uid).or_default().replicas.push((node.id, replica));
        }
        for target in told.targets {
            let uid = target.volume.as_ref().map(|it| it.uid.clone()).unwrap_or_default();
            self.evidence.entry(uid).or_default().targets.push(target);
        }
    }
}

/// What would be brought back.
pub fn plan(present: &[v1::Object], sources: &[Source], gathered: &Gathered) -> Plan {
    let sources: Vec<Source> = sources.iter().chain(&gathered.sources).cloned().collect();
    plan::plan(present, &sources, &gathered.evidence, now_ms())
}

/// Stores it. Answered when all of it is durable: nothing of it is, or everything.
pub async fn apply(site: &Site, plan: &Plan) -> Result<v1::RestoreResponse, StepError> {
    Ok(site.client().restore(plan.objects.clone()).await?)
}

/// How many objects a catalog has that people made. Nodes, controllers and tokens come by themselves.
pub fn made(present: &[v1::Object]) -> BTreeMap<&'static str, usize> {
    let mut counts = BTreeMap::new();
    for object in present {
        let what = match &object.body {
            Some(Body::Volume(_)) => "volumes",
            Some(Body::Snapshot(_)) => "snapshots",
            Some(Body::Group(_)) => "groups",
            Some(Body::GroupSnapshot(_)) => "group snapshots",
            Some(Body::Host(_)) => "hosts",
            Some(Body::Node(_) | Body::Controller(_) | Body::Token(_)) | None => continue,
        };
        *counts.entry(what).or_default() += 1;
    }
    counts
}

/// Kinds of which no source had a single object, and which only a copy has: whether there were any is not known.
pub fn unknown_kinds(sources: &[Source], gathered: &Gathered) -> Vec<&'static str> {
    let all = sources.iter().chain(&gathered.sources).flat_map(|source| &source.objects);
    let kinds: BTreeSet<i32> = all.filter_map(|it| it.key.as_ref()).map(|key| key.kind).collect();
    let known = [
        (v1::Kind::Snapshot, "snapshots"),
        (v1::Kind::Group, "groups"),
        (v1::Kind::GroupSnapshot, "group snapshots"),
        (v1::Kind::Token, "tokens"),
        (v1::Kind::Host, "hosts"),
    ];
    known
        .into_iter()
        .filter(|(kind, _)| !kinds.contains(&(*kind).into()))
        .map(|(_, it)| it)
        .collect()
}

fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
