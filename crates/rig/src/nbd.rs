//! A small NBD client: newstyle with GO, simple replies, one request at a time.
//!
//! Whoever wants several in flight opens several connections, as the server allows.
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use thiserror::Error;

const MAGIC: u64 = 0x4e42_444d_4147_4943;
const OPTION: u64 = 0x4948_4156_454f_5054;
const OPTION_REPLY: u64 = 0x0003_e889_0455_65a9;
const REQUEST: u32 = 0x2560_9513;
const REPLY: u32 = 0x6744_6698;

const OPT_GO: u32 = 7;
const REP_ACK: u32 = 1;
const REP_INFO: u32 = 3;
const REP_ERROR: u32 = 1 << 31;
const INFO_EXPORT: u16 = 0;
const FIXED_NO_ZEROES: u32 = 3;
const FUA: u16 = 1;

/// How long one answer may take: more than the deadline of a hold.
const ANSWER: Duration = Duration::from_secs(90);
const GLANCE: Duration = Duration::from_millis(500);
const DIAL: Duration = Duration::from_secs(2);

pub const ENOSPC: u32 = 28;

#[derive(Debug, Error)]
pub enum NbdError {
    #[error("the connection is gone: {0}")]
    Broken(#[from] io::Error),
    #[error("the server does not speak NBD as agreed: {0}")]
    Strange(&'static str),
    #[error("the export was refused with {0:#x}")]
    NoExport(u32),
    #[error("errno {0}")]
    Errno(u32),
}

/// What a request does.
#[derive(Clone, Copy, Debug)]
#[repr(u16)]
enum Command {
    Read = 0,
    Write = 1,
    Flush = 3,
    Trim = 4,
    Zeroes = 6,
}

/// Asked now and then while an answer is late: whether it is still worth waiting.
pub type Patience = Box<dyn FnMut() -> bool + Send>;

pub struct Nbd {
    stream: TcpStream,
    patience: Patience,
    cookie: u64,
    pub size: u64,
}

impl Nbd {
    pub fn connect(at: SocketAddr, export: &str, patience: Patience) -> Result<Nbd, NbdError> {
        let stream = TcpStream::connect_timeout(&at, DIAL)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(GLANCE))?;
        let mut nbd = Nbd { stream, patience, cookie: 0, size: 0 };
        nbd.greet()?;
        nbd.go(export)?;
        Ok(nbd)
    }

    fn greet(&mut self) -> Result<(), NbdError> {
        let greeting: [u8; 18] = self.take()?;
        let magic = [MAGIC.to_be_bytes(), OPTION.to_be_bytes()].concat();
        if greeting[..16] != magic {
            return Err(NbdError::Strange("another greeting"));
        }
        self.stream.write_all(&FIXED_NO_ZEROES.to_be_bytes())?;
        Ok(())
    }

    fn go(&mut self, export: &str) -> Result<(), NbdError> {
        let name_len = u32::try_from(export.len()).map_err(|_| NbdError::Strange("long name"))?;
        let mut option = OPTION.to_be_bytes().to_vec();
        option.extend(OPT_GO.to_be_bytes());
        option.extend((name_len + 6).to_be_bytes());
        option.extend(name_len.to_be_bytes());
        option.extend(export.as_bytes());
        option.extend(0u16.to_be_bytes());
        self.stream.write_all(&option)?;
        loop {
            let magic = u64::from_be_bytes(self.take()?);
            let _option: [u8; 4] = self.take()?;
            let kind = u32::from_be_bytes(self.take()?);
            let len = u32::from_be_bytes(self.take()?);
            if magic != OPTION_REPLY || len > 4096 {
                return Err(NbdError::Strange("another reply to GO"));
            }
            let mut data = vec![0; len as usize];
            self.fill(&mut data)?;
            match kind {
                REP_ACK => return Ok(()),
                REP_INFO => self.inform(&data),
                kind if kind & REP_ERROR != 0 => return Err(NbdError::NoExport(kind)),
                _ => return Err(NbdError::Strange("an unknown reply to GO")),
            }
        }
    }

    fn inform(&mut self, data: &[u8]) {
        let Some((kind, rest)) = data.split_first_chunk() else { return };
        if let (INFO_EXPORT, Some(size)) = (u16::from_be_bytes(*kind), rest.first_chunk()) {
            self.size = u64::from_be_bytes(*size);
        }
    }

    pub fn read(&mut self, offset: u64, into: &mut [u8]) -> Result<(), NbdError> {
        self.ask(Command::Read, 0, offset, into.len(), &[])?;
        self.fill(into)
    }

    pub fn write(&mut self, offset: u64, bytes: &[u8], fua: bool) -> Result<(), NbdError> {
        let flags = if fua { FUA } else { 0 };
        self.ask(Command::Write, flags, offset, bytes.len(), bytes)
    }

    pub fn flush(&mut self) -> Result<(), NbdError> {
        self.ask(Command::Flush, 0, 0, 0, &[])
    }

    /// What is read afterwards is what was there, or zeroes.
    pub fn trim(&mut self, offset: u64, len: usize) -> Result<(), NbdError> {
        self.ask(Command::Trim, 0, offset, len, &[])
    }

    pub fn zeroes(&mut self, offset: u64, len: usize) -> Result<(), NbdError> {
        self.ask(Command::Zeroes, 0, offset, len, &[])
    }

    fn ask(
        &mut self,
        command: Command,
        flags: u16,
        offset: u64,
        len: usize,
        payload: &[u8],
    ) -> Result<(), NbdError> {
        let len = u32::try_from(len).map_err(|_| NbdError::Strange("too long a request"))?;
        self.cookie += 1;
        let mut request = Vec::with_capacity(28 + payload.len());
        request.extend(REQUEST.to_be_bytes());
        request.extend(flags.to_be_bytes());
        request.extend((command as u16).to_be_bytes());
        request.extend(self.cookie.to_be_bytes());
        request.extend(offset.to_be_bytes());
        request.extend(len.to_be_bytes());
        request.extend(payload);
        self.stream.write_all(&request)?;
        let magic = u32::from_be_bytes(self.take()?);
        let errno = u32::from_be_bytes(self.take()?);
        let cookie = u64::from_be_bytes(self.take()?);
        match errno {
            _ if magic != REPLY => Err(NbdError::Strange("another magic in a reply")),
            _ if cookie != self.cookie => Err(NbdError::Strange("a reply to something else")),
            0 => Ok(()),
            errno => Err(NbdError::Errno(errno)),
        }
    }

    fn take<const N: usize>(&mut self) -> Result<[u8; N], NbdError> {
        let mut bytes = [0; N];
        self.fill(&mut bytes)?;
        Ok(bytes)
    }

    fn fill(&mut self, mut into: &mut [u8]) -> Result<(), NbdError> {
        let begun = Instant::now();
        while !into.is_empty() {
            match self.stream.read(into) {
                Ok(0) => return Err(io::Error::from(ErrorKind::UnexpectedEof).into()),
                Ok(got) => into = &mut into[got..],
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    if begun.elapsed() > ANSWER || !(self.patience)() {
                        return Err(error.into());
                    }
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }
}
