//! This program beside an older one of ours: two sites of the same shape, measured in alternation.
//!
//! A change that costs speed shows here even where both are faster than every other server. The
//! client side is the same for both, so the older program has to understand today's catalog and
//! admin calls.
use std::path::Path;

use anyhow::{Context, Result, ensure};

use super::comparison::{Comparison, Goals};
use super::lines::Line;
use super::site::{Site, Wire};
use super::target_area::{ISCSI, NBD, POOL, QUORUM, Run, VOLUME};

/// No line may be worse than the older program's by more than a tenth.
const GOALS: Goals = Goals { speed: 0.9, cpu: None };

impl Run<'_> {
    pub(super) fn beside_older(&self, older: &Path) -> Result<Vec<Line>> {
        let older = older.canonicalize().with_context(|| format!("{}", older.display()))?;
        ensure!(older.is_file(), "{} is not a program", older.display());
        let mut lines = self.of_shape(&older, 1, &[(ISCSI, Wire::Iscsi), (NBD, Wire::Nbd)])?;
        lines.extend(self.of_shape(&older, 3, &[(QUORUM, Wire::Nbd)])?);
        Ok(lines)
    }

    fn of_shape(
        &self,
        older: &Path,
        nodes: u64,
        parts: &[(&'static str, Wire)],
    ) -> Result<Vec<Line>> {
        let wanted: Vec<_> = parts.iter().filter(|(part, _)| self.wants(part)).collect();
        if wanted.is_empty() {
            return Ok(Vec::new());
        }
        self.arena.need(2 * nodes * POOL + POOL)?;
        let newer = self.site(&rig::process::pollux(), "newer", nodes)?;
        let older = self.site(older, "older", nodes)?;
        let mut lines = Vec::new();
        for (part, wire) in wanted {
            let ours = newer.server("pollux", *wire, "disk", 1)?;
            let other = older.server("older", *wire, "disk", 1)?;
            let (content, effort) = (self.content, self.effort);
            let part = Comparison { part, ours, others: vec![(other, GOALS)], content, effort };
            let measured = self.explained(&newer, part.run(self.only));
            lines.extend(self.explained(&older, measured)?);
        }
        newer.ensure_healthy("disk")?;
        older.ensure_healthy("disk")?;
        Ok(lines)
    }

    /// A site of one program, with a volume that has used all of its pools.
    fn site(&self, program: &Path, name: &str, nodes: u64) -> Result<Site> {
        let site = Site::of_program(program, self.arena, name, nodes, POOL)?;
        let all: Vec<u64> = (1..=nodes).collect();
        site.create("disk", 0, VOLUME, &all)?;
        site.wait_healthy("disk", all.len())?;
        let filled = self.go_round(&site.server("fill", Wire::Nbd, "disk", 1)?);
        self.explained(&site, filled)?;
        Ok(site)
    }
}
