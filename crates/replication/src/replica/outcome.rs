//! What follows a plan: an answer, or the reason why there is none.
use block::{ByteOffset, Seq};

use crate::message::{RoundFailure, ToTarget};
use crate::replica::{Following, LinkId, Output, Replica, Standing};
use crate::store::StoreError;

use super::import::Import;
use super::marks::Mark;
use super::plan::{Plan, Then};

pub fn round_failure(error: StoreError) -> RoundFailure {
    match error {
        StoreError::NoSpace => RoundFailure::NoSpace,
        StoreError::Damaged { offset } => RoundFailure::Damaged { offset },
        StoreError::UnknownSnapshot => RoundFailure::Gone,
        StoreError::Failed { reason } | StoreError::Refused { reason } => {
            RoundFailure::Failed { reason }
        }
        other => RoundFailure::Failed { reason: other.to_string() },
    }
}

impl Replica {
    pub(super) fn plan_done(&mut self, plan: Plan, out: &mut Vec<Output>) {
        let answer = match plan.then {
            Then::Nothing | Then::Cleaned | Then::Undoomed | Then::Dropped => return,
            Then::Marked => {
                self.mark = Mark::Dirty;
                return;
            }
            Then::Closed => return out.push(Output::Closed),
            Then::Welcome { number } => return self.welcome(number, out),
            Then::RoundOpened { id, opened } => {
                let opened = opened.expect("a round that was frozen is known");
                ToTarget::RoundOpened { id, opened: Ok(opened) }
            }
            Then::ImportBegun => {
                let Some(import) = self.import() else { return };
                ToTarget::ImportBegun { kept: import.kept }
            }
            Then::Imported { progress, mark } => {
                let own = |import: &&mut Import| Some(import.mark) == mark;
                let Some(import) = self.import().filter(own) else { return };
                import.progress = progress;
                ToTarget::Imported { progress: ByteOffset(progress) }
            }
            Then::Committed => {
                if let Following::Bound { link, standing, .. } = &mut self.following
                    && plan.link == Some(*link)
                {
                    *standing = Standing::Live;
                }
                self.restart_acks();
                self.books.headroom_unknown();
                ToTarget::Committed { position: self.books.held }
            }
        };
        if let Some(link) = plan.link {
            self.send(link, answer, out);
        }
    }

    pub(super) fn plan_failed(&mut self, plan: Plan, error: StoreError, out: &mut Vec<Output>) {
        match (plan.then, plan.link) {
            (Then::Closed, _) => out.push(Output::Closed),
            // Without the mark nothing more can be acknowledged; a new hello begins anew.
            (Then::Marked, _) => {
                self.mark = Mark::Clean;
                self.hang_up_on_target(out);
            }
            // The mark is still there, whatever became of its removal.
            (Then::Cleaned, _) if self.state.dirty == Some(self.run.powered) => {
                self.mark = Mark::Dirty;
            }
            // No entry can be applied beside it.
            (Then::Dropped, _) if self.staged.is_some() => {
                self.forget_what_waits();
                let next = Seq(self.apply.front.seq.0 + 1);
                self.leave(next, error, out);
            }
            (Then::Welcome { number }, _) => {
                let newest =
                    matches!(self.following, Following::Greeting { number: n, .. } if n == number);
                if newest {
                    self.hang_up_on_target(out);
                }
            }
            (Then::RoundOpened { id, .. }, Some(link)) => {
                let opened = Err(round_failure(error));
                self.send(link, ToTarget::RoundOpened { id, opened }, out);
            }
            (Then::Committed, Some(link)) => {
                let adopted = self.state.import.is_none();
                // The store takes no such content, however often it is asked: the next round begins anew.
                let is_useless = !adopted && matches!(error, StoreError::Refused { .. });
                self.import_failed(link, error, out);
                if is_useless {
                    self.drop_import();
                }
                // The target believes in the position of before.
                if adopted && self.is_bound(link) {
                    self.hang_up(link, out);
                }
            }
            (Then::ImportBegun, Some(link)) => self.import_failed(link, error, out),
            (Then::Imported { mark, .. }, Some(link)) => {
                // A part of an older round is of no use, and no harm to the present one.
                let own = |import: &&mut Import| Some(import.mark) == mark;
                let Some(import) = self.import().filter(own) else { return };
                import.broken = true;
                self.import_failed(link, error, out);
            }
            _ => {}
        }
    }

    pub(super) fn import_failed(&self, link: LinkId, error: StoreError, out: &mut Vec<Output>) {
        self.send(link, ToTarget::ImportFailed { reason: round_failure(error) }, out);
    }

    fn hang_up_on_target(&mut self, out: &mut Vec<Output>) {
        if let Following::Greeting { link, .. } | Following::Bound { link, .. } = self.following {
            self.hang_up(link, out);
        }
    }
}
