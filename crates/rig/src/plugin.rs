//! The driver's own process on this machine, and what an orchestrator's agent does with it.
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::csi::{Access, Claim, Csi};
use crate::process::{Process, Recipe, pollux};
use crate::remains::{self, Sweep};
use crate::site::{Rig, node_name};

const PATIENCE: Duration = Duration::from_secs(60);

/// What this machine lacks to attach volumes by FUSE; `None`: nothing.
pub fn missing(tools: &[&str]) -> Option<String> {
    if !rustix::process::geteuid().is_root() {
        return Some("only root can mount".into());
    }
    let devices = ["/dev/fuse", "/dev/loop-control"].map(Path::new);
    if let Some(device) = devices.into_iter().find(|device| !device.exists()) {
        return Some(format!("there is no {}", device.display()));
    }
    let folders = std::env::var_os("PATH").unwrap_or_default();
    let is_there = |tool: &str| std::env::split_paths(&folders).any(|at| at.join(tool).is_file());
    let tool = tools.iter().find(|tool| !is_there(tool))?;
    Some(format!("the program {tool} is not installed"))
}

/// `pollux serve csi`, in a process group of its own.
#[derive(Debug)]
pub struct Plugin {
    // Fields are dropped in this order: nothing is mounted any more when the site goes.
    sweep: Sweep,
    process: Process,
    pub csi: Csi,
    pub rig: Rig,
}

impl Plugin {
    /// A site with a controller and a node for each pool, and the driver on the machine of the first.
    pub fn start(folder: &Path, pools: &[u64], options: &[&str]) -> Result<Plugin> {
        remains::sweep(folder)?;
        Plugin::beside(Rig::start_controlled(folder, pools, options)?)
    }

    fn beside(rig: Rig) -> Result<Plugin> {
        let folder = rig.folder().to_owned();
        let sweep = Sweep::over(&folder);
        let (socket, ready) = (folder.join("csi.sock"), folder.join("csi.ready"));
        let node = node_name(1);
        let mut words = vec![pollux().into(), "serve".into(), "csi".into()];
        let options = [
            ("--mode", "all".into()),
            ("--node", node.clone().into()),
            ("--socket", socket.clone().into_os_string()),
            ("--api", rig.api_address().into()),
            ("--token-file", rig.token_file().into()),
            ("--state", Plugin::state_of(&folder).into()),
            ("--via", "fuse".into()),
            ("--ready-file", ready.clone().into()),
        ];
        words.extend(options.into_iter().flat_map(|(option, value)| [option.into(), value]));
        let recipe = Recipe { name: "csi".into(), words, ready };
        let process = Process::start(&folder, recipe)?;
        let csi = Csi::new(&socket, &node)?;
        csi.info().context("the driver does not answer")?;
        Ok(Plugin { sweep, process, csi, rig })
    }

    fn state_of(folder: &Path) -> PathBuf {
        folder.join("attachments")
    }

    /// The whole group: what outlives this was meant to.
    pub fn kill9(&mut self) {
        self.process.kill9();
    }

    pub fn restart(&mut self) -> Result<()> {
        self.process.restart()
    }

    /// A volume with three replicas that this machine may use, and nothing else yet.
    pub fn claim(&self, name: &str, size: u64, access: Access, of: Option<&str>) -> Result<Claim> {
        let id = self.csi.insist(PATIENCE, |csi| csi.create(name, size, access, of))?;
        let place = |what: &str| self.rig.folder().join(what).join(name);
        let claim = Claim { id, access, staging: place("staging"), target: place("pods") };
        fs::create_dir_all(&claim.staging)?;
        fs::create_dir_all(claim.target.parent().context("it has a parent")?)?;
        self.csi.insist(PATIENCE, |csi| csi.attach(&claim))?;
        Ok(claim)
    }

    /// Staged and published.
    pub fn bring(&self, claim: &Claim) -> Result<()> {
        self.csi.insist(PATIENCE, |csi| csi.stage(claim)).context("NodeStage")?;
        self.csi.insist(PATIENCE, |csi| csi.publish(claim)).context("NodePublish")
    }

    /// Neither published nor staged.
    pub fn take_away(&self, claim: &Claim) -> Result<()> {
        self.csi.insist(PATIENCE, |csi| csi.unpublish(claim)).context("NodeUnpublish")?;
        self.csi.insist(PATIENCE, |csi| csi.unstage(claim)).context("NodeUnstage")
    }

    pub fn remove(&self, claim: &Claim) -> Result<()> {
        self.take_away(claim)?;
        self.csi.insist(PATIENCE, |csi| csi.detach(claim)).context("ControllerUnpublish")?;
        self.csi.insist(PATIENCE, |csi| csi.delete(&claim.id)).context("DeleteVolume")
    }

    /// Stops the driver, after everything was taken away: it must have left nothing.
    pub fn end(mut self) -> Result<()> {
        self.process.stop()?;
        let state = Plugin::state_of(self.rig.folder());
        let kept: Vec<_> = fs::read_dir(&state)?.collect::<std::io::Result<_>>()?;
        ensure!(kept.is_empty(), "left in {}: {kept:?}", state.display());
        let left = remains::below(self.rig.folder())?;
        ensure!(left.is_empty(), "left behind: {left:#?}");
        self.sweep.is_clean();
        Ok(())
    }

    /// The last lines of the driver, and of its attachments.
    fn words(&self) -> String {
        let mut said =
            vec![format!("==== {}\n{}", self.process.log().display(), self.process.tail())];
        let state = fs::read_dir(Plugin::state_of(self.rig.folder()));
        for folder in state.into_iter().flatten().flatten() {
            let log = fs::read_to_string(folder.path().join("log")).unwrap_or_default();
            said.push(format!("==== {}\n{log}", folder.path().display()));
        }
        said.join("\n")
    }
}

impl Drop for Plugin {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}", self.words());
        }
    }
}
