//! A process of this program that does one thing, tells what came of it, and can be killed.
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// A child that does not outlive this process's interest in it: dropping this kills it.
pub struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts a child and waits for what it tells.
pub fn start<T: DeserializeOwned>(command: &str, args: &[String]) -> Result<(Killed, T)> {
    let child = Command::new(std::env::current_exe()?)
        .arg(command)
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .with_context(|| format!("starting {command}"))?;
    let mut child = Killed(child);
    let stdout = child.0.stdout.take().context("a piped stdout is there")?;
    let mut line = String::new();
    BufReader::new(stdout).read_line(&mut line)?;
    let told = serde_json::from_str(&line)
        .with_context(|| format!("{command} ended before it had anything to tell"))?;
    Ok((child, told))
}

/// The child's side of [`start`].
pub fn tell(what: &impl Serialize) -> Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{}", serde_json::to_string(what)?)?;
    Ok(out.flush()?)
}

/// Does nothing until this process is killed. If the parent is gone instead, this returns.
pub fn wait_for_the_end() -> Result<()> {
    let mut nothing = String::new();
    std::io::stdin().read_line(&mut nothing)?;
    Ok(())
}
