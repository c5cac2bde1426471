//! Asking somebody who is about to lose something for good.
use std::io::{self, BufRead, Write};

use anyhow::{Result, bail};

/// Goes on only if the name is typed. Where nobody types, nothing is changed.
pub fn confirm(what_is_lost: &str, kind: &str, name: &str) -> Result<()> {
    let mut out = io::stderr();
    write!(out, "{what_is_lost}\nType the name of the {kind} to go on: ")?;
    out.flush()?;
    let mut line = String::new();
    io::stdin().lock().read_line(&mut line)?;
    if line.trim() != name {
        bail!("nothing was changed: the name was not typed (--yes goes on without it)");
    }
    Ok(())
}
