//! An initiator that can do little, and anything wrong.
use std::io::{Read, Write};
use std::net::TcpStream;

use anyhow::{Result, ensure};
use rig::site::Rig;

use crate::connect;

const IMMEDIATE: u8 = 0x40;
const LOGIN: u8 = 0x03;
const TRANSIT: u8 = 0x80;

pub const SECURITY: u8 = 0;
pub const OPERATIONAL: u8 = 1;
pub const FULL: u8 = 3;

/// A header and its data, of one PDU.
pub struct Pdu {
    pub head: [u8; 48],
    pub data: Vec<u8>,
}

impl Pdu {
    pub fn new(opcode: u8, flags: u8, data: &[u8]) -> Pdu {
        let mut head = [0; 48];
        (head[0], head[1]) = (opcode, flags);
        Pdu { head, data: data.to_vec() }.of_len(u32::try_from(data.len()).unwrap())
    }

    /// Claims another length than it has.
    pub fn of_len(mut self, len: u32) -> Pdu {
        self.head[5..8].copy_from_slice(&len.to_be_bytes()[1..]);
        self
    }

    pub fn with(mut self, at: usize, bytes: &[u8]) -> Pdu {
        self.head[at..at + bytes.len()].copy_from_slice(bytes);
        self
    }

    pub fn bytes(&self) -> Vec<u8> {
        let mut bytes = self.head.to_vec();
        bytes.extend(&self.data);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    }
}

pub struct Initiator {
    pub stream: TcpStream,
}

impl Initiator {
    pub fn new(rig: &Rig) -> Result<Initiator> {
        Ok(Initiator { stream: connect(rig.iscsi(1))? })
    }

    pub fn send(&mut self, pdu: &Pdu) -> Result<()> {
        Ok(self.stream.write_all(&pdu.bytes())?)
    }

    pub fn receive(&mut self) -> Result<Pdu> {
        let mut head = [0; 48];
        self.stream.read_exact(&mut head)?;
        let len = u32::from_be_bytes([0, head[5], head[6], head[7]]);
        let mut data = vec![0; usize::try_from(len)?.next_multiple_of(4)];
        self.stream.read_exact(&mut data)?;
        data.truncate(usize::try_from(len)?);
        Ok(Pdu { head, data })
    }

    /// One step of a login; status and text of the answer.
    pub fn step(&mut self, stages: (u8, Option<u8>), keys: &[&str]) -> Result<(u16, String)> {
        let (now, next) = stages;
        let flags = now << 2 | next.map_or(0, |next| TRANSIT | next);
        let text: String = keys.iter().map(|key| format!("{key}\0")).collect();
        let pdu = Pdu::new(IMMEDIATE | LOGIN, flags, text.as_bytes());
        let isid = [0x80, 0, 0, 0, 0, 9];
        self.send(&pdu.with(8, &isid).with(19, &[1]).with(27, &[1]))?;
        let answer = self.receive()?;
        ensure!(answer.head[0] == 0x23, "no answer to a login: {:?}", answer.head);
        let status = u16::from_be_bytes([answer.head[36], answer.head[37]]);
        Ok((status, String::from_utf8_lossy(&answer.data).into_owned()))
    }

    /// Logged in to a volume, with these keys.
    pub fn logged_in(rig: &Rig, volume: &str, keys: &[&str]) -> Result<Initiator> {
        let mut initiator = Initiator::new(rig)?;
        let target = format!("TargetName=iqn.2026-11.io.pollux:{volume}");
        let mut all =
            vec!["InitiatorName=iqn.2026-11.io.pollux:bad", "SessionType=Normal", &target];
        all.extend(keys);
        let (status, text) = initiator.step((OPERATIONAL, Some(FULL)), &all)?;
        ensure!(status == 0, "the login ended with {status:#x}: {text:?}");
        Ok(initiator)
    }
}
