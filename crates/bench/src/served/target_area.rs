//! Served volumes beside other servers, part by part; each part has files of its own.
use std::path::Path;
use std::time::Duration;

use anyhow::Result;
use serde::Serialize;

use super::Settings;
use super::arena::Arena;
use super::comparison::{Comparison, Effort, Goals, fill, name};
use super::content::Content;
use super::lines::{self, Line};
use super::noise::Noise;
use super::peers;
use super::points::POINTS;
use super::server::Server;
use super::site::{Site, Wire};
use super::slow_replica;
use crate::place::{self, Machine};
use crate::table;

const GIB: u64 = 1 << 30;
pub(super) const VOLUME: u64 = GIB;
/// Copy on write goes through all of a pool, so this is what it takes in the end. Two thirds are in
/// use, as in a pool that somebody pays for. More would measure the machine: memory that was not
/// touched for a while is slow to write here, and others have files of the volume's size.
pub(super) const POOL: u64 = 3 * GIB / 2;

const QUICK: Effort =
    Effort { rounds: 3, warm_up: Duration::from_millis(200), round: Duration::from_secs(1) };
const FULL: Effort =
    Effort { rounds: 5, warm_up: Duration::from_millis(300), round: Duration::from_secs(2) };

pub(super) const ISCSI: &str = "iscsi";
pub(super) const NBD: &str = "nbd";
pub(super) const QUORUM: &str = "quorum";

#[derive(Serialize)]
struct Report {
    area: &'static str,
    quick: bool,
    unix_seconds: u64,
    machine: Machine,
    /// Percent of the machine's time that its host gave to others, over the whole run.
    stolen: f64,
    lines: Vec<Line>,
    slow_replica: Vec<slow_replica::Line>,
}

pub(super) struct Run<'a> {
    pub arena: &'a Arena,
    pub content: &'a Content,
    pub effort: Effort,
    pub only: &'a str,
}

pub fn effort(quick: bool) -> Effort {
    if quick { QUICK } else { FULL }
}

pub fn run(settings: &Settings, only: &str, against: Option<&Path>) -> Result<()> {
    let arena = Arena::open(settings.dir.as_deref())?;
    let noise = Noise::begin()?;
    let machine = Machine::with(place::file_system(arena.folder())?);
    println!(
        "{} ({}), {} cores, Linux {}, load {}",
        arena.folder().display(),
        machine.fs,
        machine.cores,
        machine.kernel,
        std::fs::read_to_string("/proc/loadavg").unwrap_or_default().trim()
    );
    let run = Run { arena: &arena, content: &Content::new(), effort: effort(settings.quick), only };
    let (lines, slow_replica) = match against {
        Some(older) => (run.beside_older(older)?, Vec::new()),
        None => {
            let mut lines = run.one_replica()?;
            lines.extend(run.three_replicas()?);
            (lines, slow_replica::run(&arena, run.effort, run.content, only)?)
        }
    };
    let report = Report {
        area: "target",
        quick: settings.quick,
        unix_seconds: table::unix_seconds(),
        machine,
        stolen: noise.end(Duration::ZERO)?.stolen,
        lines,
        slow_replica,
    };
    if !report.lines.is_empty() {
        println!("{}", lines::table(&report.lines));
    }
    if !report.slow_replica.is_empty() {
        println!("{}", lines::slow_table(&report.slow_replica));
    }
    println!("noise: what the host took, and what other processes took, in the worst round");
    println!("the host took {:.1} % of the machine's time", report.stolen);
    table::save(settings.json.as_deref(), &report)
}

impl Run<'_> {
    pub(super) fn wants(&self, part: &str) -> bool {
        POINTS.iter().any(|point| name(part, point).contains(self.only))
    }

    fn one_replica(&self) -> Result<Vec<Line>> {
        if !self.wants(ISCSI) && !self.wants(NBD) {
            return Ok(Vec::new());
        }
        self.arena.need(POOL + 2 * VOLUME + GIB)?;
        let site = Site::start(self.arena, "one", 1, POOL)?;
        site.create("disk", 0, VOLUME, &[1])?;
        site.wait_healthy("disk", 1)?;
        let lines = self.beside_single_servers(&site);
        self.explained(&site, lines)
    }

    fn beside_single_servers(&self, site: &Site) -> Result<Vec<Line>> {
        let ours = |wire| site.server("pollux", wire, "disk", 1);
        self.go_round(&ours(Wire::Nbd)?)?;
        let (arena, content, effort) = (self.arena, self.content, self.effort);
        let mut lines = Vec::new();
        if self.wants(ISCSI) {
            let tgt = |name, store| peers::tgt(arena, name, store, VOLUME, content);
            let others = vec![
                (tgt("tgt rdwr", "rdwr")?, Goals { speed: 1.5, cpu: None }),
                (tgt("tgt aio", "aio")?, Goals { speed: 1.0, cpu: Some(0.8) }),
            ];
            let ours = ours(Wire::Iscsi)?;
            let part = Comparison { part: ISCSI, ours, others, content, effort };
            lines.extend(part.run(self.only)?);
        }
        if self.wants(NBD) {
            let others = vec![
                (peers::nbdkit(arena, VOLUME, content)?, Goals { speed: 0.9, cpu: None }),
                (peers::qemu_nbd(arena, VOLUME, content)?, Goals { speed: 1.5, cpu: None }),
            ];
            let ours = ours(Wire::Nbd)?;
            let part = Comparison { part: NBD, ours, others, content, effort };
            lines.extend(part.run(self.only)?);
        }
        Ok(lines)
    }

    fn three_replicas(&self) -> Result<Vec<Line>> {
        if !self.wants(QUORUM) {
            return Ok(Vec::new());
        }
        self.arena.need(3 * POOL + 3 * VOLUME + GIB)?;
        let site = Site::start(self.arena, "three", 3, POOL)?;
        site.create("disk", 0, VOLUME, &[1, 2, 3])?;
        site.wait_healthy("disk", 3)?;
        let lines = self.beside_quorum(&site);
        self.explained(&site, lines)
    }

    fn beside_quorum(&self, site: &Site) -> Result<Vec<Line>> {
        let ours = site.server("pollux", Wire::Nbd, "disk", 1)?;
        self.go_round(&ours)?;
        let other = peers::qemu_quorum(self.arena, VOLUME, self.content)?;
        let others = vec![(other, Goals { speed: 2.0, cpu: None })];
        let (content, effort) = (self.content, self.effort);
        let lines = Comparison { part: QUORUM, ours, others, content, effort }.run(self.only)?;
        site.ensure_healthy("disk")?;
        Ok(lines)
    }

    /// Writes the volume as often as it takes to have used all of the pool: files of others have all
    /// of their memory before they are measured.
    pub(super) fn go_round(&self, ours: &Server) -> Result<()> {
        (0..POOL.div_ceil(VOLUME)).try_for_each(|_| fill(ours, VOLUME, self.content))
    }

    /// A failure with what the processes of the site said.
    pub(super) fn explained<T>(&self, site: &Site, outcome: Result<T>) -> Result<T> {
        outcome.inspect_err(|_| eprintln!("{}", site.last_words()))
    }
}
