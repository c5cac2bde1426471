//! What a site needs before its processes start: folders, certificates, pools and ports.
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;
use std::time::SystemTime;

use anyhow::{Context, Result, ensure};
use block::ByteLen;
use certs::{Authority, Identity, LoadError, Name, Validity};

use super::ports::Ports;
use crate::cli::Create;
use crate::commands::disk;
use crate::local::{Description, Folder, NodePorts};

const NODES: u64 = 3;
/// Enough for a machine on which several nodes share one disk.
const JOURNAL: ByteLen = ByteLen(64 << 20);
const CATALOG_PORT: u16 = 7460;
const API_PORT: u16 = 7470;
/// The node's number is added.
const NBD_PORT: u16 = 10800;
const ISCSI_PORT: u16 = 3260;

pub fn make_folders(folder: &Folder) -> io::Result<()> {
    // Keys and tokens are in it.
    let mut private = DirBuilder::new();
    private.recursive(true).mode(0o700);
    private.create(folder.path())?;
    for file in [folder.log("x"), folder.ready("x")] {
        private.create(file.parent().unwrap_or(Path::new(".")))?;
    }
    Ok(())
}

/// Makes what is missing, and leaves what is there.
pub fn prepare(folder: &Folder, nodes: Option<u64>, pool_size: ByteLen) -> Result<Description> {
    let known = folder.read()?;
    let has = known.as_ref().map_or(0, |known| known.nodes.len());
    let has = u64::try_from(has).unwrap_or(u64::MAX);
    let nodes = nodes.unwrap_or(if has == 0 { NODES } else { has });
    ensure!(
        nodes >= has,
        "the site in {} has {has} nodes, and they have its data: leave out --nodes, or give {has} or more",
        folder.path().display()
    );
    let mut ports = Ports::default();
    let description = match &known {
        Some(known) => again(known, nodes, &mut ports)?,
        None => first(nodes, &mut ports)?,
    };
    certificates(folder, &description)?;
    for node in &description.nodes {
        pool(folder, node.id, pool_size)?;
    }
    if known.as_ref() != Some(&description) {
        folder.write(&description)?;
    }
    Ok(description)
}

fn first(nodes: u64, ports: &mut Ports) -> Result<Description> {
    let (catalog, api) = (ports.take(CATALOG_PORT)?, ports.take(API_PORT)?);
    let nodes = (1..=nodes).map(|id| new_node(id, ports));
    Ok(Description::new(catalog, api, nodes.collect::<Result<_>>()?))
}

fn again(known: &Description, nodes: u64, ports: &mut Ports) -> Result<Description> {
    let mut again = known.clone();
    again.catalog = ports.again(known.catalog)?;
    again.api = ports.again(known.api)?;
    for node in &mut again.nodes {
        (node.nbd, node.iscsi) = (ports.again(node.nbd)?, ports.again(node.iscsi)?);
    }
    let last = again.nodes.iter().map(|node| node.id).max().unwrap_or(0);
    let more = nodes.saturating_sub(u64::try_from(again.nodes.len())?);
    for id in last + 1..=last + more {
        again.nodes.push(new_node(id, ports)?);
    }
    Ok(again)
}

fn new_node(id: u64, ports: &mut Ports) -> Result<NodePorts> {
    let number = u16::try_from(id).context("a node has a small number")?;
    let (nbd, iscsi) = (ports.take(NBD_PORT + number)?, ports.take(ISCSI_PORT + number)?);
    Ok(NodePorts { id, nbd, iscsi })
}

fn certificates(folder: &Folder, description: &Description) -> Result<()> {
    let (certs, now) = (folder.certs(), SystemTime::now());
    if !certs.join(Authority::FOLDER).exists() {
        Authority::make(Validity::of_authority(now))?.write(&certs)?;
    }
    let authority = Authority::open(&certs)?;
    let local = ["127.0.0.1".to_owned(), "localhost".to_owned()];
    let nodes = description.nodes.iter().map(|node| Name::node(node.id));
    for name in [Name::catalog()].into_iter().chain(nodes) {
        let own = certs.join(name.as_str());
        if own.exists() {
            match Identity::load(&own) {
                Ok(_) => continue,
                Err(LoadError::Expired { .. }) => fs::remove_dir_all(&own)?,
                Err(error) => return Err(error.into()),
            }
        }
        authority.issue(&name, &local, Validity::of_certificate(now))?.write(&certs)?;
    }
    Ok(())
}

/// Whole or not at all: a start that was interrupted leaves nothing that looks like a pool.
fn pool(folder: &Folder, id: u64, size: ByteLen) -> Result<()> {
    let path = folder.pool(id);
    if path.exists() {
        return Ok(());
    }
    let aside = path.with_extension("new");
    match fs::remove_file(&aside) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error.into()),
        _ => {}
    }
    // A pool for trying out takes little space until it is used, its journal included.
    let journal = Some(JOURNAL).filter(|journal| journal.0 < size.0 / 32);
    let (size, sector, force, sparse) = (Some(size), None, false, true);
    let create = Create { path: aside.clone(), size, sector, journal, force, sparse };
    disk::make(&create)?;
    fs::rename(&aside, &path).with_context(|| format!("{} cannot be made", path.display()))
}

#[cfg(test)]
mod tests {
    use pollux::proof::Scratch;

    use super::*;

    const SIZE: ByteLen = ByteLen(16 << 20);

    #[test]
    fn a_folder_is_filled_once_and_kept() {
        let scratch = Scratch::new("up").unwrap();
        let folder = Folder::at(scratch.file("site"));
        make_folders(&folder).unwrap();
        let first = prepare(&folder, Some(2), SIZE).unwrap();
        assert_eq!(first.nodes.iter().map(|node| node.id).collect::<Vec<_>>(), [1, 2]);
        for name in ["catalog", "node-1", "node-2"] {
            Identity::load(&folder.certs().join(name)).expect("it is in order");
        }
        let key = fs::read(folder.certs().join("node-1/tls.key")).unwrap();
        let pool = fs::metadata(folder.pool(1)).unwrap().modified().unwrap();

        assert_eq!(prepare(&folder, None, SIZE).unwrap(), first, "it is the same again");
        assert_eq!(fs::read(folder.certs().join("node-1/tls.key")).unwrap(), key);
        assert_eq!(fs::metadata(folder.pool(1)).unwrap().modified().unwrap(), pool);

        let more = prepare(&folder, Some(3), SIZE).unwrap();
        assert_eq!((&more.nodes[..2], more.nodes[2].id), (&first.nodes[..], 3));
        assert!(folder.pool(3).exists());
        let error = prepare(&folder, Some(1), SIZE).unwrap_err().to_string();
        assert!(error.contains("has 3 nodes"), "{error}");
        assert_eq!(folder.read().unwrap(), Some(more));
    }
}
