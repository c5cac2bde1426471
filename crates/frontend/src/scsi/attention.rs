//! What a nexus must be told before its next command is carried out.
//!
//! Each kind waits at most once, in the order in which they came up. A reset makes everything
//! before it pointless: who hears of it looks at everything anew.
use crate::scsi::sense::{Code, Key, Sense};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Attention {
    /// The first that a new nexus hears: nothing that it may have set is set any more.
    PowerOn,
    TargetReset,
    UnitReset,
    ModeChanged,
    ReservationsPreempted,
    ReservationsReleased,
    RegistrationsPreempted,
    CapacityChanged,
    CommandsCleared,
    /// A command that was answered before it was done has failed since.
    Deferred(Sense),
}

impl Attention {
    fn sense(self) -> Sense {
        let code = match self {
            Attention::PowerOn => Code(0x29, 0x00),
            Attention::TargetReset => Code(0x29, 0x02),
            Attention::UnitReset => Code(0x29, 0x03),
            Attention::ModeChanged => Code(0x2A, 0x01),
            Attention::ReservationsPreempted => Code(0x2A, 0x03),
            Attention::ReservationsReleased => Code(0x2A, 0x04),
            Attention::RegistrationsPreempted => Code(0x2A, 0x05),
            Attention::CapacityChanged => Code(0x2A, 0x09),
            Attention::CommandsCleared => Code(0x2F, 0x00),
            Attention::Deferred(sense) => return Sense { deferred: true, ..sense },
        };
        Sense::new(Key::UnitAttention, code)
    }

    fn is_reset(self) -> bool {
        matches!(self, Attention::PowerOn | Attention::TargetReset | Attention::UnitReset)
    }
}

#[derive(Debug, Default)]
pub(super) struct Attentions(Vec<Attention>);

impl Attentions {
    pub(super) fn add(&mut self, attention: Attention) {
        if attention.is_reset() {
            self.0.retain(|waiting| matches!(waiting, Attention::Deferred(_)));
        }
        let same = |waiting: &Attention| {
            std::mem::discriminant(waiting) == std::mem::discriminant(&attention)
        };
        if !self.0.iter().any(same) {
            self.0.push(attention);
        }
    }

    /// The next to be told, which is told with that.
    pub(super) fn take(&mut self) -> Option<Sense> {
        (!self.0.is_empty()).then(|| self.0.remove(0).sense())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn codes(attentions: &mut Attentions) -> Vec<(u8, u8)> {
        std::iter::from_fn(|| attentions.take()).map(|sense| (sense.code.0, sense.code.1)).collect()
    }

    #[test]
    fn each_kind_is_told_once_and_in_order() {
        let mut attentions = Attentions::default();
        attentions.add(Attention::CapacityChanged);
        attentions.add(Attention::ModeChanged);
        attentions.add(Attention::CapacityChanged);
        assert_eq!(codes(&mut attentions), [(0x2A, 9), (0x2A, 1)]);
        assert_eq!(codes(&mut attentions), []);
    }

    #[test]
    fn a_reset_makes_what_was_before_pointless_but_no_failure() {
        let mut attentions = Attentions::default();
        attentions.add(Attention::ModeChanged);
        attentions.add(Attention::Deferred(Sense::internal()));
        attentions.add(Attention::UnitReset);
        attentions.add(Attention::ReservationsReleased);
        assert_eq!(codes(&mut attentions), [(0x44, 0), (0x29, 3), (0x2A, 4)]);
    }
}
