//! As little of an NBD client as a test needs: one request at a time.
#![allow(dead_code, reason = "each test that includes this uses a part of it")]
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

const GO: u32 = 7;
const ACK: u32 = 1;
const WRITE: u16 = 1;
const TRIM: u16 = 4;
const ZERO: u16 = 6;

pub struct Nbd {
    stream: TcpStream,
    cookie: u64,
}

impl Nbd {
    pub fn open(at: SocketAddr, name: &str) -> Nbd {
        let mut stream = TcpStream::connect(at).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let mut greeting = [0; 18];
        stream.read_exact(&mut greeting).unwrap();
        let len = u32::try_from(name.len()).unwrap();
        let mut option = 3_u32.to_be_bytes().to_vec();
        option.extend_from_slice(b"IHAVEOPT");
        option.extend_from_slice(&GO.to_be_bytes());
        option.extend_from_slice(&(len + 6).to_be_bytes());
        option.extend_from_slice(&len.to_be_bytes());
        option.extend_from_slice(name.as_bytes());
        option.extend_from_slice(&[0; 2]);
        stream.write_all(&option).unwrap();
        let mut nbd = Nbd { stream, cookie: 0 };
        while nbd.option_reply() != ACK {}
        nbd
    }

    fn option_reply(&mut self) -> u32 {
        let mut reply = [0; 20];
        self.stream.read_exact(&mut reply).unwrap();
        let number = |at: usize| u32::from_be_bytes(reply[at..at + 4].try_into().unwrap());
        assert!(number(12) < 1 << 31, "the volume is refused");
        let mut data = vec![0; usize::try_from(number(16)).unwrap()];
        self.stream.read_exact(&mut data).unwrap();
        number(12)
    }

    fn run(&mut self, kind: u16, offset: u64, len: u64, data: &[u8]) {
        self.cookie += 1;
        let mut request = 0x2560_9513_u32.to_be_bytes().to_vec();
        request.extend_from_slice(&[0; 2]);
        request.extend_from_slice(&kind.to_be_bytes());
        request.extend_from_slice(&self.cookie.to_be_bytes());
        request.extend_from_slice(&offset.to_be_bytes());
        request.extend_from_slice(&u32::try_from(len).unwrap().to_be_bytes());
        request.extend_from_slice(data);
        self.stream.write_all(&request).unwrap();
        let mut reply = [0; 16];
        self.stream.read_exact(&mut reply).unwrap();
        assert_eq!(reply[4..8], [0; 4], "request {kind} at {offset} fails");
    }

    /// The connection, behind its negotiation.
    pub fn into_stream(self) -> TcpStream {
        self.stream
    }

    pub fn write(&mut self, offset: u64, data: &[u8]) {
        self.run(WRITE, offset, data.len() as u64, data);
    }

    pub fn trim(&mut self, offset: u64, len: u64) {
        self.run(TRIM, offset, len, &[]);
    }

    pub fn zero(&mut self, offset: u64, len: u64) {
        self.run(ZERO, offset, len, &[]);
    }
}
