//! Servers of others, as Debian has them, on a file that lies where our pools lie.
use std::ffi::OsString;
use std::path::Path;

use anyhow::Result;
use rig::process::{Process, Recipe};

use super::arena::{Arena, filled_file, free_address, program};
use super::content::Content;
use super::server::{Server, Speaks};

const EXPORT: &str = "disk";
const TARGET: &str = "iqn.2026-11.io.pollux:peer";

/// Starts a tgtd, sets it up, and stays until it ends. The parameters are those that our
/// initiator offers, so that all targets agree to the same.
const TGT: &str = r#"set -e
tell() { "$tgtadm" -C 1 --lld iscsi "$@"; }
"$tgtd" -f -C 1 --iscsi portal="$at" &
tries=0
until tell --mode sys --op show >/dev/null 2>&1; do
    tries=$((tries + 1)); [ $tries -lt 100 ]; sleep 0.1
done
tell --mode target --op new --tid 1 -T "$target"
for pair in MaxRecvDataSegmentLength=262144 InitialR2T=No ImmediateData=Yes \
    FirstBurstLength=65536 MaxBurstLength=262144 MaxOutstandingR2T=1; do
    tell --mode target --op update --tid 1 --name "${pair%=*}" --value "${pair#*=}"
done
tell --mode logicalunit --op new --tid 1 --lun 1 -b "$file" --bstype "$store"
tell --mode target --op bind --tid 1 -I ALL
touch "$ready"
wait"#;

fn start(folder: &Path, name: &str, words: Vec<OsString>) -> Result<Process> {
    let ready = folder.join(format!("{name}.ready"));
    Process::start(folder, Recipe { name: name.into(), words, ready })
}

/// `store` is what tgt calls a backing-store type.
pub fn tgt(
    arena: &Arena,
    name: &'static str,
    store: &str,
    size: u64,
    content: &Content,
) -> Result<Server> {
    let folder = arena.room(&format!("tgt-{store}"))?;
    let (file, at) = (folder.join("file"), free_address()?);
    filled_file(&file, size, content)?;
    let setting = |key: &str, value: OsString| {
        let mut word = OsString::from(format!("{key}="));
        word.push(value);
        word
    };
    let words = vec![
        "env".into(),
        setting("TGT_IPC_SOCKET", folder.join("socket").into()),
        setting("tgtd", program("tgtd")?.into()),
        setting("tgtadm", program("tgtadm")?.into()),
        setting("at", at.to_string().into()),
        setting("target", TARGET.into()),
        setting("file", file.into()),
        setting("store", store.into()),
        setting("ready", folder.join("tgt.ready").into()),
        "sh".into(),
        "-c".into(),
        TGT.into(),
    ];
    let process = start(&folder, "tgt", words)?;
    let speaks = Speaks::Iscsi { target: TARGET.into(), lun: 1 };
    Server::owning(name, at, speaks, vec![process], vec![folder])
}

fn nbdkit_process(folder: &Path, size: u64, content: &Content) -> Result<(Process, u16)> {
    let (file, at) = (folder.join("file"), free_address()?);
    filled_file(&file, size, content)?;
    let ready = folder.join("nbdkit.ready");
    let mut words: Vec<OsString> = vec![program("nbdkit")?.into()];
    words.extend(["-f", "-i", "127.0.0.1", "-p", &at.port().to_string()].map(OsString::from));
    words.extend(["--pidfile".into(), ready.into(), "file".into(), file.into()]);
    Ok((start(folder, "nbdkit", words)?, at.port()))
}

pub fn nbdkit(arena: &Arena, size: u64, content: &Content) -> Result<Server> {
    let folder = arena.room("nbdkit")?;
    let (process, port) = nbdkit_process(&folder, size, content)?;
    let (at, speaks) = (([127, 0, 0, 1], port).into(), Speaks::Nbd { export: EXPORT.into() });
    Server::owning("nbdkit file", at, speaks, vec![process], vec![folder])
}

pub fn qemu_nbd(arena: &Arena, size: u64, content: &Content) -> Result<Server> {
    let folder = arena.room("qemu-nbd")?;
    let (file, at) = (folder.join("file"), free_address()?);
    filled_file(&file, size, content)?;
    let port = at.port().to_string();
    let mut words: Vec<OsString> = vec![program("qemu-nbd")?.into()];
    let options = ["-t", "-f", "raw", "-e", "16", "--cache=writeback", "--aio=threads", "-x"];
    words.extend(options.map(OsString::from));
    words.extend([EXPORT, "-b", "127.0.0.1", "-p", &port, "--pid-file"].map(OsString::from));
    words.extend([folder.join("qemu-nbd.ready").into(), file.into()]);
    let process = start(&folder, "qemu-nbd", words)?;
    let speaks = Speaks::Nbd { export: EXPORT.into() };
    Server::owning("qemu-nbd", at, speaks, vec![process], vec![folder])
}

/// QEMU's quorum driver over three nbdkit: two of three have to agree, on reads too.
pub fn qemu_quorum(arena: &Arena, size: u64, content: &Content) -> Result<Server> {
    let (mut processes, mut rooms) = (Vec::new(), Vec::new());
    let mut words: Vec<OsString> = vec![program("qemu-storage-daemon")?.into()];
    let mut option = |key: &str, value: String| words.extend([key.into(), value.into()]);
    for child in 0..3 {
        let folder = arena.room(&format!("quorum-{child}"))?;
        let (process, port) = nbdkit_process(&folder, size, content)?;
        processes.push(process);
        rooms.push(folder);
        let server = format!("server.type=inet,server.host=127.0.0.1,server.port={port}");
        option("--blockdev", format!("driver=nbd,node-name=child{child},export={EXPORT},{server}"));
    }
    let (folder, at) = (arena.room("quorum")?, free_address()?);
    let children = "children.0=child0,children.1=child1,children.2=child2";
    option("--blockdev", format!("driver=quorum,node-name=all,vote-threshold=2,{children}"));
    let address = format!("addr.type=inet,addr.host=127.0.0.1,addr.port={}", at.port());
    option("--nbd-server", format!("{address},max-connections=16"));
    option("--export", format!("type=nbd,id=all,node-name=all,name={EXPORT},writable=on"));
    option("--pidfile", folder.join("qsd.ready").display().to_string());
    processes.push(start(&folder, "qsd", words)?);
    rooms.push(folder);
    let speaks = Speaks::Nbd { export: EXPORT.into() };
    Server::owning("QEMU quorum", at, speaks, processes, rooms)
}
