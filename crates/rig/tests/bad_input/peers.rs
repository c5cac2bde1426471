//! Peers that are none, and callers of the admin interface.
use std::io::{Read, Write};

use anyhow::{Context, Result, ensure};
use rig::operator::Operator;
use rig::site::Rig;

use crate::{VOLUME, connect, is_cut_off, is_logged, until_closed};

/// A call for a replica of a volume.
pub fn call(version: u16, uid: &[u8], replica: u64) -> Vec<u8> {
    let mut call = b"PLXC".to_vec();
    call.extend(version.to_le_bytes());
    call.extend([0; 2]);
    call.extend(9_u64.to_le_bytes());
    call.extend(uid);
    call.extend(replica.to_le_bytes());
    call.extend([0; 8]);
    call
}

pub fn all(rig: &mut Rig, operator: &Operator) -> Result<()> {
    let at = rig.peers(1);
    let refused = "a peer is refused";

    let mut stranger = connect(at)?;
    stranger.write_all(b"EHLO somewhere\r\n")?;
    is_cut_off(rig, &stranger, "another protocol", &[refused, "this is no peer"])?;

    let mut newer = connect(at)?;
    newer.write_all(&call(7, &[1; 16], 1))?;
    let told = String::from_utf8_lossy(&until_closed(&newer)?).into_owned();
    ensure!(told.contains("version 7") && told.contains("version 1"), "it is told: {told:?}");
    is_logged(rig, "an unknown version", &[refused, "speaks version 7"])?;

    let mut lost = connect(at)?;
    lost.write_all(&call(1, &[1; 16], 1))?;
    is_cut_off(rig, &lost, "an unknown volume", &[refused, "has no replica here"])?;

    // A peer by its greeting, and none by its frames.
    let known = operator.ask(async |site| site.known(VOLUME).await)?;
    let replica = known.volume.places.first().context("it has a place")?.replica;
    for frame in [[0xff; 64], [0; 64]] {
        let mut odd = connect(at)?;
        odd.write_all(&call(1, &known.volume.uid, replica))?;
        let mut answer = [1; 8];
        odd.read_exact(&mut answer)?;
        ensure!(answer[6..] == [0; 2], "go on: {answer:?}");
        odd.write_all(&frame)?;
        is_cut_off(rig, &odd, "a frame that is none", &["a target's connection is closed"])?;
    }

    let mut web = connect(rig.admin(1))?;
    web.write_all(b"GET / HTTP/1.0\r\n\r\n")?;
    is_cut_off(rig, &web, "no gRPC", &["an administrator is refused", "gRPC"])
}
