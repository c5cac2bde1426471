//! What is run, and how it is run: this very program, in other words.
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom};
use std::path::PathBuf;
use std::process::Stdio;

use tokio::process::{Child, ChildStdin, Command};

use crate::local::{Description, Folder, NodePorts};

/// A log that is longer is put aside when its process starts.
const LOG_MAX: u64 = 16 << 20;
/// As much of its end as is shown when a process does not start.
const LOG_SHOWN: usize = 5;
const LOG_READ: u64 = 16 << 10;

#[derive(Clone, Debug)]
pub struct Spec {
    pub who: String,
    pub log: PathBuf,
    /// It is there when the process does its work.
    pub ready: PathBuf,
    words: Vec<OsString>,
}

impl Spec {
    pub fn control(folder: &Folder, site: &Description) -> Spec {
        let mut spec = Spec::new(folder, "control", ["serve", "control"]);
        spec.path("--file", folder.catalog());
        spec.text("--catalog", site.catalog);
        spec.text("--api", site.api);
        spec.path("--token-file", folder.token());
        spec.path("--tls", folder.certs().join("catalog"));
        spec
    }

    pub fn node(folder: &Folder, site: &Description, node: &NodePorts) -> Spec {
        let who = format!("node-{}", node.id);
        let mut spec = Spec::new(folder, &who, ["serve", "node"]);
        spec.text("--id", node.id);
        spec.path("--tls", folder.certs().join(&who));
        spec.text("--catalog", site.catalog);
        spec.text("--nbd", node.nbd);
        spec.text("--iscsi", node.iscsi);
        spec.path("--state", folder.state(node.id));
        let mut pool = OsString::from("main=");
        pool.push(folder.pool(node.id));
        spec.path("--pool", pool.into());
        spec
    }

    fn new(folder: &Folder, who: &str, words: [&str; 2]) -> Spec {
        let (log, ready) = (folder.log(who), folder.ready(who));
        let mut words: Vec<OsString> = words.map(Into::into).into();
        words.extend(["--parent-pipe".into(), "--ready-file".into(), ready.clone().into()]);
        Spec { who: who.into(), log, ready, words }
    }

    fn text(&mut self, name: &str, value: impl ToString) {
        self.words.extend([name.into(), value.to_string().into()]);
    }

    fn path(&mut self, name: &str, value: PathBuf) {
        self.words.extend([name.into(), value.into()]);
    }

    /// Starts it, with nobody but this process at the other end of its standard input: when that end is
    /// dropped, or this process is gone, however it went, the child ends too.
    pub fn start(&self) -> io::Result<(Child, Option<ChildStdin>)> {
        match fs::remove_file(&self.ready) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let log = self.open_log()?;
        let mut child = Command::new(std::env::current_exe()?)
            .args(&self.words)
            .stdin(Stdio::piped())
            .stdout(log.try_clone()?)
            .stderr(log)
            // Ctrl-C is for this process, which stops its children one after another.
            .process_group(0)
            .kill_on_drop(true)
            .spawn()?;
        // Taken out, since whoever waits for a child closes what is in it.
        let pipe = child.stdin.take();
        Ok((child, pipe))
    }

    fn open_log(&self) -> io::Result<File> {
        if fs::metadata(&self.log).is_ok_and(|found| found.len() > LOG_MAX) {
            fs::rename(&self.log, self.log.with_extension("log.old"))?;
        }
        File::options().create(true).append(true).open(&self.log)
    }

    /// The last lines of the log, in one.
    pub fn last_words(&self) -> String {
        let read = || -> io::Result<String> {
            let mut file = File::open(&self.log)?;
            let len = file.metadata()?.len();
            file.seek(SeekFrom::Start(len.saturating_sub(LOG_READ)))?;
            let mut bytes = Vec::new();
            file.take(LOG_READ).read_to_end(&mut bytes)?;
            Ok(String::from_utf8_lossy(&bytes).into_owned())
        };
        let text = read().unwrap_or_default();
        let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
        lines[lines.len().saturating_sub(LOG_SHOWN)..].join(" | ")
    }
}
