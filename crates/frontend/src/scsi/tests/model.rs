//! Random commands of several initiators, over a volume that does what it is asked at any time
//! before it answers, in any order, and fails now and then. What the initiators saw must be what one
//! command after the other could have given, for every block on its own.
use std::collections::HashSet;

use super::rig::*;
use crate::ask::{Answer, Ask, AskError, AskId};
use crate::scsi::Event;
use crate::scsi::words::{Attribute, Management, NexusId, Response, Status, TaskId};

const BLOCK: usize = 512;
const BLOCKS: u32 = 4;
const COMMANDS: usize = 40;
/// Few, so that comparisons match often.
const VALUES: u32 = 4;

struct Chance(u64);

impl Chance {
    fn below(&mut self, bound: u32) -> u32 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        u32::try_from(self.0 % u64::from(bound)).unwrap()
    }

    fn value(&mut self) -> u8 {
        u8::try_from(self.below(VALUES)).unwrap()
    }
}

/// What a command did to one block.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Deed {
    Saw(u8),
    Wrote(u8),
    Added(u8),
    Swapped {
        old: u8,
        new: u8,
    },
    /// It found another value than this.
    Missed(u8),
}

impl Deed {
    /// The block after it, if it could have happened.
    fn after(self, value: u8) -> Option<u8> {
        match self {
            Deed::Saw(seen) => (seen == value).then_some(value),
            Deed::Wrote(new) => Some(new),
            Deed::Added(bits) => Some(value | bits),
            Deed::Swapped { old, new } => (old == value).then_some(new),
            Deed::Missed(other) => (other != value).then_some(value),
        }
    }
}

#[derive(Clone, Debug)]
struct Entry {
    deed: Deed,
    from: usize,
    until: usize,
    /// It may also not have happened.
    perhaps: bool,
}

/// Whether the entries of one block fit into one order, each within its time.
fn fits(history: &[Entry]) -> bool {
    fn go(history: &[Entry], done: u64, value: u8, seen: &mut HashSet<(u64, u8)>) -> bool {
        let left = || (0..history.len()).filter(|at| done & (1 << at) == 0);
        if left().all(|at| history[at].perhaps) {
            return true;
        }
        if !seen.insert((done, value)) {
            return false;
        }
        // Nobody begins after the end of one that is still to come. One that perhaps never
        // happened ends when it is left out.
        let first_end = left().map(|at| history[at].until).min().unwrap_or(usize::MAX);
        left().filter(|at| history[*at].from <= first_end).any(|at| {
            let next = done | 1 << at;
            let after = history[at].deed.after(value);
            after.is_some_and(|value| go(history, next, value, seen))
                || (history[at].perhaps && go(history, next, value, seen))
        })
    }
    assert!(history.len() < 64);
    go(history, 0, 0, &mut HashSet::new())
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    Read,
    Write,
    Same,
    Or,
    Swap(u8),
    Verify,
    WriteVerify,
    Unmap,
}

struct Sent {
    nexus: NexusId,
    task: TaskId,
    kind: Kind,
    first: u32,
    blocks: u32,
    value: u8,
    at: usize,
}

struct World {
    rig: Rig,
    chance: Chance,
    now: usize,
    sent: Vec<Sent>,
    /// Aborted by a function that is not answered yet.
    aborted: Vec<(u64, Sent)>,
    /// Asked, perhaps done, not answered.
    volume: Vec<(AskId, Ask, Option<Answer>)>,
    histories: Vec<Vec<Entry>>,
}

impl World {
    fn new(seed: u64) -> World {
        World {
            rig: Rig::new(BLOCK),
            chance: Chance(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1),
            now: 0,
            sent: Vec::new(),
            aborted: Vec::new(),
            volume: Vec::new(),
            histories: vec![Vec::new(); BLOCKS as usize],
        }
    }

    fn send(&mut self) {
        let chance = &mut self.chance;
        let kind = match chance.below(10) {
            0 | 1 => Kind::Read,
            2 => Kind::Write,
            3 => Kind::Same,
            4 => Kind::Or,
            5..=7 => Kind::Swap(chance.value()),
            8 => Kind::Verify,
            _ => [Kind::WriteVerify, Kind::Unmap][chance.below(2) as usize],
        };
        let single = matches!(kind, Kind::Swap(_));
        let first = chance.below(BLOCKS);
        let blocks = if single { 1 } else { 1 + chance.below(BLOCKS - first) };
        let value = chance.value();
        let attribute = match chance.below(20) {
            0 => Attribute::Ordered,
            1 => Attribute::HeadOfQueue,
            _ => Attribute::Simple,
        };
        let nexus = [A, B, C][chance.below(3) as usize];
        let span = (u64::from(first), blocks);
        let data = vec![value; blocks as usize * BLOCK];
        let (bytes, data) = match kind {
            Kind::Read => (sixteen(0x88, 0, span.0, span.1), vec![]),
            Kind::Write => (sixteen(0x8A, 0, span.0, span.1), data),
            Kind::Same => (sixteen(0x93, 0, span.0, span.1), vec![value; BLOCK]),
            Kind::Or => (sixteen(0x8B, 0, span.0, span.1), data),
            Kind::Swap(old) => (compare(span.0), [vec![old; BLOCK], data].concat()),
            Kind::Verify => (sixteen(0x8F, 2, span.0, span.1), data),
            Kind::WriteVerify => (sixteen(0x8E, 2, span.0, span.1), data),
            Kind::Unmap => {
                let mut list = vec![0, 22, 0, 16, 0, 0, 0, 0];
                list.extend(span.0.to_be_bytes());
                list.extend(span.1.to_be_bytes());
                list.extend([0; 4]);
                (ten(0x42, 0, 0, 24), list)
            }
        };
        let at = self.now;
        let task = self.rig.send_as(nexus, attribute, &bytes, &data);
        self.sent.push(Sent { nexus, task, kind, first, blocks, value, at });
        self.collect();
    }

    /// Takes what came out of the unit.
    fn collect(&mut self) {
        for (id, ask) in self.rig.asks.drain(..) {
            self.volume.push((id, ask, None));
        }
        for (_, task, response) in std::mem::take(&mut self.rig.done) {
            let at = self.sent.iter().position(|sent| sent.task == task);
            let sent = self.sent.remove(at.expect("only what was sent is answered"));
            self.note(&sent, Some(&response));
        }
        for (_, id, _) in std::mem::take(&mut self.rig.managed) {
            let over = self.aborted.extract_if(.., |(function, _)| *function == id);
            for (_, sent) in over.collect::<Vec<_>>() {
                self.note(&sent, None);
            }
        }
    }

    fn note(&mut self, sent: &Sent, response: Option<&Response>) {
        let good = response.is_some_and(|response| response.status == Status::Good);
        let miscompare = response.is_some_and(|response| {
            response.status == Status::CheckCondition && codes(response).0 == 0xE
        });
        let data = response.map(data_in).unwrap_or_default();
        for offset in 0..sent.blocks as usize {
            let perhaps = !good && !miscompare;
            let deed = match sent.kind {
                Kind::Read if good => {
                    let block = &data[offset * BLOCK..(offset + 1) * BLOCK];
                    assert!(block.iter().all(|byte| *byte == block[0]), "a torn block");
                    Deed::Saw(block[0])
                }
                Kind::Verify if good => Deed::Saw(sent.value),
                Kind::Verify if miscompare && sent.blocks == 1 => Deed::Missed(sent.value),
                Kind::Read | Kind::Verify => continue,
                Kind::Swap(old) if miscompare => Deed::Missed(old),
                Kind::Swap(old) => Deed::Swapped { old, new: sent.value },
                Kind::Or => Deed::Added(sent.value),
                Kind::Unmap => Deed::Wrote(0),
                Kind::Write | Kind::Same => Deed::Wrote(sent.value),
                Kind::WriteVerify => {
                    assert!(!miscompare, "somebody wrote between the write and the look");
                    Deed::Wrote(sent.value)
                }
            };
            let entry = Entry { deed, from: sent.at, until: self.now, perhaps };
            self.histories[sent.first as usize + offset].push(entry);
        }
    }

    /// Lets the volume do something, or answer.
    fn turn(&mut self) {
        if self.volume.is_empty() {
            return;
        }
        let at = self.chance.below(u32::try_from(self.volume.len()).unwrap()) as usize;
        if self.volume[at].2.is_none() {
            if self.chance.below(40) == 0 {
                let (id, ask, _) = self.volume.remove(at);
                if self.chance.below(2) == 0 {
                    self.rig.volume.answer(&ask).unwrap();
                }
                let result = Err(AskError::NoQuorum { reason: String::new() });
                self.rig.step(Event::Answered { id, result });
                self.collect();
                return;
            }
            let answer = self.rig.volume.answer(&self.volume[at].1).unwrap();
            self.volume[at].2 = Some(answer);
            return;
        }
        let (id, _, answer) = self.volume.remove(at);
        let answer = answer.unwrap();
        self.rig.step(Event::Answered { id, result: Ok(answer) });
        self.collect();
    }

    /// Takes something back.
    fn abort(&mut self) {
        if self.sent.is_empty() {
            return;
        }
        let at = self.chance.below(u32::try_from(self.sent.len()).unwrap()) as usize;
        let victim = &self.sent[at];
        let (nexus, task) = (victim.nexus, victim.task);
        let (function, all) = match self.chance.below(3) {
            0 => (Management::AbortTaskSet, true),
            _ => (Management::AbortTask { task }, false),
        };
        let gone = |sent: &mut Sent| sent.nexus == nexus && (all || sent.task == task);
        let victims: Vec<Sent> = self.sent.extract_if(.., gone).collect();
        let id = self.rig.manage(nexus, function);
        self.aborted.extend(victims.into_iter().map(|sent| (id, sent)));
        self.collect();
    }

    fn run(mut self) -> Vec<Vec<Entry>> {
        let mut left = COMMANDS;
        while left > 0 || !self.volume.is_empty() {
            self.now += 1;
            match self.chance.below(20) {
                0..=6 if left > 0 => {
                    left -= 1;
                    self.send();
                }
                7 if self.chance.below(4) == 0 => self.abort(),
                _ => self.turn(),
            }
        }
        assert!(self.sent.is_empty() && self.aborted.is_empty() && self.rig.unit.is_idle());
        // What is there in the end belongs to the history.
        for (block, history) in self.histories.iter_mut().enumerate() {
            let last = self.rig.volume.bytes[block * BLOCK];
            let (from, until) = (self.now + 1, self.now + 1);
            history.push(Entry { deed: Deed::Saw(last), from, until, perhaps: false });
        }
        self.histories
    }
}

#[test]
fn whatever_initiators_see_could_have_come_one_after_the_other() {
    for seed in 1..=1500 {
        for (block, history) in World::new(seed).run().iter().enumerate() {
            assert!(fits(history), "seed {seed}, block {block}: {history:#?}");
        }
    }
}

#[test]
fn the_checker_knows_what_cannot_be() {
    let entry = |deed, from, until, perhaps| Entry { deed, from, until, perhaps };
    let swap = |old, new| Deed::Swapped { old, new };
    // Two swaps of the same old value cannot both succeed.
    assert!(!fits(&[entry(swap(0, 1), 1, 5, false), entry(swap(0, 2), 1, 5, false)]));
    assert!(fits(&[entry(swap(0, 1), 1, 5, false), entry(swap(1, 0), 1, 5, false)]));
    // A read cannot come before a write that was answered.
    assert!(!fits(&[entry(Deed::Wrote(1), 1, 2, false), entry(Deed::Saw(0), 3, 4, false)]));
    assert!(fits(&[entry(Deed::Wrote(1), 1, 3, false), entry(Deed::Saw(0), 2, 4, false)]));
    // What perhaps happened may be left out, but not happen late.
    assert!(fits(&[entry(Deed::Wrote(1), 1, 2, true), entry(Deed::Saw(0), 3, 4, false)]));
    assert!(!fits(&[
        entry(Deed::Wrote(1), 1, 2, true),
        entry(Deed::Saw(0), 3, 4, false),
        entry(Deed::Saw(1), 5, 6, false),
    ]));
}
