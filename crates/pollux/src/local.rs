//! The folder of a site that `pollux up` runs on this machine: what is where in it.
use std::env;
use std::fs;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};

use crate::whole;

/// How the description is written; another one is of a later version.
const VERSION: u32 = 1;

#[derive(Clone, Debug)]
pub struct Folder(PathBuf);

/// What a site has to remember between two starts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Description {
    pub version: u32,
    pub catalog: SocketAddr,
    pub api: SocketAddr,
    pub nodes: Vec<NodePorts>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NodePorts {
    pub id: u64,
    pub nbd: SocketAddr,
    pub iscsi: SocketAddr,
}

impl Description {
    pub fn new(catalog: SocketAddr, api: SocketAddr, nodes: Vec<NodePorts>) -> Description {
        Description { version: VERSION, catalog, api, nodes }
    }
}

impl Folder {
    pub fn at(path: impl Into<PathBuf>) -> Folder {
        Folder(path.into())
    }

    /// Where a site is unless somebody says otherwise. `None`: this user has no home.
    pub fn usual() -> Option<Folder> {
        let absolute = |name: &str| {
            let path = PathBuf::from(env::var_os(name)?);
            path.is_absolute().then_some(path)
        };
        let data =
            absolute("XDG_DATA_HOME").or_else(|| Some(absolute("HOME")?.join(".local/share")));
        data.map(|data| Folder(data.join("pollux/site")))
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    pub fn certs(&self) -> PathBuf {
        self.0.join("certs")
    }

    pub fn authority(&self) -> PathBuf {
        self.certs().join("ca/ca.crt")
    }

    pub fn token(&self) -> PathBuf {
        self.0.join("admin.token")
    }

    pub fn lock(&self) -> PathBuf {
        self.0.join("lock")
    }

    pub fn pool(&self, id: u64) -> PathBuf {
        self.0.join(format!("pool-{id}"))
    }

    pub fn state(&self, id: u64) -> PathBuf {
        self.0.join(format!("state-{id}"))
    }

    pub fn catalog(&self) -> PathBuf {
        self.0.join("catalog.db")
    }

    pub fn log(&self, who: &str) -> PathBuf {
        self.0.join("logs").join(format!("{who}.log"))
    }

    pub fn ready(&self, who: &str) -> PathBuf {
        self.0.join("run").join(format!("{who}.ready"))
    }

    fn description(&self) -> PathBuf {
        self.0.join("site.json")
    }

    /// `None`: there was never a site here.
    pub fn read(&self) -> Result<Option<Description>> {
        let path = self.description();
        let shown = path.display();
        let text = match fs::read(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error).with_context(|| format!("{shown} cannot be read")),
        };
        let found: Description = serde_json::from_slice(&text)
            .with_context(|| format!("{shown} is not understood: put it back as it was"))?;
        let version = found.version;
        ensure!(version == VERSION, "{shown} has version {version}: use the pollux that wrote it");
        Ok(Some(found))
    }

    pub fn write(&self, description: &Description) -> Result<()> {
        let path = self.description();
        let text = serde_json::to_string_pretty(description).context("a description is JSON")?;
        whole::write(&path, |file| writeln!(file, "{text}"))
            .with_context(|| format!("{} cannot be written", path.display()))
    }
}

#[cfg(test)]
mod tests {
    use pollux::proof::Scratch;

    use super::*;

    #[test]
    fn a_description_is_read_back_and_a_later_one_is_refused() {
        let scratch = Scratch::new("local").unwrap();
        let folder = Folder::at(scratch.path());
        assert_eq!(folder.read().unwrap(), None);
        let at = |port| SocketAddr::from(([127, 0, 0, 1], port));
        let nodes = vec![NodePorts { id: 1, nbd: at(3), iscsi: at(4) }];
        let description = Description::new(at(1), at(2), nodes);
        folder.write(&description).unwrap();
        assert_eq!(folder.read().unwrap(), Some(description.clone()));
        folder.write(&Description { version: 9, ..description }).unwrap();
        assert!(folder.read().unwrap_err().to_string().contains("version 9"));
        fs::write(folder.description(), "{").unwrap();
        assert!(folder.read().unwrap_err().to_string().contains("site.json"));
    }
}
