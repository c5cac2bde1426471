//! Clients of NBD that break the protocol, or ask for what is not there.
use std::io::{Read, Write};
use std::net::TcpStream;

use anyhow::{Result, ensure};
use rig::nbd::{Nbd, NbdError};
use rig::site::Rig;

use crate::{SIZE, VOLUME, connect, is_cut_off, is_logged};

const OPT_EXPORT_NAME: u32 = 1;
const OPT_GO: u32 = 7;
const REQUEST: u32 = 0x2560_9513;
const READ: u16 = 0;
const WRITE: u16 = 1;

pub fn all(rig: &mut Rig) -> Result<()> {
    let at = rig.nbd(1);

    let mut client = greeted(rig)?;
    client.write_all(b"GET / HTTP/1.1\r\nHost: somewhere\r\n\r\n")?;
    is_cut_off(rig, &client, "another protocol", &["an NBD client", "an option began with"])?;

    let mut client = greeted(rig)?;
    client.write_all(&option(OPT_EXPORT_NAME, u32::MAX, &[]))?;
    is_cut_off(rig, &client, "a name of 4 GiB", &["the export name has 4294967295 bytes"])?;

    let mut client = greeted(rig)?;
    client.write_all(&option(OPT_EXPORT_NAME, 4, b"nope"))?;
    is_cut_off(rig, &client, "an unknown export without an answer", &["nope", "was refused"])?;

    match Nbd::connect(at, "missing", Box::new(|| true)) {
        Err(NbdError::NoExport(_)) => {}
        other => ensure!(false, "an unknown export: {:?}", other.err()),
    }
    is_logged(rig, "an unknown export", &["missing", "there is no volume of this name here"])?;
    beyond_the_end(rig)?;

    let mut client = logged_in(rig)?;
    client.write_all(&request(0xdead_beef, WRITE, 0, 4096))?;
    is_cut_off(rig, &client, "no request", &["a request began with 0xdeadbeef"])?;

    let mut client = logged_in(rig)?;
    client.write_all(&request(REQUEST, READ, 0, 48 << 20))?;
    let mut answer = [0; 16];
    client.read_exact(&mut answer)?;
    ensure!(answer[4..8] == [0, 0, 0, 22], "48 MiB at a time are refused: {answer:?}");

    // Half a write, and away.
    let mut client = logged_in(rig)?;
    client.write_all(&request(REQUEST, WRITE, SIZE - 8192, 8192))?;
    client.write_all(&[1; 100])?;
    Ok(())
}

/// An error, and the connection goes on.
fn beyond_the_end(rig: &Rig) -> Result<()> {
    let mut nbd = Nbd::connect(rig.nbd(1), VOLUME, Box::new(|| true))?;
    for (offset, len) in [(SIZE, 4096), (SIZE - 4096, 8192), (u64::MAX - 4095, 4096)] {
        let refused = nbd.write(offset, &vec![1; len], false);
        ensure!(matches!(refused, Err(NbdError::Errno(_))), "a write at {offset}: {refused:?}");
        let refused = nbd.zeroes(offset, len);
        ensure!(matches!(refused, Err(NbdError::Errno(_))), "zeroes at {offset}: {refused:?}");
    }
    let mut bytes = [0; 4096];
    nbd.read(SIZE - 4096, &mut bytes)?;
    ensure!(bytes == [0; 4096], "something was written");
    Ok(())
}

fn greeted(rig: &Rig) -> Result<TcpStream> {
    let mut client = connect(rig.nbd(1))?;
    client.read_exact(&mut [0; 18])?;
    client.write_all(&3_u32.to_be_bytes())?;
    Ok(client)
}

fn option(kind: u32, len: u32, data: &[u8]) -> Vec<u8> {
    let mut bytes = b"IHAVEOPT".to_vec();
    bytes.extend(kind.to_be_bytes());
    bytes.extend(len.to_be_bytes());
    bytes.extend(data);
    bytes
}

fn reply(client: &mut TcpStream) -> Result<(u32, Vec<u8>)> {
    let mut head = [0; 20];
    client.read_exact(&mut head)?;
    let kind = u32::from_be_bytes([head[12], head[13], head[14], head[15]]);
    let len = u32::from_be_bytes([head[16], head[17], head[18], head[19]]);
    ensure!(len < 65536, "a reply of {len} bytes");
    let mut data = vec![0; usize::try_from(len)?];
    client.read_exact(&mut data)?;
    Ok((kind, data))
}

fn logged_in(rig: &Rig) -> Result<TcpStream> {
    let mut client = greeted(rig)?;
    let mut data = u32::try_from(VOLUME.len())?.to_be_bytes().to_vec();
    data.extend(VOLUME.as_bytes());
    data.extend([0; 2]);
    client.write_all(&option(OPT_GO, u32::try_from(data.len())?, &data))?;
    while reply(&mut client)?.0 != 1 {}
    Ok(client)
}

fn request(magic: u32, kind: u16, offset: u64, len: u32) -> Vec<u8> {
    let mut bytes = magic.to_be_bytes().to_vec();
    bytes.extend(0_u16.to_be_bytes());
    bytes.extend(kind.to_be_bytes());
    bytes.extend(7_u64.to_be_bytes());
    bytes.extend(offset.to_be_bytes());
    bytes.extend(len.to_be_bytes());
    bytes
}
