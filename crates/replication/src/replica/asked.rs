//! Operations between question and answer: what each of them was for. Not those of entries: these
//! have their places among others, and are given again with those behind them (`apply.rs`).
use block::Seq;

use crate::message::{AskId, OpenedRound};
use crate::replica::fetch::FetchNo;
use crate::replica::{LinkId, Output, Replica};
use crate::store::{StoreOp, StoreTag};

#[derive(Debug)]
pub enum Purpose {
    /// The copy has to be larger before a resize can be applied.
    Grow,
    /// Behind entries; through here everything was given to the store before it.
    Flush {
        through: Seq,
    },
    /// A part of the step that the running plan is at.
    Step,
    Read {
        link: LinkId,
        id: AskId,
    },
    Extents {
        link: LinkId,
        id: AskId,
    },
    Repair {
        link: LinkId,
        id: AskId,
    },
    /// The state of the snapshot that a round is opened at; all but that state is known.
    Reopen {
        link: LinkId,
        id: AskId,
        opened: Box<OpenedRound>,
    },
    Ranges {
        fetch: FetchNo,
    },
    Part {
        fetch: FetchNo,
        index: usize,
    },
    OwnChanges {
        link: LinkId,
        id: AskId,
    },
    Credit,
}

#[derive(Debug)]
pub struct Asked {
    pub purpose: Purpose,
    /// Kept where being refused as busy means to be asked again.
    pub op: Option<Box<StoreOp>>,
}

impl Replica {
    /// Higher than all before it.
    pub(super) fn tag(&mut self) -> StoreTag {
        self.tags += 1;
        StoreTag(self.tags)
    }

    pub(super) fn ask(&mut self, purpose: Purpose, op: StoreOp, out: &mut Vec<Output>) {
        let tag = self.tag();
        // For a read another replica is sooner.
        let once = matches!(
            purpose,
            Purpose::Read { .. }
                | Purpose::Extents { .. }
                | Purpose::Repair { .. }
                | Purpose::Credit
        );
        let kept = (!once).then(|| Box::new(op.clone()));
        self.asked.insert(tag, Asked { purpose, op: kept });
        out.push(Output::Store { tag, op });
    }

    pub(super) fn ask_again(&mut self, out: &mut Vec<Output>) {
        for tag in std::mem::take(&mut self.again) {
            let op = self.asked.get(&tag).and_then(|asked| asked.op.clone());
            let op = op.expect("only what has its operation kept is asked again");
            out.push(Output::Store { tag, op: *op });
        }
    }
}
