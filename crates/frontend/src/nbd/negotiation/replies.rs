//! What the server says in a negotiation, as bytes.
use block::LOGICAL_SECTOR;

use super::options::Wanted;
use crate::export::Export;
use crate::nbd::connection::Opened;
use crate::nbd::errors::OptionRefusal;
use crate::nbd::hello::Nonce;
use crate::nbd::limits::{PAYLOAD_MAX, STRING_MAX};
use crate::nbd::session::Session;
use crate::nbd::wire::{
    ALLOCATION, GREETING_MAGIC, OPTION_MAGIC, OPTION_REPLY_MAGIC, RESERVED_ZEROES, handshake_flag,
    info, option, option_reply,
};

pub fn greeting() -> Vec<u8> {
    let mut greeting = Vec::with_capacity(18);
    greeting.extend(GREETING_MAGIC.to_be_bytes());
    greeting.extend(OPTION_MAGIC.to_be_bytes());
    let flags = handshake_flag::FIXED_NEWSTYLE | handshake_flag::NO_ZEROES;
    greeting.extend(flags.to_be_bytes());
    greeting
}

pub fn ack(option: u32) -> Vec<u8> {
    let mut replies = Vec::new();
    push(&mut replies, option, option_reply::ACK, &[]);
    replies
}

/// The answer to a hello.
pub fn challenge(challenge: &Nonce) -> Vec<u8> {
    let mut replies = Vec::new();
    push(&mut replies, option::HELLO, option_reply::CHALLENGE, challenge);
    push(&mut replies, option::HELLO, option_reply::ACK, &[]);
    replies
}

pub fn refusal(option: u32, refusal: &OptionRefusal) -> Vec<u8> {
    let message = &refusal.message[..refusal.message.floor_char_boundary(STRING_MAX)];
    let mut replies = Vec::new();
    push(&mut replies, option, refusal.kind, message.as_bytes());
    replies
}

/// A part of a list, and its end if nothing follows.
pub fn list(names: &[String], is_last: bool) -> Vec<u8> {
    let mut replies = Vec::new();
    for name in names {
        let len = u32::try_from(name.len()).expect("the name of a volume is short");
        let data = [&len.to_be_bytes(), name.as_bytes()].concat();
        push(&mut replies, option::LIST, option_reply::SERVER, &data);
    }
    if is_last {
        push(&mut replies, option::LIST, option_reply::ACK, &[]);
    }
    replies
}

/// The number of `base:allocation`, if that was found.
pub fn contexts(option: u32, allocation: Option<u32>) -> Vec<u8> {
    let mut replies = Vec::new();
    if let Some(id) = allocation {
        let data = [&id.to_be_bytes(), ALLOCATION.as_bytes()].concat();
        push(&mut replies, option, option_reply::META_CONTEXT, &data);
    }
    push(&mut replies, option, option_reply::ACK, &[]);
    replies
}

/// The answer to EXPORT_NAME, which is no reply like the others.
pub fn named_export(session: &Session, pads: bool) -> Vec<u8> {
    let mut reply = Vec::with_capacity(10 + RESERVED_ZEROES);
    reply.extend(session.size.0.to_be_bytes());
    reply.extend(session.flags().to_be_bytes());
    if pads {
        reply.extend([0; RESERVED_ZEROES]);
    }
    reply
}

/// The answer to INFO and GO.
pub fn export(option: u32, wanted: Wanted, opened: &Opened, session: &Session) -> Vec<u8> {
    let export = &opened.export;
    let mut replies = Vec::new();
    let mut tell = |kind: u16, data: &[u8]| {
        let data = [&kind.to_be_bytes(), data].concat();
        push(&mut replies, option, option_reply::INFO, &data);
    };
    tell(info::EXPORT, &named_export(session, false));
    if wanted.name {
        tell(info::NAME, export.name.as_bytes());
    }
    if wanted.description {
        tell(info::DESCRIPTION, description(export).as_bytes());
    }
    // Unasked too: the defaults of the protocol allow single bytes.
    tell(info::BLOCK_SIZE, &block_sizes(export));
    if let Some(mac) = opened.target_mac.as_ref().filter(|_| option == option::GO) {
        tell(info::TARGET_PROOF, mac);
    }
    push(&mut replies, option, option_reply::ACK, &[]);
    replies
}

/// Smallest, preferred, and the largest payload.
fn block_sizes(export: &Export) -> Vec<u8> {
    let size = |len: u64| u32::try_from(len).unwrap_or(PAYLOAD_MAX).min(PAYLOAD_MAX);
    let smallest = size(export.block.0.max(LOGICAL_SECTOR));
    let preferred = size(export.granule.0).max(smallest);
    [smallest, preferred, PAYLOAD_MAX].map(u32::to_be_bytes).concat()
}

fn description(export: &Export) -> String {
    let uid: String = export.uid.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("Pollux volume {uid}, {}", export.size)
}

fn push(replies: &mut Vec<u8>, option: u32, kind: u32, data: &[u8]) {
    let len = u32::try_from(data.len()).expect("replies have some names and numbers");
    replies.extend(OPTION_REPLY_MAGIC.to_be_bytes());
    replies.extend(option.to_be_bytes());
    replies.extend(kind.to_be_bytes());
    replies.extend(len.to_be_bytes());
    replies.extend(data);
}
