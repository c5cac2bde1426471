//! The catalog loses its file under load: volumes are served on, nothing is wiped, nothing is made in their place, and
//! everything is back after `pollux site rebuild` or `pollux site restore`.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on says so by its line")]
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use control::api::Code;
use control::api::types::{Move, NewGroup, NewToken, Role};
use proto::v1;
use rig::api::Api;
use rig::load::{Load, Plan};
use rig::operator::Operator;
use rig::site::{MIB, Rig, node_name};

const VOLUME: &str = "precious";
const GROUP: &str = "shop";
const TOKEN: &str = "auditor";
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

/// Protects from a restored catalog that is behind what nodes have seen: grants, memberships and snapshots of the time since
/// the copy was made are not taken back.
#[test]
fn a_copy_brings_the_catalog_back_with_what_nodes_know_since() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("catalog_restore");
    let rig = Rig::start_controlled(&folder, &[384 * MIB; 3], &["--away-after", AWAY]).unwrap();
    let mut loss = Loss::new(rig).unwrap();
    loss.restored(&folder.join("catalog.copy")).unwrap();
}

/// Protects from a site that is lost with its catalog when nodes have lost what they remember, too: what replicas hold is
/// enough. And from a volume that an operator does not want back, and cannot get rid of.
#[test]
fn a_catalog_is_rebuilt_from_replicas_alone() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("catalog_replicas");
    let rig = Rig::start_controlled(&folder, &[384 * MIB; 3], &["--away-after", AWAY]).unwrap();
    let mut loss = Loss::new(rig).unwrap();
    loss.of_replicas().unwrap();
}

impl Loss {
    fn of_replicas(&mut self) -> Result<()> {
        let mut rested = self.load.take().context("a load")?.rest()?;
        rested.verify()?;
        self.api.create("unwanted", 16 * MIB, 2)?;
        self.api.wait_healthy("unwanted", PATIENCE)?;
        let ids: Vec<u64> = self.rig.ids().collect();
        for id in &ids {
            self.rig.kill9(*id);
            std::fs::remove_dir_all(self.rig.folder().join(format!("state-{id}")))?;
        }
        self.rig.catalog().kill9();
        std::fs::remove_file(self.rig.folder().join("catalog.db"))?;
        self.rig.catalog().restart()?;
        self.api = self.rig.api()?;
        self.rig.restart(ids[0])?;
        let (ok, said) = self.site(&["rebuild"])?;
        ensure!(!ok && said.contains("1 of its replicas answer and 2 are needed"), "{said}");
        for id in &ids[1..] {
            self.rig.restart(*id)?;
        }
        self.operator.wait_known(3)?;
        let (ok, said) = self.site(&["forget", "unwanted", "--yes"])?;
        ensure!(ok && said.contains("2 replicas are wiped"), "{said}");
        let (ok, said) = self.site(&["rebuild"])?;
        self.rig.note(&said);
        ensure!(ok && said.contains("made of its replicas alone"), "{said}");
        ensure!(!said.contains("unwanted"), "it was given up: {said}");
        let refused = self.site(&["forget", VOLUME, "--yes"])?;
        ensure!(!refused.0 && refused.1.contains("is not lost"), "{refused:?}");
        // Nobody may use it until an operator says so.
        self.operator.ask(async |site| {
            site.change(VOLUME, |volume| {
                volume.attached_only = false;
                Ok(())
            })
            .await
        })?;
        self.api.wait_healthy(VOLUME, PATIENCE)?;
        self.holder.store(self.operator.holder(VOLUME)?, Ordering::SeqCst);
        self.load = Some(rested.go_on());
        self.verified("rebuilt from replicas")?;
        self.moves()
    }

    fn restored(&mut self, copy: &Path) -> Result<()> {
        let path = copy.to_str().context("a path")?;
        let (ok, said) = self.site(&["backup", path])?;
        ensure!(ok, "{said}");
        let mode = std::fs::metadata(copy)?.permissions().mode() & 0o777;
        ensure!(mode == 0o600, "others read secrets: {mode:o}");
        self.moves()?;
        self.api.snapshot(VOLUME, "tuesday")?;
        self.lose_catalog()?;
        self.is_told()?;
        let (ok, said) = self.site(&["restore", "/dev/null"])?;
        ensure!(!ok && said.contains("no copy of a catalog"), "{said}");
        let (ok, said) = self.site(&["restore", path])?;
        self.rig.note(&said);
        ensure!(ok, "{said}");
        self.verified("restored")?;
        self.everything_is_back(&["monday", "tuesday"])?;
        self.moves()
    }

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
        let loss = Loss { rig, api, operator, load, holder };
        loss.furnish()?;
        Ok(loss)
    }

    fn run(&mut self) -> Result<()> {
        self.verified("with its catalog")?;
        self.lose_catalog()?;
        self.verified("without its catalog")?;
        self.is_told()?;
        self.verified("after it was noticed")?;
        self.is_kept()?;
        self.node_restarts()?;
        self.rebuild()?;
        self.everything_is_back(&["monday"])?;
        self.moves()
    }

    /// What people have made, beside the volume.
    fn furnish(&self) -> Result<()> {
        self.api.snapshot(VOLUME, "monday")?;
        self.api.ask(async |client| {
            let group = NewGroup {
                name: GROUP.into(),
                members: vec![VOLUME.into()],
                ..NewGroup::default()
            };
            client.create_group(&group).await?;
            let token = NewToken { name: TOKEN.into(), role: Role::Viewer, lasts_seconds: None };
            client.create_token(&token).await?;
            client.cordon_node("node-3", true).await
        })?;
        Ok(())
    }

    fn site(&self, words: &[&str]) -> Result<(bool, String)> {
        let mut command = Command::new(rig::process::pollux());
        command.args(["site", words[0], "--catalog", &self.rig.catalog_address()]);
        let done = command.args(&words[1..]).output()?;
        let said = [done.stdout, done.stderr].concat();
        Ok((done.status.success(), String::from_utf8_lossy(&said).into_owned()))
    }

    fn rebuild(&mut self) -> Result<()> {
        let (ok, said) = self.site(&["rebuild", "--dry-run", "--output", "json"])?;
        ensure!(ok, "{said}");
        let shown: serde_json::Value = serde_json::from_str(&said).with_context(|| said.clone())?;
        let steps = shown["steps"].as_array().context("steps")?;
        let is_it = |step: &&serde_json::Value| step["name"] == VOLUME && step["kind"] == "volume";
        ensure!(steps.iter().find(is_it).is_some_and(|it| it["action"] == "restore"), "{said}");
        ensure!(self.operator.holder(VOLUME).is_err(), "a dry run changes nothing");
        let (ok, said) = self.site(&["rebuild"])?;
        self.rig.note(&said);
        ensure!(ok, "{said}");
        self.verified("rebuilt")
    }

    /// Volume, snapshots, group, token and marks of nodes are what they were.
    fn everything_is_back(&self, snapshots: &[&str]) -> Result<()> {
        self.api.wait_healthy(VOLUME, PATIENCE)?;
        for snapshot in snapshots {
            let found = self.api.ask(async |client| client.snapshot(snapshot).await)?;
            ensure!(found.ready && found.volume == VOLUME, "{found:?}");
        }
        let group = self.api.ask(async |client| client.group(GROUP).await)?;
        ensure!(group.members.len() == 1, "{group:?}");
        let tokens = self.api.ask(async |client| client.tokens().await)?.items;
        ensure!(tokens.iter().any(|token| token.name == TOKEN), "{tokens:?}");
        let node = self.api.ask(async |client| client.node("node-3").await)?;
        ensure!(node.cordoned && node.lost_volumes.is_empty(), "{node:?}");
        let (ok, said) = self.site(&["rebuild"])?;
        ensure!(!ok && said.contains("not empty") && said.contains("--force"), "{said}");
        let (ok, said) = self.site(&["rebuild", "--force"])?;
        ensure!(ok && !said.contains("restore"), "it can be said again: {said}");
        Ok(())
    }

    /// A planned move, which needs the grant of the catalog and the replicas' promise.
    fn moves(&mut self) -> Result<()> {
        let from = self.holder.load(Ordering::SeqCst);
        let to = self.rig.ids().find(|id| *id != from).context("another node")?;
        let to_node = Move { node: node_name(to) };
        self.api.insist(PATIENCE, async |client| {
            client.move_volume(VOLUME, &to_node).await.map(|_| ())
        })?;
        self.holder.store(self.operator.holder(VOLUME)?, Ordering::SeqCst);
        ensure!(self.holder.load(Ordering::SeqCst) == to, "it did not move");
        self.verified("moved")?;
        self.api.wait_healthy(VOLUME, PATIENCE)?;
        Ok(())
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
