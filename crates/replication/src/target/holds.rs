//! Group holds (Q10): the same instant over several volumes.
use block::{Position, Seq};

use crate::client::{CommandAnswer, CommandError, RequestId};
use crate::constants::GROUP_HOLD;
use crate::entry::Change;
use crate::state::SnapshotSpec;
use crate::target::{Cx, Output, Target, off};
use crate::words::{Moment, Span, Token};

/// A hold that is in force.
#[derive(Clone, Copy, Debug)]
struct Hold {
    token: Token,
    since: Moment,
    until: Moment,
    through: Seq,
}

#[derive(Debug, Default)]
pub struct Holds {
    hold: Option<Hold>,
    /// How long the last one lasted.
    pub last: Option<Span>,
    pub broken: u64,
}

impl Holds {
    pub fn is_in_force(&self) -> bool {
        self.hold.is_some()
    }

    /// A hold that nobody released in time breaks: its coordinator may be gone.
    pub fn expire(&mut self, now: Moment) {
        if self.hold.is_some_and(|hold| now >= hold.until) {
            self.hold = None;
            self.broken += 1;
        }
    }
}

impl Target {
    pub(super) fn hold(&mut self, id: RequestId, token: Token, lasts: Span, cx: &mut Cx<'_>) {
        let result = match self.holds.hold {
            Some(hold) if hold.token == token => Ok(CommandAnswer::Held { through: hold.through }),
            Some(_) => Err(CommandError::AlreadyHeld),
            None => {
                let through = self.sequence.last();
                let until = cx.now + lasts.min(GROUP_HOLD);
                self.holds.hold = Some(Hold { token, since: cx.now, until, through });
                Ok(CommandAnswer::Held { through })
            }
        };
        cx.out.push(Output::Answer { id, result });
    }

    /// The snapshot of the held point. It is a part of the cut only if the hold is never broken.
    pub(super) fn cut(&mut self, id: RequestId, token: Token, spec: SnapshotSpec, cx: &mut Cx<'_>) {
        let unbroken = self.holds.hold.is_some_and(|hold| hold.token == token);
        if !unbroken && !off!(self, UnbrokenHold) {
            let result = Err(CommandError::HoldBroken);
            return cx.out.push(Output::Answer { id, result });
        }
        let may = self.may_snapshot(&spec);
        let change = Change::Snapshot(spec);
        let cost = match may.and_then(|()| self.afford(&change, cx.now)) {
            Ok(cost) => cost,
            Err(error) => return cx.out.push(Output::Answer { id, result: Err(error) }),
        };
        let seq = self.append(change, None, cost);
        let at = Position { term: self.term, seq };
        cx.out.push(Output::Answer { id, result: Ok(CommandAnswer::CutAt { at }) });
        self.commands.await_settled(seq, id);
    }

    pub(super) fn release(&mut self, id: RequestId, token: Token, cx: &mut Cx<'_>) {
        let held = self.holds.hold.filter(|hold| hold.token == token);
        if let Some(hold) = held {
            self.holds.last = Some(cx.now.since(hold.since));
            self.holds.hold = None;
        }
        let unbroken = held.is_some() || off!(self, UnbrokenHold);
        cx.out.push(Output::Answer { id, result: Ok(CommandAnswer::Released { unbroken }) });
    }
}
