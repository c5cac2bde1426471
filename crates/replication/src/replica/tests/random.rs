//! Chance: answers in any order, refusals, lost connections, kills and power cuts. Whatever happens,
//! what was said is true.
use block::{ByteOffset, Position, Seq};

use crate::entry::Change;
use crate::message::{AskId, RoundPoint, ToReplica, ToTarget};
use crate::replica::{Event, LinkId};
use crate::state::Stages;
use crate::store::StoreError;
use crate::words::{Moment, Span};

use super::rig::{Rig, powered, write};

/// Seeds that are run; all of them take about a second.
const SEEDS: u64 = 300;
const STEPS: usize = 400;

struct Chance(u64);

impl Chance {
    fn below(&mut self, bound: u64) -> u64 {
        // SplitMix64.
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % bound
    }
}

/// A target that follows the rules, as far as one replica sees it.
struct Reign {
    link: u64,
    term: u64,
    kernel: u128,
    /// The last that was sent; known from the welcome on.
    sent: Option<u64>,
    begun: bool,
    held: u64,
    durable: u64,
}

fn look(rig: &mut Rig, reign: &mut Reign) {
    for (link, body) in std::mem::take(&mut rig.sent) {
        assert_eq!(link, LinkId(reign.link), "only the newest connection hears anything: {body:?}");
        match body {
            ToTarget::Welcome(welcome) => {
                let at = welcome.position;
                assert_eq!(at, rig.store.facts().position);
                assert!(rig.store.durable_position() >= at, "a welcome is durable");
                assert_eq!(rig.durable_state().promise.term.0, reign.term);
                assert!(at.seq.0 >= reign.durable, "what was durable is still there");
                let same = rig.replica.run.powered == powered(reign.kernel);
                assert!(at.seq.0 >= reign.held || !same, "only a power cut takes what was held");
                assert!(at.seq.0 >= reign.held || welcome.regressed, "it knows that it lost it");
                reign.kernel = rig.replica.run.powered.kernel;
                (reign.held, reign.durable) = (at.seq.0, at.seq.0);
                (reign.sent, reign.begun) = (Some(at.seq.0), at.term.0 == reign.term);
            }
            ToTarget::Ack { held, durable, .. } => {
                assert!(rig.store.facts().position.seq >= held);
                assert!(rig.store.durable_position().seq >= durable);
                assert!(held == durable || rig.durable_state().dirty.is_some());
                assert!((held.0, durable.0) >= (reign.held, reign.durable), "acks only grow");
                (reign.held, reign.durable) = (held.0, durable.0);
            }
            ToTarget::Left { at, .. } => {
                assert_eq!(rig.store.facts().position.seq, Seq(at.0 - 1));
                reign.sent = None;
            }
            _ => {}
        }
    }
    if rig.dropped.contains(&LinkId(reign.link)) {
        reign.sent = None;
    }
}

fn change(chance: &mut Chance, seq: u64) -> Change {
    match chance.below(10) {
        0 => Change::Flush,
        1 => Change::Points(seq.to_be_bytes().to_vec()),
        2 => Change::Resize { size: block::ByteLen((64 + seq) * 4096) },
        _ => write(chance.below(16), 1),
    }
}

fn send(rig: &mut Rig, reign: &mut Reign, chance: &mut Chance) {
    let Some(last) = reign.sent else { return };
    let mut changes = Vec::new();
    if !reign.begun {
        changes.push(Change::Barrier { stages: Stages::default() });
        reign.begun = true;
    }
    while changes.len() < 1 + usize::try_from(chance.below(20)).unwrap() {
        changes.push(change(chance, last + 1 + changes.len() as u64));
    }
    reign.sent = Some(last + changes.len() as u64);
    rig.entries(reign.link, reign.term, last + 1, changes);
}

fn ask(rig: &mut Rig, reign: &Reign, chance: &mut Chance) {
    if reign.sent.is_none() {
        return;
    }
    let id = AskId(1);
    let body = match chance.below(4) {
        0 => ToReplica::Renew { sent: Moment(1), settled: Seq(reign.durable) },
        1 => ToReplica::OpenRound { id, point: RoundPoint::Now },
        2 => ToReplica::CloseRound { round: rig.replica.position() },
        _ => ToReplica::Read {
            id,
            of: crate::message::RoundPoint::Now,
            offset: ByteOffset(0),
            len: block::ByteLen(4096),
        },
    };
    rig.say(reign.link, reign.term, body);
}

fn answer_one(rig: &mut Rig, chance: &mut Chance) {
    if !rig.answers.is_empty() {
        let index = usize::try_from(chance.below(rig.answers.len() as u64)).unwrap();
        let (tag, result) = rig.answers.remove(index).unwrap();
        rig.step(Event::Stored { tag, result });
    }
}

fn run(seed: u64) {
    let mut chance = Chance(seed);
    let mut rig = Rig::new();
    let (link, term, held, durable) = (1, 1, 0, 0);
    let mut reign = Reign { link, term, kernel: 1, sent: None, begun: false, held, durable };
    let mut kernel = 1;
    rig.hello(reign.link, reign.term);
    for _ in 0..STEPS {
        match chance.below(100) {
            0..3 => rig.answer_together(),
            3..60 => answer_one(&mut rig, &mut chance),
            60..75 => send(&mut rig, &mut reign, &mut chance),
            75..82 => ask(&mut rig, &reign, &mut chance),
            82..90 => rig.tick_after(Span::millis(400)),
            90..93 => {
                let error = match chance.below(3) {
                    0 => StoreError::NoSpace,
                    _ => StoreError::Busy,
                };
                let seq = rig.store.facts().position.seq.0 + 1 + chance.below(8);
                rig.store.refuse = Some((Seq(seq), error, true));
            }
            93..98 => {
                // Another connection, of the same target or of the next.
                reign.link += 1;
                reign.sent = None;
                reign.term += chance.below(2);
                rig.hello(reign.link, reign.term);
            }
            _ => {
                kernel += u128::from(chance.below(2));
                rig.answers.clear();
                rig = rig.restart(kernel);
                rig.sent.clear();
                reign.link += 1;
                reign.sent = None;
                rig.hello(reign.link, reign.term);
            }
        }
        look(&mut rig, &mut reign);
    }
    // Whatever it was at, it can be followed and goes on.
    rig.store.refuse = None;
    reign.link += 1;
    reign.sent = None;
    rig.hello(reign.link, reign.term);
    for _ in 0..4 {
        rig.answer();
        rig.tick_after(Span::millis(400));
    }
    look(&mut rig, &mut reign);
    send(&mut rig, &mut reign, &mut chance);
    for _ in 0..12 {
        rig.answer();
        rig.tick_after(Span::millis(400));
    }
    look(&mut rig, &mut reign);
    assert_eq!((Some(reign.held), Some(reign.durable)), (reign.sent, reign.sent));
    assert!(!rig.replica.is_dirty(), "it was quiet for long");
    let seq = Seq(reign.held);
    assert_eq!(rig.store.facts().position, Position { seq, ..rig.replica.position() });
}

#[test]
fn what_was_said_is_true_whatever_happens() {
    for seed in 0..SEEDS {
        let result = std::panic::catch_unwind(|| run(seed));
        assert!(result.is_ok(), "seed {seed}");
    }
}
