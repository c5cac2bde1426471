//! A client for tests. It has the protocol's numbers from the document, not from the code.
use block::{Buf, ByteLen, Data};

use crate::ask::{Answer, Ask, AskError, AskId, Buffers};
use crate::export::{Export, OpenError};
use crate::nbd::hello::Introduction;
use crate::nbd::{Connection, Opened, Output, ProtocolError};

pub const SIZE: u64 = 128 << 20;

pub const CHALLENGE: [u8; 32] = [0xc4; 32];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Headers {
    Simple,
    Structured,
    Extended,
}

pub const ALL: [Headers; 3] = [Headers::Simple, Headers::Structured, Headers::Extended];

/// Outputs with what matters of them: what is sent is one stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Heard {
    Sent(Vec<u8>),
    List,
    Open(String, bool),
    OpenBy(String, bool, Box<Introduction>),
    /// With the bytes of a write.
    Ask(u64, String, Vec<u8>),
    Close(Option<ProtocolError>),
}

pub struct Memory;

impl Buffers for Memory {
    fn take(&mut self, len: usize) -> Buf {
        let mut buf = Buf::zeroed(len);
        buf.fill(0xee);
        buf
    }
}

pub struct Client {
    pub connection: Connection,
    pub out: Vec<Output>,
}

impl Client {
    /// Has said hello, and heard it.
    pub fn new() -> Client {
        let mut out = Vec::new();
        let connection = Connection::new(CHALLENGE, &mut out);
        let mut client = Client { connection, out };
        assert_eq!(client.sent(), greeting());
        client.send(&[0, 0, 0, 3]);
        client
    }

    /// Is past the negotiation, with `base:allocation` if it can be.
    pub fn serving(headers: Headers) -> Client {
        Client::serving_export(headers, export())
    }

    pub fn serving_export(headers: Headers, export: Export) -> Client {
        let mut client = Client::new();
        client.send(&negotiation(headers, &export.name));
        assert!(!client.connection.wants_bytes());
        client.opened(Ok(export));
        client.out.clear();
        assert!(client.connection.wants_bytes());
        client
    }

    pub fn send(&mut self, bytes: &[u8]) {
        self.connection.receive(bytes, &mut Memory, &mut self.out);
    }

    pub fn opened(&mut self, result: Result<Export, OpenError>) {
        self.connection.opened(result.map(Opened::from), &mut self.out);
    }

    pub fn answered(&mut self, id: u64, result: Result<Answer, AskError>) {
        self.connection.answered(AskId(id), result, &mut self.out);
    }

    /// Everything that came out since the last look.
    pub fn heard(&mut self) -> Vec<Heard> {
        let mut heard: Vec<Heard> = Vec::new();
        for output in self.out.drain(..) {
            let next = match output {
                Output::Send(piece) => match heard.last_mut() {
                    Some(Heard::Sent(sent)) => {
                        sent.extend(piece.as_bytes());
                        continue;
                    }
                    _ => Heard::Sent(piece.as_bytes().to_vec()),
                },
                Output::List { .. } => Heard::List,
                Output::Open { name, for_use, by: None } => Heard::Open(name, for_use),
                Output::Open { name, for_use, by: Some(by) } => Heard::OpenBy(name, for_use, by),
                Output::Ask { id, ask } => {
                    let bytes = match &ask {
                        Ask::Write { data, .. } => data.to_vec(),
                        _ => Vec::new(),
                    };
                    Heard::Ask(id.0, format!("{ask:?}"), bytes)
                }
                Output::Close { reason } => Heard::Close(reason),
            };
            heard.push(next);
        }
        heard
    }

    /// What was sent, where nothing else came out.
    pub fn sent(&mut self) -> Vec<u8> {
        match &mut self.heard()[..] {
            [] => Vec::new(),
            [Heard::Sent(sent)] => std::mem::take(sent),
            other => panic!("not only replies: {other:?}"),
        }
    }

    /// The one question, where nothing else came out.
    pub fn asked(&mut self) -> (u64, Ask) {
        match &self.out.drain(..).collect::<Vec<_>>()[..] {
            [Output::Ask { id, ask }] => (id.0, ask.clone()),
            other => panic!("not one question: {other:?}"),
        }
    }

    /// Why it was closed, where nothing else came out.
    pub fn closed(&mut self) -> Option<ProtocolError> {
        assert!(!self.connection.wants_bytes());
        match &self.heard()[..] {
            [Heard::Close(reason)] => reason.clone(),
            other => panic!("not closed: {other:?}"),
        }
    }

    /// A request that is refused.
    pub fn refused(&mut self, bytes: &[u8]) -> Vec<u8> {
        self.send(bytes);
        self.sent()
    }
}

pub fn export() -> Export {
    Export {
        name: "disk".into(),
        uid: [0xab; 16],
        size: ByteLen(SIZE),
        block: ByteLen(512),
        granule: ByteLen(4096),
        read_only: false,
    }
}

pub fn read_only() -> Export {
    Export { read_only: true, ..export() }
}

pub fn greeting() -> Vec<u8> {
    [&b"NBDMAGICIHAVEOPT"[..], &[0, 3]].concat()
}

/// From after the client's flags to GO.
pub fn negotiation(headers: Headers, name: &str) -> Vec<u8> {
    let mut stream = Vec::new();
    match headers {
        Headers::Simple => {}
        Headers::Structured => stream.extend(option(8, &[])),
        Headers::Extended => stream.extend(option(11, &[])),
    }
    if headers != Headers::Simple {
        stream.extend(option(10, &context_query(name, &["base:allocation"])));
    }
    stream.extend(option(7, &question(name, &[])));
    stream
}

pub fn option(number: u32, data: &[u8]) -> Vec<u8> {
    [b"IHAVEOPT", &number.to_be_bytes()[..], &sized(data)].concat()
}

pub fn sized(bytes: &[u8]) -> Vec<u8> {
    let len = u32::try_from(bytes.len()).expect("tests are short");
    [&len.to_be_bytes(), bytes].concat()
}

/// The data of INFO and GO.
pub fn question(name: &str, infos: &[u16]) -> Vec<u8> {
    let mut data = sized(name.as_bytes());
    let count = u16::try_from(infos.len()).expect("tests are short");
    data.extend(count.to_be_bytes());
    data.extend(infos.iter().flat_map(|kind| kind.to_be_bytes()));
    data
}

pub fn context_query(name: &str, queries: &[&str]) -> Vec<u8> {
    let mut data = sized(name.as_bytes());
    let count = u32::try_from(queries.len()).expect("tests are short");
    data.extend(count.to_be_bytes());
    data.extend(queries.iter().flat_map(|query| sized(query.as_bytes())));
    data
}

pub fn option_reply(number: u32, kind: u32, data: &[u8]) -> Vec<u8> {
    let magic = 0x0003_e889_0455_65a9_u64;
    [&magic.to_be_bytes()[..], &number.to_be_bytes(), &kind.to_be_bytes(), &sized(data)].concat()
}

/// Kind and message of the one error reply to an option.
pub fn option_error(number: u32, reply: &[u8]) -> (u32, String) {
    assert_eq!(
        reply[..12],
        [&0x0003_e889_0455_65a9_u64.to_be_bytes()[..], &number.to_be_bytes()].concat()
    );
    let kind = u32::from_be_bytes(reply[12..16].try_into().unwrap());
    assert_eq!(reply[16..], sized(&reply[20..]));
    (kind & !(1 << 31), String::from_utf8(reply[20..].to_vec()).unwrap())
}

/// A head in the given style. Extended writes announce their payload.
pub fn request(
    headers: Headers,
    flags: u16,
    command: u16,
    cookie: u64,
    offset: u64,
    len: u64,
) -> Vec<u8> {
    let extended = headers == Headers::Extended;
    let magic: u32 = if extended { 0x21e4_1c71 } else { 0x2560_9513 };
    let flags = if extended && command == 1 { flags | 32 } else { flags };
    let mut head = magic.to_be_bytes().to_vec();
    head.extend(flags.to_be_bytes());
    head.extend(command.to_be_bytes());
    head.extend(cookie.to_be_bytes());
    head.extend(offset.to_be_bytes());
    match extended {
        true => head.extend(len.to_be_bytes()),
        false => head.extend(u32::try_from(len).expect("32 bits").to_be_bytes()),
    }
    head
}

pub fn write(headers: Headers, flags: u16, cookie: u64, offset: u64, data: &[u8]) -> Vec<u8> {
    [request(headers, flags, 1, cookie, offset, data.len() as u64), data.to_vec()].concat()
}

pub fn simple(error: u32, cookie: u64) -> Vec<u8> {
    [&0x6744_6698_u32.to_be_bytes()[..], &error.to_be_bytes(), &cookie.to_be_bytes()].concat()
}

/// The only chunk of a reply.
pub fn chunk(headers: Headers, kind: u16, cookie: u64, offset: u64, payload: &[u8]) -> Vec<u8> {
    let len = payload.len() as u64;
    let (magic, tail): (u32, _) = match headers {
        Headers::Simple => panic!("simple replies have no chunks"),
        Headers::Structured => {
            (0x668e_33ef, u32::try_from(len).expect("short").to_be_bytes().to_vec())
        }
        Headers::Extended => (0x6e8a_278c, [offset.to_be_bytes(), len.to_be_bytes()].concat()),
    };
    let head = [&magic.to_be_bytes()[..], &[0, 1], &kind.to_be_bytes(), &cookie.to_be_bytes()];
    [head.concat(), tail, payload.to_vec()].concat()
}

pub fn done(headers: Headers, cookie: u64, offset: u64) -> Vec<u8> {
    match headers {
        Headers::Simple => simple(0, cookie),
        _ => chunk(headers, 0, cookie, offset, &[]),
    }
}

/// The errno of a reply, and with chunks its message, after a look at the rest of it.
pub fn error(headers: Headers, reply: &[u8], cookie: u64, offset: u64) -> (u32, String) {
    let at = match headers {
        Headers::Simple => {
            let code = u32::from_be_bytes(reply[4..8].try_into().unwrap());
            assert_eq!(reply, simple(code, cookie));
            return (code, String::new());
        }
        Headers::Structured => 20,
        Headers::Extended => 32,
    };
    assert_eq!(reply, chunk(headers, 0x8001, cookie, offset, &reply[at..]));
    let code = u32::from_be_bytes(reply[at..at + 4].try_into().unwrap());
    let len = u16::from_be_bytes(reply[at + 4..at + 6].try_into().unwrap());
    let message = &reply[at + 6..];
    assert_eq!(message.len(), usize::from(len));
    (code, String::from_utf8(message.to_vec()).unwrap())
}

pub fn data(byte: u8, len: usize) -> Data {
    Data::copy_of(&vec![byte; len])
}
