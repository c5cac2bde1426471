//! Which commands a reservation keeps out.
use super::{Kind, Standing};
use crate::scsi::opcodes::Access;

/// Whether a command must not be carried out. A kind for all that are registered makes all of
/// them holders, so nothing about it is special here.
pub(crate) fn conflicts(kind: Kind, standing: Standing, access: Access) -> bool {
    let free = match standing {
        Standing::Holder => true,
        Standing::Registered => kind.is_for_registrants(),
        Standing::Stranger => false,
    };
    if free {
        return false;
    }
    match access {
        Access::Free => false,
        Access::Reads => !kind.lets_read(),
        Access::Writes | Access::Starts | Access::Prevents => true,
    }
}
