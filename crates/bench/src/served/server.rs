//! A server that is measured: where it is, what it speaks, and the processes that it consists of.
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result};
use rig::process::Process;

use super::arena::Room;
use super::content::Content;
use super::procs::Processes;
use super::session::Session;
use super::{iscsi, nbd};

#[derive(Clone, Debug)]
pub enum Speaks {
    Nbd { export: String },
    Iscsi { target: String, lun: u8 },
}

pub struct Server {
    pub name: &'static str,
    at: SocketAddr,
    speaks: Speaks,
    processes: Processes,
    /// Those that end with it. A site outlives the servers that are views of it.
    owned: Vec<Process>,
    _rooms: Vec<Room>,
}

impl Server {
    /// All of it in these processes, which go with it.
    pub fn owning(
        name: &'static str,
        at: SocketAddr,
        speaks: Speaks,
        owned: Vec<Process>,
        rooms: Vec<Room>,
    ) -> Result<Server> {
        let groups: Vec<u32> = owned.iter().filter_map(Process::pid).collect();
        let processes = Processes::of_groups(&groups)?;
        Ok(Server { name, at, speaks, processes, owned, _rooms: rooms })
    }

    /// Of processes that somebody else keeps.
    pub fn within(
        name: &'static str,
        at: SocketAddr,
        speaks: Speaks,
        processes: Processes,
    ) -> Server {
        Server { name, at, speaks, processes, owned: Vec::new(), _rooms: Vec::new() }
    }

    pub fn connect(&self, lanes: usize, content: &Content) -> Result<Session> {
        match &self.speaks {
            Speaks::Nbd { export } => nbd::connect(self.at, export, lanes, content),
            Speaks::Iscsi { target, lun } => iscsi::connect(self.at, target, *lun, lanes, content),
        }
        .with_context(|| format!("connecting to {}", self.name))
    }

    pub fn cpu(&self) -> Result<Duration> {
        self.processes.cpu().with_context(|| format!("looking at {}", self.name))
    }

    /// What its processes said last, where that explains a failure.
    pub fn last_words(&self) -> String {
        let said = |process: &Process| format!("---- {}\n{}", process.name(), process.tail());
        self.owned.iter().map(said).collect::<Vec<_>>().join("\n")
    }
}
