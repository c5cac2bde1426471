//! Mechanisms that the simulator can turn off, to show that it notices.
/// One mechanism each. Which machine has it is said in brackets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Switch {
    /// [target] The term counts in the choice of the history: off, the highest seq wins.
    TermInPosition,
    /// [replica] A promise is durable before it is given.
    DurablePromise,
    /// [replica] The older stream is drained before the hello is answered.
    DrainOldStream,
    /// [target] Nothing is served before the barrier is durable on a quorum.
    Barrier,
    /// [target] A losing tail is undone: off, only what the winner changed is taken.
    UndoTail,
    /// [target] A new hello replaces the books: off, acks of an older boot count on.
    RetractAcks,
    /// [target] Reads wait for writes that are not yet held by a quorum.
    ReadsWait,
    /// [target] Reads are answered only under the lease.
    ReadLease,
    /// [target] A successor waits out the full lease.
    WaitOutLease,
    /// [target] A release tells whether the hold was unbroken, and a broken one refuses the cut.
    UnbrokenHold,
    /// [target] No seq during a hold, and so no acknowledgement of what came during it.
    NoSeqInHold,
    /// [target] Older connections' work is finished or dropped before a new login.
    ConnectionNumbers,
    /// [replica] Dirty is marked durably before the first ack of something not durable.
    DirtyMark,
    /// [target] A membership counts only when the catalog has it.
    CatalogMembership,
    /// [target] During a change both quorums are needed.
    JointQuorum,
    /// [target] During a change the new quorum is needed too: off, the old one alone decides.
    NewQuorum,
    /// [replica] A round is committed whole, with the small state that belongs to its position.
    WholeRounds,
    /// [replica] Deletions wait until they are durable on a quorum.
    DeferredDeletes,
    /// [target] A write is given a seq only if a quorum has credit for it.
    Headroom,
    /// [target] What gives space back needs no credit: off, it needs as much as a write does.
    FreeWithoutCredit,
    /// [target] A command that is asked again is answered when the first is durable on a quorum.
    AnswerRepeated,
    /// [target] Repairs that a replica takes part in are forgotten when it is gone.
    ForgetRepairs,
    /// [target] A frozen source that a round goes on with, or that is gone, is not kept for later.
    UseKept,
}
