//! What attachments leave on a machine when they are not given back, as the kernel tells it.
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

/// Where the driver keeps note of attachments, within the folder of a site.
pub const STATE: &str = "attachments";

/// Everything below this folder that is still there, in words.
pub fn below(folder: &Path) -> Result<Vec<String>> {
    // The kernel tells paths without links in them.
    let folder = folder.canonicalize()?;
    let mut left: Vec<String> = Vec::new();
    left.extend(mounts(&folder)?.iter().map(|at| format!("a mount at {}", at.display())));
    left.extend(loops(&folder)?.iter().map(|device| format!("the device {}", device.display())));
    left.extend(processes(&folder)?.iter().map(|pid| format!("the process {pid}")));
    left.extend(records(&folder)?.iter().map(|path| format!("the record {}", path.display())));
    Ok(left)
}

/// Ends all of that, so that the folder can be removed without the volumes' files.
pub fn sweep(folder: &Path) -> Result<()> {
    let folder = folder.canonicalize()?;
    for at in mounts(&folder)?.iter().rev() {
        run(Command::new("umount").arg("--lazy").arg(at))?;
    }
    for device in loops(&folder)? {
        run(Command::new("losetup").arg("--detach").arg(device))?;
    }
    for pid in processes(&folder)? {
        run(Command::new("kill").arg("-KILL").arg(pid.to_string()))?;
    }
    Ok(())
}

/// Whether it works or not, the rest has to be swept too; what it says is for people.
fn run(command: &mut Command) -> Result<()> {
    let status = command.status().with_context(|| format!("{command:?}"))?;
    if !status.success() {
        println!("{command:?}: {status}");
    }
    Ok(())
}

fn mounts(folder: &Path) -> Result<Vec<PathBuf>> {
    Ok(mounts_in(&fs::read_to_string("/proc/self/mountinfo")?, folder))
}

/// The fifth word of a line is where it is mounted. Spaces are written in octal; folders of sites have none.
fn mounts_in(table: &str, folder: &Path) -> Vec<PathBuf> {
    let at = table.lines().filter_map(|line| line.split(' ').nth(4));
    at.map(PathBuf::from).filter(|at| at.starts_with(folder)).collect()
}

/// Loop devices of files in this folder.
fn loops(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/sys/block")? {
        let name = entry?.file_name();
        let file = Path::new("/sys/block").join(&name).join("loop/backing_file");
        // Others have no such file, and a device that is not used has none either.
        let file = fs::read_to_string(file).unwrap_or_default();
        if Path::new(file.trim_end()).starts_with(folder) {
            found.push(Path::new("/dev").join(name));
        }
    }
    Ok(found)
}

/// Processes of attachments whose folder is below this one.
fn processes(folder: &Path) -> Result<Vec<u32>> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc")? {
        let Some(pid) = entry?.file_name().to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        // It may have ended since it was listed.
        let words = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        if is_attachment(&words, folder) {
            found.push(pid);
        }
    }
    Ok(found)
}

/// `pollux serve attachment --folder FOLDER`, with a zero behind each word.
fn is_attachment(words: &[u8], folder: &Path) -> bool {
    let words: Vec<String> = words
        .split(|byte| *byte == 0)
        .map(|word| String::from_utf8_lossy(word).into_owned())
        .collect();
    words.windows(2).any(|pair| pair[0] == "serve" && pair[1] == "attachment")
        && words.iter().any(|word| Path::new(word).starts_with(folder))
}

fn records(folder: &Path) -> Result<Vec<PathBuf>> {
    let entries = match fs::read_dir(folder.join(STATE)) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error.into()),
    };
    Ok(entries.map(|entry| entry.map(|it| it.path())).collect::<io::Result<_>>()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounts_below_a_folder_are_found() {
        let table = "22 1 8:1 / / rw - ext4 /dev/root rw\n\
                     40 22 7:0 / /tmp/site/staging rw,noatime master:1 - ext4 /dev/loop0 rw\n\
                     41 22 7:0 / /tmp/sites rw - ext4 /dev/loop1 rw\n";
        assert_eq!(mounts_in(table, Path::new("/tmp/site")), [Path::new("/tmp/site/staging")]);
    }

    #[test]
    fn only_processes_of_attachments_below_a_folder_are_meant() {
        let folder = Path::new("/tmp/site");
        assert!(is_attachment(
            b"/bin/pollux\0serve\0attachment\0--folder\0/tmp/site/a/b\0",
            folder
        ));
        for other in [
            &b"/bin/pollux\0serve\0csi\0--state\0/tmp/site/a\0"[..],
            b"/bin/pollux\0serve\0attachment\0--folder\0/tmp/sites/a\0",
            b"",
        ] {
            assert!(!is_attachment(other, folder));
        }
    }

    #[test]
    fn a_record_that_was_left_is_found() {
        let folder = std::env::temp_dir().join(format!("pollux-remains-{}", std::process::id()));
        fs::create_dir_all(folder.join(STATE)).unwrap();
        assert_eq!(below(&folder).unwrap(), Vec::<String>::new());
        fs::create_dir(folder.join(STATE).join("0123")).unwrap();
        assert_eq!(below(&folder).unwrap().len(), 1);
        fs::remove_dir_all(&folder).unwrap();
    }
}
