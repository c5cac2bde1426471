//! What an unstage says of writes that failed, with a process that counts them.
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use super::*;
use crate::host::Host;
use crate::orders::{Reply, Status};
use crate::record::SiteAt;

const UID: &str = "a0";

/// A machine with one attachment, whose process has failed as many writes as `failed_writes` says.
struct Machine {
    state: PathBuf,
    claim: Claim,
    mounted: Mount,
    failed_writes: Arc<AtomicU64>,
}

impl Machine {
    fn new(name: &str) -> Machine {
        // What is in memory only has nothing to sync: a disk of this machine may be busy.
        let memory = Path::new("/dev/shm");
        let place = if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() };
        let state = place.join(format!("pollux-flush-{name}-{}", std::process::id()));
        // Of an earlier run.
        let _ = fs::remove_dir_all(&state);
        let host = Host { state: state.clone(), program: PathBuf::new() };
        let claim = host.claim(UID).expect("nobody else has it");
        claim.folder.write(&record()).expect("a record");
        let failed_writes = Arc::new(AtomicU64::new(0));
        let listener = UnixListener::bind(claim.folder.orders()).expect("a socket");
        let counted = Arc::clone(&failed_writes);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let status = || Reply::Done(status(counted.load(Ordering::SeqCst)));
                // Whoever asked may not wait for the answer.
                let _ = orders::answer(stream, |_| status());
            }
        });
        let mounted = Mount {
            device: "0:0".into(),
            root: "/".into(),
            at: claim.folder.0.clone(),
            read_only: false,
            is_shut: false,
            options: "rw".into(),
            kind: "ext4".into(),
            source: "/dev/pollux-test".into(),
        };
        Machine { state, claim, mounted, failed_writes }
    }

    fn fail_write(&self) {
        self.failed_writes.fetch_add(1, Ordering::SeqCst);
    }

    fn unstage(&self, unmount: impl FnOnce()) -> Result<(), HostError> {
        let unmount = || {
            unmount();
            Ok(())
        };
        self.claim.unmount_written(&self.mounted, unmount)
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        // It is in a folder for temporary files.
        let _ = fs::remove_dir_all(&self.state);
    }
}

fn record() -> Record {
    let site = SiteAt { api: String::new(), token_file: PathBuf::new(), ca: None };
    Record {
        volume: "db".into(),
        uid: UID.into(),
        initiator: "iqn.test:host".into(),
        stage: 1,
        way: Way::Nbd,
        why: "it was asked for".into(),
        read_only: false,
        patience_ms: 20_000,
        secret: None,
        site,
    }
}

fn status(failed_writes: u64) -> Status {
    Status {
        device: "/dev/pollux-test".into(),
        way: Way::Nbd,
        why: "it was asked for".into(),
        stage: 1,
        size: 1 << 20,
        health: Health::Up { target: "node-1".into() },
        process: 1,
        failed_writes: Some(failed_writes),
    }
}

fn assert_lost(result: Result<(), HostError>) {
    assert!(matches!(&result, Err(HostError::Unwritten { .. })), "{result:?}");
}

/// The kernel does not say that an unmount dropped something.
#[test]
fn a_write_that_fails_between_the_sync_and_the_unmount_is_reported() {
    let machine = Machine::new("unmount");
    assert_lost(machine.unstage(|| machine.fail_write()));
    // Nor does it when it is asked again, until somebody gives the writes up.
    assert_lost(machine.unstage(|| panic!("it is not unmounted")));
    assert_lost(machine.claim.detach());
}

#[test]
fn a_write_that_fails_before_the_sync_and_that_no_sync_reports_is_not_lost() {
    let machine = Machine::new("told");
    // With direct IO the program was told, and may have written it again.
    machine.fail_write();
    machine.unstage(|| ()).expect("everything is written");
    assert!(!machine.claim.folder.unsettled().exists());
}

/// The kernel may have told the loss to whoever was killed, and does not repeat it.
#[test]
fn a_failed_write_is_lost_if_an_unstage_was_cut_off() {
    let machine = Machine::new("cut-off");
    let mark = machine.claim.folder.unsettled();
    fs::write(&mark, "").expect("as a killed driver leaves it");
    machine.unstage(|| assert!(mark.exists(), "the next one may be killed too")).expect("written");
    assert!(!mark.exists(), "no write had failed");
    fs::write(&mark, "").expect("as a killed driver leaves it");
    machine.fail_write();
    // The mount may be gone already.
    assert_lost(machine.claim.detach());
    fs::remove_file(&mark).expect("it is there");
    assert_lost(machine.unstage(|| panic!("it is not unmounted")));
}

/// Protects from failures that a program is told of later, in a mount that is still in use.
#[test]
fn an_unmount_that_is_refused_leaves_no_mark() {
    let machine = Machine::new("busy");
    let busy = || Err(HostError::Worked { path: machine.mounted.at.clone() });
    let refused = machine.claim.unmount_written(&machine.mounted, busy);
    assert!(matches!(refused, Err(HostError::Worked { .. })), "{refused:?}");
    machine.fail_write();
    machine.unstage(|| ()).expect("everything is written");
}
