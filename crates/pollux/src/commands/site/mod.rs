//! A site that has a controller, over its API: volumes, snapshots, groups, nodes, hosts, pools and tokens.
mod explain;
#[cfg(test)]
mod fake;
mod find;
mod groups;
mod hosts;
mod mounts;
mod nodes;
mod overview;
pub mod recover;
mod snapshots;
mod tokens;
mod volumes;
mod wait;

use std::env;
use std::future::Future;
use std::process::ExitCode;

use anyhow::{Context, Result, ensure};
use comfy_table::Table;
use control::api::types::{Copy, Credential, Health, Page, Pairs, State};
use control::api::{ApiError, Client};
use serde::Serialize;

use find::endpoint;
pub use find::of_folder;

use crate::cli::site::{
    ApiArgs, ChapArgs, Explain, Group, Host, Node, Pool, Snapshot, Token, Volume,
};
use crate::render::{self, Answer, Output};

/// Objects that are asked for at a time.
const PAGE: usize = 500;

pub enum Command {
    Volume(Volume),
    Snapshot(Snapshot),
    Group(Group),
    Node(Node),
    Host(Host),
    Pool(Pool),
    Token(Token),
    Site,
}

pub fn run(command: Command, api: &ApiArgs, output: Output) -> Result<ExitCode> {
    // What is on this machine is known without the site.
    if let Command::Volume(Volume::Mounts { host }) = &command {
        mounts::list(host, output)?;
        return Ok(ExitCode::SUCCESS);
    }
    if let Command::Volume(Volume::Expand { name, host }) = &command {
        mounts::expand(name, host, output)?;
        return Ok(ExitCode::SUCCESS);
    }
    with(api, async |client| match command {
        Command::Volume(Volume::Mount(wanted)) => mounts::mount(api, wanted, output).await,
        Command::Volume(Volume::Unmount { name, force, host, chap }) => {
            mounts::unmount(api, name, &host, &chap, force, output).await
        }
        Command::Volume(command) => volumes::run(&client, command, output).await,
        Command::Snapshot(command) => snapshots::run(&client, command, output).await,
        Command::Group(command) => groups::run(&client, command, output).await,
        Command::Node(command) => nodes::run(&client, command, output).await,
        Command::Host(command) => hosts::run(&client, command, output).await,
        Command::Pool(Pool::List) => nodes::pools(&client, output).await,
        Command::Token(command) => tokens::run(&client, command, output).await,
        Command::Site => overview::run(&client, output).await,
    })
}

pub fn explain(command: &Explain, output: Output) -> Result<ExitCode> {
    with(&command.api, async |client| explain::run(&client, command, output).await)
}

fn with(api: &ApiArgs, work: impl AsyncFnOnce(Client) -> Result<()>) -> Result<ExitCode> {
    let endpoint = endpoint(api, |name| env::var(name).ok())?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(work(Client::new(endpoint)))?;
    Ok(ExitCode::SUCCESS)
}

/// All parts of a list.
async fn all<T, F>(ask: impl Fn(String) -> F) -> Result<Vec<T>, ApiError>
where
    F: Future<Output = Result<Page<T>, ApiError>>,
{
    let (mut items, mut after) = (Vec::new(), String::new());
    loop {
        let page = ask(after.clone()).await?;
        items.extend(page.items);
        match page.next {
            // A site that says the same twice would be asked for ever.
            Some(next) if next > after => after = next,
            _ => return Ok(items),
        }
    }
}

/// What proves that a volume with credentials is ours.
fn credential(chap: &ChapArgs) -> Result<Option<Credential>> {
    let Some(user) = &chap.chap_user else { return Ok(None) };
    let secret = secret("POLLUX_CHAP_SECRET")?;
    Ok(Some(Credential { user: user.clone(), secret, ..Credential::default() }))
}

fn secret(name: &str) -> Result<String> {
    let secret = env::var(name).with_context(|| format!("{name} is not set"))?;
    ensure!(!secret.is_empty(), "{name} is empty");
    Ok(secret)
}

#[derive(Debug, Serialize)]
struct Deleted {
    deleted: String,
}

impl Answer for Deleted {
    fn table(&self) -> Table {
        render::sentence(format!("{} is deleted", self.deleted))
    }
}

fn deleted(name: String, output: Output) -> Result<()> {
    render::show(&Deleted { deleted: name }, output)
}

fn health(health: Health) -> &'static str {
    match health {
        Health::Healthy => "Healthy",
        Health::Degraded => "Degraded",
        Health::Offline => "Offline",
        Health::Pending => "Pending",
        Health::Deleting => "Deleting",
    }
}

/// With the reason, if there is one.
fn standing(state: &State) -> String {
    match health(state.health) {
        health if health == state.reason || state.reason.is_empty() => health.into(),
        health => format!("{health} ({})", state.reason),
    }
}

/// Whether there is nothing to say about it.
pub fn is_well(state: &State) -> bool {
    state.health == Health::Healthy
}

/// Whether a replica has everything, and counts.
fn is_in_order(copy: &Copy) -> bool {
    copy.votes && copy.mode == "Healthy"
}

/// A dash where there is nothing to say.
fn or_dash(text: &str) -> String {
    if text.is_empty() { "-".into() } else { text.into() }
}

fn yes_no(it: bool) -> String {
    if it { "yes" } else { "no" }.into()
}

/// `key=value,...`, as it is given.
fn pairs(pairs: &Pairs) -> String {
    let pairs: Vec<String> = pairs.iter().map(|(key, value)| format!("{key}={value}")).collect();
    or_dash(&pairs.join(","))
}
