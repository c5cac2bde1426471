//! Pools whose device failed a write or a flush, as the node remembers them (P8).
//!
//! A device that failed may have lost what it completed before. The kernel's boot id does not tell: the
//! node that opens such a pool again, on the same machine, would take its copies for copies that lost
//! nothing. So every failure is noted, and a pool is another device behind it.
//!
//! One line for each failure, the pool's uuid in hexadecimal digits. A line that was cut short counts for
//! every pool that it may be of.
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

#[derive(Clone, Debug)]
pub struct Failures {
    folder: PathBuf,
}

impl Failures {
    /// The folder has to be there.
    pub fn open(state: &Path) -> Failures {
        Failures { folder: state.to_path_buf() }
    }

    fn path(&self) -> PathBuf {
        self.folder.join("failures")
    }

    /// Durable when it returns.
    pub fn note(&self, pool: [u8; 16]) -> io::Result<()> {
        let mut file = OpenOptions::new().create(true).append(true).open(self.path())?;
        // One that was cut short ends with this one at the latest.
        file.write_all(format!("\n{}\n", digits(pool)).as_bytes())?;
        file.sync_all()?;
        File::open(&self.folder)?.sync_all()
    }

    /// What tells this device from others, and from itself before it failed.
    pub fn device(&self, pool: [u8; 16]) -> io::Result<u128> {
        let noted = match fs::read_to_string(self.path()) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
            other => other?,
        };
        let digits = digits(pool);
        let lines = noted.lines().filter(|line| !line.is_empty() && digits.starts_with(line));
        let failures = u128::try_from(lines.count()).expect("a usize is smaller");
        Ok(u128::from_le_bytes(pool).wrapping_add(failures))
    }
}

fn digits(pool: [u8; 16]) -> String {
    format!("{:032x}", u128::from_be_bytes(pool))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pool_is_another_device_behind_each_failure() {
        let folder = std::env::temp_dir().join(format!("pollux-failures-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let (failures, pool, other) = (Failures::open(&folder), [7; 16], [8; 16]);
        let before = failures.device(pool).unwrap();
        failures.note(pool).unwrap();
        let once = failures.device(pool).unwrap();
        failures.note(pool).unwrap();
        let twice = failures.device(pool).unwrap();
        assert!(before != once && once != twice && before != twice);
        assert_eq!(failures.device(other).unwrap(), u128::from_le_bytes(other));

        let mut file = OpenOptions::new().append(true).open(failures.path()).unwrap();
        file.write_all(&digits(other).as_bytes()[..5]).unwrap();
        assert_ne!(failures.device(other).unwrap(), u128::from_le_bytes(other), "half a line");
        failures.note(pool).unwrap();
        assert_ne!(failures.device(pool).unwrap(), twice, "behind half a line");
        fs::remove_dir_all(&folder).unwrap();
    }
}
