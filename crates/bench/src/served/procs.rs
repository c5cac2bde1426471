//! What the kernel tells of processes and of the machine.
use std::collections::HashSet;
use std::fs;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

/// All processes of some process groups: a server, with whatever it started.
pub struct Processes(Vec<u32>);

impl Processes {
    pub fn of_groups(groups: &[u32]) -> Result<Processes> {
        let groups: HashSet<u64> = groups.iter().copied().map(u64::from).collect();
        let mut found = Vec::new();
        for entry in fs::read_dir("/proc")? {
            let name = entry?.file_name();
            let Some(pid) = name.to_str().and_then(|name| name.parse().ok()) else { continue };
            // Whoever ends meanwhile is none of ours.
            let Ok(stat) = Stat::of(pid) else { continue };
            if groups.contains(&stat.group) {
                found.push(pid);
            }
        }
        ensure!(found.len() >= groups.len(), "a server is not there any more");
        Ok(Processes(found))
    }

    /// User and system time of all their threads, those that ended included. The kernel tells it
    /// in hundredths of a second.
    pub fn cpu(&self) -> Result<Duration> {
        let ticks = self.0.iter().map(|pid| Ok(Stat::of(*pid)?.ticks)).sum::<Result<u64>>()?;
        let seconds = ticks as f64 / rustix::param::clock_ticks_per_second() as f64;
        Ok(Duration::from_secs_f64(seconds))
    }

    pub fn memory(&self) -> Result<Memory> {
        let mut all = Memory::default();
        for pid in &self.0 {
            let rollup = fs::read_to_string(format!("/proc/{pid}/smaps_rollup"))?;
            all.resident += kib(&rollup, "Rss:")?;
            all.share += kib(&rollup, "Pss:")?;
        }
        Ok(all)
    }
}

#[derive(Clone, Copy, Debug, Default)]
pub struct Memory {
    /// Bytes that are in memory.
    pub resident: u64,
    /// The same, with what several processes have divided among them.
    pub share: u64,
}

fn kib(text: &str, key: &str) -> Result<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(key));
    let number = line.and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok());
    Ok(number.with_context(|| format!("the kernel tells no {key}"))? << 10)
}

/// Bytes that programs and files in memory may still take.
pub fn memory_available() -> Result<u64> {
    kib(&fs::read_to_string("/proc/meminfo")?, "MemAvailable:")
}

struct Stat {
    group: u64,
    ticks: u64,
}

impl Stat {
    fn of(pid: u32) -> Result<Stat> {
        let text = fs::read_to_string(format!("/proc/{pid}/stat"))
            .with_context(|| format!("process {pid} of a server is gone"))?;
        Stat::parse(&text).with_context(|| format!("a strange stat of process {pid}: {text}"))
    }

    /// The name of a program may have anything in it, also blanks and brackets.
    fn parse(text: &str) -> Option<Stat> {
        let (_, rest) = text.rsplit_once(')')?;
        let fields: Vec<&str> = rest.split_whitespace().collect();
        let field = |at: usize| fields.get(at)?.parse::<u64>().ok();
        Some(Stat { group: field(2)?, ticks: field(11)? + field(12)? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_brackets_does_not_confuse() {
        let text = "42 (a) b) (c) S 1 77 520 0 -1 4194304 248 0 6 0 12 30 0 0 20 0 1";
        let stat = Stat::parse(text).unwrap();
        assert_eq!((stat.group, stat.ticks), (77, 42));
        assert!(Stat::parse("42 (a").is_none());
    }

    #[test]
    fn this_process_is_found_and_has_memory() {
        let group = rustix::process::getpgrp().as_raw_nonzero().get();
        let processes = Processes::of_groups(&[u32::try_from(group).unwrap()]).unwrap();
        assert!(processes.0.contains(&std::process::id()));
        assert!(processes.memory().unwrap().resident > 1 << 20);
        assert!(processes.cpu().is_ok());
    }
}
