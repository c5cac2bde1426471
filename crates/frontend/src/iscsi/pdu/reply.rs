//! PDUs of the target.
use super::{Header, NO_TAG, Numbers, Stage};

const FINAL: u8 = 0x80;
const MORE: u8 = 0x40;

/// What was transferred beside what the initiator expected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Residual {
    None,
    /// The command would have taken or given more.
    Over(u32),
    Under(u32),
}

impl Residual {
    pub fn between(moved: u64, expected: u32) -> Residual {
        let expected = u64::from(expected);
        let cut = |len: u64| u32::try_from(len).unwrap_or(u32::MAX);
        match moved {
            _ if moved > expected => Residual::Over(cut(moved - expected)),
            _ if moved < expected => Residual::Under(cut(expected - moved)),
            _ => Residual::None,
        }
    }

    fn flag(self) -> u8 {
        match self {
            Residual::None => 0,
            Residual::Over(_) => 0x04,
            Residual::Under(_) => 0x02,
        }
    }

    fn count(self) -> u32 {
        match self {
            Residual::None => 0,
            Residual::Over(count) | Residual::Under(count) => count,
        }
    }
}

pub struct NopIn {
    pub lun: u64,
    pub itt: u32,
    pub ttt: u32,
}

impl NopIn {
    pub fn encode(&self, numbers: Numbers) -> Header {
        let mut header = tagged(0x20, FINAL, self.itt, numbers);
        header.set(8, &self.lun.to_be_bytes());
        header.set_u32(20, self.ttt);
        header
    }
}

pub struct ScsiReply {
    pub itt: u32,
    pub status: u8,
    /// Data-In and R2T PDUs that went before.
    pub pdus: u32,
    pub residual: Residual,
}

impl ScsiReply {
    pub fn encode(&self, numbers: Numbers) -> Header {
        let mut header = tagged(0x21, FINAL | self.residual.flag(), self.itt, numbers);
        header.0[3] = self.status;
        header.set_u32(36, self.pdus);
        header.set_u32(44, self.residual.count());
        header
    }
}

pub struct ManageReply {
    pub itt: u32,
    pub response: u8,
}

impl ManageReply {
    pub fn encode(&self, numbers: Numbers) -> Header {
        let mut header = tagged(0x22, FINAL, self.itt, numbers);
        header.0[2] = self.response;
        header
    }
}

pub struct LoginReply {
    /// The stage that follows, where both want to go on.
    pub transit: Option<Stage>,
    pub current: Stage,
    pub isid: [u8; 6],
    pub tsih: u16,
    pub itt: u32,
    /// Class and detail.
    pub status: [u8; 2],
}

impl LoginReply {
    pub fn encode(&self, numbers: Numbers) -> Header {
        let next = self.transit.map_or(0, |stage| FINAL | stage.bits());
        let mut header = tagged(0x23, next | self.current.bits() << 2, self.itt, numbers);
        header.set(8, &self.isid);
        header.set(14, &self.tsih.to_be_bytes());
        header.set(36, &self.status);
        header
    }
}

pub struct TextReply {
    pub last: bool,
    pub more: bool,
    pub lun: u64,
    pub itt: u32,
    pub ttt: u32,
}

impl TextReply {
    pub fn encode(&self, numbers: Numbers) -> Header {
        let flag = |set: bool, flag: u8| if set { flag } else { 0 };
        let flags = flag(self.last, FINAL) | flag(self.more, MORE);
        let mut header = tagged(0x24, flags, self.itt, numbers);
        header.set(8, &self.lun.to_be_bytes());
        header.set_u32(20, self.ttt);
        header
    }
}

pub struct DataIn {
    /// The last PDU of a burst.
    pub last: bool,
    /// GOOD, with this residual: no SCSI response follows.
    pub good: Option<Residual>,
    pub itt: u32,
    pub data_sn: u32,
    pub offset: u32,
}

impl DataIn {
    pub fn encode(&self, numbers: Numbers) -> Header {
        let status = self.good.map_or(0, |residual| 0x01 | residual.flag());
        let last = if self.last { FINAL } else { 0 };
        let mut header = tagged(0x25, last | status, self.itt, numbers);
        header.set_u32(20, NO_TAG);
        if self.good.is_none() {
            header.set_u32(24, 0);
        }
        header.set_u32(36, self.data_sn);
        header.set_u32(40, self.offset);
        header.set_u32(44, self.good.map_or(0, Residual::count));
        header
    }
}

pub struct LogoutReply {
    pub itt: u32,
    pub response: u8,
    pub time2wait: u16,
}

impl LogoutReply {
    pub fn encode(&self, numbers: Numbers) -> Header {
        let mut header = tagged(0x26, FINAL, self.itt, numbers);
        header.0[2] = self.response;
        header.set(40, &self.time2wait.to_be_bytes());
        header
    }
}

pub struct R2t {
    pub lun: u64,
    pub itt: u32,
    pub ttt: u32,
    pub r2t_sn: u32,
    pub offset: u32,
    pub len: u32,
}

impl R2t {
    pub fn encode(&self, numbers: Numbers) -> Header {
        let mut header = tagged(0x31, FINAL, self.itt, numbers);
        header.set(8, &self.lun.to_be_bytes());
        header.set_u32(20, self.ttt);
        header.set_u32(36, self.r2t_sn);
        header.set_u32(40, self.offset);
        header.set_u32(44, self.len);
        header
    }
}

/// The message that asks an initiator to log out.
pub struct AsyncLogout {
    pub within_secs: u16,
}

impl AsyncLogout {
    pub fn encode(&self, numbers: Numbers) -> Header {
        let mut header = tagged(0x32, FINAL, NO_TAG, numbers);
        header.0[36] = 1;
        header.set(42, &self.within_secs.to_be_bytes());
        header
    }
}

pub struct Reject {
    pub reason: u8,
}

impl Reject {
    pub fn encode(&self, numbers: Numbers) -> Header {
        let mut header = tagged(0x3f, FINAL, NO_TAG, numbers);
        header.0[2] = self.reason;
        header
    }
}

fn tagged(opcode: u8, flags: u8, itt: u32, numbers: Numbers) -> Header {
    let mut header = Header::new(opcode, flags);
    header.set_u32(16, itt);
    header.set_numbers(numbers);
    header
}
