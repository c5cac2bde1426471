//! The first words with a target: who comes, the proof of it, and which volume.
use std::io::{self, Read, Write};
use std::ops::RangeInclusive;

use block::ByteLen;
use frontend::nbd::hello::{Hello, Nonce, Proof};
use frontend::nbd::wire::{
    GREETING_MAGIC, OPTION_MAGIC, OPTION_REPLY_MAGIC, handshake_flag, info, option, option_reply,
    transmission_flag, u16_at, u32_at, u64_at,
};
use thiserror::Error;

use super::connect::{Identity, Secret};

/// Far more than any reply of ours has.
const REPLY_MAX: u32 = 64 << 10;
/// Replies to one option: far more than there are kinds of them. A target that never comes to an end is none of ours.
const REPLIES_MAX: usize = 64;
/// What of a target's words is told on.
const WORDS_MAX: usize = 500;
/// Block sizes that a volume can have.
const BLOCK_SIZES: RangeInclusive<u64> = 512..=128 << 10;
/// The largest volume that the engine's maps take.
const SIZE_MAX: u64 = 128 << 40;
const GREETING_LEN: usize = 18;
const REPLY_HEAD_LEN: usize = 20;

/// A volume as its target offers it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Disk {
    pub size: ByteLen,
    /// What is read and written at the least.
    pub block: ByteLen,
    pub read_only: bool,
    /// All that the target can do, as the protocol has it.
    pub flags: u16,
}

impl Disk {
    /// What a target says is no invariant: devices are made of these numbers, and divided by them.
    pub(super) fn problem(&self) -> Option<String> {
        let (size, block) = (self.size.0, self.block.0);
        if !block.is_power_of_two() || !BLOCK_SIZES.contains(&block) {
            let (min, max) = BLOCK_SIZES.into_inner();
            return Some(format!(
                "a block size of {block}, which is no power of two from {min} to {max}"
            ));
        }
        if size == 0 || size > SIZE_MAX || !size.is_multiple_of(block) {
            return Some(format!(
                "a size of {size} bytes, which is no multiple of its block size {block} from {block} to {SIZE_MAX}"
            ));
        }
        None
    }
}

#[derive(Debug, Error)]
pub enum HandshakeError {
    #[error("it is not known where the volume is served: {reason}")]
    Nowhere { reason: String },
    #[error("{address} cannot be reached: {error}")]
    Unreached { address: String, error: io::Error },
    #[error("the target's connection broke during the login: {0}")]
    Broken(#[from] io::Error),
    #[error("what answers there is no target of ours: {0}")]
    Strange(String),
    #[error("the target at {target} says that the volume has {problem}: it is not used")]
    Geometry { target: String, problem: String },
    #[error("the target refused: {0}")]
    Refused(String),
    #[error("the target does not let this machine in: {0}")]
    Denied(String),
    #[error("the target does not know the volume's secret: it may be somebody else")]
    Unproved,
    #[error(
        "acknowledged writes of this stage may be lost (UnflushedWritesLost): unmount the volume and stage it anew"
    )]
    StageLost,
    #[error("a newer connection of this machine has taken this one's place")]
    Replaced,
}

impl HandshakeError {
    /// Trying again will not help, ever.
    pub fn is_final(&self) -> bool {
        matches!(self, HandshakeError::StageLost | HandshakeError::Replaced)
    }
}

type Result<T> = std::result::Result<T, HandshakeError>;

/// Opens the volume for use.
pub fn go(stream: &mut (impl Read + Write), who: &Identity, number: u64) -> Result<Disk> {
    let hello =
        Hello { initiator: who.initiator.clone(), client: who.client, number, nonce: nonce() };
    let challenge = introduce(stream, &hello)?;
    if let Some(secret) = &who.secret {
        prove(stream, who, secret, &hello, &challenge)?;
    }
    let answer = open(stream, option::GO, &who.export)?;
    if let Some(secret) = who.secret.as_ref().filter(|it| !it.mutual_secret.is_empty()) {
        let claim = hello.target_claim(&challenge, &who.export);
        let mac = answer.proof.ok_or(HandshakeError::Unproved)?;
        if !certs::is_hmac_sha256(secret.mutual_secret.as_bytes(), &claim, &mac) {
            return Err(HandshakeError::Unproved);
        }
    }
    Ok(answer.disk)
}

/// Asks how it is, and opens nothing.
pub fn info(stream: &mut (impl Read + Write), who: &Identity) -> Result<Disk> {
    let hello =
        Hello { initiator: who.initiator.clone(), client: who.client, number: 1, nonce: nonce() };
    let challenge = introduce(stream, &hello)?;
    if let Some(secret) = &who.secret {
        prove(stream, who, secret, &hello, &challenge)?;
    }
    let answer = open(stream, option::INFO, &who.export)?;
    say(stream, option::ABORT, &[])?;
    Ok(answer.disk)
}

fn nonce() -> Nonce {
    let mut nonce = [0; 32];
    certs::random(&mut nonce);
    nonce
}

fn introduce(stream: &mut (impl Read + Write), hello: &Hello) -> Result<Nonce> {
    let mut greeting = [0; GREETING_LEN];
    stream.read_exact(&mut greeting)?;
    if (u64_at(&greeting, 0), u64_at(&greeting, 8)) != (GREETING_MAGIC, OPTION_MAGIC) {
        return Err(HandshakeError::Strange("it does not greet as NBD does".into()));
    }
    let wanted = handshake_flag::FIXED_NEWSTYLE | handshake_flag::NO_ZEROES;
    if u16_at(&greeting, 16) & wanted != wanted {
        return Err(HandshakeError::Strange("it speaks an old version of NBD".into()));
    }
    stream.write_all(&u32::from(wanted).to_be_bytes())?;
    say(stream, option::HELLO, &hello.text())?;
    let mut challenge = None;
    replies(stream, option::HELLO, |kind, data| {
        if kind == option_reply::CHALLENGE {
            challenge = data.try_into().ok();
        }
        Ok(())
    })?;
    challenge.ok_or_else(|| HandshakeError::Strange("it did not answer to a hello".into()))
}

fn prove(
    stream: &mut (impl Read + Write),
    who: &Identity,
    secret: &Secret,
    hello: &Hello,
    challenge: &Nonce,
) -> Result<()> {
    let claim = hello.initiator_claim(challenge, &who.export);
    let mac = certs::hmac_sha256(secret.secret.as_bytes(), &claim);
    let proof = Proof { export: who.export.clone(), user: secret.user.clone(), mac };
    say(stream, option::PROVE, &proof.text())?;
    replies(stream, option::PROVE, |_, _| Ok(()))
}

struct Opened {
    disk: Disk,
    proof: Option<[u8; 32]>,
}

fn open(stream: &mut (impl Read + Write), how: u32, export: &str) -> Result<Opened> {
    let name = export.as_bytes();
    let len = u32::try_from(name.len()).map_err(|_| strange("its name is too long"))?;
    let mut text = len.to_be_bytes().to_vec();
    text.extend_from_slice(name);
    text.extend_from_slice(&1_u16.to_be_bytes());
    text.extend_from_slice(&info::BLOCK_SIZE.to_be_bytes());
    say(stream, how, &text)?;
    let (mut told, mut block, mut proof) = (None, ByteLen(512), None);
    replies(stream, how, |kind, data| {
        if kind != option_reply::INFO || data.len() < 2 {
            return Ok(());
        }
        match (u16_at(data, 0), data.len()) {
            (info::EXPORT, 12) => told = Some((ByteLen(u64_at(data, 2)), u16_at(data, 10))),
            (info::BLOCK_SIZE, 14) => block = ByteLen(u64::from(u32_at(data, 2))),
            (info::TARGET_PROOF, 34) => proof = data[2..].try_into().ok(),
            (info::EXPORT | info::BLOCK_SIZE | info::TARGET_PROOF, _) => {
                return Err(strange("it describes the volume in another way than NBD has it"));
            }
            _ => {}
        }
        Ok(())
    })?;
    let (size, flags) = told.ok_or_else(|| strange("it does not say how large the volume is"))?;
    let read_only = flags & transmission_flag::READ_ONLY != 0;
    Ok(Opened { disk: Disk { size, block, read_only, flags }, proof })
}

fn strange(what: &str) -> HandshakeError {
    HandshakeError::Strange(what.to_owned())
}

fn say(stream: &mut impl Write, option: u32, text: &[u8]) -> Result<()> {
    let len = u32::try_from(text.len()).map_err(|_| strange("an option is too long"))?;
    let mut message = OPTION_MAGIC.to_be_bytes().to_vec();
    message.extend_from_slice(&option.to_be_bytes());
    message.extend_from_slice(&len.to_be_bytes());
    message.extend_from_slice(text);
    Ok(stream.write_all(&message)?)
}

/// All replies to an option, until it is done or refused.
fn replies(
    stream: &mut impl Read,
    option: u32,
    mut each: impl FnMut(u32, &[u8]) -> Result<()>,
) -> Result<()> {
    for _ in 0..REPLIES_MAX {
        let mut head = [0; REPLY_HEAD_LEN];
        stream.read_exact(&mut head)?;
        let (kind, len) = (u32_at(&head, 12), u32_at(&head, 16));
        if u64_at(&head, 0) != OPTION_REPLY_MAGIC || u32_at(&head, 8) != option || len > REPLY_MAX {
            return Err(strange("its reply to an option is malformed"));
        }
        let mut data = vec![0; usize::try_from(len).unwrap_or(0)];
        stream.read_exact(&mut data)?;
        match kind {
            option_reply::ACK => return Ok(()),
            option_reply::ERR_STAGE_LOST => return Err(HandshakeError::StageLost),
            option_reply::ERR_OLDER_CONNECTION => return Err(HandshakeError::Replaced),
            option_reply::ERR_POLICY => {
                return Err(HandshakeError::Denied(words(&data)));
            }
            refused if refused >> 31 == 1 => {
                return Err(HandshakeError::Refused(words(&data)));
            }
            kind => each(kind, &data)?,
        }
    }
    Err(strange("its replies to an option do not end"))
}

/// They end in logs and messages.
fn words(data: &[u8]) -> String {
    String::from_utf8_lossy(data).chars().take(WORDS_MAX).collect()
}
