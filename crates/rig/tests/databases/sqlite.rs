//! SQLite by its shell: the shell is the database.
use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use rustix::process::{Pid, Signal, kill_process};

use crate::Database;
use crate::shell::Shell;

pub struct Sqlite {
    file: PathBuf,
    starts: usize,
}

impl Sqlite {
    pub fn new(folder: PathBuf) -> Sqlite {
        Sqlite { file: folder.join("numbers.db"), starts: 0 }
    }
}

impl Database for Sqlite {
    fn start(&mut self) -> Result<()> {
        // Both kinds of journal, in turn.
        self.starts += 1;
        Ok(())
    }

    fn open(&self) -> Result<Shell> {
        let file = self.file.to_str().context("a path of a test is text")?;
        let mut shell = Shell::start(&["sqlite3", "-batch", "-bail", file].map(String::from))?;
        let mode = if self.starts.is_multiple_of(2) { "delete" } else { "wal" };
        shell.ask(&format!("PRAGMA journal_mode = {mode};"), mode)?;
        shell.ask("PRAGMA synchronous = FULL; PRAGMA synchronous;", "2")?;
        let table = "CREATE TABLE IF NOT EXISTS numbered (n INTEGER PRIMARY KEY, words TEXT);";
        shell.ask(&format!("{table} SELECT 'made';"), "made")?;
        let whole =
            shell.ask("SELECT 'check', integrity_check FROM pragma_integrity_check;", "check|")?;
        ensure!(whole == "ok", "the database is damaged: {whole}");
        Ok(shell)
    }

    fn kill9(&mut self, shell: u32) -> Result<()> {
        let process = Pid::from_raw(i32::try_from(shell)?).context("a process has a number")?;
        Ok(kill_process(process, Signal::KILL)?)
    }

    fn stop(&mut self) -> Result<()> {
        Ok(())
    }
}
