//! Two options of our own, by which a host says who it is before it names an export.
//!
//! `HELLO` tells the name of the initiator, which of its clients this is, and the number of the
//! connection: what a volume's attachments and the order of connections (P9) are about. It is answered
//! with a challenge. Where a volume has credentials, `PROVE` shows that the client knows them: a code over
//! one of the claims here, made with the secret. What makes and compares codes is the owner; so both ends
//! only share what is said. Numbers are big endian, as everywhere in this protocol.
use super::errors::OptionRefusal;
use super::limits::{INITIATOR_MAX, STRING_MAX};
use super::stream::Fields;
use super::wire::option_reply;

pub const VERSION: u16 = 1;

/// Bytes that nobody could know before.
pub type Nonce = [u8; 32];

/// A code of a claim: HMAC-SHA256.
pub type Mac = [u8; 32];

const INITIATOR_LABEL: &[u8] = b"pollux-nbd-initiator-1\0";
const TARGET_LABEL: &[u8] = b"pollux-nbd-target-1\0";

/// Who a client is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hello {
    /// The name that attachments have, with 1 to 223 bytes.
    pub initiator: String,
    /// Which of the initiator's clients: all its connections have the same number here.
    pub client: u64,
    /// Of this connection; at least 1, and greater than those of the client's earlier ones.
    pub number: u64,
    /// The client's part of what is proved, so that no answer of an earlier target fits.
    pub nonce: Nonce,
}

impl Hello {
    /// The data of `HELLO`. What is too long for its field is refused by whoever reads it.
    pub fn text(&self) -> Vec<u8> {
        let mut text = VERSION.to_be_bytes().to_vec();
        self.push_name(&mut text);
        text.extend(self.nonce);
        text
    }

    pub fn parse(text: &[u8]) -> Result<Hello, OptionRefusal> {
        let mut fields = Fields(text);
        let version = fields.u16().ok_or_else(OptionRefusal::cut)?;
        if version != VERSION {
            let message = format!("this is version {version} of a hello; {VERSION} is known here");
            return Err(OptionRefusal::new(option_reply::ERR_UNSUP, message));
        }
        let initiator = word(fields.short().ok_or_else(OptionRefusal::cut)?, INITIATOR_MAX)?;
        let client = fields.u64().ok_or_else(OptionRefusal::cut)?;
        let number = fields.u64().ok_or_else(OptionRefusal::cut)?;
        let nonce = fields.array().ok_or_else(OptionRefusal::cut)?;
        fields.ended()?;
        if initiator.is_empty() {
            return Err(OptionRefusal::invalid("the name of an initiator is not empty"));
        }
        if number == 0 {
            return Err(OptionRefusal::invalid("connections are numbered from 1"));
        }
        Ok(Hello { initiator, client, number, nonce })
    }

    /// What the initiator's code is made of.
    pub fn initiator_claim(&self, challenge: &Nonce, export: &str) -> Vec<u8> {
        self.claim(INITIATOR_LABEL, challenge, export)
    }

    /// What the target's code is made of: never the same as an initiator's, so none can be sent back.
    pub fn target_claim(&self, challenge: &Nonce, export: &str) -> Vec<u8> {
        self.claim(TARGET_LABEL, challenge, export)
    }

    fn claim(&self, label: &[u8], challenge: &Nonce, export: &str) -> Vec<u8> {
        let mut claim = [label, challenge, &self.nonce].concat();
        self.push_name(&mut claim);
        push_export(&mut claim, export);
        claim
    }

    fn push_name(&self, bytes: &mut Vec<u8>) {
        push_short(bytes, &self.initiator);
        bytes.extend(self.client.to_be_bytes());
        bytes.extend(self.number.to_be_bytes());
    }
}

/// That a client knows the credentials of a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Proof {
    /// As the client is about to name it, with its stage.
    pub export: String,
    pub user: String,
    /// Of [`Hello::initiator_claim`].
    pub mac: Mac,
}

impl Proof {
    /// The data of `PROVE`. What is too long for its field is refused by whoever reads it.
    pub fn text(&self) -> Vec<u8> {
        let mut text = Vec::new();
        push_export(&mut text, &self.export);
        push_short(&mut text, &self.user);
        text.extend(self.mac);
        text
    }

    pub fn parse(text: &[u8]) -> Result<Proof, OptionRefusal> {
        let mut fields = Fields(text);
        let export = word(fields.sized().ok_or_else(OptionRefusal::cut)?, STRING_MAX)?;
        let user = word(fields.short().ok_or_else(OptionRefusal::cut)?, STRING_MAX)?;
        let mac = fields.array().ok_or_else(OptionRefusal::cut)?;
        fields.ended()?;
        Ok(Proof { export, user, mac })
    }
}

/// What a client has said of itself when it asks for a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Introduction {
    pub hello: Hello,
    /// What it was answered.
    pub challenge: Nonce,
    /// For the export that it asks for.
    pub proof: Option<Proof>,
}

/// A name that a client sent.
pub fn word(bytes: &[u8], max: usize) -> Result<String, OptionRefusal> {
    if bytes.len() > max {
        let message = format!("names have at most {max} bytes here");
        return Err(OptionRefusal::new(option_reply::ERR_TOO_BIG, message));
    }
    match str::from_utf8(bytes) {
        Ok(name) if !name.contains('\0') => Ok(name.to_owned()),
        _ => Err(OptionRefusal::invalid("a name has to be UTF-8 without NUL")),
    }
}

fn push_short(bytes: &mut Vec<u8>, word: &str) {
    bytes.extend(u16::try_from(word.len()).unwrap_or(u16::MAX).to_be_bytes());
    bytes.extend(word.as_bytes());
}

fn push_export(bytes: &mut Vec<u8>, export: &str) {
    bytes.extend(u32::try_from(export.len()).unwrap_or(u32::MAX).to_be_bytes());
    bytes.extend(export.as_bytes());
}
