//! What a driven client sends. Bytes without any shape end a connection at their first magic
//! number; to come further, most plans put heads around them that are right.
use crate::nbd::hello::{Hello, Proof};
use crate::nbd::wire::{
    ALLOCATION, EXTENDED_REQUEST_MAGIC, OPTION_MAGIC, REQUEST_MAGIC, command, command_flag, option,
};

/// Bits of a plan. The two lowest say which headers are agreed on, if any.
const HEADERS: u8 = 0b11;
const SHAPED: u8 = 1 << 2;
pub const READ_ONLY: u8 = 1 << 3;
/// The client says who it is before it asks for the volume.
const NAMED: u8 = 1 << 4;

/// How much of the script one request takes.
const RECORD: usize = 8;

/// Payloads that are really sent.
const SENT_MAX: u64 = 1 << 20;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Headers {
    Simple,
    Structured,
    Extended,
}

pub fn stream(plan: u8, script: &[u8]) -> Vec<u8> {
    let headers = match plan & HEADERS {
        0 if plan & SHAPED == 0 => return script.to_vec(),
        0 => return options(script),
        1 => Headers::Simple,
        2 => Headers::Structured,
        _ => Headers::Extended,
    };
    let mut stream = negotiation(headers, plan & NAMED != 0);
    if plan & SHAPED == 0 {
        stream.extend(script);
    } else {
        requests(headers, script, &mut stream);
    }
    stream
}

fn negotiation(headers: Headers, named: bool) -> Vec<u8> {
    let mut stream = vec![0, 0, 0, 3];
    if named {
        push_option(&mut stream, option::HELLO, &hello(1).text());
        push_option(&mut stream, option::PROVE, &proof("v").text());
    }
    match headers {
        Headers::Simple => {}
        Headers::Structured => push_option(&mut stream, option::STRUCTURED_REPLY, &[]),
        Headers::Extended => push_option(&mut stream, option::EXTENDED_HEADERS, &[]),
    }
    let name = [0, 0, 0, 1, b'v'];
    let query = [&[0, 0, 0, 1, 0, 0, 0, 15], ALLOCATION.as_bytes()].concat();
    push_option(&mut stream, option::SET_META_CONTEXT, &[&name[..], &query].concat());
    push_option(&mut stream, option::GO, &[&name[..], &[0, 0]].concat());
    stream
}

/// Records of an option, a length, and that many bytes. Beside the protocol's own there are ours, with any
/// bytes and with right ones.
fn options(mut script: &[u8]) -> Vec<u8> {
    let mut stream = vec![0, 0, 0, 3];
    while let Some(([number, len], rest)) = script.split_first_chunk() {
        let (data, rest) = rest.split_at(rest.len().min(usize::from(*len)));
        script = rest;
        match number & 31 {
            16 => push_option(&mut stream, option::HELLO, data),
            17 => push_option(&mut stream, option::PROVE, data),
            18 => push_option(&mut stream, option::HELLO, &hello(u64::from(*len)).text()),
            19 => push_option(&mut stream, option::PROVE, &proof("v").text()),
            20 => push_option(&mut stream, option::GO, &[0, 0, 0, 1, b'v', 0, 0]),
            number => push_option(&mut stream, u32::from(number & 15), data),
        }
    }
    stream
}

fn hello(number: u64) -> Hello {
    Hello { initiator: "iqn.host".into(), client: 7, number, nonce: [3; 32] }
}

fn proof(export: &str) -> Proof {
    Proof { export: export.into(), user: "user".into(), mac: [5; 32] }
}

fn push_option(stream: &mut Vec<u8>, number: u32, data: &[u8]) {
    stream.extend(OPTION_MAGIC.to_be_bytes());
    stream.extend(number.to_be_bytes());
    let len = u32::try_from(data.len()).expect("a script's options are short");
    stream.extend(len.to_be_bytes());
    stream.extend(data);
}

fn requests(headers: Headers, script: &[u8], stream: &mut Vec<u8>) {
    for (index, record) in script.as_chunks::<RECORD>().0.iter().enumerate() {
        let [number, flags, odd, at, at2, long, len, len2] = *record;
        let number = u16::from(number & 15);
        // Disconnecting is rare: it ends the story.
        let number = if number == command::DISC && odd < 250 { command::WRITE } else { number };
        let mut flags = u16::from(flags) & if odd & 1 == 0 { command_flag::FUA } else { 0xff };
        if headers == Headers::Extended && number == command::WRITE && odd & 2 == 0 {
            flags |= command_flag::PAYLOAD_LEN;
        }
        let offset = u64::from(u16::from_be_bytes([at, at2])) << 10;
        // Long writes are rare: not all of their payload is sent, so they eat what follows.
        let shift = match number == command::WRITE {
            true if long > 0 => 0,
            false if long & 7 > 0 => 3,
            _ => 12,
        };
        let len = u64::from(u16::from_be_bytes([len, len2])) << shift & !511;
        let askew = u64::from(odd == 7);
        push_request(headers, stream, (flags, number), index as u64, offset + askew, len);
        let follows = match headers {
            Headers::Extended => flags & command_flag::PAYLOAD_LEN != 0,
            Headers::Simple | Headers::Structured => number == command::WRITE,
        };
        if follows {
            let sent = usize::try_from(len.min(SENT_MAX)).expect("it is at most 1 MiB");
            stream.resize(stream.len() + sent, odd);
        }
    }
}

fn push_request(
    headers: Headers,
    stream: &mut Vec<u8>,
    (flags, number): (u16, u16),
    cookie: u64,
    offset: u64,
    len: u64,
) {
    let magic = match headers {
        Headers::Extended => EXTENDED_REQUEST_MAGIC,
        Headers::Simple | Headers::Structured => REQUEST_MAGIC,
    };
    stream.extend(magic.to_be_bytes());
    stream.extend(flags.to_be_bytes());
    stream.extend(number.to_be_bytes());
    stream.extend(cookie.to_be_bytes());
    stream.extend(offset.to_be_bytes());
    match headers {
        Headers::Extended => stream.extend(len.to_be_bytes()),
        Headers::Simple | Headers::Structured => {
            let len = u32::try_from(len).expect("a script's lengths have 28 bits");
            stream.extend(len.to_be_bytes());
        }
    }
}
