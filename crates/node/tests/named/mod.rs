//! A client of NBD that says who it is: one request at a time, with its errors.
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use frontend::nbd::hello::{Hello, Mac, Nonce, Proof};
use frontend::nbd::wire::{
    OPTION_MAGIC, REQUEST_MAGIC, command, info, option, option_reply, transmission_flag,
};

/// What a host knows of a volume.
pub struct Credentials {
    pub user: &'static str,
    pub secret: &'static [u8],
    pub mutual: Option<&'static [u8]>,
}

pub fn hello(initiator: &str, number: u64) -> Hello {
    Hello { initiator: initiator.into(), client: 7, number, nonce: [0x5e; 32] }
}

pub struct Host {
    stream: TcpStream,
    challenge: Nonce,
    cookie: u64,
    pub is_read_only: bool,
    pub target_mac: Option<Mac>,
    /// Whether the target's code is the one that was expected.
    pub is_proved: bool,
}

impl Host {
    /// The kind of the refusal, if it is refused.
    pub fn open(
        at: SocketAddr,
        hello: &Hello,
        export: &str,
        credentials: Option<&Credentials>,
    ) -> Result<Host, u32> {
        let mut host = Host::say_hello(at, hello);
        if let Some(credentials) = credentials {
            let proof = host.proof(hello, export, credentials);
            host.prove(&proof);
        }
        host.go(export)?;
        let mutual = credentials.and_then(|credentials| credentials.mutual);
        if let (Some(mac), Some(secret)) = (&host.target_mac, mutual) {
            let claim = hello.target_claim(&host.challenge, export);
            host.is_proved = certs::is_hmac_sha256(secret, &claim, mac);
        }
        Ok(host)
    }

    pub fn say_hello(at: SocketAddr, hello: &Hello) -> Host {
        let mut stream = TcpStream::connect(at).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        stream.read_exact(&mut [0; 18]).unwrap();
        stream.write_all(&3_u32.to_be_bytes()).unwrap();
        let mut host = Host {
            stream,
            challenge: [0; 32],
            cookie: 0,
            is_read_only: false,
            target_mac: None,
            is_proved: false,
        };
        let replies = host.ask(option::HELLO, &hello.text()).unwrap();
        let [(option_reply::CHALLENGE, challenge)] = &replies[..] else { panic!("{replies:?}") };
        host.challenge = challenge[..].try_into().unwrap();
        host
    }

    pub fn proof(&self, hello: &Hello, export: &str, credentials: &Credentials) -> Proof {
        let claim = hello.initiator_claim(&self.challenge, export);
        let mac = certs::hmac_sha256(credentials.secret, &claim);
        Proof { export: export.into(), user: credentials.user.into(), mac }
    }

    pub fn prove(&mut self, proof: &Proof) {
        assert_eq!(self.ask(option::PROVE, &proof.text()), Ok(Vec::new()));
    }

    pub fn go(&mut self, export: &str) -> Result<(), u32> {
        let len = u32::try_from(export.len()).unwrap();
        let text = [&len.to_be_bytes()[..], export.as_bytes(), &[0, 0]].concat();
        for (kind, data) in self.ask(option::GO, &text)? {
            assert_eq!(kind, option_reply::INFO);
            let (kind, data) = data.split_at(2);
            match u16::from_be_bytes(kind.try_into().unwrap()) {
                info::EXPORT => {
                    let flags = u16::from_be_bytes(data[8..10].try_into().unwrap());
                    self.is_read_only = flags & transmission_flag::READ_ONLY != 0;
                }
                info::TARGET_PROOF => self.target_mac = Some(data.try_into().unwrap()),
                _ => {}
            }
        }
        Ok(())
    }

    /// The replies before the last one, or the kind of the refusal.
    fn ask(&mut self, number: u32, text: &[u8]) -> Result<Vec<(u32, Vec<u8>)>, u32> {
        let mut bytes = OPTION_MAGIC.to_be_bytes().to_vec();
        bytes.extend(number.to_be_bytes());
        bytes.extend(u32::try_from(text.len()).unwrap().to_be_bytes());
        bytes.extend(text);
        self.stream.write_all(&bytes).unwrap();
        let mut replies = Vec::new();
        loop {
            let mut head = [0; 20];
            self.stream.read_exact(&mut head).unwrap();
            let word = |at: usize| u32::from_be_bytes(head[at..at + 4].try_into().unwrap());
            assert_eq!(word(8), number);
            let mut data = vec![0; usize::try_from(word(16)).unwrap()];
            self.stream.read_exact(&mut data).unwrap();
            match word(12) {
                option_reply::ACK => return Ok(replies),
                refused if refused >= 1 << 31 => return Err(refused),
                kind => replies.push((kind, data)),
            }
        }
    }

    fn send(&mut self, kind: u16, offset: u64, len: usize, data: &[u8]) {
        self.cookie += 1;
        let mut request = REQUEST_MAGIC.to_be_bytes().to_vec();
        request.extend([0; 2]);
        request.extend(kind.to_be_bytes());
        request.extend(self.cookie.to_be_bytes());
        request.extend(offset.to_be_bytes());
        request.extend(u32::try_from(len).unwrap().to_be_bytes());
        request.extend(data);
        self.stream.write_all(&request).unwrap();
    }

    fn reply(&mut self) -> Result<(), u32> {
        let mut reply = [0; 16];
        self.stream.read_exact(&mut reply).unwrap();
        match u32::from_be_bytes(reply[4..8].try_into().unwrap()) {
            0 => Ok(()),
            error => Err(error),
        }
    }

    pub fn write(&mut self, offset: u64, data: &[u8]) -> Result<(), u32> {
        self.send_write(offset, data);
        self.reply()
    }

    /// Does not wait for the answer.
    pub fn send_write(&mut self, offset: u64, data: &[u8]) {
        self.send(command::WRITE, offset, data.len(), data);
    }

    pub fn zero(&mut self, offset: u64, len: usize) -> Result<(), u32> {
        self.send(command::WRITE_ZEROES, offset, len, &[]);
        self.reply()
    }

    pub fn read(&mut self, offset: u64, len: usize) -> Result<Vec<u8>, u32> {
        self.send(command::READ, offset, len, &[]);
        self.reply()?;
        let mut data = vec![0; len];
        self.stream.read_exact(&mut data).unwrap();
        Ok(data)
    }

    /// Whether the other side closes, whatever it says before.
    pub fn is_cut_off(&mut self) -> bool {
        use std::io::ErrorKind::{ConnectionReset, TimedOut, WouldBlock};
        match std::io::copy(&mut self.stream, &mut std::io::sink()) {
            Ok(_) => true,
            Err(error) if error.kind() == ConnectionReset => true,
            Err(error) if [TimedOut, WouldBlock].contains(&error.kind()) => false,
            Err(error) => panic!("{error}"),
        }
    }
}
