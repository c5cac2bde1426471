//! What came over a connection and is not taken yet.
use anyhow::{Result, ensure};

use super::speech::Speech;

const LEN: usize = 2 << 20;

pub struct Inbox {
    bytes: Box<[u8]>,
    kept: usize,
}

impl Inbox {
    pub fn new() -> Inbox {
        Inbox { bytes: vec![0; LEN].into(), kept: 0 }
    }

    /// Where the next bytes go.
    pub fn room(&mut self) -> &mut [u8] {
        &mut self.bytes[self.kept..]
    }

    /// So many bytes came.
    pub fn came(&mut self, came: usize, speech: &mut Speech, out: &mut Vec<u8>) -> Result<()> {
        let full = self.kept + came;
        let taken = speech.take(&self.bytes[..full], out)?;
        ensure!(taken > 0 || full < LEN, "a request without an end");
        self.bytes.copy_within(taken..full, 0);
        self.kept = full - taken;
        Ok(())
    }
}
