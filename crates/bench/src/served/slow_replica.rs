//! What one slow replica of three costs the writes of a volume: nothing, if a quorum is enough.
//!
//! One node serves two volumes. One has three replicas close by; of the other, one replica is
//! behind a long wire. Both are asked for the same, paced, in turns; the slow replica has to stay
//! a healthy member all the time.
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde::Serialize;
use sim::Rng;

use super::arena::Arena;
use super::comparison::{Effort, Measured, fill};
use super::content::Content;
use super::delay::Detour;
use super::lines::Latency;
use super::noise::Noise;
use super::pace::{LATE, pace};
use super::points::paced;
use super::server::Server;
use super::site::{Site, Wire};
use crate::cost::{Round, Spread};

pub const PART: &str = "slow replica";

/// In each direction: an answer of the replica takes twice as long.
const DELAY: Duration = Duration::from_millis(100);

const VOLUME: u64 = 256 << 20;
const POOL: u64 = 1 << 30;
const NEAR: u64 = 3;
const FAR: u64 = 4;

/// Writes at once, and in a second: a part of what a volume on two cores can do.
const LOADS: [(usize, u32); 2] = [(1, 500), (32, 4000)];
/// Of what was asked for, that has to be done in time: otherwise it was too much for the machine.
const KEPT_UP: f64 = 0.9;

/// The 99th of 100 latencies, at the most, as a multiple.
const GOAL: f64 = 1.5;

/// Paced rounds have few requests, and the 99th of 100 needs many.
const LONGER: u32 = 2;

#[derive(Clone, Debug, Serialize)]
pub struct Line {
    pub name: String,
    pub delay_ms_each_way: f64,
    pub asked_per_second: u32,
    pub near_per_second: f64,
    pub far_per_second: f64,
    pub near: Latency,
    pub far: Latency,
    /// Of the 99th of 100: with a slow replica by without.
    pub ratio: Spread,
    pub goal: f64,
    pub met: bool,
    pub noise_max: Noise,
}

pub fn name(depth: usize) -> String {
    format!("{PART}: random write, {depth} at once")
}

pub fn names() -> impl Iterator<Item = String> {
    LOADS.iter().map(|(depth, _)| name(*depth))
}

pub fn run(arena: &Arena, effort: Effort, content: &Content, only: &str) -> Result<Vec<Line>> {
    if !names().any(|name| name.contains(only)) {
        return Ok(Vec::new());
    }
    arena.need(FAR * POOL)?;
    let site = Site::start(arena, "slow", FAR, POOL)?;
    let lines = measure(&site, effort, content, only);
    lines.inspect_err(|_| eprintln!("{}", site.last_words()))
}

fn measure(site: &Site, effort: Effort, content: &Content, only: &str) -> Result<Vec<Line>> {
    let wire = Detour::to(site.peers_of(FAR)?, DELAY)?;
    site.detour(FAR, wire.at)?;
    let volume = |name: &'static str, number, third| {
        site.create(name, number, VOLUME, &[1, 2, third])?;
        site.wait_healthy(name, 3)?;
        let server = site.server(name, Wire::Nbd, name, 1)?;
        fill(&server, VOLUME, content)?;
        site.wait_healthy(name, 3).context("after it was filled")?;
        anyhow::Ok(server)
    };
    let (near, far) = (volume("near", 0, NEAR)?, volume("far", 1, FAR)?);
    ensure!(wire.carried() >= VOLUME, "the far replica was not reached by the long wire");
    let mut rng = Rng::new(6);
    let mut lines = Vec::new();
    for (depth, rate) in LOADS.into_iter().filter(|(depth, _)| name(*depth).contains(only)) {
        let (mut nears, mut fars) = (Vec::new(), Vec::new());
        for _ in 0..effort.rounds {
            for (server, rounds) in [(&near, &mut nears), (&far, &mut fars)] {
                rounds.push(round(server, (depth, rate), effort, content, &mut rng)?);
                site.ensure_healthy(server.name)?;
            }
        }
        let line = Line::of(depth, rate, &nears, &fars);
        println!("  {}", line.shown());
        lines.push(line);
    }
    Ok(lines)
}

fn round(
    server: &Server,
    (depth, rate): (usize, u32),
    effort: Effort,
    content: &Content,
    rng: &mut Rng,
) -> Result<Measured> {
    let mut session = server.connect(depth * LATE, content)?;
    let span = session.size();
    let mut pace = |time| pace(&mut session, paced(depth), span, rate, time, rng);
    pace(effort.warm_up)?;
    let (noise, cpu) = (Noise::begin()?, server.cpu()?);
    let mut driven = pace(effort.round * LONGER)?;
    let cpu = server.cpu()? - cpu;
    let round = Round { ios: driven.ios, bytes: driven.bytes, elapsed: driven.elapsed, cpu };
    session.end()?;
    Ok(Measured {
        round,
        p50: driven.latencies.share(0.5),
        p99: driven.latencies.share(0.99),
        noise: noise.end(cpu)?,
    })
}

impl Line {
    fn of(depth: usize, rate: u32, near: &[Measured], far: &[Measured]) -> Line {
        let ratio = Spread::of(near.iter().zip(far).map(|(near, far)| far.p99 / near.p99));
        let done = |rounds: &[Measured]| {
            Spread::of(rounds.iter().map(|measured| measured.round.per_second())).median
        };
        Line {
            name: name(depth),
            delay_ms_each_way: DELAY.as_secs_f64() * 1e3,
            asked_per_second: rate,
            near_per_second: done(near),
            far_per_second: done(far),
            near: Latency::of(near),
            far: Latency::of(far),
            ratio,
            goal: GOAL,
            met: ratio.median <= GOAL,
            noise_max: Noise::max(near.iter().chain(far).map(|measured| measured.noise)),
        }
    }

    /// Whether both did what was asked, in the time that was given.
    pub fn kept_up(&self) -> bool {
        self.near_per_second.min(self.far_per_second) >= KEPT_UP * f64::from(self.asked_per_second)
    }

    fn shown(&self) -> String {
        format!(
            "{}: p99 {:.3} ms beside {:.3} ms, ratio {:.2} ({:.2}..{:.2}), {:.0} and {:.0} of {}/s",
            self.name,
            self.far.p99,
            self.near.p99,
            self.ratio.median,
            self.ratio.min,
            self.ratio.max,
            self.far_per_second,
            self.near_per_second,
            self.asked_per_second,
        )
    }
}
