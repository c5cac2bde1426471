//! The numbers of the protocol, with their reasons; `docs/quorum.md` argues them.
use block::ByteLen;

use crate::words::Span;

/// How long CF confirmations let a target serve reads. A takeover waits it out: shorter means a
/// shorter outage, longer means fewer messages and more patience with pauses.
pub const LEASE: Span = Span::secs(2);

/// How often it is renewed: three renewals may be lost before reads wait.
pub const RENEW_EVERY: Span = Span::millis(500);

/// Clocks of two machines differ in speed by at most one part in a hundred. Quartz is a hundred
/// times better; a machine that is worse must not run a target.
pub const DRIFT_PERCENT: u64 = 1;

/// How long IO waits for a quorum before it fails. A file system that sees an error turns
/// read-only; a node that restarts is back within a minute.
pub const HOLD_DEADLINE: Span = Span::secs(60);

/// Bytes that a replica may lag behind before it leaves the stream and catches up by delta; also
/// what the target keeps at the most for replay.
pub const BACKLOG: u64 = 64 << 20;

/// How long a replica may take to reach what was the end, while writers wait for it. At half a backlog that is 64 MiB/s:
/// whoever is slower is better left behind.
pub const PACE: Span = Span::millis(500);

/// How long a replica that was left behind is not waited for: one that is too slow comes back and
/// falls behind again and again.
pub const UNFORGIVEN: Span = Span::secs(60);

/// How long a replica may be silent before its connection is given up.
pub const SILENCE: Span = Span::secs(5);

/// How long a hello may take: a replica drains what it has and flushes twice, on a slow disk.
pub const GREETING: Span = Span::secs(10);

/// How long an activation waits for more voters when going on would mean that writes may have
/// been lost.
pub const PATIENCE: Span = Span::secs(5);

/// Without new entries for this long a replica flushes and is clean again.
pub const IDLE_FLUSH: Span = Span::secs(1);

/// Bytes of one fetch of a catch-up, and how many are under way.
pub const FETCH: u64 = 1 << 20;
pub const FETCHES: usize = 4;

/// A round whose destination does not move for this long is given up.
pub const ROUND_PATIENCE: Span = Span::secs(10);

/// A group hold that is not released in this time breaks.
pub const GROUP_HOLD: Span = Span::secs(5);

/// The longest read or write; front ends split above it. The engine's slots have the same bound.
pub const REQUEST_MAX: u64 = 1 << 20;

/// How much of a volume one question for extents looks at; the engine's bound is the same. With
/// the smallest granule that is an answer of 36 KiB.
pub const EXTENTS_MAX: ByteLen = ByteLen(16 << 20);

/// The largest volume; the engine's maps have the same bound.
pub const VOLUME_MAX: u64 = 128 << 40;

/// Entries that may be under way to one replica and requests that may wait.
pub const ENTRIES_MAX: usize = 10_000;
pub const REQUESTS_MAX: usize = 4096;
