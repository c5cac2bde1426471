//! The driver as a process that can be killed, and an orchestrator that calls it.
use std::collections::HashMap;
use std::fs::{self, OpenOptions};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use proto::csi::controller_client::ControllerClient;
use proto::csi::node_client::NodeClient;
use proto::csi::volume_capability::{
    AccessMode, AccessType, BlockVolume, MountVolume, access_mode,
};
use proto::csi::*;
use rig::process::pollux;
use tokio::runtime::{Builder, Runtime};
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Status};

pub use access_mode::Mode;

/// The machine, as the orchestrator calls it.
pub const HOST: &str = "worker-1";
const PATIENCE: Duration = Duration::from_secs(20);

pub struct Plugin {
    folder: PathBuf,
    token: PathBuf,
    host: &'static str,
    api: String,
    child: Option<Child>,
}

impl Plugin {
    pub fn start(folder: &Path, api: String) -> Result<Plugin> {
        let token = folder.join("admin.token");
        let mut plugin = Plugin { folder: folder.into(), token, host: HOST, api, child: None };
        plugin.restart()?;
        Ok(plugin)
    }

    /// The driver of another machine, as far as the site can tell.
    pub fn start_beside(&self, host: &'static str) -> Result<Plugin> {
        let (folder, token) = (self.folder.join(host), self.token.clone());
        fs::create_dir_all(&folder)?;
        let mut plugin = Plugin { folder, token, host, api: self.api.clone(), child: None };
        plugin.restart()?;
        Ok(plugin)
    }

    pub fn api(&self) -> &str {
        &self.api
    }

    pub fn token(&self) -> &Path {
        &self.token
    }

    pub fn state(&self) -> PathBuf {
        self.folder.join("a")
    }

    fn socket(&self) -> PathBuf {
        self.folder.join("csi.sock")
    }

    pub fn restart(&mut self) -> Result<()> {
        self.restart_with(None)
    }

    /// With programs of this folder instead of the system's.
    pub fn restart_with(&mut self, programs: Option<&Path>) -> Result<()> {
        self.kill9();
        let ready = self.folder.join("csi.ready");
        let _ = fs::remove_file(&ready);
        let log = OpenOptions::new().create(true).append(true).open(self.folder.join("csi.log"))?;
        let mut command = Command::new(pollux());
        if let Some(programs) = programs {
            let system = std::env::var("PATH").unwrap_or_default();
            command.env("PATH", format!("{}:{system}", programs.display()));
        }
        command.args(["serve", "csi", "--mode", "all", "--node", self.host, "--via", "fuse"]);
        command.args(["--api", &self.api]).arg("--socket").arg(self.socket());
        command.arg("--token-file").arg(&self.token);
        command.arg("--state").arg(self.state()).arg("--ready-file").arg(&ready);
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log).process_group(0);
        let child = command.spawn()?;
        // What the rig's watchdog ends if this test is killed.
        fs::write(self.folder.join("csi.pid"), child.id().to_string())?;
        self.child = Some(child);
        let begun = Instant::now();
        while !ready.exists() {
            ensure!(begun.elapsed() < PATIENCE, "the driver is not ready");
            thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }

    /// This process alone: tools and attachments that it started go on.
    pub fn kill9(&mut self) {
        let Some(mut child) = self.child.take() else { return };
        // The only error is that it has ended.
        let _ = child.kill();
        let _ = child.wait();
    }

    /// With the tools that it started. Attachments go on.
    pub fn kill9_with_tools(&mut self) -> Result<()> {
        let Some(mut child) = self.child.take() else { return Ok(()) };
        let group = rustix::process::Pid::from_child(&child);
        rustix::process::kill_process_group(group, rustix::process::Signal::KILL)?;
        child.wait()?;
        Ok(())
    }

    pub fn caller(&self) -> Result<Caller> {
        let mut runtime = Builder::new_multi_thread();
        let runtime = runtime.worker_threads(2).enable_all().build()?;
        let socket = self.socket();
        Ok(Caller { runtime: Arc::new(runtime), socket, host: self.host })
    }
}

impl Drop for Plugin {
    fn drop(&mut self) {
        self.kill9();
    }
}

/// How somebody wants to use a volume.
#[derive(Clone, Debug)]
pub struct How {
    pub mode: Mode,
    /// `None`: as a device.
    pub kind: Option<&'static str>,
    pub flags: Vec<String>,
    pub secret: Option<&'static str>,
    /// How long IO waits for its target.
    pub hold: &'static str,
}

pub const MOUNT: How = How {
    mode: Mode::SingleNodeWriter,
    kind: Some("ext4"),
    flags: Vec::new(),
    secret: None,
    hold: "60s",
};
pub const BLOCK: How =
    How { mode: Mode::SingleNodeWriter, kind: None, flags: Vec::new(), secret: None, hold: "60s" };

impl How {
    fn capability(&self) -> VolumeCapability {
        let access_type = match self.kind {
            None => AccessType::Block(BlockVolume {}),
            Some(kind) => AccessType::Mount(MountVolume {
                fs_type: kind.into(),
                mount_flags: self.flags.clone(),
                ..MountVolume::default()
            }),
        };
        let access_mode = Some(AccessMode { mode: self.mode.into() });
        VolumeCapability { access_type: Some(access_type), access_mode }
    }

    fn secrets(&self) -> HashMap<String, String> {
        let both = |secret: &str| [("username", "ann".to_owned()), ("password", secret.to_owned())];
        let pairs = self.secret.into_iter().flat_map(both);
        pairs.map(|(key, value)| (format!("node.session.auth.{key}"), value)).collect()
    }
}

type Answer<T = ()> = Result<T, Status>;

/// Calls from any thread, to whichever driver has the socket at that moment.
#[derive(Clone)]
pub struct Caller {
    runtime: Arc<Runtime>,
    socket: PathBuf,
    host: &'static str,
}

fn text(path: &Path) -> String {
    path.display().to_string()
}

impl Caller {
    fn call<T>(&self, what: impl AsyncFnOnce(Channel) -> Answer<T>) -> Answer<T> {
        let endpoint = format!("unix:{}", self.socket.display());
        let endpoint = Endpoint::from_shared(endpoint).expect("a path is an address");
        self.runtime.block_on(async {
            let channel = endpoint.connect().await;
            what(channel.map_err(|error| Status::unknown(error.to_string()))?).await
        })
    }

    fn node<T>(&self, what: impl AsyncFnOnce(NodeClient<Channel>) -> Answer<T>) -> Answer<T> {
        self.call(async |channel| what(NodeClient::new(channel)).await)
    }

    fn controller<T>(
        &self,
        what: impl AsyncFnOnce(ControllerClient<Channel>) -> Answer<T>,
    ) -> Answer<T> {
        self.call(async |channel| what(ControllerClient::new(channel)).await)
    }

    /// The site knows this machine afterwards.
    pub fn register(&self) -> Answer {
        self.node(async |mut node| node.node_get_info(NodeGetInfoRequest {}).await.map(drop))
    }

    /// Made, and attached to this machine.
    pub fn create(&self, name: &str, size: u64, how: &How, readonly: bool) -> Result<String> {
        self.register()?;
        let request = CreateVolumeRequest {
            name: name.into(),
            capacity_range: Some(CapacityRange {
                required_bytes: size.try_into()?,
                limit_bytes: 0,
            }),
            volume_capabilities: vec![how.capability()],
            parameters: [("replicas", "1"), ("holdDeadline", how.hold)]
                .map(|(name, value)| (name.to_owned(), value.to_owned()))
                .into(),
            secrets: how.secrets(),
            ..CreateVolumeRequest::default()
        };
        let made = self
            .insist(|| self.controller(async |mut it| it.create_volume(request.clone()).await))?;
        let volume_id = made.into_inner().volume.context("a volume")?.volume_id;
        self.attach(&volume_id, how, readonly)?;
        Ok(volume_id)
    }

    pub fn attach(&self, volume: &str, how: &How, readonly: bool) -> Result<()> {
        let request = ControllerPublishVolumeRequest {
            volume_id: volume.into(),
            node_id: self.host.into(),
            volume_capability: Some(how.capability()),
            readonly,
            secrets: how.secrets(),
            ..ControllerPublishVolumeRequest::default()
        };
        self.insist(|| {
            self.controller(async |mut it| it.controller_publish_volume(request.clone()).await)
        })?;
        Ok(())
    }

    pub fn detach(&self, volume: &str, how: &How) -> Result<()> {
        let request = ControllerUnpublishVolumeRequest {
            volume_id: volume.into(),
            node_id: self.host.into(),
            secrets: how.secrets(),
        };
        self.insist(|| {
            self.controller(async |mut it| it.controller_unpublish_volume(request.clone()).await)
        })?;
        Ok(())
    }

    /// Asks again while the site is not ready for it.
    fn insist<T>(&self, what: impl Fn() -> Answer<T>) -> Result<T> {
        let begun = Instant::now();
        loop {
            match what() {
                Err(status)
                    if begun.elapsed() < PATIENCE
                        && matches!(status.code(), Code::Unavailable | Code::Aborted) =>
                {
                    thread::sleep(Duration::from_millis(50));
                }
                answer => return Ok(answer?),
            }
        }
    }

    /// Given to this machine anew, in another way.
    pub fn attach_again(&self, volume: &str, how: &How, readonly: bool) -> Result<()> {
        self.detach(volume, how)?;
        self.attach(volume, how, readonly)
    }

    /// Taken from this machine, and deleted.
    pub fn delete(&self, volume: &str, how: &How) -> Result<()> {
        self.detach(volume, how)?;
        let request = DeleteVolumeRequest { volume_id: volume.into(), secrets: how.secrets() };
        self.insist(|| self.controller(async |mut it| it.delete_volume(request.clone()).await))?;
        Ok(())
    }

    pub fn stage(&self, volume: &str, at: &Path, how: &How) -> Answer {
        let request = NodeStageVolumeRequest {
            volume_id: volume.into(),
            staging_target_path: text(at),
            volume_capability: Some(how.capability()),
            secrets: how.secrets(),
            ..NodeStageVolumeRequest::default()
        };
        self.node(async |mut node| node.node_stage_volume(request).await.map(drop))
    }

    pub fn unstage(&self, volume: &str, at: &Path) -> Answer {
        let (volume_id, staging_target_path) = (volume.into(), text(at));
        let request = NodeUnstageVolumeRequest { volume_id, staging_target_path };
        self.node(async |mut node| node.node_unstage_volume(request).await.map(drop))
    }

    pub fn publish(
        &self,
        volume: &str,
        (staged, to): (&Path, &Path),
        how: &How,
        readonly: bool,
    ) -> Answer {
        let request = NodePublishVolumeRequest {
            volume_id: volume.into(),
            staging_target_path: text(staged),
            target_path: text(to),
            volume_capability: Some(how.capability()),
            readonly,
            ..NodePublishVolumeRequest::default()
        };
        self.node(async |mut node| node.node_publish_volume(request).await.map(drop))
    }

    pub fn unpublish(&self, volume: &str, from: &Path) -> Answer {
        let request =
            NodeUnpublishVolumeRequest { volume_id: volume.into(), target_path: text(from) };
        self.node(async |mut node| node.node_unpublish_volume(request).await.map(drop))
    }

    pub fn stats(&self, volume: &str, at: &Path) -> Answer<NodeGetVolumeStatsResponse> {
        let request = NodeGetVolumeStatsRequest {
            volume_id: volume.into(),
            volume_path: text(at),
            ..NodeGetVolumeStatsRequest::default()
        };
        let told = self.node(async |mut node| node.node_get_volume_stats(request).await)?;
        Ok(told.into_inner())
    }
}
