//! The kernel's initiator, by the tools of open-iscsi.
//!
//! A session keeps the address that it was begun with, and a target moves. So sessions are begun with a portal of
//! this process, which redirects every login to where the target is at that moment: the kernel comes back to it
//! whenever it has lost its connection, and what it reads and writes goes to the target directly.
use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use tracing::warn;

use super::redirect::Portal;
use super::{Attached, WRITE_BACK_MAX, WayError, tell_device, unused};
use crate::host::Unwritten;
use crate::link::Plan;
use crate::orders::Health;
use crate::record::{Folder, Record};
use crate::tools;

/// What the names of our targets begin with.
const IQN: &str = "iqn.2026-11.io.pollux:";
/// The kernel shows a new disk within moments.
const SHOWN_MAX: Duration = Duration::from_secs(20);
const LOOK_EVERY: Duration = Duration::from_millis(20);

pub struct Attachment {
    /// Ends with this.
    _portal: Portal,
    target: String,
    folder: Folder,
    device: PathBuf,
    size: u64,
    unwritten: Unwritten,
}

/// Our own settings of an initiator, beside those of the machine: one for each name that it logs in with.
fn iface(record: &Record) -> String {
    let host = record.initiator.rsplit_once(":host.").map_or("host", |(_, host)| host);
    format!("pollux.{host}")
}

/// With the stage, as it logs in.
fn target_name(record: &Record) -> String {
    frontend::export::with_stage(&format!("{IQN}{}", record.volume), record.stage)
}

impl Attachment {
    pub fn open(record: &Record, folder: &Folder, plan: Plan) -> Result<Attachment, WayError> {
        let failed = |what| move |error| WayError::System { what, error };
        let portal =
            Portal::open(plan.whereabouts).map_err(failed("the portal of this machine"))?;
        let target = target_name(record);
        let begun = begin(record, &target, &portal.address().to_string());
        let shown = begun.and_then(|()| await_disk(&target));
        let device = shown.inspect_err(|_| {
            // The first error is the one to tell.
            let _ = end(&target);
        })?;
        tell_device(folder, &device).map_err(failed("the note of the device"))?;
        let mut attachment = Attachment {
            _portal: portal,
            target,
            folder: folder.clone(),
            device,
            size: 0,
            unwritten: Unwritten::Keep,
        };
        attachment.size = attachment.read_size()?;
        Ok(attachment)
    }

    fn read_size(&self) -> Result<u64, WayError> {
        let name = self.device.file_name().unwrap_or_default().to_string_lossy();
        let sectors = fs::read_to_string(format!("/sys/block/{name}/size"));
        let sectors =
            sectors.map_err(|error| WayError::System { what: "the disk's size", error })?;
        let bytes = sectors.trim().parse::<u64>().ok().and_then(|count| count.checked_mul(512));
        bytes.ok_or_else(|| {
            WayError::Iscsi(format!("the kernel says that {name} has {sectors:?} sectors"))
        })
    }
}

fn admin(words: &[&str]) -> Result<(), WayError> {
    let words: Vec<&std::ffi::OsStr> = words.iter().map(std::ffi::OsStr::new).collect();
    tools::must("iscsiadm", &words)?;
    Ok(())
}

/// Logs in.
fn begin(record: &Record, target: &str, portal: &str) -> Result<(), WayError> {
    let iface = &*iface(record);
    // It may be there from an earlier volume: then it is the same.
    let _ = admin(&["-m", "iface", "-I", iface, "-o", "new"]);
    let name = ["-n", "iface.initiatorname", "-v", &record.initiator];
    admin(&[&["-m", "iface", "-I", iface, "-o", "update"], &name[..]].concat())?;
    let node = ["-m", "node", "-T", target, "-p", portal, "-I", iface];
    admin(&[&node[..], &["-o", "new"]].concat())?;
    let patience = record.patience_ms.div_ceil(1000).to_string();
    let mut settings = vec![
        ("node.startup", "manual"),
        ("node.session.scan", "auto"),
        // Requests wait so long for a target that is away (P6).
        ("node.session.timeo.replacement_timeout", &*patience),
        // A target that is gone without a word is noticed after these.
        ("node.conn[0].timeo.noop_out_interval", "2"),
        ("node.conn[0].timeo.noop_out_timeout", "4"),
        ("node.conn[0].timeo.login_timeout", "5"),
        // The first login has less time than whoever waits for it; those after a loss have all the time there is.
        ("node.session.initial_login_retry_max", "4"),
    ];
    let secret = record.secret.clone().unwrap_or_default();
    if record.secret.is_some() {
        settings.push(("node.session.auth.authmethod", "CHAP"));
        settings.push(("node.session.auth.username", &secret.user));
        if !secret.mutual_user.is_empty() {
            settings.push(("node.session.auth.username_in", &secret.mutual_user));
        }
    }
    for (name, value) in settings {
        admin(&[&node[..], &["-o", "update", "-n", name, "-v", value]].concat())?;
    }
    if record.secret.is_some() {
        keep_secrets(target, portal, iface, &secret)?;
    }
    admin(&[&node[..], &["--login"]].concat())
}

/// Into the tool's own file, which only root reads: what is on a command line, everybody does.
fn keep_secrets(
    target: &str,
    portal: &str,
    iface: &str,
    secret: &crate::link::Secret,
) -> Result<(), WayError> {
    let failed = |error| WayError::System { what: "the settings of open-iscsi", error };
    let (host, port) = portal.rsplit_once(':').unwrap_or((portal, "3260"));
    let folders = ["/etc/iscsi/nodes", "/var/lib/iscsi/nodes"];
    let folder = folders.iter().map(|nodes| Path::new(nodes).join(target)).find(|it| it.exists());
    let folder = folder.ok_or_else(|| failed(std::io::ErrorKind::NotFound.into()))?;
    let entry = fs::read_dir(&folder).map_err(failed)?.flatten();
    let entry = entry.map(|entry| entry.path()).find(|path| {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        name.starts_with(&format!("{host},{port}"))
    });
    let entry = entry.ok_or_else(|| failed(std::io::ErrorKind::NotFound.into()))?;
    let file = if entry.is_dir() { entry.join(iface) } else { entry };
    let mut text = fs::read_to_string(&file).map_err(failed)?;
    let mut lines = vec![("node.session.auth.password", &secret.secret)];
    if !secret.mutual_secret.is_empty() {
        lines.push(("node.session.auth.password_in", &secret.mutual_secret));
    }
    let without = |text: &str, key: &str| -> String {
        let begins = format!("{key} =");
        text.lines()
            .filter(|line| !line.starts_with(&begins))
            .map(|line| format!("{line}\n"))
            .collect()
    };
    for (key, value) in lines {
        let line = format!("{key} = {value}\n");
        text = without(&text, key).replace("# END RECORD", &format!("{line}# END RECORD"));
    }
    fs::write(&file, text).map_err(failed)
}

/// Logs out, and forgets it. What is not there is no error.
fn end(target: &str) -> Result<(), WayError> {
    if session(target).is_some() {
        admin(&["-m", "node", "-T", target, "--logout"])?;
    }
    let begun = Instant::now();
    while session(target).is_some() {
        if begun.elapsed() > SHOWN_MAX {
            return Err(WayError::Iscsi(format!("the session with {target} does not end")));
        }
        thread::sleep(LOOK_EVERY);
    }
    // Not there any more, or never was: there is nothing to forget.
    let _ = admin(&["-m", "node", "-T", target, "-o", "delete"]);
    Ok(())
}

/// Logs out once everything is written. A session that is lost may come back: until it does, or until somebody gives
/// up what it has not written, the device stays.
fn leave(
    unwritten: Unwritten,
    write_back: impl FnOnce() -> Result<(), WayError>,
    log_out: impl FnOnce() -> Result<(), WayError>,
) -> Result<(), WayError> {
    match (write_back(), unwritten) {
        (Ok(()), _) => {}
        (Err(error), Unwritten::Drop) => warn!(%error, "it is given up"),
        (Err(error), Unwritten::Keep) => return Err(error),
    }
    log_out()
}

fn write_back(device: &Path, folder: &Folder) -> Result<(), WayError> {
    // The kernel counts no failed writes by themselves: what fails may be lost.
    super::write_back(device, folder, Instant::now() + WRITE_BACK_MAX, || true)
}

/// What a process that was killed left. A session that somebody uses stays, and so does what is known of it. The
/// kernel's session does not need the process: what it has not written yet still can be.
pub fn clean(record: &Record, folder: &Folder, unwritten: Unwritten) -> Result<(), WayError> {
    for device in super::devices(folder).iter().filter(|device| device.exists()) {
        let _alone = unused(device)?;
        leave(unwritten, || write_back(device, folder), || Ok(()))?;
    }
    // Of any stage: a login that was under way may have come to its end after its process.
    for target in sessions_of(&format!("{IQN}{}:stage.", record.volume)) {
        end(&target)?;
    }
    end(&target_name(record))
}

fn sessions_of(begins: &str) -> Vec<String> {
    let sessions = fs::read_dir("/sys/class/iscsi_session").into_iter().flatten().flatten();
    let names =
        sessions.filter_map(|entry| fs::read_to_string(entry.path().join("targetname")).ok());
    names.map(|name| name.trim_end().to_owned()).filter(|name| name.starts_with(begins)).collect()
}

/// The folder of a session in the kernel's tree.
fn session(target: &str) -> Option<PathBuf> {
    let sessions = fs::read_dir("/sys/class/iscsi_session").ok()?;
    let is_it = |folder: &PathBuf| {
        fs::read_to_string(folder.join("targetname")).is_ok_and(|name| name.trim_end() == target)
    };
    sessions.filter_map(|entry| Some(entry.ok()?.path())).find(is_it)
}

fn await_disk(target: &str) -> Result<PathBuf, WayError> {
    let begun = Instant::now();
    loop {
        if let Some(device) = session(target).and_then(|session| disk(&session)) {
            return Ok(device);
        }
        if begun.elapsed() > SHOWN_MAX {
            return Err(WayError::Iscsi(format!("the kernel shows no disk of {target}")));
        }
        thread::sleep(LOOK_EVERY);
    }
}

/// `device/target1:0:0/1:0:0:0/block/sda` of the session's folder.
fn disk(session: &Path) -> Option<PathBuf> {
    let within = |folder: PathBuf, begins: &'static str| {
        let entries = fs::read_dir(folder).into_iter().flatten().flatten();
        entries.map(|entry| entry.path()).filter(move |path| {
            path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(begins))
        })
    };
    let units = within(session.join("device"), "target").flat_map(|target| within(target, ""));
    let units = units.filter(|unit| unit.to_string_lossy().ends_with(":0"));
    let mut disks = units.flat_map(|unit| within(unit.join("block"), ""));
    let device = Path::new("/dev").join(disks.next()?.file_name()?);
    device.exists().then_some(device)
}

impl Attached for Attachment {
    fn device(&self) -> &Path {
        &self.device
    }

    fn size(&self) -> u64 {
        self.size
    }

    fn health(&self) -> Health {
        let state = session(&self.target).map(|it| fs::read_to_string(it.join("state")));
        match state {
            None => Health::Ended { reason: "the session is gone".into() },
            Some(Ok(state)) if state.trim_end() == "LOGGED_IN" => {
                Health::Up { target: self.target.clone() }
            }
            Some(state) => {
                let reason = format!("the session is {}", state.unwrap_or_default().trim_end());
                Health::Away { since_ms: 0, reason }
            }
        }
    }

    fn failed_writes(&self) -> Option<u64> {
        None
    }

    fn resize(&mut self) -> Result<(), WayError> {
        let name = self.device.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let rescanned = fs::write(format!("/sys/block/{name}/device/rescan"), "1");
        rescanned.map_err(|error| WayError::System { what: "the disk's size", error })?;
        self.size = self.read_size()?;
        Ok(())
    }

    fn close(&mut self) -> Result<(), WayError> {
        let alone = unused(&self.device)?;
        let log_out = || {
            drop(alone);
            end(&self.target)
        };
        leave(self.unwritten, || write_back(&self.device, &self.folder), log_out)
    }

    fn abandon(&mut self) {
        self.unwritten = Unwritten::Drop;
    }
}

#[cfg(test)]
mod tests;
