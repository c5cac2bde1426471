//! The coordinator of group cuts: holds all volumes, cuts them, releases them; slow at times.
use std::collections::BTreeMap;

use replication::client::{Command, CommandAnswer, CommandError, RequestId};
use replication::constants::GROUP_HOLD;
use replication::state::SnapshotSpec;
use replication::words::{SnapshotUid, Span, Token};

use super::World;
use super::clients::COORDINATOR;
use super::event::{RunAt, What};
use crate::quorum::clients::{Fact, VolumeNo};

/// What the coordinator does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Cut { cut: u64 },
    Release { cut: u64 },
    GiveUp { cut: u64 },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Phase {
    Holding,
    Cutting,
    Releasing,
}

/// How far one volume came.
#[derive(Default)]
struct Member {
    run: Option<RunAt>,
    held: bool,
    cut: bool,
    durable: bool,
    released: bool,
}

struct Group {
    cut: u64,
    phase: Phase,
    members: BTreeMap<VolumeNo, Member>,
}

#[derive(Default)]
pub(super) struct Groups {
    present: Option<Group>,
    /// Which run of a target a command went to.
    pub asked: BTreeMap<RequestId, RunAt>,
}

fn id_of(cut: u64, volume: VolumeNo, phase: Phase) -> RequestId {
    RequestId(COORDINATOR + cut * 64 + volume.0 as u64 * 4 + phase as u64)
}

fn spec_of(cut: u64, volume: VolumeNo) -> SnapshotSpec {
    let mut uid = [0xc0; 16];
    uid[..8].copy_from_slice(&cut.to_le_bytes());
    uid[8] = u8::try_from(volume.0).expect("a few volumes");
    SnapshotSpec { uid: SnapshotUid(uid), name: format!("cut-{cut}"), created: cut }
}

impl Groups {
    /// The cut that is under way is given up, and whatever is said of it counts no more.
    pub fn forget(&mut self) {
        self.present = None;
    }
}

impl World {
    pub(super) fn begin_group(&mut self) {
        if self.groups.present.is_some() || self.plan.volumes.len() < 2 {
            return;
        }
        let cut = self.number();
        let volumes: Vec<VolumeNo> = self.volumes().collect();
        self.say(|| format!("cut {cut} begins"));
        let members = volumes.iter().map(|volume| (*volume, Member::default())).collect();
        self.groups.present = Some(Group { cut, phase: Phase::Holding, members });
        let lasts = *self.rng.pick(&[Span(300_000), Span::secs(1), GROUP_HOLD]);
        for volume in volumes {
            let hold = Command::Hold { token: Token(cut), lasts };
            self.group_command(volume, id_of(cut, volume, Phase::Holding), hold);
        }
        let limit = self.soon(9_000_000).after(1_000_000);
        self.push(limit, What::Group(Step::GiveUp { cut }));
    }

    /// All commands of one cut go to the same run of a target.
    fn group_command(&mut self, volume: VolumeNo, id: RequestId, command: Command) {
        let group = self.groups.present.as_mut().expect("there is one");
        let run = group.members.get(&volume).and_then(|member| member.run);
        let Some(to) = run.or_else(|| self.address(volume)) else { return };
        let group = self.groups.present.as_mut().expect("there is one");
        group.members.get_mut(&volume).expect("a member").run = Some(to);
        // Each volume has its own way to its target, and some are slow.
        let way = *self.rng.pick(&[3_000, 3_000, 3_000, 400_000]);
        let at = self.soon(way);
        self.push(at, What::Commanded { volume, to, id, command });
    }

    pub(super) fn group_answered(
        &mut self,
        volume: VolumeNo,
        id: RequestId,
        result: Result<CommandAnswer, CommandError>,
    ) {
        let Some(group) = &mut self.groups.present else { return };
        let cut = group.cut;
        if id.0 < id_of(cut, VolumeNo(0), Phase::Holding).0 {
            return;
        }
        let member = group.members.get_mut(&volume).expect("a member");
        let mut broken = false;
        match result {
            Ok(CommandAnswer::Held { .. }) => member.held = true,
            Ok(CommandAnswer::CutAt { .. }) => member.cut = true,
            Ok(CommandAnswer::Done { .. }) => (member.cut, member.durable) = (true, true),
            Ok(CommandAnswer::Released { unbroken }) => {
                member.released = unbroken;
                broken = !unbroken;
            }
            Ok(CommandAnswer::Stage(_)) => {}
            Err(_) => broken = true,
        }
        if broken {
            self.note("group cut broken");
            self.group_fails(cut);
            return;
        }
        self.group_moves();
    }

    /// Goes on when all members came so far, after a while that may be too long.
    fn group_moves(&mut self) {
        let Some(group) = &mut self.groups.present else { return };
        let cut = group.cut;
        let all = |reached: fn(&Member) -> bool| group.members.values().all(reached);
        let step = match group.phase {
            Phase::Holding if all(|m| m.held) => Step::Cut { cut },
            Phase::Cutting if all(|m| m.cut) => Step::Release { cut },
            Phase::Releasing if all(|m| m.released && m.durable) => {
                self.group_is_good(cut);
                return;
            }
            _ => return,
        };
        group.phase = match step {
            Step::Cut { .. } => Phase::Cutting,
            _ => Phase::Releasing,
        };
        let sleep = *self.rng.pick(&[20_000, 20_000, 20_000, 600_000, 7_000_000]);
        let at = self.soon(sleep);
        self.push(at, What::Group(step));
    }

    fn group_is_good(&mut self, cut: u64) {
        let snapshots = self.volumes().map(|volume| (volume, spec_of(cut, volume).uid)).collect();
        self.note("group cut good");
        self.groups.present = None;
        self.say(|| format!("cut {cut} is good"));
        self.tell(&Fact::GroupCut { snapshots });
    }

    fn group_fails(&mut self, cut: u64) {
        for volume in self.volumes() {
            let release = Command::Release { token: Token(cut) };
            self.group_command(volume, id_of(cut, volume, Phase::Releasing), release);
        }
        self.groups.present = None;
        self.say(|| format!("cut {cut} failed"));
    }

    pub(super) fn group_step(&mut self, step: Step) {
        let Some(present) = self.groups.present.as_ref().map(|group| group.cut) else { return };
        match step {
            Step::Cut { cut } if cut == present => {
                for volume in self.volumes() {
                    let command = Command::Cut { token: Token(cut), spec: spec_of(cut, volume) };
                    self.group_command(volume, id_of(cut, volume, Phase::Cutting), command);
                }
            }
            Step::Release { cut } if cut == present => {
                for volume in self.volumes() {
                    let command = Command::Release { token: Token(cut) };
                    self.group_command(volume, id_of(cut, volume, Phase::Releasing), command);
                }
            }
            Step::GiveUp { cut } if cut == present => {
                self.note("group cut took too long");
                self.group_fails(cut);
            }
            _ => {}
        }
    }
}
