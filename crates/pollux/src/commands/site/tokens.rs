//! `pollux token`.
use anyhow::{Result, ensure};
use comfy_table::Table;
use control::api::Client;
use control::api::types::{NewToken, Role, Token as Found};
use serde::Serialize;

use super::deleted;
use crate::cli::site::Token;
use crate::clock;
use crate::render::{self, Answer, Output};

pub async fn run(client: &Client, command: Token, output: Output) -> Result<()> {
    match command {
        Token::List => render::show(&Rows(client.tokens().await?.items), output),
        Token::Create { name, role, lasts } => {
            let lasts_seconds = lasts.map(|lasts| lasts.as_secs());
            let wanted = NewToken { name, role: role.into(), lasts_seconds };
            render::show(&Made(client.create_token(&wanted).await?), output)
        }
        Token::Delete { name } => {
            let known = client.tokens().await?.items.iter().any(|token| token.name == name);
            ensure!(known, "there is no token `{name}`");
            client.delete_token(&name).await?;
            deleted(name, output)
        }
    }
}

fn role(role: Role) -> &'static str {
    match role {
        Role::Viewer => "viewer",
        Role::Editor => "editor",
        Role::Admin => "admin",
    }
}

#[derive(Debug, Serialize)]
#[serde(transparent)]
struct Rows(Vec<Found>);

impl Answer for Rows {
    fn table(&self) -> Table {
        let mut table = render::plain(&["NAME", "ROLE", "CREATED", "UNTIL"]);
        for it in &self.0 {
            table.add_row([
                it.name.clone(),
                role(it.role).into(),
                clock::utc(it.created_ms),
                it.expires_ms.map_or("-".into(), clock::utc),
            ]);
        }
        table
    }
}

/// With its secret, which is told this once.
#[derive(Debug, Serialize)]
#[serde(transparent)]
struct Made(Found);

impl Answer for Made {
    fn table(&self) -> Table {
        let it = &self.0;
        render::facts([
            ("name", it.name.clone()),
            ("role", role(it.role).into()),
            ("until", it.expires_ms.map_or("-".into(), clock::utc)),
            ("token", it.token.clone().unwrap_or_else(|| "-".into())),
        ])
    }
}
