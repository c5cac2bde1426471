//! Devices that fail a flush while their machine runs on (E10, P8).
//!
//! The node notes the failure before anything follows from it, as a node does, and its process ends
//! a little later. The next one finds what the device kept: the same kernel, and another device.
use replication::words::{Boot, NodeId};

use super::World;
use super::event::What;
use super::nodes::Life;
use crate::quorum::clients::Fact;

/// How long a process goes on with a pool that has failed, at the most.
const NOTICED: u64 = 3_000_000;

impl World {
    /// One device fails a flush, now or while its pool is opened; at times several do, as those of
    /// one storage system.
    pub(super) fn fail_flushes(&mut self, node: NodeId) {
        let several = self.rng.chance(1, 3);
        let opening = self.rng.chance(1, 3);
        for id in self.node_ids() {
            let meant = id == node || several && self.rng.chance(3, 4);
            if !meant || !self.nodes[&id].is_up() || self.nodes[&id].pool.is_failed() {
                continue;
            }
            match opening {
                true => self.fail_opening(id),
                false => {
                    self.disturb(id, self.now);
                    self.nodes.get_mut(&id).expect("a node").pool.fail_next_flush();
                }
            }
        }
    }

    /// A process is killed, and the next one does not get its pool open.
    fn fail_opening(&mut self, id: NodeId) {
        if !self.end_process(id) {
            return;
        }
        if self.nodes.get_mut(&id).expect("a node").pool.kill_and_fail_opening() {
            self.note_opening(id);
        }
        self.start_again(id);
    }

    fn note_opening(&mut self, id: NodeId) {
        self.note("flush failed while a pool opened");
        self.say(|| format!("node {id}: a flush fails while the pool is opened"));
        self.note_failure(id);
    }

    /// Looks whether the device of a node has failed since it was opened.
    pub(super) fn watch_device(&mut self, id: NodeId) {
        let node = self.nodes.get_mut(&id).expect("a node");
        if node.failing || !node.pool.has_failed() {
            return;
        }
        node.failing = true;
        let (boot, by_plan) = (node.boot, node.pool.mood.failed);
        self.note_failure(id);
        // One that fails everything comes back with another power.
        if !by_plan {
            self.note("flush failed in service");
            self.say(|| format!("node {id}: a flush failed"));
            let at = self.soon(NOTICED);
            self.push(at, What::DeviceFailed { node: id, boot });
        }
    }

    fn note_failure(&mut self, id: NodeId) {
        self.nodes.get_mut(&id).expect("a node").noted_failures += 1;
        self.disturb(id, self.now);
        self.tell(&Fact::DeviceFailed);
    }

    /// The process with a failed pool ends.
    pub(super) fn device_failed(&mut self, id: NodeId, boot: Boot) {
        let node = &self.nodes[&id];
        if node.boot == boot && node.life != Life::Down && self.end_process(id) {
            self.start_again(id);
        }
    }

    fn start_again(&mut self, node: NodeId) {
        match self.healed {
            true => self.push(self.now.after(100_000), What::Restart { node }),
            false => self.restart_later(node),
        }
    }

    /// What a process begins with. False: its pool does not open, and it ends.
    pub(super) fn open_pool(&mut self, id: NodeId) -> bool {
        let node = self.nodes.get_mut(&id).expect("a node");
        let failed = node.pool.has_failed() && !node.pool.mood.failed;
        if node.pool.is_open() && !failed {
            return true;
        }
        let Some(lost) = node.pool.open_after_failure() else {
            self.note_opening(id);
            self.start_again(id);
            return false;
        };
        self.say(|| format!("node {id} opens a pool that had failed; writes lost of {lost:?}"));
        for _ in lost {
            self.note("failed flush lost writes");
        }
        true
    }
}
