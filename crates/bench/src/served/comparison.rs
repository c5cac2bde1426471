//! One of ours beside servers of others: rounds of all of them in turns, at every point.
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use sim::Rng;

use super::content::Content;
use super::lines::Line;
use super::noise::Noise;
use super::points::{FILL, POINTS, Point};
use super::server::Server;
use crate::cost::Round;
use crate::load::{Step, Until};

#[derive(Clone, Copy)]
pub struct Effort {
    pub rounds: usize,
    pub warm_up: Duration,
    pub round: Duration,
}

/// One round of one server.
#[derive(Clone, Copy, Debug)]
pub struct Measured {
    pub round: Round,
    /// Milliseconds that one in two, and that 99 of 100 requests did not exceed.
    pub p50: f64,
    pub p99: f64,
    pub noise: Noise,
}

#[derive(Clone, Copy)]
pub struct Goals {
    /// Of the other's speed, at the least.
    pub speed: f64,
    /// Of the other's processor time for an IO, at the most.
    pub cpu: Option<f64>,
}

pub struct Comparison<'a> {
    pub part: &'static str,
    pub ours: Server,
    pub others: Vec<(Server, Goals)>,
    pub content: &'a Content,
    pub effort: Effort,
}

impl Comparison<'_> {
    /// Measures the points whose name contains `only`.
    pub fn run(&self, only: &str) -> Result<Vec<Line>> {
        let mut rng = Rng::new(5);
        let mut lines = Vec::new();
        for point in POINTS.iter().filter(|point| name(self.part, point).contains(only)) {
            let mut ours = Vec::new();
            let mut others = vec![Vec::new(); self.others.len()];
            for _ in 0..self.effort.rounds {
                ours.push(self.measure(&self.ours, point, &mut rng)?);
                for ((server, _), rounds) in self.others.iter().zip(&mut others) {
                    rounds.push(self.measure(server, point, &mut rng)?);
                }
            }
            for ((server, goals), other) in self.others.iter().zip(others) {
                let line = Line::of((self.part, point), server.name, *goals, &ours, &other);
                println!("  {}", line.shown());
                lines.push(line);
            }
        }
        Ok(lines)
    }

    /// Sessions are new for every round: those that wait for their turn cost nobody anything.
    fn measure(&self, server: &Server, point: &Point, rng: &mut Rng) -> Result<Measured> {
        self.round(server, point, rng).map_err(|error| {
            eprintln!("{}", server.last_words());
            error.context(format!("{}: {}", server.name, point.name))
        })
    }

    fn round(&self, server: &Server, point: &Point, rng: &mut Rng) -> Result<Measured> {
        let connect = |_| server.connect(point.load.depth, self.content);
        let mut sessions = (0..point.sessions).map(connect).collect::<Result<Vec<_>>>()?;
        let span = sessions.first().context("a point has sessions")?.size();
        let mut drive =
            |time| super::drive::drive(&mut sessions, point.load, span, Until::Time(time), rng);
        drive(self.effort.warm_up)?;
        let (noise, cpu) = (Noise::begin()?, server.cpu()?);
        let mut driven = drive(self.effort.round)?;
        let cpu = server.cpu()? - cpu;
        let round = Round { ios: driven.ios, bytes: driven.bytes, elapsed: driven.elapsed, cpu };
        let measured = Measured {
            round,
            p50: driven.latencies.share(0.5),
            p99: driven.latencies.share(0.99),
            noise: noise.end(cpu)?,
        };
        sessions.into_iter().try_for_each(super::session::Session::end)?;
        Ok(measured)
    }
}

pub fn name(part: &str, point: &Point) -> String {
    format!("{part}: {}", point.name)
}

/// Writes the whole volume once, and flushes it, so that every read afterwards finds data.
pub fn fill(server: &Server, size: u64, content: &Content) -> Result<()> {
    let session = server.connect(FILL.depth, content)?;
    ensure!(session.size() == size, "{} offers {} bytes", server.name, session.size());
    let mut sessions = [session];
    super::drive::drive(&mut sessions, FILL, size, Until::End, &mut Rng::new(1))?;
    let [mut session] = sessions;
    session.begin(0, Step::Flush);
    session.send()?;
    let mut done = Vec::new();
    while done.is_empty() {
        session.receive(super::session::Patience::Wait, &mut done)?;
    }
    session.end()
}
