//! What a target knows of one replica.
use block::{ByteLen, Position, Seq};

use crate::membership::Member;
use crate::message::{Leaving, Refusal, Welcome};
use crate::replica::LinkId;
use crate::target::pace::Milestone;
use crate::target::rounds::Round;
use crate::words::{Boot, Moment, ReplicaId};

/// How a replica stands to the reign.
#[derive(Debug)]
pub enum Stand {
    Away,
    /// Hello was said.
    Greeting,
    Refusing(Refusal),
    /// It welcomed the reign, whose history is not chosen yet.
    Welcoming(Box<Welcome>),
    /// It has another content than the one that is listed.
    Stranger,
    /// What it says of itself contradicts itself: nothing is built on it.
    Implausible(&'static str),
    /// It has a prefix of the history, and perhaps a tail that is not in it, but not the stream.
    Apart(Apart),
    CatchingUp(Box<Round>),
    InStream {
        /// Entries up to here are on their way.
        sent: Seq,
    },
}

/// Why a replica is not in the stream, and what it would take.
#[derive(Clone, Debug, Default)]
pub struct Apart {
    /// The last position that it has in common with the history.
    pub agreed: Position,
    /// It has entries that are not in the history.
    pub has_tail: bool,
    pub why: Option<Leaving>,
    /// Not before this moment is it tried again.
    pub not_before: Moment,
    /// How many bytes the last round brought; for the first there is none.
    pub last_round: Option<u64>,
    /// Sources whose copy was found damaged.
    pub bad_sources: Vec<ReplicaId>,
}

#[derive(Debug)]
pub struct Peer {
    pub member: Member,
    pub link: Option<LinkId>,
    /// When the connection came up.
    pub linked: Option<Moment>,
    pub asked: Option<Moment>,
    pub heard: Moment,
    pub stand: Stand,
    // The books: replaced by every welcome.
    pub boot: Boot,
    pub held: Seq,
    pub durable: Seq,
    pub headroom: ByteLen,
    pub milestone: Milestone,
    /// When it last lost the stream because it was too far behind.
    pub left_behind: Option<Moment>,
    /// When the newest renewal was sent to it, and when the newest that it confirmed was.
    pub renewal_sent: Option<Moment>,
    pub renewed: Option<Moment>,
    /// It started dirty and cannot prove that nothing was lost; until it holds this.
    pub regressed: Option<Seq>,
    /// What it said of itself.
    pub facts: Option<Box<Welcome>>,
    /// Its pool had no space for a round: its vote is to be given up.
    pub gives_up: bool,
    pub reads: usize,
}

impl Peer {
    pub fn new(member: Member) -> Peer {
        Peer {
            member,
            link: None,
            linked: None,
            asked: None,
            heard: Moment(0),
            stand: Stand::Away,
            boot: Boot(0),
            held: Seq(0),
            durable: Seq(0),
            headroom: ByteLen(0),
            milestone: Milestone::default(),
            left_behind: None,
            renewal_sent: None,
            renewed: None,
            regressed: None,
            facts: None,
            gives_up: false,
            reads: 0,
        }
    }

    /// The same place with another content: nothing that was known counts.
    pub fn meet(&mut self, member: Member, heard: Moment) {
        let (link, linked, asked) = (self.link, self.linked, self.asked);
        *self = Peer { link, linked, asked, heard, ..Peer::new(member) };
    }

    /// It answered one of the reads that it was asked.
    pub fn answered_read(&mut self) {
        self.reads = self.reads.saturating_sub(1);
    }

    pub fn is_in_stream(&self) -> bool {
        matches!(self.stand, Stand::InStream { .. })
    }

    /// The link over which it follows this reign.
    pub fn open_link(&self) -> Option<LinkId> {
        match self.stand {
            Stand::Welcoming(_)
            | Stand::Apart(_)
            | Stand::CatchingUp(_)
            | Stand::InStream { .. } => self.link,
            _ => None,
        }
    }

    pub fn granule(&self) -> u64 {
        self.facts.as_ref().map_or(4096, |facts| facts.costs.granule.0.max(512))
    }
}
