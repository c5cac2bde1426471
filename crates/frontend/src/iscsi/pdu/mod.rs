//! Basic header segments: 48 bytes in front of every PDU.
//!
//! Decoding never fails here: all fields have fixed places, and what they mean together is for
//! the session to judge.
mod reply;
mod request;

pub use reply::{
    AsyncLogout, DataIn, LoginReply, LogoutReply, ManageReply, NopIn, R2t, Reject, Residual,
    ScsiReply, TextReply,
};
pub use request::{
    DataOut, Function, LoginRequest, Logout, LogoutKind, ManageRequest, NopOut, Order, Request,
    ScsiCommand, Stage, TextRequest,
};

pub const HEADER_LEN: usize = 48;

/// A tag that names nothing.
pub const NO_TAG: u32 = 0xffff_ffff;

/// Data segments are filled up to a multiple of this.
const PAD: usize = 4;

/// The numbers that most PDUs of a target carry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Numbers {
    pub stat_sn: u32,
    pub exp_cmd_sn: u32,
    pub max_cmd_sn: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header(pub [u8; HEADER_LEN]);

impl Header {
    pub fn new(opcode: u8, flags: u8) -> Header {
        let mut bytes = [0; HEADER_LEN];
        bytes[0] = opcode;
        bytes[1] = flags;
        Header(bytes)
    }

    pub fn opcode(&self) -> u8 {
        self.0[0] & 0x3f
    }

    pub fn is_immediate(&self) -> bool {
        self.0[0] & 0x40 != 0
    }

    pub fn has(&self, flag: u8) -> bool {
        self.0[1] & flag != 0
    }

    pub fn segment_len(&self) -> usize {
        usize::from(self.0[5]) << 16 | usize::from(self.0[6]) << 8 | usize::from(self.0[7])
    }

    pub fn u16_at(&self, at: usize) -> u16 {
        u16::from_be_bytes(self.at(at))
    }

    pub fn u32_at(&self, at: usize) -> u32 {
        u32::from_be_bytes(self.at(at))
    }

    pub fn u64_at(&self, at: usize) -> u64 {
        u64::from_be_bytes(self.at(at))
    }

    pub fn at<const N: usize>(&self, at: usize) -> [u8; N] {
        let mut bytes = [0; N];
        bytes.copy_from_slice(&self.0[at..at + N]);
        bytes
    }

    pub fn set(&mut self, at: usize, bytes: &[u8]) {
        self.0[at..at + bytes.len()].copy_from_slice(bytes);
    }

    pub fn set_u32(&mut self, at: usize, number: u32) {
        self.set(at, &number.to_be_bytes());
    }

    pub fn set_segment_len(&mut self, len: usize) {
        let len = u32::try_from(len).ok().filter(|len| *len < 1 << 24);
        let [_, high, middle, low] = len.expect("segments fit 24 bits: we cut them").to_be_bytes();
        self.set(5, &[high, middle, low]);
    }

    fn set_numbers(&mut self, numbers: Numbers) {
        self.set_u32(24, numbers.stat_sn);
        self.set_u32(28, numbers.exp_cmd_sn);
        self.set_u32(32, numbers.max_cmd_sn);
    }
}

/// Bytes that follow a data segment of this length, up to the next multiple of four.
pub fn padding(len: usize) -> usize {
    len.next_multiple_of(PAD) - len
}
