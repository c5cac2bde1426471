//! What a command answers: a table for people, JSON or YAML for programs.
//!
//! Sizes are rounded for people and exact for programs; both say the same otherwise.
use std::io::{self, Write};

use anyhow::{Context, Result};
use clap::ValueEnum;
use comfy_table::{ContentArrangement, Table, presets};
use serde::Serialize;

use crate::yaml;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Output {
    #[default]
    Table,
    Json,
    Yaml,
}

/// An answer that can be shown in every way.
pub trait Answer: Serialize {
    fn table(&self) -> Table;

    /// For people; more than one table, if need be.
    fn text(&self) -> String {
        self.table().trim_fmt()
    }
}

pub fn show(answer: &impl Answer, output: Output) -> Result<()> {
    let text = match output {
        Output::Table => answer.text(),
        Output::Json | Output::Yaml => data(answer, output)?,
    };
    say(&text)
}

/// An answer for programs.
pub fn data(answer: &impl Serialize, output: Output) -> Result<String> {
    match output {
        Output::Yaml => Ok(yaml::text(&serde_json::to_value(answer).context(NO_JSON)?)),
        Output::Table | Output::Json => serde_json::to_string_pretty(answer).context(NO_JSON),
    }
}

const NO_JSON: &str = "the answer is no JSON";

/// A reader who has seen enough, such as `head`, is no failure.
pub fn say(text: &str) -> Result<()> {
    match writeln!(io::stdout(), "{text}") {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(error).context("the answer could not be written")
        }
        _ => Ok(()),
    }
}

/// What a daemon says once it serves. It serves on also if that cannot be written.
pub fn announce(text: &str) {
    if let Err(error) = say(text) {
        logging::line(&format!("{error:#}: {text}"));
    }
}

/// Columns without lines, which the tools of the shell can cut.
pub fn plain(header: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    if !header.is_empty() {
        table.set_header(header);
    }
    table
}

/// One fact per line.
pub fn facts(rows: impl IntoIterator<Item = (&'static str, String)>) -> Table {
    let mut table = plain(&[]);
    for (name, value) in rows {
        table.add_row([name.to_owned(), value]);
    }
    table
}

/// What is no table but a text.
pub fn sentence(text: String) -> Table {
    let mut table = plain(&[]);
    table.set_content_arrangement(ContentArrangement::Disabled).add_row([text]);
    if let Some(column) = table.column_mut(0) {
        column.set_padding((0, 0));
    }
    table
}

/// With lines, and wrapped, for text that is to be read.
pub fn boxed(header: &[&str], width: u16) -> Table {
    let mut table = Table::new();
    table.load_style(presets::UTF8_FULL);
    table.set_content_arrangement(ContentArrangement::Dynamic).set_width(width);
    table.set_header(header);
    table
}

/// A uuid as it is usually written.
pub fn uuid(bytes: &[u8; 16]) -> String {
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]].join("-")
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_uuid_has_its_usual_shape() {
        let text = super::uuid(&std::array::from_fn(|n| u8::try_from(n).unwrap()));
        assert_eq!(text, "00010203-0405-0607-0809-0a0b0c0d0e0f");
    }
}
