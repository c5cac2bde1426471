//! Operational keys (RFC 7143, 13): what was offered, what we answer, and what then holds.
use super::errors::LoginError;
use super::limits::Limits;
use super::text::{self, IRRELEVANT, NOT_UNDERSTOOD, REJECT, Text};

/// From the standard: what lengths of segments and bursts may be.
const LENGTH_MIN: u64 = 512;
const LENGTH_MAX: u64 = (1 << 24) - 1;

/// What holds for a session. It begins with the defaults of the standard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Params {
    pub header_digest: bool,
    pub data_digest: bool,
    pub initial_r2t: bool,
    pub immediate_data: bool,
    pub burst: u32,
    pub first_burst: u32,
    pub r2ts: u32,
    /// The longest data segment that the initiator takes.
    pub segment_max: u32,
    pub time2wait: u16,
}

impl Default for Params {
    fn default() -> Params {
        Params {
            header_digest: false,
            data_digest: false,
            initial_r2t: true,
            immediate_data: true,
            burst: 262_144,
            first_burst: 65_536,
            r2ts: 1,
            segment_max: 8192,
            time2wait: 2,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Key {
    HeaderDigest,
    DataDigest,
    MaxConnections,
    InitialR2t,
    ImmediateData,
    MaxRecvDataSegmentLength,
    MaxBurstLength,
    FirstBurstLength,
    DefaultTime2Wait,
    DefaultTime2Retain,
    MaxOutstandingR2t,
    DataPduInOrder,
    DataSequenceInOrder,
    ErrorRecoveryLevel,
    IfMarker,
    OfMarker,
    IfMarkInt,
    OfMarkInt,
    ProtocolLevel,
    TaskReporting,
}

const KEYS: [(&str, Key); 20] = [
    ("HeaderDigest", Key::HeaderDigest),
    ("DataDigest", Key::DataDigest),
    ("MaxConnections", Key::MaxConnections),
    ("InitialR2T", Key::InitialR2t),
    ("ImmediateData", Key::ImmediateData),
    ("MaxRecvDataSegmentLength", Key::MaxRecvDataSegmentLength),
    ("MaxBurstLength", Key::MaxBurstLength),
    ("FirstBurstLength", Key::FirstBurstLength),
    ("DefaultTime2Wait", Key::DefaultTime2Wait),
    ("DefaultTime2Retain", Key::DefaultTime2Retain),
    ("MaxOutstandingR2T", Key::MaxOutstandingR2t),
    ("DataPDUInOrder", Key::DataPduInOrder),
    ("DataSequenceInOrder", Key::DataSequenceInOrder),
    ("ErrorRecoveryLevel", Key::ErrorRecoveryLevel),
    ("IFMarker", Key::IfMarker),
    ("OFMarker", Key::OfMarker),
    ("IFMarkInt", Key::IfMarkInt),
    ("OFMarkInt", Key::OfMarkInt),
    ("iSCSIProtocolLevel", Key::ProtocolLevel),
    ("TaskReporting", Key::TaskReporting),
];

/// Keys that only a target says, or that belong to other stages.
const MISPLACED: [&str; 10] = [
    "TargetAlias",
    "TargetAddress",
    "TargetPortalGroupTag",
    "SendTargets",
    "AuthMethod",
    "CHAP_A",
    "CHAP_I",
    "CHAP_C",
    "CHAP_N",
    "CHAP_R",
];

/// Whether a key is negotiated in the operational stage.
pub fn is_operational(name: &str) -> bool {
    KEYS.iter().any(|(known, _)| *known == name)
}

/// The negotiation of one login.
#[derive(Debug, Default)]
pub struct Negotiation {
    pub params: Params,
    /// One bit per key: each is negotiated once.
    seen: u32,
    told_segment: bool,
}

impl Negotiation {
    /// Answers an offer, where it wants an answer.
    pub fn offer(
        &mut self,
        (name, value): (&str, &str),
        is_discovery: bool,
        limits: &Limits,
        answers: &mut Text,
    ) -> Result<(), LoginError> {
        if [REJECT, IRRELEVANT, NOT_UNDERSTOOD].contains(&value) {
            return Ok(());
        }
        if MISPLACED.contains(&name) {
            return Err(LoginError::OutOfPlace { key: name.into() });
        }
        let Some(at) = KEYS.iter().position(|(known, _)| *known == name) else {
            answers.say(name, NOT_UNDERSTOOD);
            return Ok(());
        };
        let (name, key) = KEYS[at];
        if self.seen & 1 << at != 0 {
            return Err(LoginError::Repeated { key: name });
        }
        self.seen |= 1 << at;
        let answer = match is_discovery && only_with_commands(key) {
            true => Some(IRRELEVANT.into()),
            false => self.params.settle(key, value, limits),
        };
        if let Some(answer) = answer {
            answers.say(name, &answer);
        }
        Ok(())
    }

    /// Says what is ours to declare, once.
    pub fn declare(&mut self, limits: &Limits, answers: &mut Text) {
        if !self.told_segment {
            self.told_segment = true;
            answers.say("MaxRecvDataSegmentLength", &limits.segment_max.to_string());
        }
    }

    /// What was agreed. A first burst is no longer than a burst, whoever said what first.
    pub fn settled(&self) -> Params {
        let mut params = self.params.clone();
        params.first_burst = params.first_burst.min(params.burst);
        params
    }
}

fn only_with_commands(key: Key) -> bool {
    matches!(
        key,
        Key::MaxConnections
            | Key::InitialR2t
            | Key::ImmediateData
            | Key::MaxBurstLength
            | Key::FirstBurstLength
            | Key::MaxOutstandingR2t
            | Key::DataPduInOrder
            | Key::DataSequenceInOrder
    )
}

impl Params {
    /// Sets what follows from an offer and gives the answer to it.
    fn settle(&mut self, key: Key, value: &str, limits: &Limits) -> Option<String> {
        let settled = match key {
            Key::HeaderDigest => digest(value, &mut self.header_digest),
            Key::DataDigest => digest(value, &mut self.data_digest),
            Key::InitialR2t => either(value, false, &mut self.initial_r2t),
            Key::ImmediateData => both(value, true, &mut self.immediate_data),
            Key::DataPduInOrder | Key::DataSequenceInOrder => either(value, true, &mut true),
            Key::IfMarker | Key::OfMarker => both(value, false, &mut false),
            // Markers are off, whatever their interval would be.
            Key::IfMarkInt | Key::OfMarkInt => Some(IRRELEVANT.into()),
            Key::MaxBurstLength => least(value, limits.burst_max, &mut self.burst),
            Key::FirstBurstLength => {
                least(value, limits.first_burst_max.min(self.burst), &mut self.first_burst)
            }
            Key::MaxConnections => number(value, 1, 65_535).map(|_| "1".into()),
            Key::MaxOutstandingR2t => number(value, 1, 65_535).map(|theirs| {
                self.r2ts = theirs.min(limits.r2ts_max.max(1));
                self.r2ts.to_string()
            }),
            Key::DefaultTime2Wait => number(value, 0, 3600).map(|theirs| {
                self.time2wait = u16::try_from(theirs).unwrap_or(u16::MAX);
                theirs.to_string()
            }),
            Key::DefaultTime2Retain => number(value, 0, 3600).map(|_| "0".into()),
            Key::ErrorRecoveryLevel => number(value, 0, 2).map(|_| "0".into()),
            Key::ProtocolLevel => number(value, 0, 31).map(|theirs| theirs.min(1).to_string()),
            Key::TaskReporting => choose(value, &["RFC3720"]),
            Key::MaxRecvDataSegmentLength => match self.declared_segment(value) {
                true => return None,
                false => None,
            },
        };
        Some(settled.unwrap_or_else(|| REJECT.into()))
    }

    /// The initiator says what it takes. It may do so again within the session.
    pub fn declared_segment(&mut self, value: &str) -> bool {
        let len = number(value, LENGTH_MIN, LENGTH_MAX);
        self.segment_max = len.unwrap_or(self.segment_max);
        len.is_some()
    }
}

fn number(value: &str, min: u64, max: u64) -> Option<u32> {
    let number = text::number(value).filter(|number| (min..=max).contains(number))?;
    u32::try_from(number).ok()
}

/// The smaller of two lengths.
fn least(value: &str, ours: u32, holds: &mut u32) -> Option<String> {
    *holds = number(value, LENGTH_MIN, LENGTH_MAX)?.min(ours);
    Some(holds.to_string())
}

/// Yes if one of us says so.
fn either(value: &str, ours: bool, holds: &mut bool) -> Option<String> {
    *holds = text::boolean(value)? || ours;
    Some(yes_or_no(*holds))
}

/// Yes if both of us say so.
fn both(value: &str, ours: bool, holds: &mut bool) -> Option<String> {
    *holds = text::boolean(value)? && ours;
    Some(yes_or_no(*holds))
}

fn yes_or_no(value: bool) -> String {
    if value { "Yes" } else { "No" }.into()
}

/// The first that both know: the offer is in the order of preference.
fn choose(value: &str, ours: &[&str]) -> Option<String> {
    value.split(',').find(|offer| ours.contains(offer)).map(Into::into)
}

fn digest(value: &str, holds: &mut bool) -> Option<String> {
    let chosen = choose(value, &["CRC32C", "None"])?;
    *holds = chosen == "CRC32C";
    Some(chosen)
}

#[cfg(test)]
mod tests;
