//! The beginning of a session: who is who, what holds, and how large the unit is.
use std::io::{Read, Write};
use std::net::TcpStream;

use anyhow::{Context, Result, bail, ensure};

use super::pdu::{self, Head};
use crate::served::session::exactly;

const INITIATOR: &str = "iqn.2026-11.io.pollux:bench";
const FIRST_COMMAND: u32 = 1;
const SECURITY: u8 = 0;
const OPERATIONAL: u8 = 1;
const FULL_FEATURE: u8 = 3;

/// Answers that fit any login; more is a target that does not end.
const TURNS_MAX: usize = 8;
const TEXT_MAX: usize = 64 << 10;

const TEST_UNIT_READY: u8 = 0x00;
const READ_CAPACITY: u8 = 0x25;
const CHECK_CONDITION: u8 = 2;
/// What a unit has to tell a new initiator, one thing at a time.
const ATTENTIONS_MAX: usize = 8;

/// Offered to all alike.
const OFFER: [(&str, &str); 13] = [
    ("HeaderDigest", "None"),
    ("DataDigest", "None"),
    ("MaxConnections", "1"),
    ("InitialR2T", "No"),
    ("ImmediateData", "Yes"),
    ("MaxRecvDataSegmentLength", "262144"),
    ("MaxBurstLength", "262144"),
    ("FirstBurstLength", "65536"),
    ("MaxOutstandingR2T", "1"),
    ("DefaultTime2Wait", "2"),
    ("DefaultTime2Retain", "0"),
    ("DataPDUInOrder", "Yes"),
    ("DataSequenceInOrder", "Yes"),
];

/// A session that has begun.
#[derive(Clone, Debug)]
pub struct Begun {
    pub lun: u8,
    /// The longest segment that the target takes.
    pub segment_max: usize,
    pub first_burst: usize,
    pub immediate_data: bool,
    pub cmd_sn: u32,
    pub exp_stat_sn: u32,
    pub max_cmd_sn: u32,
    pub block: u64,
    pub blocks: u64,
}

/// `isid` tells sessions of this initiator apart.
pub fn login(stream: &mut TcpStream, target: &str, lun: u8, isid: u32) -> Result<Begun> {
    let mut begun = Begun {
        lun,
        // What the standard has where nothing is said.
        segment_max: 8192,
        first_burst: 65536,
        immediate_data: true,
        cmd_sn: FIRST_COMMAND,
        exp_stat_sn: 0,
        max_cmd_sn: FIRST_COMMAND,
        block: 0,
        blocks: 0,
    };
    let names = [
        ("InitiatorName", INITIATOR),
        ("TargetName", target),
        ("SessionType", "Normal"),
        ("AuthMethod", "None"),
    ];
    let mut stage = (SECURITY, OPERATIONAL);
    let mut text = keys(&names);
    let mut tsih = [0; 2];
    for _ in 0..TURNS_MAX {
        let (current, next) = stage;
        let head = Head::new(pdu::LOGIN | pdu::IMMEDIATE, pdu::FINAL | current << 2 | next)
            .with_bytes(8, &[0x80])
            .with(10, isid)
            .with_bytes(14, &tsih)
            .with(pdu::CMD_SN, begun.cmd_sn)
            .with(pdu::EXP_STAT_SN, begun.exp_stat_sn);
        let (answer, said) = exchange(stream, head, &text)?;
        ensure!(answer.opcode() == pdu::LOGIN_RESPONSE, "a strange answer to a login");
        let [class, detail] = [answer.0[36], answer.0[37]];
        ensure!(class == 0, "{target}: login refused with {class:#04x}{detail:02x}");
        begun.note(&answer);
        begun.settle(&said)?;
        tsih.copy_from_slice(&answer.0[14..16]);
        text.clear();
        let moves_on = answer.flags() & pdu::FINAL != 0;
        match (moves_on, next) {
            (true, FULL_FEATURE) => return begun.look(stream),
            (true, _) => (stage, text) = ((OPERATIONAL, FULL_FEATURE), keys(&OFFER)),
            (false, _) => {}
        }
    }
    bail!("{target}: a login without an end")
}

fn keys(pairs: &[(&str, &str)]) -> Vec<u8> {
    pairs.iter().flat_map(|(key, value)| format!("{key}={value}\0").into_bytes()).collect()
}

fn exchange(stream: &mut TcpStream, head: Head, data: &[u8]) -> Result<(Head, Vec<u8>)> {
    let mut bytes = head.with_data(data.len()).0.to_vec();
    bytes.extend(data);
    bytes.resize(bytes.len() + pdu::padding(data.len()), 0);
    stream.write_all(&bytes)?;
    receive(stream)
}

fn receive(stream: &mut TcpStream) -> Result<(Head, Vec<u8>)> {
    let head = Head(exactly(stream)?);
    let len = head.data_len();
    ensure!(!head.has_more_heads() && len <= TEXT_MAX, "a strange PDU {:#04x}", head.opcode());
    let mut data = vec![0; len + pdu::padding(len)];
    stream.read_exact(&mut data)?;
    data.truncate(len);
    Ok((head, data))
}

impl Begun {
    fn note(&mut self, answer: &Head) {
        self.exp_stat_sn = answer.number(pdu::STAT_SN).wrapping_add(1);
        self.max_cmd_sn = answer.number(pdu::MAX_CMD_SN);
    }

    /// What the target said of what we offered.
    fn settle(&mut self, said: &[u8]) -> Result<()> {
        for pair in String::from_utf8_lossy(said).split_terminator('\0') {
            let Some((key, value)) = pair.split_once('=') else { bail!("no key: {pair}") };
            let number = || value.parse::<usize>().with_context(|| pair.to_owned());
            match key {
                "MaxRecvDataSegmentLength" => self.segment_max = number()?,
                "FirstBurstLength" => self.first_burst = number()?,
                "ImmediateData" => self.immediate_data = value == "Yes",
                "HeaderDigest" | "DataDigest" => ensure!(value == "None", "{pair}"),
                _ => {}
            }
        }
        Ok(())
    }

    /// Hears what the unit has to tell a newcomer, and asks for its size.
    fn look(mut self, stream: &mut TcpStream) -> Result<Begun> {
        let mut ready = false;
        for _ in 0..ATTENTIONS_MAX {
            ready = self.ask(stream, TEST_UNIT_READY, 0)?.is_some();
            if ready {
                break;
            }
        }
        ensure!(ready, "the unit does not become ready");
        let capacity = self.ask(stream, READ_CAPACITY, 8)?.context("READ CAPACITY failed")?;
        let (Some(last), Some(block)) = (capacity.first_chunk(), capacity.last_chunk()) else {
            bail!("a capacity of {} bytes", capacity.len())
        };
        self.blocks = u64::from(u32::from_be_bytes(*last)) + 1;
        self.block = u64::from(u32::from_be_bytes(*block));
        ensure!(self.block > 0 && 4096 % self.block == 0, "blocks of {} bytes", self.block);
        Ok(self)
    }

    /// One command, waited for. `None`: the unit has something to tell first.
    fn ask(&mut self, stream: &mut TcpStream, opcode: u8, len: u32) -> Result<Option<Vec<u8>>> {
        let reads = if len > 0 { 0x40 } else { 0 };
        let head = Head::new(pdu::COMMAND, pdu::FINAL | reads | 1)
            .with_lun(self.lun)
            .with(pdu::TRANSFER, len)
            .with(pdu::CMD_SN, self.cmd_sn)
            .with(pdu::EXP_STAT_SN, self.exp_stat_sn)
            .with_bytes(32, &[opcode]);
        self.cmd_sn = self.cmd_sn.wrapping_add(1);
        let (mut answer, mut data) = exchange(stream, head, &[])?;
        let mut read = Vec::new();
        while answer.opcode() == pdu::DATA_IN {
            read.append(&mut data);
            if answer.flags() & 1 != 0 {
                break;
            }
            (answer, data) = receive(stream)?;
        }
        let is_end = [pdu::RESPONSE, pdu::DATA_IN].contains(&answer.opcode());
        ensure!(is_end, "a strange answer {:#04x}", answer.opcode());
        self.note(&answer);
        match answer.0[3] {
            0 => Ok(Some(read)),
            CHECK_CONDITION if opcode == TEST_UNIT_READY => Ok(None),
            status => bail!("command {opcode:#04x} ended with status {status:#04x}"),
        }
    }
}
