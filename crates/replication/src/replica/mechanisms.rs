//! What can be turned off, so that the simulator can show that it would notice. Without the feature
//! `faults` there is nothing to turn off, and nothing of it in the binary.
#[cfg(feature = "faults")]
use crate::Switch;

#[derive(Debug, Default)]
pub struct Mechanisms {
    #[cfg(feature = "faults")]
    off: Vec<Switch>,
}

macro_rules! mechanism {
    ($name:ident, $switch:ident) => {
        #[cfg(feature = "faults")]
        pub fn $name(&self) -> bool {
            !self.off.contains(&Switch::$switch)
        }

        #[cfg(not(feature = "faults"))]
        pub const fn $name(&self) -> bool {
            true
        }
    };
}

impl Mechanisms {
    mechanism!(durable_promise, DurablePromise);
    mechanism!(drain_old_stream, DrainOldStream);
    mechanism!(dirty_mark, DirtyMark);
    mechanism!(whole_rounds, WholeRounds);
    mechanism!(deferred_deletes, DeferredDeletes);

    #[cfg(feature = "faults")]
    pub fn turn_off(&mut self, switch: Switch) {
        self.off.push(switch);
    }
}
