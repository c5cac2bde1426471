//! What moves bytes between sockets and memory: one loop over all of them beside a task for each.
//!
//! Both servers say the same, by the same code, from the same bytes in memory, and both take what
//! came in one call and answer it in one. So what is left is what each way of waiting costs.
mod by_loop;
mod by_tasks;
mod inbox;
mod speech;

use std::ffi::OsString;
use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;

use anyhow::{Context, Result};
use rig::process::{Process, Recipe};

use super::Settings;
use super::arena::{Arena, free_address};
use super::comparison::{Comparison, Goals};
use super::content::Content;
use super::lines;
use super::server::{Server, Speaks};
use super::target_area::effort;

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Way {
    Loop,
    Tasks,
}

/// The process that is measured.
#[derive(clap::Args)]
pub struct Task {
    #[arg(long)]
    way: Way,
    #[arg(long)]
    listen: SocketAddr,
    #[arg(long)]
    ready_file: PathBuf,
}

pub fn serve(task: &Task) -> Result<()> {
    let listener = std::net::TcpListener::bind(task.listen)?;
    listener.set_nonblocking(true)?;
    fs::write(&task.ready_file, "")?;
    let content = Content::new();
    match task.way {
        Way::Loop => by_loop::serve(listener, &content),
        Way::Tasks => by_tasks::serve(listener, content),
    }
}

pub fn run(settings: &Settings, only: &str) -> Result<()> {
    let (arena, content) = (Arena::open(settings.dir.as_deref())?, &Content::new());
    let ours = start(&arena, "one loop", "loop")?;
    let goals = Goals { speed: 1.0, cpu: Some(1.0) };
    let others = vec![(start(&arena, "tokio tasks", "tasks")?, goals)];
    let effort = effort(settings.quick);
    let lines = Comparison { part: "runtime", ours, others, content, effort }.run(only)?;
    println!("{}", lines::table(&lines));
    crate::table::save(settings.json.as_deref(), &lines)
}

fn start(arena: &Arena, name: &'static str, way: &str) -> Result<Server> {
    let (folder, at) = (arena.room(&format!("runtime-{way}"))?, free_address()?);
    let ready = folder.join("ready");
    let program = std::env::current_exe().context("the program itself")?;
    let mut words: Vec<OsString> = vec![program.into(), "runtime-server".into()];
    words.extend(["--way", way, "--listen", &at.to_string(), "--ready-file"].map(OsString::from));
    words.push(ready.clone().into());
    let process = Process::start(&folder, Recipe { name: way.into(), words, ready })?;
    let speaks = Speaks::Nbd { export: "disk".into() };
    Server::owning(name, at, speaks, vec![process], vec![folder])
}
