//! What tasks keep each other from.
use crate::scsi::cdb::{Control, Medium, Op};
use crate::scsi::disk::{Disk, Span};
use crate::scsi::{copy, unmap};

/// What a task needs for itself while it runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Claim {
    Nothing,
    /// Blocks that it reads or writes in one go. Others may do that at the same time.
    Shared(Span),
    /// Blocks that nobody else may touch, since it looks first and writes then.
    Sole(Span),
    /// The whole unit.
    All,
}

impl Claim {
    pub(super) fn of(op: &Op, data_out: &[u8], disk: &Disk) -> Claim {
        match *op {
            Op::Report(_) => Claim::Nothing,
            Op::Medium(ref medium) => Claim::of_medium(medium, data_out, disk),
            Op::Control(ref control) => match control {
                // Who may do what changes between two commands, never below one.
                Control::ReserveOut { .. } | Control::Reserve | Control::Release => Claim::All,
                Control::ModeSelect { .. } => Claim::All,
                Control::Ready
                | Control::RequestSense { .. }
                | Control::Flush { .. }
                | Control::StartStop { .. }
                | Control::Prevent
                | Control::Diagnose => Claim::Nothing,
            },
        }
    }

    fn of_medium(medium: &Medium, data_out: &[u8], disk: &Disk) -> Claim {
        match *medium {
            Medium::Read { span } | Medium::Write { span, .. } | Medium::Verify { span, .. } => {
                Claim::Shared(span)
            }
            Medium::WriteVerify { span, .. }
            | Medium::Same { span, .. }
            | Medium::Compare { span, .. }
            | Medium::Or { span, .. } => Claim::Sole(span),
            Medium::Unmap { .. } => unmap::hull(data_out).map_or(Claim::Nothing, Claim::Shared),
            Medium::Copy { .. } => copy::hull(data_out, disk).map_or(Claim::Nothing, Claim::Shared),
            Medium::Prefetch { .. } | Medium::Provisioning { .. } => Claim::Nothing,
        }
    }

    /// Whether it keeps out what most tasks claim.
    pub(super) fn is_exclusive(self) -> bool {
        matches!(self, Claim::Sole(_) | Claim::All)
    }

    pub(super) fn conflicts(self, other: Claim) -> bool {
        match (self, other) {
            (Claim::All, _) | (_, Claim::All) => true,
            (Claim::Nothing, _) | (_, Claim::Nothing) => false,
            (Claim::Shared(_), Claim::Shared(_)) => false,
            (Claim::Sole(a), Claim::Sole(b) | Claim::Shared(b)) => a.overlaps(b),
            (Claim::Shared(a), Claim::Sole(b)) => a.overlaps(b),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_exclusive_claims_keep_others_out() {
        let (a, b) = (Span::new(0, 8_u64), Span::new(4, 8_u64));
        let far = Span::new(100, 1_u64);
        let claims = [Claim::Nothing, Claim::Shared(a), Claim::Sole(b), Claim::All];
        let expected = [
            [false, false, false, true],
            [false, false, true, true],
            [false, true, true, true],
            [true, true, true, true],
        ];
        for (x, row) in claims.iter().zip(expected) {
            for (y, conflict) in claims.iter().zip(row) {
                assert_eq!(x.conflicts(*y), conflict, "{x:?} and {y:?}");
            }
        }
        assert!(!Claim::Sole(far).conflicts(Claim::Shared(a)));
        assert!(!Claim::Sole(far).conflicts(Claim::Sole(b)));
    }
}
