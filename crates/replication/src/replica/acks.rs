//! The replica's books: what it holds, what of it is durable, and what it said of both.
use block::{ByteLen, Position, Seq};

use crate::message::{ForTarget, ToTarget};
use crate::replica::{Following, Output, Replica, Standing};
use crate::words::Moment;

/// What an ack says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Said {
    held: Seq,
    durable: Seq,
    headroom: ByteLen,
}

#[derive(Debug)]
pub struct Books {
    /// The last entry below which there is no gap.
    pub held: Position,
    /// Through here everything was given to the store before a flush that is done. Some of it may
    /// not be answered yet.
    flushed: Seq,
    /// The flush of the running plan.
    flushing: Option<Seq>,
    said: Said,
    pub last_entry: Moment,
}

impl Books {
    /// Nothing is known to be durable before the first flush.
    pub fn new(held: Position, now: Moment) -> Books {
        Books { held, flushed: Seq(0), flushing: None, said: Said::default(), last_entry: now }
    }

    pub fn durable(&self) -> Seq {
        self.flushed.min(self.held.seq)
    }

    pub fn flush_done(&mut self, through: Seq) {
        self.flushed = self.flushed.max(through);
    }

    pub fn flush_given(&mut self, through: Seq) {
        self.flushing = Some(through);
    }

    pub fn plan_flushed(&mut self) {
        let through =
            self.flushing.take().expect("the flush of a plan was noted when it was given");
        self.flush_done(through);
    }

    /// Entries behind `held` failed: no flush so far has them, also if they are given again.
    pub fn cut(&mut self) {
        self.flushed = self.durable();
        self.flushing = self.flushing.map(|through| through.min(self.held.seq));
    }

    /// The target does not know what room there is; the next ack says it.
    pub fn headroom_unknown(&mut self) {
        self.said.headroom = ByteLen(0);
    }

    /// An import was adopted: a new history, nothing of it flushed.
    pub fn jump(&mut self, to: Position) {
        (self.held, self.flushed) = (to, Seq(0));
    }
}

impl Replica {
    fn sayings(&self) -> Said {
        let headroom = self.credit.headroom();
        Said { held: self.sayable(), durable: self.books.durable(), headroom }
    }

    /// The welcome said all of it.
    pub(super) fn restart_acks(&mut self) {
        self.books.said = self.sayings();
    }

    /// Sent when something advanced, or when there is more room than was said.
    pub(super) fn acknowledge(&mut self, out: &mut Vec<Output>) {
        let Following::Bound { link, term, standing } = &self.following else {
            return self.acknowledge_older(out);
        };
        let (link, term) = (*link, *term);
        if matches!(standing, Standing::Importing(_)) {
            // What is being adopted is told when all of it is done.
            return;
        }
        let (now, said) = (self.sayings(), self.books.said);
        let news = now.held > said.held || now.durable > said.durable;
        if news || now.headroom > said.headroom {
            self.books.said = now;
            let Said { held, durable, headroom } = now;
            let body = ToTarget::Ack { boot: self.run.boot, held, durable, headroom };
            out.push(Output::Send { link, message: ForTarget { term, body } });
            self.acknowledge_older(out);
        }
    }

    /// Only with the draining turned off: the older stream still hears of what it sent.
    fn acknowledge_older(&mut self, out: &mut Vec<Output>) {
        if let Some((link, term)) = self.apply.older {
            let Said { held, durable, headroom } = self.sayings();
            let body = ToTarget::Ack { boot: self.run.boot, held, durable, headroom };
            out.push(Output::Send { link, message: ForTarget { term, body } });
            if self.apply.is_idle() {
                self.apply.older = None;
            }
        }
    }
}
