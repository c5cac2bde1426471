//! The volumes that a shard has something of: a replica, a target, or both.
use std::collections::HashMap;

use replication::catalog::VolumeObject;
use replication::words::VolumeUid;

use super::replicas::ReplicaRun;
use super::targets::TargetRun;

/// A volume of this shard. It keeps its number as long as the process runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct VolumeNo(usize);

pub struct VolumeRun {
    pub uid: VolumeUid,
    pub replica: Option<ReplicaRun>,
    pub target: Option<TargetRun>,
    /// The newest object of the volume that was heard of. Records that were sent earlier may arrive later.
    newest: VolumeObject,
    /// Something of it has events.
    awake: bool,
}

#[derive(Default)]
pub struct Volumes {
    all: Vec<VolumeRun>,
    by_uid: HashMap<VolumeUid, VolumeNo>,
    awake: Vec<VolumeNo>,
    /// Takes the place of `awake` while that is worked at; kept for its memory.
    spare: Vec<VolumeNo>,
}

impl VolumeRun {
    /// Whether a record's object may be acted on: it is not older than what was acted on before.
    pub fn hear(&mut self, object: &VolumeObject) -> bool {
        if object.is_older_than(&self.newest) {
            return false;
        }
        self.newest = object.clone();
        true
    }
}

impl Volumes {
    /// The number of a volume, which it gets here if it has none.
    pub fn number(&mut self, uid: VolumeUid) -> VolumeNo {
        *self.by_uid.entry(uid).or_insert_with(|| {
            let newest = VolumeObject::default();
            self.all.push(VolumeRun { uid, replica: None, target: None, newest, awake: false });
            VolumeNo(self.all.len() - 1)
        })
    }

    pub fn known(&self, uid: VolumeUid) -> Option<VolumeNo> {
        self.by_uid.get(&uid).copied()
    }

    pub fn get(&self, number: VolumeNo) -> &VolumeRun {
        &self.all[number.0]
    }

    pub fn get_mut(&mut self, number: VolumeNo) -> &mut VolumeRun {
        &mut self.all[number.0]
    }

    pub fn replica(&mut self, number: VolumeNo) -> Option<&mut ReplicaRun> {
        self.all[number.0].replica.as_mut()
    }

    pub fn target(&mut self, number: VolumeNo) -> Option<&mut TargetRun> {
        self.all[number.0].target.as_mut()
    }

    pub fn numbers(&self) -> impl Iterator<Item = VolumeNo> + use<> {
        (0..self.all.len()).map(VolumeNo)
    }

    pub fn iter(&self) -> impl Iterator<Item = (VolumeNo, &VolumeRun)> {
        self.all.iter().enumerate().map(|(number, run)| (VolumeNo(number), run))
    }

    /// The volume of this name whose target is here.
    pub fn served(&self, name: &str) -> Option<VolumeNo> {
        let named = |run: &VolumeRun| run.target.as_ref().is_some_and(|it| it.record.name == name);
        self.iter().find(|(_, run)| named(run)).map(|(number, _)| number)
    }

    /// It has events that a turn must look at.
    pub fn wake(&mut self, number: VolumeNo) {
        if !std::mem::replace(&mut self.all[number.0].awake, true) {
            self.awake.push(number);
        }
    }

    pub fn has_awake(&self) -> bool {
        !self.awake.is_empty()
    }

    /// Those that have events; what they are in is given back when it is empty.
    pub fn take_awake(&mut self) -> Vec<VolumeNo> {
        let awake = std::mem::replace(&mut self.awake, std::mem::take(&mut self.spare));
        awake.iter().for_each(|number| self.all[number.0].awake = false);
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
}
