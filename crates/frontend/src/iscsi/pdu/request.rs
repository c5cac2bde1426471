//! PDUs of initiators.
use crate::scsi::words::Attribute;

use super::{Header, NO_TAG};

const FINAL: u8 = 0x80;
const MORE: u8 = 0x40;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    NopOut(NopOut),
    Command(ScsiCommand),
    Manage(ManageRequest),
    Login(LoginRequest),
    Text(TextRequest),
    DataOut(DataOut),
    Logout(Logout),
    Snack,
    Unknown { opcode: u8 },
}

/// Where a request stands among the others of its session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Order {
    pub cmd_sn: u32,
    /// Not numbered: served when it comes.
    pub immediate: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NopOut {
    pub lun: u64,
    pub itt: u32,
    pub ttt: u32,
    pub order: Order,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScsiCommand {
    /// No unasked data follows in PDUs of its own.
    pub last: bool,
    pub read: bool,
    pub write: bool,
    /// None is a value that the standard keeps for later.
    pub attribute: Option<Attribute>,
    pub lun: u64,
    pub itt: u32,
    pub expected: u32,
    pub order: Order,
    pub cdb: [u8; 16],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Function {
    AbortTask,
    AbortTaskSet,
    ClearAca,
    ClearTaskSet,
    LogicalUnitReset,
    TargetWarmReset,
    TargetColdReset,
    TaskReassign,
    Unknown,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ManageRequest {
    pub function: Function,
    pub lun: u64,
    pub itt: u32,
    /// The task to abort.
    pub ref_itt: u32,
    pub ref_cmd_sn: u32,
    pub order: Order,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    Security,
    Operational,
    FullFeature,
}

impl Stage {
    fn from_bits(bits: u8) -> Option<Stage> {
        match bits & 3 {
            0 => Some(Stage::Security),
            1 => Some(Stage::Operational),
            3 => Some(Stage::FullFeature),
            _ => None,
        }
    }

    pub fn bits(self) -> u8 {
        match self {
            Stage::Security => 0,
            Stage::Operational => 1,
            Stage::FullFeature => 3,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoginRequest {
    pub transit: bool,
    pub more: bool,
    pub current: Option<Stage>,
    pub next: Option<Stage>,
    pub version_min: u8,
    pub isid: [u8; 6],
    pub tsih: u16,
    pub itt: u32,
    pub cid: u16,
    pub cmd_sn: u32,
}

impl LoginRequest {
    pub fn decode(header: &Header) -> LoginRequest {
        LoginRequest {
            transit: header.has(0x80),
            more: header.has(0x40),
            current: Stage::from_bits(header.0[1] >> 2),
            next: Stage::from_bits(header.0[1]),
            version_min: header.0[3],
            isid: header.at(8),
            tsih: header.u16_at(14),
            itt: header.u32_at(16),
            cid: header.u16_at(20),
            cmd_sn: header.u32_at(24),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TextRequest {
    pub last: bool,
    pub more: bool,
    pub lun: u64,
    pub itt: u32,
    pub ttt: u32,
    pub order: Order,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DataOut {
    pub last: bool,
    pub itt: u32,
    pub ttt: u32,
    pub data_sn: u32,
    pub offset: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogoutKind {
    Session,
    Connection,
    Recovery,
    Unknown,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Logout {
    pub kind: LogoutKind,
    pub itt: u32,
    pub cid: u16,
    pub order: Order,
}

impl Request {
    pub fn decode(header: &Header) -> Request {
        match header.opcode() {
            0x00 => Request::NopOut(NopOut {
                lun: header.u64_at(8),
                itt: header.u32_at(16),
                ttt: header.u32_at(20),
                order: order(header),
            }),
            0x01 => Request::Command(command(header)),
            0x02 => Request::Manage(manage(header)),
            0x03 => Request::Login(LoginRequest::decode(header)),
            0x04 => Request::Text(TextRequest {
                last: header.has(FINAL),
                more: header.has(MORE),
                lun: header.u64_at(8),
                itt: header.u32_at(16),
                ttt: header.u32_at(20),
                order: order(header),
            }),
            0x05 => Request::DataOut(DataOut {
                last: header.has(FINAL),
                itt: header.u32_at(16),
                ttt: header.u32_at(20),
                data_sn: header.u32_at(36),
                offset: header.u32_at(40),
            }),
            0x06 => Request::Logout(logout(header)),
            0x10 => Request::Snack,
            opcode => Request::Unknown { opcode },
        }
    }

    /// What a request is counted by. Data has no place of its own, and a ping that wants no
    /// answer is not counted.
    pub fn order(&self) -> Option<Order> {
        match self {
            Request::NopOut(nop) => (nop.itt != NO_TAG).then_some(nop.order),
            Request::Command(command) => Some(command.order),
            Request::Manage(manage) => Some(manage.order),
            Request::Text(text) => Some(text.order),
            Request::Logout(logout) => Some(logout.order),
            Request::Login(_) | Request::DataOut(_) | Request::Snack | Request::Unknown { .. } => {
                None
            }
        }
    }
}

fn order(header: &Header) -> Order {
    Order { cmd_sn: header.u32_at(24), immediate: header.is_immediate() }
}

fn command(header: &Header) -> ScsiCommand {
    ScsiCommand {
        last: header.has(FINAL),
        read: header.has(0x40),
        write: header.has(0x20),
        attribute: match header.0[1] & 7 {
            0 => Some(Attribute::Untagged),
            1 => Some(Attribute::Simple),
            2 => Some(Attribute::Ordered),
            3 => Some(Attribute::HeadOfQueue),
            4 => Some(Attribute::Aca),
            _ => None,
        },
        lun: header.u64_at(8),
        itt: header.u32_at(16),
        expected: header.u32_at(20),
        order: order(header),
        cdb: header.at(32),
    }
}

fn manage(header: &Header) -> ManageRequest {
    ManageRequest {
        function: match header.0[1] & 0x7f {
            1 => Function::AbortTask,
            2 => Function::AbortTaskSet,
            3 => Function::ClearAca,
            4 => Function::ClearTaskSet,
            5 => Function::LogicalUnitReset,
            6 => Function::TargetWarmReset,
            7 => Function::TargetColdReset,
            8 => Function::TaskReassign,
            _ => Function::Unknown,
        },
        lun: header.u64_at(8),
        itt: header.u32_at(16),
        ref_itt: header.u32_at(20),
        ref_cmd_sn: header.u32_at(32),
        order: order(header),
    }
}

fn logout(header: &Header) -> Logout {
    Logout {
        kind: match header.0[1] & 0x7f {
            0 => LogoutKind::Session,
            1 => LogoutKind::Connection,
            2 => LogoutKind::Recovery,
            _ => LogoutKind::Unknown,
        },
        itt: header.u32_at(16),
        cid: header.u16_at(20),
        order: order(header),
    }
}
