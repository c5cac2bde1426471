//! `pollux explain`: why something is not as it should be, since when, what happens next, and what to do.
mod story;

use anyhow::{Result, ensure};
use clap::error::ErrorKind;
use clap::{CommandFactory, ValueEnum};
use comfy_table::Table;
use control::api::types::Pool;
use control::api::{ApiError, Client, Code};
use serde::Serialize;

use crate::cli::Cli;
use crate::cli::site::{Explain, Kind};
use crate::clock;
use crate::render::{self, Answer, Output};
use story::Story;

pub async fn run(client: &Client, command: &Explain, output: Output) -> Result<()> {
    let (kind, name) = match &command.second {
        Some(name) => (Some(kind(&command.first)), name),
        None => (None, &command.first),
    };
    let mut stories = Vec::new();
    for wanted in Kind::value_variants() {
        if kind.is_none_or(|kind| kind == *wanted) {
            stories.extend(of_kind(client, *wanted, name).await?);
        }
    }
    let what = kind.map_or("volume, snapshot, node or pool".into(), word);
    ensure!(!stories.is_empty(), "there is no {what} `{name}`");
    render::show(&Stories(stories), output)
}

/// One of the words; anything else is a mistake of whoever typed it.
fn kind(text: &str) -> Kind {
    Kind::from_str(text, true).unwrap_or_else(|_| {
        let known: Vec<String> = Kind::value_variants().iter().map(|kind| word(*kind)).collect();
        let message = format!("`{text}` cannot be explained: write {}", known.join(", "));
        Cli::command().error(ErrorKind::InvalidValue, message).exit()
    })
}

fn word(kind: Kind) -> String {
    kind.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
}

/// All that have the name.
async fn of_kind(client: &Client, kind: Kind, name: &str) -> Result<Vec<Story>, ApiError> {
    Ok(match kind {
        Kind::Volume => found(client.volume(name).await)?.iter().map(story::volume).collect(),
        Kind::Node => found(client.node(name).await)?.iter().map(story::node).collect(),
        Kind::Snapshot => match found(client.snapshot(name).await)? {
            Some(snapshot) if snapshot.ready => vec![story::snapshot(&snapshot, None)],
            Some(snapshot) => {
                let volume = found(client.volume(&snapshot.volume_uid).await)?;
                vec![story::snapshot(&snapshot, volume.as_ref())]
            }
            None => Vec::new(),
        },
        Kind::Pool => {
            let pools = client.pools().await?.items;
            pools.iter().filter(|pool| is_called(pool, name)).map(story::pool).collect()
        }
    })
}

/// Pools of different nodes may have the same name.
fn is_called(pool: &Pool, name: &str) -> bool {
    pool.uuid == name || pool.name == name || format!("{}:{}", pool.node, pool.name) == name
}

fn found<T>(answer: Result<T, ApiError>) -> Result<Option<T>, ApiError> {
    match answer {
        Ok(found) => Ok(Some(found)),
        Err(error) if error.code == Code::NotFound => Ok(None),
        // What is no name of one kind may be one of another.
        Err(error) if error.code == Code::Invalid => Ok(None),
        Err(error) => Err(error),
    }
}

#[derive(Debug, Serialize)]
#[serde(transparent)]
struct Stories(Vec<Story>);

impl Answer for Stories {
    fn table(&self) -> Table {
        let now = clock::now_ms();
        let stories: Vec<String> = self.0.iter().map(|story| story.text(now)).collect();
        render::sentence(stories.join("\n"))
    }
}
