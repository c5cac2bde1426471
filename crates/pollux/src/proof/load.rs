//! A pool under load: a number of operations under way at all times.
use std::collections::HashMap;

use anyhow::{Result, bail};
use block::{Position, Wait};
use engine::{Op, Pool, Reply, RequestId, VolumeId};

use super::script::Script;
use super::step::Event;

enum UnderWay {
    Step { volume: VolumeId, position: Position },
    Flush { number: u64 },
}

/// The owner alternates [`Load::plan`] and [`Load::carry_out`], and may tell the world of what is
/// planned in between.
pub struct Load<D: Wait> {
    pool: Pool<D>,
    script: Script,
    depth: usize,
    under_way: HashMap<RequestId, UnderWay>,
    next: u64,
}

impl<D: Wait> Load<D> {
    pub fn new(pool: Pool<D>, script: Script, depth: usize) -> Load<D> {
        Load { pool, script, depth, under_way: HashMap::new(), next: 1 }
    }

    /// Decides on as many operations as there is room for. Nothing is submitted yet.
    pub fn plan(&mut self) -> Vec<Event> {
        let mut planned = Vec::new();
        while self.under_way.len() + planned.len() < self.depth {
            planned.push(match self.script.wants_flush() {
                true => Event::FlushIssued { number: self.next + planned.len() as u64 },
                false => Event::Issued(self.script.next_step()),
            });
        }
        planned
    }

    /// Submits what was planned, and returns with the next answers.
    pub fn carry_out(&mut self, planned: &[Event]) -> Result<Vec<Event>> {
        for event in planned {
            let id = RequestId(self.next);
            self.next += 1;
            let (op, under_way) = match *event {
                Event::Issued(step) => {
                    let (volume, position) = (step.volume, step.position);
                    (step.op(), UnderWay::Step { volume, position })
                }
                Event::FlushIssued { number } => (Op::Flush, UnderWay::Flush { number }),
                Event::Acked { .. } | Event::Flushed { .. } => bail!("an answer cannot be planned"),
            };
            self.under_way.insert(id, under_way);
            self.pool.submit(id, op);
        }
        self.pool.poll();
        self.answers()
    }

    /// Waits for what is under way, and plans no more.
    pub fn drain(&mut self) -> Result<Vec<Event>> {
        let mut answers = Vec::new();
        while !self.under_way.is_empty() {
            answers.extend(self.answers()?);
        }
        Ok(answers)
    }

    fn answers(&mut self) -> Result<Vec<Event>> {
        let mut answers = self.take_replies()?;
        if answers.is_empty() {
            self.pool.wait();
            answers = self.take_replies()?;
        }
        Ok(answers)
    }

    fn take_replies(&mut self) -> Result<Vec<Event>> {
        let mut answers = Vec::new();
        while let Some((id, result)) = self.pool.reply() {
            let answered = match (self.under_way.remove(&id), result) {
                (Some(UnderWay::Step { volume, position }), Ok(Reply::Done)) => {
                    Event::Acked { volume, position }
                }
                (Some(UnderWay::Flush { number }), Ok(Reply::Flushed)) => {
                    // What was flushed is told to the journal, as an owner at rest would do.
                    self.pool.idle();
                    Event::Flushed { number }
                }
                (Some(_), Err(error)) => bail!("the pool refused a step: {error}"),
                (Some(_), Ok(other)) => bail!("the pool gave the wrong answer: {other:?}"),
                (None, _) => bail!("the pool answered {id:?}, which nobody asked"),
            };
            answers.push(answered);
        }
        Ok(answers)
    }

    pub fn pool(&self) -> &Pool<D> {
        &self.pool
    }

    pub fn into_pool(self) -> Pool<D> {
        self.pool
    }
}
