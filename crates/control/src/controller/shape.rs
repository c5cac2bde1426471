//! What a new volume is to be: requests are checked, and become an object of the catalog.
use proto::v1;
use replication::constants::VOLUME_MAX;

use super::Answer;
use super::names::{Named, named};
use super::now_ms;
use crate::api::types::{Credential, NewVolume, Pairs};
use crate::api::{ApiError, Code};

/// Of a volume whose size nobody named.
const SIZE_DEFAULT: u64 = 1 << 30;
pub const REPLICAS_DEFAULT: u32 = 3;
const REPLICAS_MAX: u32 = 7;
const BLOCK_SIZE_DEFAULT: u32 = 4096;
/// The smallest granule of a map.
const GRANULE: u64 = 4096;

/// A request that makes sense by itself.
#[derive(Clone, Debug)]
pub struct Shape {
    pub named: Named,
    pub size: u64,
    pub size_limit: Option<u64>,
    pub block_size: u32,
    pub compression: String,
    pub replicas: u32,
    pub asked: NewVolume,
}

impl Shape {
    pub fn of(asked: NewVolume) -> Answer<Shape> {
        let named = named(&asked.name)?;
        let block_size = asked.block_size.unwrap_or(BLOCK_SIZE_DEFAULT);
        if !block_size.is_power_of_two() || !(512..=128 << 10).contains(&block_size) {
            let problem = format!("{block_size} is no power of two from 512 to 131072");
            return Err(ApiError::invalid("blockSize", problem));
        }
        let size = sized(asked.size, asked.size_limit, block_size, SIZE_DEFAULT)?;
        let replicas = asked.replicas.unwrap_or(REPLICAS_DEFAULT);
        check_replicas(replicas)?;
        if let Some(chap) = &asked.chap {
            check_credential(chap)?;
        }
        Ok(Shape {
            named,
            size,
            size_limit: asked.size_limit,
            block_size,
            compression: asked.compression.clone().unwrap_or_else(|| "off".into()),
            replicas,
            asked,
        })
    }

    /// The object, without places and votes.
    pub fn volume(&self, uid: Vec<u8>) -> v1::Volume {
        let mut volume = v1::Volume {
            uid,
            size: self.size,
            block_size: self.block_size,
            compression: self.compression.clone(),
            quorum: Some(v1::Quorum {
                role: v1::Role::Primary.into(),
                membership: Some(crate::steps::nobody()),
                ..v1::Quorum::default()
            }),
            ..v1::Volume::default()
        };
        self.dress(&mut volume);
        volume
    }

    /// What does not depend on what it begins as.
    pub fn dress(&self, volume: &mut v1::Volume) {
        volume.name.clone_from(&self.named.name);
        volume.title.clone_from(&self.named.title);
        volume.replicas = self.replicas;
        volume.hold_deadline_ms = self.asked.hold_deadline_ms.unwrap_or(0);
        volume.zvol_workers = self.asked.zvol_workers.unwrap_or(0);
        volume.chap = self.asked.chap.as_ref().map(chap);
        volume.allowed_initiators.clear();
        volume.attached_only = self.asked.attached_only;
        volume.created_ms = now_ms();
        volume.parameters = self.asked.parameters.clone();
        volume.placement = Some(v1::Placement {
            pools: self.asked.pools.clone(),
            accessible: self.asked.accessible.iter().map(segment).collect(),
            spread: self.asked.spread.clone().unwrap_or_default(),
        });
    }

    /// Whether what is there is what is asked for; if not, what differs.
    pub fn differs_from(&self, found: &v1::Volume) -> Option<&'static str> {
        let size = found.size.max(found.wanted_size);
        let asks_size = self.asked.size > 0 || self.asked.size_limit.is_some();
        let limit = self.size_limit.unwrap_or(u64::MAX);
        let least = if self.asked.size == 0 { 0 } else { self.size };
        // A clone has these of its source, unless told.
        let begins = self.asked.source.is_none();
        let says_block_size = begins || self.asked.block_size.is_some();
        let says_compression = begins || self.asked.compression.is_some();
        let placement = found.placement.clone().unwrap_or_default();
        let pools = (&placement.pools, &placement.spread);
        let accessible: Vec<v1::Segment> = self.asked.accessible.iter().map(segment).collect();
        let asked_pools = (&self.asked.pools, &self.asked.spread.clone().unwrap_or_default());
        let pairs = [
            (self.named.title != found.title, "name"),
            (asks_size && !(least..=limit).contains(&size), "size"),
            (says_block_size && self.block_size != found.block_size, "blockSize"),
            (says_compression && self.compression != found.compression, "compression"),
            (pools != asked_pools, "pools"),
            (begins && self.asked.attached_only != found.attached_only, "attachedOnly"),
            (accessible != placement.accessible, "accessible"),
            (self.asked.source.is_some() != found.origin.is_some(), "source"),
            (self.asked.parameters != found.parameters, "parameters"),
        ];
        pairs.iter().find(|(differs, _)| *differs).map(|(_, field)| *field)
    }
}

/// At least `size` and at most `limit`, in whole blocks.
pub fn sized(size: u64, limit: Option<u64>, block_size: u32, default: u64) -> Answer<u64> {
    let unit = GRANULE.max(block_size.into());
    let limit = limit.filter(|limit| *limit > 0);
    let range = |message: String| ApiError {
        field: Some("size".into()),
        ..ApiError::new(Code::OutOfRange, message)
    };
    if let Some(limit) = limit.filter(|limit| *limit < size) {
        return Err(ApiError::invalid("size", format!("{size} is more than its limit, {limit}")));
    }
    let wanted = match (size, limit) {
        (0, Some(limit)) => default.min(limit / unit * unit),
        (0, None) => default,
        (size, _) => size.checked_next_multiple_of(unit).unwrap_or(u64::MAX),
    };
    if wanted == 0 || limit.is_some_and(|limit| wanted > limit) {
        let limit = limit.unwrap_or(0);
        return Err(range(format!("no whole blocks of {unit} are from {size} to {limit} bytes")));
    }
    if wanted > VOLUME_MAX {
        return Err(range(format!("{wanted} bytes are more than a volume can have, {VOLUME_MAX}")));
    }
    Ok(wanted)
}

pub fn check_replicas(replicas: u32) -> Answer<()> {
    match (1..=REPLICAS_MAX).contains(&replicas) {
        true => Ok(()),
        false => {
            let problem = format!("{replicas} is not from 1 to {REPLICAS_MAX}");
            Err(ApiError::invalid("replicas", problem))
        }
    }
}

fn check_credential(credential: &Credential) -> Answer<()> {
    let secret = |field: &str, secret: &str| match (12..=255).contains(&secret.len()) {
        true => Ok(()),
        false => Err(ApiError::invalid(field, "a secret has 12 to 255 bytes")),
    };
    if credential.user.is_empty() {
        return Err(ApiError::invalid("chap.user", "it is missing"));
    }
    secret("chap.secret", &credential.secret)?;
    match (credential.mutual_user.is_empty(), credential.mutual_secret.is_empty()) {
        (true, true) => Ok(()),
        (false, false) if credential.secret == credential.mutual_secret => {
            Err(ApiError::invalid("chap.mutualSecret", "it is the same as the other secret"))
        }
        (false, false) => secret("chap.mutualSecret", &credential.mutual_secret),
        _ => Err(ApiError::invalid("chap.mutualUser", "give both mutual fields, or none")),
    }
}

fn chap(credential: &Credential) -> v1::Chap {
    v1::Chap {
        user: credential.user.clone(),
        secret: credential.secret.clone(),
        mutual_user: credential.mutual_user.clone(),
        mutual_secret: credential.mutual_secret.clone(),
    }
}

fn segment(pairs: &Pairs) -> v1::Segment {
    v1::Segment { pairs: pairs.clone() }
}

/// Whoever shows a credential has to show the right one.
pub fn check_proof(volume: &v1::Volume, shown: Option<&Credential>) -> Answer<()> {
    let Some(shown) = shown else { return Ok(()) };
    // Which tells it from a token that is not known.
    let field = Some("credential".to_owned());
    let wrong = |message: String| {
        Err(ApiError { field: field.clone(), ..ApiError::new(Code::Unauthenticated, message) })
    };
    let name = &volume.name;
    let Some(kept) = &volume.chap else {
        return wrong(format!("the volume `{name}` has no credential, and one was shown"));
    };
    // Digests, so that the time tells nothing of the secrets, not even their lengths.
    let print = |user: &str, secret: &str| certs::sha256(format!("{user}\0{secret}").as_bytes());
    let pairs = [
        (print(&kept.user, &kept.secret), print(&shown.user, &shown.secret)),
        (
            print(&kept.mutual_user, &kept.mutual_secret),
            print(&shown.mutual_user, &shown.mutual_secret),
        ),
    ];
    let differ =
        pairs.iter().flat_map(|(a, b)| a.iter().zip(b)).fold(0, |all, (a, b)| all | (a ^ b));
    match differ {
        0 => Ok(()),
        _ => wrong(format!("the credential is not that of the volume `{name}`")),
    }
}

#[cfg(test)]
mod tests;
