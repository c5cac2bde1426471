//! Commands that ask the volume and go on with its answers.
//!
//! A job that ends while other questions of it are under way is answered when they are: the unit
//! sees to that. No job has anything to do after its end.
use crate::ask::{Answer, AskError};
use crate::piece::Piece;
use crate::scsi::compare::Compare;
use crate::scsi::copy::Copy;
use crate::scsi::disk::Disk;
use crate::scsi::mode::Mode;
use crate::scsi::or_write::Or;
use crate::scsi::order::{Asker, Next, Outcome};
use crate::scsi::provisioning::Provisioning;
use crate::scsi::reservations::Change;
use crate::scsi::same::Fill;
use crate::scsi::sense::{self, During, Refusal, Sense};
use crate::scsi::unmap::Unmap;
use crate::scsi::verify::{Verify, WriteVerify};

pub(super) type Answered = Result<Answer, AskError>;

/// How a job went on with an answer.
pub(super) type Went = Result<Next, Refusal>;

pub(super) enum Job {
    /// One question, whose answer is the data.
    Read {
        len: usize,
    },
    /// One question, with nothing to do after it.
    Settle(During),
    Verify(Verify),
    WriteVerify(Box<WriteVerify>),
    Compare(Box<Compare>),
    Or(Box<Or>),
    Fill(Box<Fill>),
    Unmap(Box<Unmap>),
    Provisioning(Provisioning),
    Copy(Box<Copy>),
    /// New modes, which hold when everything is durable.
    Mode(Mode),
    /// New reservations, which hold when they are kept.
    Reserve(Box<Change>),
}

impl Job {
    /// Goes on with an answer. `Mode` and `Reserve` change the unit, which does that itself.
    pub(super) fn answered(&mut self, answer: Answered, disk: &Disk, asker: &mut Asker) -> Went {
        match self {
            Job::Read { len } => {
                let data = data(answer, *len, disk)?;
                Ok(Next::Ends(Outcome::Good(vec![Piece::Data(data)])))
            }
            Job::Settle(during) => done(answer, *during, disk),
            Job::Verify(job) => job.answered(answer, disk),
            Job::WriteVerify(job) => job.answered(answer, disk, asker),
            Job::Compare(job) => job.answered(answer, disk, asker),
            Job::Or(job) => job.answered(answer, disk, asker),
            Job::Fill(job) => job.answered(answer, disk, asker),
            Job::Unmap(job) => job.answered(answer, disk, asker),
            Job::Provisioning(job) => job.answered(answer, disk),
            Job::Copy(job) => job.answered(answer, disk, asker),
            Job::Mode(_) | Job::Reserve(_) => Ok(Next::DONE),
        }
    }
}

/// The bytes that were asked for.
pub(super) fn data(answer: Answered, len: usize, disk: &Disk) -> Result<block::Data, Refusal> {
    match answer {
        Ok(Answer::Read(data)) if data.len() == len => Ok(data),
        Ok(_) => Err(Sense::internal().into()),
        Err(error) => Err(sense::of_ask(&error, During::Reading, disk.block)),
    }
}

/// The end of a job whose last question this was.
pub(super) fn done(answer: Answered, during: During, disk: &Disk) -> Went {
    settled(answer, during, disk).map(|()| Next::DONE)
}

/// Whether what was asked for was done.
pub(super) fn settled(answer: Answered, during: During, disk: &Disk) -> Result<(), Refusal> {
    match answer {
        Ok(Answer::Done) => Ok(()),
        Ok(_) => Err(Sense::internal().into()),
        Err(error) => Err(sense::of_ask(&error, during, disk.block)),
    }
}
