//! CHAP with MD5 (RFC 1994, as RFC 7143 12.1 has it): the initiator shows that it knows a secret,
//! and we do so too if it asks.
use std::hint::black_box;

use md5::{Digest, Md5};

use super::errors::LoginError;
use super::events::{Access, Chap, Secret};
use super::text::{self, Pair, Text};

/// The number of MD5 among algorithms.
const MD5: &str = "5";

/// As long as the digest: more makes no guess harder.
const CHALLENGE_LEN: usize = 16;
const RESPONSE_LEN: usize = 16;

/// From the standard: the longest challenge that we have to take.
const CHALLENGE_MAX: usize = 1024;

/// How far an initiator has come with showing who it is.
#[derive(Debug, PartialEq, Eq)]
pub enum Auth {
    /// No method is agreed on.
    Open,
    /// CHAP is; the algorithm is not.
    Method,
    /// Our challenge is on its way.
    Challenged {
        id: u8,
        challenge: [u8; CHALLENGE_LEN],
    },
    Done,
}

/// Where challenges come from. They have to be beyond guessing.
pub type Random = Box<dyn FnMut(&mut [u8]) + Send>;

impl Auth {
    /// Takes the security keys of one request. The answers go out unless it fails.
    pub fn step(
        &mut self,
        access: &Access,
        pairs: &[Pair<'_>],
        random: &mut Random,
        answers: &mut Text,
    ) -> Result<(), LoginError> {
        let next = match self {
            Auth::Open => match value(pairs, "AuthMethod") {
                Some(offer) => choose_method(access, offer, answers)?,
                None => return alone(pairs, &[]),
            },
            Auth::Method => {
                alone(pairs, &["CHAP_A"])?;
                challenge(needed(pairs, "CHAP_A")?, random, answers)?
            }
            Auth::Challenged { id, challenge } => {
                alone(pairs, &["CHAP_N", "CHAP_R", "CHAP_I", "CHAP_C"])?;
                let chap = access.chap.as_ref().ok_or(LoginError::NotAuthenticated)?;
                verify(chap, *id, challenge, pairs)?;
                show(chap, challenge, pairs, answers)?;
                Auth::Done
            }
            Auth::Done => return alone(pairs, &[]),
        };
        *self = next;
        Ok(())
    }

    /// Whether the initiator may go on.
    pub fn is_enough(&self, access: &Access) -> bool {
        match self {
            Auth::Done => true,
            Auth::Open => access.chap.is_none(),
            Auth::Method | Auth::Challenged { .. } => false,
        }
    }
}

/// Whether a key belongs here.
pub fn is_security(key: &str) -> bool {
    ["AuthMethod", "CHAP_A", "CHAP_I", "CHAP_C", "CHAP_N", "CHAP_R"].contains(&key)
}

fn value<'a>(pairs: &[Pair<'a>], key: &str) -> Option<&'a str> {
    pairs.iter().find(|pair| pair.0 == key).map(|pair| pair.1)
}

fn needed<'a>(pairs: &[Pair<'a>], key: &'static str) -> Result<&'a str, LoginError> {
    value(pairs, key).ok_or(LoginError::Missing { key })
}

/// No security keys but these, each once.
fn alone(pairs: &[Pair<'_>], keys: &[&str]) -> Result<(), LoginError> {
    let security = || pairs.iter().map(|pair| pair.0).filter(|key| is_security(key));
    let odd = security()
        .find(|key| !keys.contains(key) || security().filter(|other| other == key).count() > 1);
    odd.map_or(Ok(()), |key| Err(LoginError::OutOfPlace { key: key.into() }))
}

fn choose_method(access: &Access, offer: &str, answers: &mut Text) -> Result<Auth, LoginError> {
    let (method, next) = match access.chap {
        Some(_) => ("CHAP", Auth::Method),
        None => ("None", Auth::Done),
    };
    if !offer.split(',').any(|offer| offer == method) {
        return Err(LoginError::NoCommonMethod);
    }
    answers.say("AuthMethod", method);
    Ok(next)
}

fn challenge(offer: &str, random: &mut Random, answers: &mut Text) -> Result<Auth, LoginError> {
    if !offer.split(',').any(|offer| offer == MD5) {
        return Err(LoginError::NoCommonMethod);
    }
    let (mut id, mut challenge) = ([0], [0; CHALLENGE_LEN]);
    random(&mut id);
    random(&mut challenge);
    answers.say("CHAP_A", MD5);
    answers.say("CHAP_I", &id[0].to_string());
    answers.say("CHAP_C", &text::to_hex(&challenge));
    Ok(Auth::Challenged { id: id[0], challenge })
}

fn verify(chap: &Chap, id: u8, challenge: &[u8], pairs: &[Pair<'_>]) -> Result<(), LoginError> {
    let name = needed(pairs, "CHAP_N")?;
    let response = text::binary(needed(pairs, "CHAP_R")?, RESPONSE_LEN)
        .ok_or(LoginError::BadValue { key: "CHAP_R" })?;
    let expected = response_to(id, &chap.secret, challenge);
    // Both are looked at, whatever the first says: time tells nothing about either.
    let same_name = is_same(name.as_bytes(), chap.user.as_bytes());
    let same_response = is_same(&response, &expected);
    if same_name & same_response { Ok(()) } else { Err(LoginError::WrongSecret) }
}

/// Answers the challenge of an initiator that wants to know who we are.
fn show(
    chap: &Chap,
    ours: &[u8],
    pairs: &[Pair<'_>],
    answers: &mut Text,
) -> Result<(), LoginError> {
    let (id, challenge) = match (value(pairs, "CHAP_I"), value(pairs, "CHAP_C")) {
        (None, None) => return Ok(()),
        (Some(id), Some(challenge)) => (id, challenge),
        (None, Some(_)) => return Err(LoginError::Missing { key: "CHAP_I" }),
        (Some(_), None) => return Err(LoginError::Missing { key: "CHAP_C" }),
    };
    let id = text::number(id).and_then(|id| u8::try_from(id).ok());
    let id = id.ok_or(LoginError::BadValue { key: "CHAP_I" })?;
    let challenge = text::binary(challenge, CHALLENGE_MAX).filter(|bytes| !bytes.is_empty());
    let challenge = challenge.ok_or(LoginError::BadValue { key: "CHAP_C" })?;
    // Whoever sends our own challenge back wants us to answer it for him.
    if challenge == ours {
        return Err(LoginError::Reflected);
    }
    let (user, secret) = chap.mutual.as_ref().ok_or(LoginError::NoMutualSecret)?;
    answers.say("CHAP_N", user);
    answers.say("CHAP_R", &text::to_hex(&response_to(id, secret, &challenge)));
    Ok(())
}

fn response_to(id: u8, secret: &Secret, challenge: &[u8]) -> [u8; RESPONSE_LEN] {
    let mut md5 = Md5::new();
    md5.update([id]);
    md5.update(secret.bytes());
    md5.update(challenge);
    md5.finalize().into()
}

/// Takes as long for any two of these lengths.
fn is_same(a: &[u8], b: &[u8]) -> bool {
    let differ = a.iter().zip(b).fold(0, |differ, (a, b)| black_box(differ | (a ^ b)));
    a.len() == b.len() && differ == 0
}

#[cfg(test)]
mod tests;
