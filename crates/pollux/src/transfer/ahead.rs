//! Several operations of one pool under way at once, each awaited by its id.
use std::collections::HashMap;

use block::Wait;
use engine::{Op, OpError, Pool, Reply, RequestId};

pub struct Ahead<'a, D: Wait> {
    pool: &'a mut Pool<D>,
    next: u64,
    answers: HashMap<RequestId, Result<Reply, OpError>>,
}

impl<'a, D: Wait> Ahead<'a, D> {
    /// Nothing may be under way.
    pub fn of(pool: &'a mut Pool<D>) -> Ahead<'a, D> {
        Ahead { pool, next: 0, answers: HashMap::new() }
    }

    /// Starts an operation. Whoever starts it waits for it, too.
    pub fn start(&mut self, op: Op) -> RequestId {
        let id = RequestId(self.next);
        self.next += 1;
        self.pool.submit(id, op);
        self.pool.poll();
        id
    }

    pub fn wait(&mut self, id: RequestId) -> Result<Reply, OpError> {
        loop {
            while let Some((answered, result)) = self.pool.reply() {
                self.answers.insert(answered, result);
            }
            if let Some(answer) = self.answers.remove(&id) {
                return answer;
            }
            self.pool.wait();
        }
    }

    pub fn run(&mut self, op: Op) -> Result<Reply, OpError> {
        let id = self.start(op);
        self.wait(id)
    }
}
