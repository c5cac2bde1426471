//! The volumes that a shard has something of: a replica, a target, or both.
use std::collections::HashMap;

use replication::catalog::VolumeObject;
use replication::words::VolumeUid;

use super::replicas::ReplicaRun;
use super::targets::TargetRun;

/// A volume of this shard. A number names no other volume after its own is forgotten: then it names none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct VolumeNo {
    slot: usize,
    /// Which of the volumes it is that had the slot.
    turn: u64,
}

pub struct VolumeRun {
    pub uid: VolumeUid,
    pub replica: Option<ReplicaRun>,
    pub target: Option<TargetRun>,
    /// The newest object of the volume that was heard of. Records that were sent earlier may arrive later.
    newest: VolumeObject,
    /// Something of it has events.
    awake: bool,
}

impl VolumeRun {
    fn new(uid: VolumeUid) -> VolumeRun {
        let newest = VolumeObject::default();
        VolumeRun { uid, replica: None, target: None, newest, awake: false }
    }

    pub fn newest(&self) -> &VolumeObject {
        &self.newest
    }

    /// Whether a record's object may be acted on: it is not older than what was acted on before.
    pub fn hear(&mut self, object: &VolumeObject) -> bool {
        if object.is_older_than(&self.newest) {
            return false;
        }
        self.newest = object.clone();
        true
    }
}

struct Slot {
    turn: u64,
    run: Option<VolumeRun>,
}

pub struct Volumes {
    slots: Vec<Slot>,
    /// Slots without a volume.
    free: Vec<usize>,
    by_uid: HashMap<VolumeUid, VolumeNo>,
    awake: Vec<VolumeNo>,
    /// Takes the place of `awake` while that is worked at; kept for its memory.
    spare: Vec<VolumeNo>,
    /// What a number of a forgotten volume names: it has nothing.
    none: VolumeRun,
}

impl Default for Volumes {
    fn default() -> Volumes {
        Volumes {
            slots: Vec::new(),
            free: Vec::new(),
            by_uid: HashMap::new(),
            awake: Vec::new(),
            spare: Vec::new(),
            none: VolumeRun::new(VolumeUid([0; 16])),
        }
    }
}

impl Volumes {
    /// The number of a volume, which it gets here if it has none.
    pub fn number(&mut self, uid: VolumeUid) -> VolumeNo {
        *self.by_uid.entry(uid).or_insert_with(|| {
            let slot = self.free.pop().unwrap_or_else(|| {
                self.slots.push(Slot { turn: 0, run: None });
                self.slots.len() - 1
            });
            let place = &mut self.slots[slot];
            place.turn += 1;
            place.run = Some(VolumeRun::new(uid));
            VolumeNo { slot, turn: place.turn }
        })
    }

    /// Forgets volumes of which nothing is here. Nothing may be under way that will give them something.
    pub fn forget_empty(&mut self) {
        for (at, slot) in self.slots.iter_mut().enumerate() {
            let is_empty =
                |run: &mut VolumeRun| run.replica.is_none() && run.target.is_none() && !run.awake;
            if let Some(run) = slot.run.take_if(is_empty) {
                self.by_uid.remove(&run.uid);
                self.free.push(at);
            }
        }
    }

    pub fn known(&self, uid: VolumeUid) -> Option<VolumeNo> {
        self.by_uid.get(&uid).copied()
    }

    pub fn get(&self, number: VolumeNo) -> &VolumeRun {
        let slot = self.slots.get(number.slot).filter(|slot| slot.turn == number.turn);
        slot.and_then(|slot| slot.run.as_ref()).unwrap_or(&self.none)
    }

    pub fn get_mut(&mut self, number: VolumeNo) -> &mut VolumeRun {
        assert!(
            self.none.replica.is_none() && self.none.target.is_none(),
            "something was given to a volume that is forgotten"
        );
        let slot = self.slots.get_mut(number.slot).filter(|slot| slot.turn == number.turn);
        slot.and_then(|slot| slot.run.as_mut()).unwrap_or(&mut self.none)
    }

    pub fn replica(&mut self, number: VolumeNo) -> Option<&mut ReplicaRun> {
        self.get_mut(number).replica.as_mut()
    }

    pub fn target(&mut self, number: VolumeNo) -> Option<&mut TargetRun> {
        self.get_mut(number).target.as_mut()
    }

    pub fn numbers(&self) -> impl Iterator<Item = VolumeNo> + use<> {
        let numbers: Vec<VolumeNo> = self.iter().map(|(number, _)| number).collect();
        numbers.into_iter()
    }

    pub fn iter(&self) -> impl Iterator<Item = (VolumeNo, &VolumeRun)> {
        self.iter_from(0).map(|(_, number, run)| (number, run))
    }

    /// Those from a place on, with the place of each. A volume keeps its place.
    pub fn iter_from(&self, from: usize) -> impl Iterator<Item = (usize, VolumeNo, &VolumeRun)> {
        let slots = self.slots.iter().enumerate().skip(from);
        slots.filter_map(|(slot, it)| {
            Some((slot, VolumeNo { slot, turn: it.turn }, it.run.as_ref()?))
        })
    }

    /// The volume of this name whose target is here.
    pub fn served(&self, name: &str) -> Option<VolumeNo> {
        let named = |run: &VolumeRun| run.target.as_ref().is_some_and(|it| it.record.name == name);
        self.iter().find(|(_, run)| named(run)).map(|(number, _)| number)
    }

    /// It has events that a turn must look at.
    pub fn wake(&mut self, number: VolumeNo) {
        let slot = self.slots.get_mut(number.slot).filter(|slot| slot.turn == number.turn);
        if let Some(run) = slot.and_then(|slot| slot.run.as_mut())
            && !std::mem::replace(&mut run.awake, true)
        {
            self.awake.push(number);
        }
    }

    pub fn has_awake(&self) -> bool {
        !self.awake.is_empty()
    }

    /// Those that have events; what they are in is given back when it is empty.
    pub fn take_awake(&mut self) -> Vec<VolumeNo> {
        let awake = std::mem::replace(&mut self.awake, std::mem::take(&mut self.spare));
        awake.iter().for_each(|number| self.get_mut(*number).awake = false);
        awake
    }

    pub fn give_back(&mut self, taken: Vec<VolumeNo>) {
        debug_assert!(taken.is_empty(), "whoever is awake has its turn");
        self.spare = taken;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Protects from an allocation in every turn.
    #[test]
    fn turns_share_two_vectors() {
        let mut volumes = Volumes::default();
        let numbers: Vec<_> = (0..100).map(|it| volumes.number(VolumeUid([it; 16]))).collect();
        for _ in 0..2 {
            numbers.iter().for_each(|number| volumes.wake(*number));
            let mut awake = volumes.take_awake();
            assert_eq!(awake, numbers);
            awake.clear();
            volumes.give_back(awake);
        }
        let kept = [volumes.awake.capacity(), volumes.spare.capacity()];
        assert!(kept.into_iter().all(|room| room >= numbers.len()), "{kept:?}");
    }

    /// Protects from memory that grows with every volume there ever was, and from one volume that is
    /// taken for another.
    #[test]
    fn what_is_deleted_makes_room_and_is_never_found_again() {
        let mut volumes = Volumes::default();
        let uid = |number: u64| VolumeUid(u128::from(number).to_be_bytes());
        let first = volumes.number(uid(0));
        for number in 1..10_000 {
            volumes.forget_empty();
            let it = volumes.number(uid(number));
            assert_eq!(volumes.number(uid(number)), it, "it keeps its number");
            assert_eq!(volumes.get(it).uid, uid(number));
        }
        assert_eq!((volumes.slots.len(), volumes.by_uid.len()), (1, 1));
        assert_eq!(volumes.known(uid(0)), None);
        assert_ne!(volumes.number(uid(9_999)), first);
        assert!(volumes.replica(first).is_none() && volumes.get(first).uid != uid(9_999));
        volumes.wake(first);
        assert!(!volumes.has_awake(), "nothing of it can be awake");
        let awake = volumes.number(uid(9_999));
        volumes.wake(awake);
        volumes.forget_empty();
        assert_eq!(volumes.known(uid(9_999)), Some(awake), "it has its turn first");
    }
}
