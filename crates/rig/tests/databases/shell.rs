//! A database's own client, which is spoken to by a pipe.
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use anyhow::{Context, Result, ensure};

pub struct Shell {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

/// What a table of rows has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rows {
    pub count: u64,
    pub last: u64,
    /// Those whose words are not their own.
    pub wrong: u64,
}

impl Shell {
    pub fn start(words: &[String]) -> Result<Shell> {
        // What is said is wanted at once, not when a buffer is full.
        let mut child = Command::new("stdbuf")
            .arg("-oL")
            .args(words)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            // A client whose server is killed complains, as it is to.
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()?;
        let input = child.stdin.take().context("a pipe")?;
        let output = BufReader::new(child.stdout.take().context("a pipe")?);
        Ok(Shell { child, input, output })
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Says this, and waits for a line that begins so; the rest of it.
    pub fn ask(&mut self, words: &str, answer: &str) -> Result<String> {
        writeln!(self.input, "{words}")?;
        loop {
            let mut line = String::new();
            ensure!(self.output.read_line(&mut line)? > 0, "no answer to: {words}");
            if let Some(rest) = line.trim_end().strip_prefix(answer) {
                return Ok(rest.to_owned());
            }
        }
    }

    /// Committed when this returns.
    pub fn commit(&mut self, number: u64) -> Result<()> {
        let insert = format!("INSERT INTO numbered VALUES ({number}, 'row-{number}');");
        self.ask(&format!("{insert} SELECT 'done', {number};"), &format!("done|{number}"))?;
        Ok(())
    }

    pub fn rows(&mut self) -> Result<Rows> {
        let wrong = "coalesce(sum(CASE WHEN words = 'row-' || n THEN 0 ELSE 1 END), 0)";
        let ask = format!("SELECT 'rows', count(*), coalesce(max(n), 0), {wrong} FROM numbered;");
        let said = self.ask(&ask, "rows|")?;
        let numbers =
            said.split('|').map(|number| Ok(number.parse()?)).collect::<Result<Vec<u64>>>()?;
        match numbers[..] {
            [count, last, wrong] => Ok(Rows { count, last, wrong }),
            _ => anyhow::bail!("this is no answer: {said}"),
        }
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        // The only error is that it is gone already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
