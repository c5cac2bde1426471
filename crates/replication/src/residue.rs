//! What a machine holds, list by list, to be compared with what it may hold when nothing is under
//! way. A list that only grows is seen here long before it is seen in memory.

/// The size of one queue, map or list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Residue {
    pub what: &'static str,
    pub len: usize,
    /// The most that may be left when every request is answered and every replica follows.
    pub most: usize,
}

impl Residue {
    pub fn none(what: &'static str, len: usize) -> Residue {
        Residue { what, len, most: 0 }
    }

    pub fn up_to(most: usize, what: &'static str, len: usize) -> Residue {
        Residue { what, len, most }
    }

    pub fn is_too_much(self) -> bool {
        self.len > self.most
    }
}
