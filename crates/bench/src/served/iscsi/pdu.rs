//! Basic header segments (RFC 7143, 11): numbers at places.

pub const HEAD: usize = 48;

pub const NOP_OUT: u8 = 0x00;
pub const COMMAND: u8 = 0x01;
pub const LOGIN: u8 = 0x03;
pub const DATA_OUT: u8 = 0x05;
pub const LOGOUT: u8 = 0x06;
pub const NOP_IN: u8 = 0x20;
pub const RESPONSE: u8 = 0x21;
pub const LOGIN_RESPONSE: u8 = 0x23;
pub const DATA_IN: u8 = 0x25;
pub const R2T: u8 = 0x31;

pub const IMMEDIATE: u8 = 0x40;
pub const FINAL: u8 = 0x80;

/// No task, or nothing that is to be answered.
pub const NONE: u32 = u32::MAX;

// Places of numbers that several kinds have in common.
pub const LUN: usize = 8;
pub const TASK: usize = 16;
pub const TRANSFER: usize = 20;
pub const CMD_SN: usize = 24;
pub const EXP_STAT_SN: usize = 28;
pub const STAT_SN: usize = 24;
pub const MAX_CMD_SN: usize = 32;

#[derive(Clone, Copy, Debug)]
pub struct Head(pub [u8; HEAD]);

impl Head {
    pub fn new(opcode: u8, flags: u8) -> Head {
        let mut bytes = [0; HEAD];
        (bytes[0], bytes[1]) = (opcode, flags);
        Head(bytes)
    }

    pub fn opcode(&self) -> u8 {
        self.0[0] & 0x3f
    }

    pub fn flags(&self) -> u8 {
        self.0[1]
    }

    pub fn number(&self, at: usize) -> u32 {
        let [a, b, c, d] = [0, 1, 2, 3].map(|byte| self.0[at + byte]);
        u32::from_be_bytes([a, b, c, d])
    }

    pub fn with(mut self, at: usize, number: u32) -> Head {
        self.0[at..at + 4].copy_from_slice(&number.to_be_bytes());
        self
    }

    pub fn with_bytes(mut self, at: usize, bytes: &[u8]) -> Head {
        self.0[at..at + bytes.len()].copy_from_slice(bytes);
        self
    }

    /// The unit, in the flat form of small numbers.
    pub fn with_lun(self, lun: u8) -> Head {
        self.with_bytes(LUN, &[0, lun])
    }

    pub fn with_data(self, len: usize) -> Head {
        let len = u32::try_from(len).expect("a segment of the load is short");
        let [_, high, middle, low] = len.to_be_bytes();
        self.with_bytes(5, &[high, middle, low])
    }

    pub fn data_len(&self) -> usize {
        let [high, middle, low] = [5, 6, 7].map(|at| usize::from(self.0[at]));
        high << 16 | middle << 8 | low
    }

    /// Additional headers: nobody who was asked for nothing special sends any.
    pub fn has_more_heads(&self) -> bool {
        self.0[4] != 0
    }
}

/// Segments of data fill whole words.
pub fn padding(len: usize) -> usize {
    len.wrapping_neg() & 3
}
