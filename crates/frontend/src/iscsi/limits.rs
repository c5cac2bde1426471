//! Every bound of the target, with where its number comes from.
use std::time::Duration;

use super::events::Access;

const KIB: u32 = 1024;
const MIB: u32 = 1024 * KIB;

/// What a portal allows. All of it may be made smaller for a test; [`Limits::default`] is what a
/// node uses.
#[derive(Clone, Debug)]
pub struct Limits {
    /// A login that takes longer is a client that went away, or one that holds a place on purpose.
    pub login_time_max: Duration,
    /// A session that is silent for so long is asked whether it lives.
    pub ping_after: Duration,
    /// A session that is silent for so long is over.
    pub silence_max: Duration,
    /// What a session is given to log out when its target goes away.
    pub drain_grace: Duration,
    /// Sessions at targets.
    pub sessions_max: usize,
    /// Sessions at one target.
    pub target_sessions_max: usize,
    /// Sessions at targets from one address: fewer than there may be, so that no initiator keeps the
    /// others out.
    pub address_sessions_max: usize,
    /// Discovery sessions, which anybody may have. When there are more, the oldest one of the address that
    /// has most of them ends.
    pub discovery_max: usize,
    /// A discovery session ends after so long. Asking for all targets takes a moment.
    pub discovery_time_max: Duration,
    /// How often a discovery session may ask for targets. Initiators ask once.
    pub discovery_lists_max: u32,
    /// The longest data segment that we take: our `MaxRecvDataSegmentLength`.
    pub segment_max: u32,
    /// The longest transfer of a command: the buffer of a write is taken as one.
    pub transfer_max: u32,
    /// Our `MaxBurstLength`: what one R2T asks for.
    pub burst_max: u32,
    /// Our `FirstBurstLength`: what may come unasked. With the window it bounds the memory that a
    /// session takes without being given it.
    pub first_burst_max: u32,
    /// Our `MaxOutstandingR2T`.
    pub r2ts_max: u32,
    /// Commands of a session that are under way.
    pub window: u32,
    /// Commands beside the window: those that are marked immediate.
    pub immediate_max: usize,
    /// Task management functions of a session that wait for their end.
    pub manages_max: usize,
    /// Text of one request, also when it comes in parts.
    pub text_max: usize,
    /// Buffers of writes of one session, beyond what comes unasked.
    pub write_bytes_max: usize,
    /// Data of reads of one session, from the command until it is sent: a read of the longest transfer, and
    /// half of another on its way.
    pub read_bytes_max: usize,
    /// Our portal group; there is one.
    pub portal_group: u16,
    /// Who may see the list of targets.
    pub discovery: Access,
    /// The number of the first nexus. Portals that share a unit need ranges that do not meet.
    pub nexus_first: u64,
}

impl Limits {
    /// Bounds with which no session could do anything are a mistake of the owner.
    pub(super) fn check(&self) {
        let lengths = [self.segment_max, self.burst_max, self.first_burst_max];
        let is_legal = |len: &u32| (512..1 << 24).contains(len);
        assert!(lengths.iter().all(is_legal), "lengths that the standard does not have");
        assert!(self.window > 0 && self.window < 1 << 16, "a window without room, or without end");
        let transfer_max = self.transfer_max as usize;
        assert!(self.read_bytes_max >= transfer_max, "the longest read would wait for ever");
        assert!(self.sessions_max < 1 << 15, "more sessions than handles for them");
    }
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            login_time_max: Duration::from_secs(15),
            ping_after: Duration::from_secs(30),
            silence_max: Duration::from_secs(60),
            drain_grace: Duration::from_secs(10),
            sessions_max: 1024,
            target_sessions_max: 128,
            address_sessions_max: 512,
            discovery_max: 64,
            discovery_time_max: Duration::from_secs(15),
            discovery_lists_max: 16,
            segment_max: 256 * KIB,
            transfer_max: 16 * MIB,
            burst_max: MIB,
            first_burst_max: 256 * KIB,
            r2ts_max: 4,
            window: 128,
            immediate_max: 16,
            manages_max: 64,
            text_max: 64 * 1024,
            write_bytes_max: 64 << 20,
            read_bytes_max: 24 << 20,
            portal_group: 1,
            discovery: Access::default(),
            nexus_first: 1,
        }
    }
}
