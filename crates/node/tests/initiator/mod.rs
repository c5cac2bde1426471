//! As little of an iSCSI initiator as a test needs: one session, one command at a time.
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// Status and detail of a login that was refused; 0: it was not.
pub type Refused = u16;

const LOGIN: u8 = 0x43;
const COMMAND: u8 = 0x01;
const RESPONSE: u8 = 0x21;
const DATA_IN: u8 = 0x25;

pub struct Initiator {
    stream: TcpStream,
    command: u32,
    status: u32,
}

/// What became of a command.
#[derive(Debug, PartialEq, Eq)]
pub enum Outcome {
    Good(Vec<u8>),
    /// Key, code and qualifier.
    Sense([u8; 3]),
    /// Another status.
    Status(u8),
}

impl Initiator {
    pub fn log_in(at: SocketAddr, name: &str, target: &str) -> Result<Initiator, Refused> {
        let stream = TcpStream::connect(at).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let mut initiator = Initiator { stream, command: 1, status: 0 };
        let mut header = [0; 48];
        // From the operational stage to the full feature phase.
        (header[0], header[1]) = (LOGIN, 0x87);
        header[8..14].copy_from_slice(&[0x80, 0, 0, 1, 0, 0]);
        header[24..28].copy_from_slice(&1_u32.to_be_bytes());
        let text = format!("InitiatorName={name}\0TargetName={target}\0SessionType=Normal\0");
        initiator.send(header, text.as_bytes()).unwrap();
        let (header, _) = initiator.receive().unwrap();
        match u16::from_be_bytes([header[36], header[37]]) {
            0 => Ok(initiator),
            refused => Err(refused),
        }
    }

    fn send(&mut self, mut header: [u8; 48], data: &[u8]) -> io::Result<()> {
        let len = u32::try_from(data.len()).unwrap().to_be_bytes();
        header[5..8].copy_from_slice(&len[1..]);
        let mut pdu = header.to_vec();
        pdu.extend_from_slice(data);
        pdu.resize(pdu.len().next_multiple_of(4), 0);
        self.stream.write_all(&pdu)
    }

    fn receive(&mut self) -> io::Result<([u8; 48], Vec<u8>)> {
        let mut header = [0; 48];
        self.stream.read_exact(&mut header)?;
        let len = u32::from_be_bytes([0, header[5], header[6], header[7]]);
        let len = usize::try_from(len).unwrap();
        let mut data = vec![0; len.next_multiple_of(4)];
        self.stream.read_exact(&mut data)?;
        data.truncate(len);
        self.status = u32::from_be_bytes(header[24..28].try_into().unwrap()).wrapping_add(1);
        Ok((header, data))
    }

    /// `Err`: the session is over.
    pub fn run(&mut self, cdb: &[u8], data: &[u8], takes: usize) -> io::Result<Outcome> {
        let mut header = [0; 48];
        let way = if data.is_empty() { 0x40 } else { 0x20 };
        (header[0], header[1]) = (COMMAND, 0x81 | way);
        header[16..20].copy_from_slice(&self.command.to_be_bytes());
        let len = u32::try_from(data.len().max(takes)).unwrap();
        header[20..24].copy_from_slice(&len.to_be_bytes());
        header[24..28].copy_from_slice(&self.command.to_be_bytes());
        header[28..32].copy_from_slice(&self.status.to_be_bytes());
        header[32..32 + cdb.len()].copy_from_slice(cdb);
        self.command += 1;
        self.send(header, data)?;
        let mut bytes = Vec::new();
        loop {
            let (header, data) = self.receive()?;
            match header[0] & 0x3f {
                DATA_IN => {
                    bytes.extend_from_slice(&data);
                    if header[1] & 1 != 0 {
                        return Ok(Outcome::Good(bytes));
                    }
                }
                RESPONSE => {
                    return Ok(match header[3] {
                        0 => Outcome::Good(bytes),
                        2 => Outcome::Sense([data[4], data[14], data[15]]),
                        other => Outcome::Status(other),
                    });
                }
                // Pings, and requests to log out.
                _ => {}
            }
        }
    }

    /// Hears everything that the disk has to tell first.
    pub fn ready(&mut self) -> io::Result<()> {
        while self.run(&[0; 6], &[], 0)? != Outcome::Good(Vec::new()) {}
        Ok(())
    }

    /// One block of the disk.
    pub fn write(&mut self, block: u8, fill: u8) -> io::Result<Outcome> {
        self.run(&[0x2a, 0, 0, 0, 0, block, 0, 0, 1, 0], &[fill; 4096], 0)
    }

    pub fn read(&mut self, block: u8) -> io::Result<Outcome> {
        self.run(&[0x28, 0, 0, 0, 0, block, 0, 0, 1, 0], &[], 4096)
    }

    /// Whether the other side ends the session by itself, soon.
    pub fn is_cut_off(&mut self) -> bool {
        let mut rest = [0; 4096];
        loop {
            match self.stream.read(&mut rest) {
                Ok(0) => return true,
                Ok(_) => {}
                Err(error) => return error.kind() == io::ErrorKind::ConnectionReset,
            }
        }
    }
}
