//! A mechanism that is turned off in a whole world, to show that its checkers notice.
#[cfg(feature = "faults")]
use crate::quorum::plan::Fault;

/// A checker of a world that can be left out, to show that it alone finds something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Check {
    /// No older reign answers reads behind a newer one, seen from outside (P5).
    OneReader,
    /// Clients that stay with an old target read beside those of the new one (P3, P5).
    Spies,
    /// A calm quorum serves, while faults go on elsewhere (P6).
    Liveness,
    /// Machines and stores are empty when everything is done.
    Residue,
    /// What is acknowledged is on a quorum of the sets that the target itself goes by (P1, P2, Q8).
    OwnQuorum,
    /// Only what takes space is refused for want of it, and nothing waits for it (Q7).
    Space,
}

/// What is turned off.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Off {
    #[default]
    Nothing,
    /// In the machines of the protocol.
    #[cfg(feature = "faults")]
    Machine(replication::Switch),
    /// In the engine of every pool.
    #[cfg(feature = "faults")]
    Engine(engine::Fault),
    /// In the control plane: a target whose node reaches no quorum is moved.
    #[cfg(feature = "faults")]
    Relief,
    /// In what runs the machines: the time of a step is taken behind the reading of its input.
    #[cfg(feature = "faults")]
    TimeAfterInput,
    /// In what runs the machines: their clock goes on while their process sleeps, as `CLOCK_BOOTTIME`
    /// does and `CLOCK_MONOTONIC` does not.
    #[cfg(feature = "faults")]
    ClockCountsSleep,
    /// In what a node remembers: a device that failed is another one.
    #[cfg(feature = "faults")]
    FailureNoted,
}

impl Off {
    pub fn target(self, target: &mut replication::target::Target) {
        let _ = &target;
        #[cfg(feature = "faults")]
        if let Off::Machine(switch) = self {
            target.turn_off(switch);
        }
    }

    pub fn replica(self, replica: &mut replication::replica::Replica) {
        let _ = &replica;
        #[cfg(feature = "faults")]
        if let Off::Machine(switch) = self {
            replica.turn_off(switch);
        }
    }

    pub fn pool<D: block::Disk>(self, pool: &mut engine::Pool<D>) {
        let _ = &pool;
        #[cfg(feature = "faults")]
        if let Off::Engine(fault) = self {
            pool.plant(fault);
        }
    }

    /// Whether a node remembers that a device failed.
    pub fn notes_failures(self) -> bool {
        match self {
            #[cfg(feature = "faults")]
            Off::FailureNoted => false,
            _ => true,
        }
    }

    /// Whether the controller leaves a target where it has no quorum.
    pub fn leaves_stranded(self) -> bool {
        match self {
            #[cfg(feature = "faults")]
            Off::Relief => true,
            _ => false,
        }
    }

    /// Whether more has to be under way than a store is given at once.
    #[cfg(feature = "faults")]
    pub fn needs_haste(self) -> bool {
        self == Off::Machine(replication::Switch::DrainOldStream)
    }

    /// Faults, with the seconds between two of them, under which the mechanism matters most.
    #[cfg(feature = "faults")]
    pub fn provoked_by(self) -> &'static [(Fault, u64)] {
        use replication::Switch::*;
        match self {
            Off::Nothing => &[],
            Off::TimeAfterInput => &[(Fault::CutOff, 3), (Fault::Stall, 8)],
            Off::ClockCountsSleep => &[(Fault::CutOff, 3), (Fault::Stall, 2)],
            Off::FailureNoted => &[(Fault::FlushFails, 3)],
            Off::Relief => &[(Fault::Stranded, 15)],
            Off::Engine(_) => &[(Fault::Kill, 4), (Fault::BreakLink, 5)],
            Off::Machine(switch) => match switch {
                TermInPosition => &[(Fault::CutOff, 3), (Fault::TakeOver, 4), (Fault::Kill, 3)],
                UndoTail => &[(Fault::TakeOver, 3), (Fault::Partition, 3), (Fault::PowerCut, 6)],
                DurablePromise => &[(Fault::CutOff, 3), (Fault::KillAtWelcome, 1)],
                DrainOldStream => &[(Fault::TakeOver, 3), (Fault::CutOff, 4), (Fault::SlowDisk, 1)],
                Barrier => &[
                    (Fault::CutOff, 4),
                    (Fault::SlowDisk, 2),
                    (Fault::Kill, 2),
                    (Fault::Partition, 4),
                ],
                RetractAcks => &[(Fault::PowerCutAtAck, 1), (Fault::SlowDisk, 1)],
                DirtyMark => {
                    &[(Fault::PowerCut, 2), (Fault::SitePowerCut, 12), (Fault::KillTarget, 5)]
                }
                ReadsWait => &[(Fault::TakeOver, 2), (Fault::Partition, 3), (Fault::Pause, 3)],
                ReadLease | WaitOutLease => &[(Fault::CutOff, 3)],
                UnbrokenHold | NoSeqInHold => &[(Fault::GroupCut, 1)],
                ConnectionNumbers => &[(Fault::BreakClient, 1), (Fault::SlowLinks, 2)],
                CatalogMembership | JointQuorum | NewQuorum => &[
                    (Fault::Scale, 3),
                    (Fault::Replace, 3),
                    (Fault::TakeOver, 3),
                    (Fault::Partition, 3),
                ],
                WholeRounds | DeferredDeletes => {
                    &[(Fault::TakeOver, 3), (Fault::Kill, 3), (Fault::Partition, 4)]
                }
                Headroom | FreeWithoutCredit => &[(Fault::FullPool, 3)],
                ForgetRepairs => &[(Fault::Rot, 1), (Fault::Kill, 4), (Fault::BreakLink, 2)],
                UseKept => &[(Fault::Kill, 3), (Fault::BreakLink, 2), (Fault::Partition, 6)],
                AnswerRepeated => &[(Fault::BreakClient, 5), (Fault::Pause, 20)],
            },
        }
    }
}
