//! Stage numbers, losses, and who may work when (P8).
//!
//! Whoever is told that writes were lost tells all clients of the volume; they are all staged
//! anew, and nobody writes before each of them has read something under its new number. So it is
//! certain for each request on which side of a loss it was: a generation's numbers are all given
//! before its first request, and whatever loss comes then makes all of them invalid at once. For
//! the same reason a client that gets an answer to what it asked after another was told, under its
//! old number, went on under an old mount. A login that succeeds proves nothing: it may have been
//! a superseded target that answered it, which can answer no more than that.
use replication::client::LoginError;
use replication::words::{ClientId, StageNumber};

use super::session::{Kind, Link};
use super::stamp::Value;
use super::violation::Violation;
use super::{ClientAction, Clients};

/// How long clients go on as if nothing was, to see whether they are stopped: 2 s.
const GRACE_US: u64 = 2_000_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Stage numbers are awaited, and that an operator takes note.
    Staging {
        numbers: usize,
        notes: usize,
    },
    /// Everybody logs in and reads something.
    Joining,
    Open,
    /// Somebody was told of a loss. The others go on, if they had begun.
    Leaving {
        until: u64,
        had_begun: bool,
    },
}

/// How the clients of one volume are attached to it.
#[derive(Debug)]
pub struct Attachment {
    pub phase: Phase,
    /// When a client that had worked since the last staging was told of a loss.
    told: Option<u64>,
    /// When the latest request was sent that was answered well.
    worked: u64,
    losses: u64,
}

impl Attachment {
    pub fn new() -> Attachment {
        let phase = Phase::Staging { numbers: 0, notes: 0 };
        Attachment { phase, told: None, worked: 0, losses: 0 }
    }

    pub fn worked(&self) -> u64 {
        self.worked
    }

    pub fn losses(&self) -> u64 {
        self.losses
    }

    pub fn may_connect(&self) -> bool {
        !matches!(self.phase, Phase::Staging { .. })
    }

    pub fn may_ask(&self) -> bool {
        matches!(self.phase, Phase::Open | Phase::Leaving { had_begun: true, .. })
    }

    pub fn wakes(&self) -> Option<u64> {
        match self.phase {
            Phase::Leaving { until, .. } => Some(until),
            _ => None,
        }
    }
}

impl Clients {
    fn members(&self, volume: usize) -> impl Iterator<Item = usize> + use<> {
        let all = self.sessions.iter().enumerate();
        let members: Vec<usize> =
            all.filter(|(_, s)| s.volume == volume).map(|(at, _)| at).collect();
        members.into_iter()
    }

    /// A fresh start: every staged client gets a number.
    pub(super) fn ask_stages(&mut self, volume: usize, notes: usize) {
        let mut numbers = 0;
        for at in self.members(volume) {
            let session = &mut self.sessions[at];
            session.joined = false;
            session.stage = None;
            if session.kind == Kind::Staged {
                numbers += 1;
                let client = session.id;
                self.queued.push(ClientAction::AskNewStage { client, volume });
            }
        }
        self.volumes[volume].attachment.phase = Phase::Staging { numbers, notes };
        self.leave_staging(volume);
    }

    pub fn new_stage(&mut self, now: u64, client: ClientId, volume: usize, number: StageNumber) {
        self.now = now;
        let Some(at) = self.session_of(client) else { return };
        let Phase::Staging { numbers, .. } = &mut self.volumes[volume].attachment.phase else {
            return;
        };
        if self.sessions[at].stage.replace(number).is_none() {
            *numbers -= 1;
        }
        self.leave_staging(volume);
    }

    /// The operator's note is taken: plain initiators may come back.
    pub fn note_taken(&mut self, now: u64, volume: usize) {
        self.now = now;
        if let Phase::Staging { notes, .. } = &mut self.volumes[volume].attachment.phase {
            *notes = 0;
        }
        self.leave_staging(volume);
    }

    fn leave_staging(&mut self, volume: usize) {
        let attachment = &mut self.volumes[volume].attachment;
        if attachment.phase != (Phase::Staging { numbers: 0, notes: 0 }) {
            return;
        }
        attachment.phase = Phase::Joining;
        self.go_on_with_chosen(volume);
        for at in self.members(volume) {
            let session = &mut self.sessions[at];
            let until = self.now + session.rng.below(10_000);
            session.link = Link::Down { until };
        }
    }

    fn joined(&mut self, at: usize) {
        let volume = self.sessions[at].volume;
        self.sessions[at].joined = true;
        let all = self.members(volume).all(|at| self.sessions[at].joined);
        let attachment = &mut self.volumes[volume].attachment;
        if all && attachment.phase == Phase::Joining {
            attachment.phase = Phase::Open;
        }
    }

    /// Something that was sent then was answered as if nothing had been lost.
    pub(super) fn worked(&mut self, at: usize, sent: u64) -> Result<(), Violation> {
        let session = &self.sessions[at];
        let (volume, client, stage) = (session.volume, session.id, session.stage);
        self.judge_choice(volume, client, stage, sent)?;
        let attachment = &mut self.volumes[volume].attachment;
        attachment.worked = attachment.worked.max(sent);
        match attachment.told {
            Some(told) if sent > told => {
                return Err(Violation::WorksAfterLoss { volume, client, stage, told, sent });
            }
            _ => {}
        }
        if let Some((moment, writes)) = self.sessions[at].decide() {
            for write in writes {
                self.volumes[volume].content.decide(moment, write);
            }
        }
        self.joined(at);
        Ok(())
    }

    /// A client was told that writes may have been lost.
    pub(super) fn told_of_loss(&mut self, at: usize) {
        self.count("losses told");
        let volume = self.sessions[at].volume;
        if self.power_losses == Some(0) {
            self.fail(Violation::LossWithoutPowerCut { volume });
        }
        self.drop_link(at, Link::Told);
        let until = self.now + GRACE_US;
        let attachment = &mut self.volumes[volume].attachment;
        if self.sessions[at].joined {
            attachment.told.get_or_insert(self.now);
        }
        if matches!(attachment.phase, Phase::Leaving { .. }) {
            return;
        }
        let had_begun = attachment.phase == Phase::Open;
        attachment.phase = Phase::Leaving { until, had_begun };
        attachment.losses += 1;
        self.probe(volume);
    }

    /// Some of the others try their old numbers at once.
    fn probe(&mut self, volume: usize) {
        for at in self.members(volume) {
            let now = self.now;
            let session = &mut self.sessions[at];
            let until = now + session.rng.range(1..GRACE_US / 2);
            match session.link {
                Link::Up if session.rng.chance(1, 2) => self.hang_up(at, until),
                Link::Down { .. } => session.link = Link::Down { until },
                _ => {}
            }
        }
    }

    /// Ends the grace, when it is time or when everybody was told.
    pub(super) fn stage_anew(&mut self, volume: usize) {
        let Phase::Leaving { until, .. } = self.volumes[volume].attachment.phase else { return };
        let all_told = self.members(volume).all(|at| self.sessions[at].link == Link::Told);
        if self.now < until && !all_told {
            return;
        }
        self.count("stagings anew");
        let mut notes = 0;
        for at in self.members(volume) {
            self.close(at);
            self.drop_link(at, Link::Told);
            let session = &mut self.sessions[at];
            // What was undecided is on one side of the loss or nowhere.
            session.undecided.clear();
            if session.kind == Kind::Plain {
                notes = 1;
            }
        }
        let (now, next) = (self.now, Value(self.next_value));
        let chosen = self.go_on_with_chosen(volume);
        let view = &mut self.volumes[volume];
        if !chosen {
            view.content.lose(now, view.attachment.worked, next);
        }
        view.attachment.told = None;
        self.ask_stages(volume, notes);
        if notes > 0 {
            self.queued.push(ClientAction::TakeNote { volume });
        }
    }

    /// Why a login was refused.
    pub(super) fn refused(&mut self, at: usize, why: LoginError) {
        match why {
            LoginError::UnflushedWritesLost => self.told_of_loss(at),
            LoginError::OlderConnection => {
                self.count("logins refused as older");
                self.retry_login(at);
            }
            LoginError::Stopped => {
                self.count("logins at a stopped target");
                self.retry_login(at);
            }
        }
    }

    fn retry_login(&mut self, at: usize) {
        let session = &mut self.sessions[at];
        let until = self.now + session.rng.range(10_000..1_000_000);
        self.drop_link(at, Link::Down { until });
    }
}
