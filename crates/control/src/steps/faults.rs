//! Places between two steps, where a test ends the controller.
//!
//! In a process `POLLUX_FAULT=<point>` or `<point>:<n>` aborts when the point is reached for the n-th time. In a
//! test the controller stands still there, and wakes up when another has taken over.
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::Notify;

/// A place between two steps.
pub type Point = &'static str;

macro_rules! points {
    ($($name:ident = $text:literal),+ $(,)?) => {
        $(pub const $name: Point = $text;)+
        /// All of them, for whoever tries each.
        pub const POINTS: &[Point] = &[$($text),+];
    };
}

points! {
    VOLUME_INTENDED = "volume.intended",
    REPLICA_MADE = "replica.made",
    REPLICAS_MADE = "replicas.made",
    VOTES_GIVEN = "votes.given",
    TARGET_STARTED = "target.started",
    CLONE_INTENDED = "clone.intended",
    CLONE_MARKED = "clone.marked",
    COPY_MADE = "copy.made",
    GROWTH_INTENDED = "growth.intended",
    GROWTH_DONE = "growth.done",
    REPLICA_PLACED = "replica.placed",
    REPLICA_WANTED = "replica.wanted",
    REPLICA_UNWANTED = "replica.unwanted",
    REPLICA_WIPED = "replica.wiped",
    DELETION_INTENDED = "deletion.intended",
    TARGET_STOPPED = "target.stopped",
    VOTES_TAKEN = "votes.taken",
    CONTENT_WIPED = "content.wiped",
    CLONE_UNMARKED = "clone.unmarked",
    SNAPSHOT_INTENDED = "snapshot.intended",
    SNAPSHOT_MADE = "snapshot.made",
    SNAPSHOT_UNWANTED = "snapshot.unwanted",
    SNAPSHOT_GONE = "snapshot.gone",
    CUT_INTENDED = "cut.intended",
    CUT_HELD = "cut.held",
    CUT_MADE = "cut.made",
    CUT_RELEASED = "cut.released",
    CUT_DURABLE = "cut.durable",
    CUT_LISTED = "cut.listed",
    CUT_UNWANTED = "cut.unwanted",
    CUT_MEMBER_GONE = "cut.member.gone",
}

#[derive(Clone, Debug, Default)]
pub struct Faults {
    armed: Option<Arc<Armed>>,
}

#[derive(Debug)]
struct Armed {
    point: String,
    left: AtomicU64,
    end: End,
}

/// A controller that stands still, as one whose machine sleeps.
#[derive(Debug, Default)]
pub struct Halt {
    /// The point was reached.
    pub reached: Notify,
    /// It wakes up.
    pub go_on: Notify,
}

#[derive(Debug)]
enum End {
    /// The process is gone.
    Abort,
    /// Whoever comes here waits until he is let go on; the test is told.
    Halt(Arc<Halt>),
}

impl Faults {
    pub fn none() -> Faults {
        Faults::default()
    }

    /// What `POLLUX_FAULT` says.
    pub fn from_env() -> Faults {
        let Ok(told) = std::env::var("POLLUX_FAULT") else { return Faults::none() };
        let (point, times) = told.split_once(':').unwrap_or((&told, "1"));
        let left = AtomicU64::new(times.parse().unwrap_or(1));
        Faults { armed: Some(Arc::new(Armed { point: point.into(), left, end: End::Abort })) }
    }

    /// Halts at a point when it is reached for the n-th time, and tells.
    pub fn halt_at(point: Point, times: u64, halt: Arc<Halt>) -> Faults {
        let (point, left) = (point.into(), AtomicU64::new(times));
        Faults { armed: Some(Arc::new(Armed { point, left, end: End::Halt(halt) })) }
    }

    pub async fn at(&self, point: Point) {
        let Some(armed) = self.armed.as_ref().filter(|armed| armed.point == point) else { return };
        // Zero is passed once: whoever comes later, while the end is near, is let through.
        if armed.left.fetch_sub(1, Ordering::SeqCst) != 1 {
            return;
        }
        match &armed.end {
            End::Abort => std::process::abort(),
            End::Halt(halt) => {
                halt.reached.notify_one();
                halt.go_on.notified().await;
            }
        }
    }
}
