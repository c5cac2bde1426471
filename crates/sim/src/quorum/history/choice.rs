//! A copy that an operator chose to go on with, when a quorum was lost for good (Q12).
//!
//! It decides everything: what it has is the content, whether that was acknowledged or not, and what it
//! has not is lost. Attached clients have to learn of the loss, so no request under an older stage is answered.
use std::collections::BTreeMap;

use replication::words::{ClientId, StageNumber};

use super::Clients;
use super::stamp::Value;
use super::violation::{Seen, Unexplained, Violation};
use crate::quorum::sparse::Sparse;

#[derive(Debug)]
pub struct Chosen {
    at: u64,
    /// What is not here holds zeros.
    has: BTreeMap<u64, Value>,
}

impl Clients {
    /// This is the content from now on, for clients that know of the loss.
    pub fn chosen(&mut self, now: u64, volume: usize, bytes: &Sparse) {
        self.now = now;
        let view = &mut self.volumes[volume];
        let mut has = BTreeMap::new();
        let mut torn = None;
        for (sector, value) in view.content.values_of(bytes) {
            match value {
                Some(Value::ZEROS) => {}
                Some(value) => {
                    has.insert(sector, value);
                }
                None => torn = torn.or(Some(sector)),
            }
        }
        let torn = torn.map(|at| view.content.content(Seen::Chosen, at, Unexplained::NoValue));
        view.sectors = bytes.size() / block::LOGICAL_SECTOR;
        view.chosen = Some(Chosen { at: now, has });
        self.count("copies chosen");
        torn.into_iter().for_each(|violation| self.fail(violation));
    }

    /// Everybody has been told, or had not begun. True: there was a choice.
    pub(super) fn go_on_with_chosen(&mut self, volume: usize) -> bool {
        let (now, next) = (self.now, Value(self.next_value));
        let view = &mut self.volumes[volume];
        let Some(Chosen { at, has }) = view.chosen.take() else { return false };
        view.content.go_on_with(now, at, &has, next);
        true
    }

    /// Something that was sent then was answered well.
    pub(super) fn judge_choice(
        &self,
        volume: usize,
        client: ClientId,
        stage: Option<StageNumber>,
        sent: u64,
    ) -> Result<(), Violation> {
        match &self.volumes[volume].chosen {
            Some(Chosen { at, .. }) if sent > *at => {
                let chosen = *at;
                Err(Violation::WorksAfterChoice { volume, client, stage, chosen, sent })
            }
            _ => Ok(()),
        }
    }
}
