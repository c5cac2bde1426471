//! Programs of the system that are run: file systems have their own tools, and theirs are the right ones.
use std::ffi::OsStr;
use std::io;
use std::process::{Command, Output, Stdio};

use thiserror::Error;

/// What of a tool's words is told on.
const WORDS_MAX: usize = 600;

#[derive(Debug, Error)]
pub enum ToolError {
    #[error("the program {tool} is needed and not installed")]
    Missing { tool: String },
    #[error("the program {tool} cannot be run: {error}")]
    Run { tool: String, error: io::Error },
    #[error("{tool} failed ({status}): {words}")]
    Failed { tool: String, status: String, words: String },
}

/// Runs it, whatever it says.
pub fn run(tool: &str, args: &[&OsStr]) -> Result<Output, ToolError> {
    let mut command = Command::new(tool);
    command.args(args).env("LC_ALL", "C").stdin(Stdio::null());
    command.output().map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => ToolError::Missing { tool: tool.into() },
        _ => ToolError::Run { tool: tool.into(), error },
    })
}

/// Runs it, and it has to succeed.
pub fn must(tool: &str, args: &[&OsStr]) -> Result<Output, ToolError> {
    let output = run(tool, args)?;
    if output.status.success() { Ok(output) } else { Err(failed(tool, &output)) }
}

pub fn failed(tool: &str, output: &Output) -> ToolError {
    let said = [&output.stderr[..], &output.stdout[..]].concat();
    let words = String::from_utf8_lossy(&said);
    let words: String = words.split_whitespace().collect::<Vec<_>>().join(" ");
    let words = words.chars().take(WORDS_MAX).collect();
    ToolError::Failed { tool: tool.into(), status: output.status.to_string(), words }
}
