//! Reading everything and comparing it with its checksums; mending what can be mended.
mod donor;

use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use block::ByteLen;
use comfy_table::Table;
use disk::FileDisk;
use engine::{Damage, Part, Pool, ScrubStatus};
use serde::Serialize;

use crate::cli::Scrub;
use crate::offline::{Contents, about, change};
use crate::render::{self, Answer, Output};
use crate::transfer::Meter;
use donor::Donor;

/// Between two looks at the clock: short enough for an even pace.
const TICK: Duration = Duration::from_millis(20);

#[derive(Debug, Serialize)]
struct DamageAnswer {
    /// What is damaged: "superblock", "journal", "directory", "space", "map" or "data".
    part: &'static str,
    /// Volumes and snapshots that have it.
    owners: Vec<String>,
    /// Where in all of them, for data.
    offset: Option<u64>,
    /// Where on the device.
    device_offset: u64,
    len: u64,
    repaired: bool,
}

#[derive(Debug, Serialize)]
struct ScrubAnswer {
    path: String,
    verified: u64,
    repaired: u64,
    left: u64,
    damages: Vec<DamageAnswer>,
    /// Those that are not listed.
    more_damages: u64,
}

impl Answer for ScrubAnswer {
    fn table(&self) -> Table {
        let verdict = match (self.repaired, self.left) {
            (0, 0) => "no damage".to_owned(),
            (repaired, 0) => format!("{repaired} damages, all repaired"),
            (repaired, left) => format!("{left} damages, {repaired} others repaired"),
        };
        let mut table = render::facts([
            ("pool", self.path.clone()),
            ("verified", ByteLen(self.verified).to_string()),
            ("verdict", verdict),
        ]);
        for damage in &self.damages {
            let what = if damage.repaired { "repaired" } else { "damage" };
            table.add_row([what.to_owned(), damage.text()]);
        }
        if self.more_damages > 0 {
            table.add_row(["damage".to_owned(), format!("and {} more", self.more_damages)]);
        }
        table
    }
}

impl DamageAnswer {
    fn new(contents: &Contents, damage: &Damage) -> DamageAnswer {
        let (part, owners, offset) = match &damage.part {
            Part::Superblock => ("superblock", Vec::new(), None),
            Part::Journal => ("journal", Vec::new(), None),
            Part::Directory => ("directory", Vec::new(), None),
            Part::SpaceMap => ("space", Vec::new(), None),
            Part::Map { of } => ("map", of.iter().copied().collect(), None),
            Part::Data { offset, owners } => ("data", owners.clone(), Some(offset.0)),
        };
        DamageAnswer {
            part,
            owners: owners.into_iter().map(|of| contents.name_of(of)).collect(),
            offset,
            device_offset: damage.at.0,
            len: damage.len.0,
            repaired: damage.repaired,
        }
    }

    fn text(&self) -> String {
        let mut text = self.part.to_owned();
        if !self.owners.is_empty() {
            text += &format!(" of {}", self.owners.join(", "));
        }
        if let Some(offset) = self.offset {
            text += &format!(", byte {offset}");
        }
        text + &format!(" (byte {} of the device, {})", self.device_offset, ByteLen(self.len))
    }
}

pub fn run(scrub: &Scrub, output: Output) -> Result<ExitCode> {
    let Scrub { path, rate, repair_from, quiet } = scrub;
    let mut donor = match repair_from {
        Some(from) => Some(Donor::open(from, path)?),
        None => None,
    };
    let contents = Contents::of(path)?;
    let status = change(path, |pool| {
        loop {
            let mut status = verify(path, pool, rate.map(u64::from), *quiet)?;
            let mended =
                donor.as_mut().map_or(0, |donor| mend(pool, &contents, donor, &mut status));
            if status.more_damages == 0 || mended == 0 {
                return Ok(status);
            }
            // More than can be listed: what was mended makes room for the next.
        }
    })?;
    let listed = status.damages.iter().filter(|damage| !damage.repaired).count() as u64;
    let answer = ScrubAnswer {
        path: path.display().to_string(),
        verified: status.verified.0,
        repaired: status.repaired,
        left: listed + status.more_damages,
        damages: status.damages.iter().map(|damage| DamageAnswer::new(&contents, damage)).collect(),
        more_damages: status.more_damages,
    };
    render::show(&answer, output)?;
    match (answer.left, repair_from) {
        (0, _) => Ok(ExitCode::SUCCESS),
        (left, None) => bail!(about(
            path,
            format!(
                "{left} damages cannot be mended from here: name another pool that has the same \
                 volumes with --repair-from, or rebuild this one from a good copy"
            )
        )),
        (left, Some(from)) => bail!(about(
            path,
            format!(
                "{left} damages cannot be mended: {} does not have the same bytes; rebuild from a \
                 good copy",
                from.display()
            )
        )),
    }
}

/// Reads everything, at most so many MiB in a second.
fn verify(
    path: &Path,
    pool: &mut Pool<FileDisk>,
    rate: Option<u64>,
    quiet: bool,
) -> Result<ScrubStatus> {
    pool.begin_scrub();
    let total = pool.scrub().map(|status| status.total);
    let meter = Meter::new(quiet, "scrubbing", total);
    let (begun, mut allowed) = (Instant::now(), 0);
    loop {
        let due = match rate {
            None => u64::MAX,
            Some(rate) => {
                let per_tick = u128::from(rate << 20) * TICK.as_micros();
                let passed = begun.elapsed().as_micros() / TICK.as_micros() + 1;
                u64::try_from(per_tick * passed / 1_000_000).unwrap_or(u64::MAX)
            }
        };
        // A batch is read as a whole, whatever is left of the allowance: that is paid back.
        let verified = pool.scrub().map_or(0, |status| status.verified.0);
        match due.saturating_sub(verified.max(allowed)) {
            0 if verified >= allowed => std::thread::sleep(TICK),
            more => pool.allow_scrub(ByteLen(more)),
        }
        allowed = allowed.max(due);
        pool.poll();
        if let Some(reason) = pool.info().failed {
            bail!(about(path, reason));
        }
        let Some(status) = pool.scrub() else { bail!("a scrub that was begun is gone") };
        meter.reached(status.verified.0);
        if status.finished {
            return Ok(status.clone());
        }
        pool.wait();
    }
}

/// How many damages of those that are listed another pool could mend.
fn mend(
    pool: &mut Pool<FileDisk>,
    contents: &Contents,
    donor: &mut Donor,
    status: &mut ScrubStatus,
) -> u64 {
    let mut mended = 0;
    for damage in status.damages.iter_mut().filter(|damage| !damage.repaired) {
        if let Part::Data { offset, owners } = &damage.part
            && donor.mend(pool, contents, owners, *offset)
        {
            damage.repaired = true;
            mended += 1;
        }
    }
    status.repaired += mended;
    mended
}
