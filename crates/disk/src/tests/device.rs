//! Block devices, by way of loop devices, where the system lets us have them.
use std::process::Command;

use block::{IoMode, SectorSize};

use super::*;

const MIB: u64 = 1 << 20;

/// A loop device that is detached with the test.
struct Loop {
    device: PathBuf,
    _backing: Scratch,
}

impl Loop {
    fn attach(sector: SectorSize) -> Option<Loop> {
        let backing = Scratch::file(16 * MIB);
        let attached = Command::new("losetup")
            .args(["--find", "--show", "--sector-size"])
            .arg(sector.bytes().to_string())
            .arg(backing.path())
            .output();
        let reason = match attached {
            Ok(output) if output.status.success() => {
                let device = String::from_utf8(output.stdout).unwrap().trim().into();
                return Some(Loop { device, _backing: backing });
            }
            Ok(output) => String::from_utf8_lossy(&output.stderr).into_owned(),
            Err(error) => error.to_string(),
        };
        crate::skipped!("SKIPPED: no loop device (root is needed): {reason}");
        None
    }

    fn open(&self, options: &OpenOptions) -> FileDisk {
        // A child of another test may hold copies of our descriptors between fork and exec.
        for _ in 0..100 {
            match crate::open(&self.device, options) {
                Err(error) if error.is_transient() => {
                    std::thread::sleep(Duration::from_millis(20));
                }
                other => return other.unwrap(),
            }
        }
        panic!("{} stays in use", self.device.display());
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let detached = Command::new("losetup").arg("--detach").arg(&self.device).status();
        if !detached.is_ok_and(|status| status.success()) {
            eprintln!("{} could not be detached", self.device.display());
        }
    }
}

/// Protects from a device that is taken for a file in memory, since its node lies in one: the owner
/// would wait for each IO of it.
#[test]
fn nobody_waits_for_a_device() {
    let Some(loop_device) = Loop::attach(SectorSize::B512) else { return };
    let disk = loop_device.open(&OpenOptions::default());
    assert_ne!(disk.backend(), "calls");
}

/// Protects from a device that is used with the wrong size or sector, or not at all.
#[test]
fn a_block_device_is_read_written_flushed_and_trimmed() {
    for sector in [SectorSize::B512, SectorSize::B4096] {
        let Some(device) = Loop::attach(sector) else {
            return;
        };
        with_each_backend(|options| {
            let mut disk = device.open(options);
            let geometry = disk.geometry();
            assert_eq!(geometry.size, ByteLen(16 * MIB));
            assert_eq!(geometry.sector, sector);
            assert_eq!(geometry.mode, IoMode::Direct);
            assert!(matches!(perform(&mut disk, write(0, 4, 65_536)), Ok(Done::Written)));
            assert!(matches!(perform(&mut disk, Io::Flush), Ok(Done::Flushed)));
            assert!(matches!(perform(&mut disk, trim(8192, 4096)), Ok(Done::Trimmed)));
            let found = bytes(&mut disk, 0, 65_536);
            assert!(found[..8192].iter().all(|&b| b == 4));
            assert!(found[12_288..].iter().all(|&b| b == 4));
            let kind = kind_of_failure(&mut disk, write(16 * MIB, 1, 4096));
            assert_eq!(kind, DiskErrorKind::OutOfRange);
        });
    }
}

/// Protects from trims, which a ring hands to a thread, that are lost among other IO.
#[test]
fn trims_of_a_device_complete_among_other_io() {
    let Some(device) = Loop::attach(SectorSize::B512) else {
        return;
    };
    with_each_backend(|options| {
        let depth = 4;
        let mut disk = device.open(&OpenOptions { depth, ..options.clone() });
        for round in 0..3 {
            for number in 0..100 {
                let io = match number % 3 {
                    0 => trim(number * 65_536, 65_536),
                    1 => write(number * 65_536, 3, 65_536),
                    _ => read(number * 65_536, 65_536),
                };
                disk.submit(IoId(number), io);
            }
            let results = match round {
                0 => wait_for(&mut disk, 100),
                _ => {
                    disk.kick();
                    let polled = (0..100).map(|_| poll(&mut disk));
                    polled.map(|done| (done.id, done.result)).collect()
                }
            };
            assert_eq!(results.len(), 100);
            assert!(results.values().all(Result::is_ok), "{results:?}");
        }
        for number in 0..10 {
            disk.submit(IoId(number), trim(number * MIB, MIB));
        }
        disk.kick();
        drop(disk);
    });
}

/// Protects from two writers on one device, and from writing below a mounted file system.
#[test]
fn a_device_that_somebody_claimed_is_in_use() {
    use std::os::unix::fs::OpenOptionsExt;
    let Some(device) = Loop::attach(SectorSize::B512) else {
        return;
    };
    let options = OpenOptions::default();
    let disk = device.open(&options);
    let error = crate::open(&device.device, &options).unwrap_err();
    assert!(matches!(error, OpenError::InUse { .. }), "{error}");
    drop(disk);
    drop(device.open(&options));
    // What mounting does: it needs no lock, only the claim.
    let claim = std::fs::File::options()
        .read(true)
        .custom_flags(libc::O_EXCL)
        .open(&device.device)
        .unwrap();
    let error = crate::open(&device.device, &options).unwrap_err();
    assert!(matches!(error, OpenError::InUse { .. }), "{error}");
    drop(claim);
    drop(device.open(&options));
}
