//! The catalog loses its file under load: volumes are served on, nothing is wiped, nothing is made in their place.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on says so by its line")]
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use control::api::Code;
use proto::v1;
use rig::api::Api;
use rig::load::{Load, Plan};
use rig::operator::Operator;
use rig::site::{MIB, Rig};

const VOLUME: &str = "precious";
const PATIENCE: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(50);
const ENOUGH: u64 = 300;
const AWAY: &str = "3";

struct Loss {
    rig: Rig,
    api: Api,
    operator: Operator,
    load: Option<Load>,
    /// Where the volume is served. The catalog cannot tell while it does not know the volume.
    holder: Arc<AtomicU64>,
}

#[test]
fn a_site_outlives_the_loss_of_its_catalog() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("catalog_loss");
    let rig = Rig::start_controlled(&folder, &[384 * MIB; 3], &["--away-after", AWAY]).unwrap();
    let mut loss = Loss::new(rig).unwrap();
    loss.run().unwrap();
}

impl Loss {
    fn new(rig: Rig) -> Result<Loss> {
        let (api, operator) = (rig.api()?, rig.operator()?);
        api.create(VOLUME, 64 * MIB, 3)?;
        api.wait_healthy(VOLUME, PATIENCE)?;
        let holder = Arc::new(AtomicU64::new(operator.holder(VOLUME)?));
        let nodes: Vec<SocketAddr> = rig.ids().map(|id| rig.nbd(id)).collect();
        let served = Arc::clone(&holder);
        let finder = Arc::new(move || {
            let at = usize::try_from(served.load(Ordering::SeqCst)).ok()?.checked_sub(1)?;
            nodes.get(at).copied()
        });
        let plan = Plan {
            volume: VOLUME.into(),
            block: 4096,
            first: 0,
            blocks: 64 * MIB / 4096,
            writers: 4,
            seed: 11,
            rest: Duration::from_millis(1),
        };
        let load = Some(Load::start(plan, finder));
        Ok(Loss { rig, api, operator, load, holder })
    }

    fn run(&mut self) -> Result<()> {
        self.verified("with its catalog")?;
        self.lose_catalog()?;
        self.verified("without its catalog")?;
        self.is_told()?;
        self.verified("after it was noticed")?;
        self.is_kept()?;
        self.node_restarts()
    }

    /// Its file is deleted, and its process killed; it is started again with nothing.
    fn lose_catalog(&mut self) -> Result<()> {
        self.rig.note("the catalog loses its file");
        self.rig.catalog().kill9();
        std::fs::remove_file(self.rig.folder().join("catalog.db"))?;
        self.rig.catalog().restart()?;
        // A catalog that begins anew has another token.
        self.api = self.rig.api()?;
        self.operator.wait_known(3)?;
        Ok(())
    }

    fn target(&self) -> Result<v1::TargetStatus> {
        let holder = self.holder.load(Ordering::SeqCst);
        self.operator.ask(async |site| {
            let node = site.node_of_id(holder).await?;
            let all = site.admin(&node)?.list_targets(v1::ListTargetsRequest {}).await?;
            let named =
                |it: &v1::TargetStatus| it.volume.as_ref().is_some_and(|it| it.name == VOLUME);
            Ok(all.into_inner().targets.into_iter().find(named).unwrap_or_default())
        })
    }

    /// The target, its node and the API say what happened.
    fn is_told(&self) -> Result<()> {
        let begun = Instant::now();
        loop {
            let target = self.target()?;
            let nodes = self.api.ask(async |client| client.nodes().await)?.items;
            let lost = |node: &&control::api::types::Node| node.state.reason == "CatalogLost";
            if target.serving && target.catalog_lost && nodes.iter().filter(lost).count() == 3 {
                break;
            }
            ensure!(begun.elapsed() < PATIENCE, "not told: {target:?}, {nodes:?}");
            std::thread::sleep(PAUSE);
        }
        let missing = self.api.ask(async |client| client.volume(VOLUME).await).unwrap_err();
        ensure!(missing.code == Code::Unavailable, "{missing:?}");
        ensure!(missing.message.contains("pollux site rebuild"), "{missing:?}");
        Ok(())
    }

    /// Its name is not given away, it is not reported as deleted, and its replicas are not wiped on the word of a catalog
    /// that has no object.
    fn is_kept(&self) -> Result<()> {
        let Err(made) = self.api.create(VOLUME, 64 * MIB, 3) else { bail!("its name was free") };
        ensure!(made.to_string().contains("lost"), "{made:#}");
        let proof = control::api::types::Proof::default();
        let gone = self.api.ask(async |client| client.delete_volume(VOLUME, &proof).await);
        ensure!(gone.is_err(), "it counts as deleted");
        for id in self.rig.ids() {
            let refused = self.operator.ask(async |site| {
                let node = site.node_of_id(id).await?;
                let mut admin = site.admin(&node)?;
                let all = admin.list_replicas(v1::ListReplicasRequest {}).await?.into_inner();
                let replica = all.replicas.into_iter().next().unwrap_or_default();
                let request = v1::DeleteReplicaRequest {
                    volume: replica.volume,
                    replica: replica.replica,
                    incarnation: replica.incarnation,
                    catalog_version: u64::MAX,
                };
                Ok(admin.delete_replica(request).await.err())
            })?;
            let refused = refused.context("a replica was wiped")?;
            ensure!(refused.code() == tonic::Code::FailedPrecondition, "{refused:?}");
            ensure!(refused.message().contains("is kept"), "{refused:?}");
        }
        Ok(())
    }

    /// The node that serves starts again from what it remembers.
    fn node_restarts(&mut self) -> Result<()> {
        let holder = self.holder.load(Ordering::SeqCst);
        self.rig.note(&format!("node {holder}, which serves, is killed and started again"));
        self.rig.kill9(holder);
        self.rig.restart(holder)?;
        self.verified("after a restart without the catalog")
    }

    fn verified(&mut self, what: &str) -> Result<()> {
        let load = self.load.take().context("a load")?;
        load.wait_acks(ENOUGH, PATIENCE)?;
        let mut rested = load.rest()?;
        rested.verify()?;
        self.rig.note(&format!("{what}: {:?}", rested.report));
        ensure!(rested.report.errors.is_empty(), "{what}: {:?}", rested.report.errors);
        self.load = Some(rested.go_on());
        Ok(())
    }
}
