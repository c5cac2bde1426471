//! Initiators that break the protocol, or are not who they should be.
use std::io::Write;

use anyhow::{Result, ensure};
use rig::site::Rig;

use crate::initiator::{Initiator, OPERATIONAL, Pdu, SECURITY};
use crate::{GUARDED, SIZE, VOLUME, is_cut_off};

const NOP_OUT: u8 = 0x40;
const COMMAND: u8 = 0x01;
const RESPONSE: u8 = 0x21;
const CHECK_CONDITION: u8 = 2;

pub fn all(rig: &mut Rig) -> Result<()> {
    let closed = "an iSCSI connection is closed";

    let mut stranger = Initiator::new(rig)?;
    stranger.stream.write_all(&[0x47; 2000])?;
    is_cut_off(rig, &stranger.stream, "another protocol", &[closed, "additional header"])?;

    let mut hasty = Initiator::new(rig)?;
    hasty.send(&Pdu::new(COMMAND, 0x80, &[]))?;
    is_cut_off(rig, &hasty.stream, "a command before the login", &[closed, "opcode 0x01"])?;

    let mut lost = Initiator::new(rig)?;
    let keys = ["InitiatorName=iqn.2026-11.io.pollux:bad", "TargetName=iqn.2026-11.io.pollux:none"];
    let (status, _) = lost.step((OPERATIONAL, None), &keys)?;
    ensure!(status >> 8 == 2, "an unknown target: {status:#x}");
    is_cut_off(rig, &lost.stream, "an unknown target", &[closed, "no volume of this name"])?;
    wrong_secret(rig)?;

    let mut initiator = Initiator::logged_in(rig, VOLUME, &["HeaderDigest=CRC32C"])?;
    initiator.send(&Pdu::new(NOP_OUT, 0x80, &[]).with(16, &[0xff; 8]))?;
    initiator.stream.write_all(&[1, 2, 3, 4])?;
    is_cut_off(rig, &initiator.stream, "a wrong digest", &[closed, "digest of a header"])?;

    let mut initiator = Initiator::logged_in(rig, VOLUME, &[])?;
    let long = Pdu::new(NOP_OUT, 0x80, &[]).with(16, &[0xff; 8]).of_len((1 << 24) - 1);
    initiator.send(&long)?;
    is_cut_off(rig, &initiator.stream, "16 MiB of data", &[closed, "segment of 16777215 bytes"])?;

    beyond_the_end(rig)
}

fn wrong_secret(rig: &mut Rig) -> Result<()> {
    let mut initiator = Initiator::new(rig)?;
    let target = format!("TargetName=iqn.2026-11.io.pollux:{GUARDED}");
    let name = "InitiatorName=iqn.2026-11.io.pollux:bad";
    let (status, text) =
        initiator.step((SECURITY, None), &[name, &target, "AuthMethod=CHAP,None"])?;
    ensure!(status == 0 && text.contains("AuthMethod=CHAP"), "{status:#x} {text:?}");
    let (status, text) = initiator.step((SECURITY, None), &["CHAP_A=5"])?;
    ensure!(status == 0 && text.contains("CHAP_C="), "{status:#x} {text:?}");
    let response = format!("CHAP_R=0x{}", "ab".repeat(16));
    let (status, _) =
        initiator.step((SECURITY, Some(OPERATIONAL)), &["CHAP_N=somebody", &response])?;
    ensure!(status == 0x0201, "a wrong secret: {status:#x}");
    is_cut_off(
        rig,
        &initiator.stream,
        "a wrong secret",
        &["an iSCSI connection", "wrong name or secret"],
    )
}

/// An error of the command, and the session goes on.
fn beyond_the_end(rig: &Rig) -> Result<()> {
    let mut initiator = Initiator::logged_in(rig, VOLUME, &[])?;
    for number in 1..=2 {
        let blocks = (SIZE / 4096 - 1).to_be_bytes();
        let mut read = vec![0x88, 0];
        read.extend(blocks);
        read.extend([0, 0, 0, 2, 0, 0]);
        let command = Pdu::new(COMMAND, 0xc1, &[])
            .with(19, &[number])
            .with(20, &8192_u32.to_be_bytes())
            .with(27, &[number])
            .with(32, &read);
        initiator.send(&command)?;
        let answer = initiator.receive()?;
        // The first of all commands is told of the login (UNIT ATTENTION); both are errors.
        let (opcode, status) = (answer.head[0], answer.head[3]);
        ensure!((opcode, status) == (RESPONSE, CHECK_CONDITION), "{opcode:#x} {status}");
        ensure!(!answer.data.is_empty(), "it says why");
    }
    Ok(())
}
