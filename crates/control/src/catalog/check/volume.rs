//! Volumes.
use block::Term;
use proto::v1::{Chap, FormatMark, Origin, Place, Volume};
use replication::constants::VOLUME_MAX;
use replication::membership::MEMBERS_MAX;
use replication::state::NAME_MAX;
use replication::words::Grant;

use crate::catalog::check::{Checked, ensure, len, name, pairs, quorum, title, uid, wrong};
use crate::catalog::limits::{
    BLOCK_SIZE_MAX, BLOCK_SIZE_MIN, HOLD_DEADLINE_MAX, INITIATOR_LEN_MAX, INITIATORS_MAX,
    PAIR_LEN_MAX, PAIRS_MAX, PLACES_MAX, SECRET_LEN, SEGMENTS_MAX, SIZE_UNIT, USER_LEN_MAX,
    WORKERS_MAX,
};

pub fn check(key: &str, volume: &Volume) -> Checked {
    uid("volume.uid", &volume.uid)?;
    ensure(volume.name == key, "volume.name", || format!("the key says {key}"))?;
    geometry(volume)?;
    compression(&volume.compression)?;
    places(&volume.places)?;
    quorum::check(volume)?;
    initiators("volume.allowed_initiators", &volume.allowed_initiators)?;
    if let Some(origin) = &volume.origin {
        begins(volume, origin)?;
    }
    if let Some(chap) = &volume.chap {
        credentials(chap)?;
    }
    if let Some(mark) = &volume.format {
        formatting(mark)?;
    }
    wanted(volume)?;
    let deadline_max = u64::try_from(HOLD_DEADLINE_MAX.as_millis()).unwrap_or(u64::MAX);
    ensure(volume.hold_deadline_ms <= deadline_max, "volume.hold_deadline_ms", || {
        format!("it is more than a day ({deadline_max})")
    })?;
    ensure(volume.zvol_workers <= WORKERS_MAX, "volume.zvol_workers", || {
        format!("it is more than {WORKERS_MAX}")
    })
}

pub fn step(old: &Volume, new: &Volume) -> Checked {
    ensure(old.uid == new.uid, "volume.uid", || {
        "it stays the same; another volume needs the first one deleted".into()
    })?;
    ensure(old.block_size == new.block_size, "volume.block_size", || {
        format!("it is fixed at {}", old.block_size)
    })?;
    ensure(old.origin == new.origin, "volume.origin", || "it stays the same".into())?;
    ensure(old.title == new.title, "volume.title", || "it stays the same".into())?;
    quorum::step(old, new)
}

/// What the controller is to make of it.
fn wanted(volume: &Volume) -> Checked {
    title("volume.title", &volume.title)?;
    let replicas = usize::try_from(volume.replicas).unwrap_or(usize::MAX);
    ensure(replicas < MEMBERS_MAX, "volume.replicas", || {
        format!("it is more than {}", MEMBERS_MAX - 1)
    })?;
    let unit = SIZE_UNIT.max(volume.block_size.into());
    let wanted = volume.wanted_size;
    let fits =
        wanted == 0 || wanted > volume.size && wanted <= VOLUME_MAX && wanted.is_multiple_of(unit);
    ensure(fits, "volume.wanted_size", || {
        format!("{wanted} is no multiple of {unit} above its size, up to {VOLUME_MAX}")
    })?;
    let hosts: Vec<&str> = volume.attachments.iter().map(|it| it.host.as_str()).collect();
    let names: Vec<String> = volume.attachments.iter().map(|it| it.initiator.clone()).collect();
    initiators("volume.attachments", &names)?;
    for (at, host) in hosts.iter().enumerate() {
        let field = format!("volume.attachments[{at}].host");
        ensure(!host.is_empty() && host.len() <= PAIR_LEN_MAX, &field, || "it is no name".into())?;
        ensure(!hosts[..at].contains(host), &field, || format!("{host} is there twice"))?;
    }
    pairs("volume.parameters", &volume.parameters)?;
    let Some(placement) = &volume.placement else { return Ok(()) };
    len("volume.placement.pools", "pools", placement.pools.len(), PAIRS_MAX)?;
    for pool in &placement.pools {
        name("volume.placement.pools", pool)?;
    }
    len("volume.placement.accessible", "segments", placement.accessible.len(), SEGMENTS_MAX)?;
    for segment in &placement.accessible {
        pairs("volume.placement.accessible", &segment.pairs)?;
    }
    ensure(placement.spread.len() <= PAIR_LEN_MAX, "volume.placement.spread", || {
        "it is no key of a topology".into()
    })
}

/// The history of a clone goes on from that of its snapshot: a grant below it would lead nowhere.
fn begins(volume: &Volume, origin: &Origin) -> Checked {
    let of = origin.volume.as_ref().map(|of| of.uid.as_slice()).unwrap_or_default();
    ensure(of.len() == 16, "volume.origin.volume.uid", || "it has 16 bytes".into())?;
    ensure(of != volume.uid, "volume.origin.volume.uid", || "it is the volume itself".into())?;
    let named = origin.volume.as_ref().map(|of| of.name.as_str()).unwrap_or_default();
    name("volume.origin.volume.name", named)?;
    ensure(origin.snapshot.len() == 16, "volume.origin.snapshot", || "it has 16 bytes".into())?;
    ensure(
        (1..=NAME_MAX).contains(&origin.snapshot_name.len()),
        "volume.origin.snapshot_name",
        || format!("it has 1 to {NAME_MAX} bytes"),
    )?;
    let at = origin.at.unwrap_or_default();
    ensure(at.seq > 0, "volume.origin.at", || "no snapshot is at the beginning".into())?;
    let grant = Grant::of(Term(at.term)).0;
    let has = volume.quorum.as_ref().map_or(0, |quorum| quorum.grant);
    ensure(has >= grant, "volume.quorum.grant", || {
        format!("{has} is below {grant}, that of the snapshot")
    })
}

fn geometry(volume: &Volume) -> Checked {
    let block = volume.block_size;
    let fits = block.is_power_of_two() && (BLOCK_SIZE_MIN..=BLOCK_SIZE_MAX).contains(&block);
    ensure(fits, "volume.block_size", || {
        format!("{block} is no power of two from {BLOCK_SIZE_MIN} to {BLOCK_SIZE_MAX}")
    })?;
    let unit = SIZE_UNIT.max(block.into());
    let fits = volume.size > 0 && volume.size <= VOLUME_MAX && volume.size.is_multiple_of(unit);
    ensure(fits, "volume.size", || {
        format!("{} is no multiple of {unit} from {unit} to {VOLUME_MAX}", volume.size)
    })
}

fn formatting(mark: &FormatMark) -> Checked {
    let known = matches!(&*mark.file_system, "ext4" | "xfs" | "btrfs");
    ensure(known, "volume.format.file_system", || "use ext4, xfs or btrfs".into())?;
    let fits = !mark.host.is_empty() && mark.host.len() <= PAIR_LEN_MAX;
    ensure(fits, "volume.format.host", || "it is no name".into())?;
    ensure(mark.stage > 0, "volume.format.stage", || "stages are numbered from 1".into())
}

fn compression(word: &str) -> Checked {
    let gzip = |level: &str| level.len() == 1 && ("1"..="9").contains(&level);
    let known = matches!(word, "off" | "on" | "lz4" | "gzip" | "zle" | "lzjb")
        || word.strip_prefix("gzip-").is_some_and(gzip);
    ensure(known, "volume.compression", || {
        "use off, on, lz4, gzip, gzip-1 to gzip-9, zle or lzjb".into()
    })
}

fn places(places: &[Place]) -> Checked {
    len("volume.places", "places", places.len(), PLACES_MAX)?;
    for (at, place) in places.iter().enumerate() {
        let field = |name: &str| format!("volume.places[{at}].{name}");
        ensure(place.replica > 0, &field("replica"), || "replicas are numbered from 1".into())?;
        ensure(place.node > 0, &field("node"), || "nodes are numbered from 1".into())?;
        name(&field("pool"), &place.pool)?;
        let earlier = &places[..at];
        if earlier.iter().any(|other| other.replica == place.replica) {
            return wrong(field("replica"), format!("{} is there twice", place.replica));
        }
        if earlier.iter().any(|other| other.node == place.node && other.pool == place.pool) {
            let problem = format!("node {} and this pool are there twice", place.node);
            return wrong(field("pool"), problem);
        }
    }
    Ok(())
}

fn initiators(field: &str, names: &[String]) -> Checked {
    len(field, "initiators", names.len(), INITIATORS_MAX)?;
    for (at, name) in names.iter().enumerate() {
        let fits = (1..=INITIATOR_LEN_MAX).contains(&name.len())
            && name.bytes().all(|byte| byte.is_ascii_graphic());
        ensure(fits, &format!("{field}[{at}]"), || {
            format!("it has 1 to {INITIATOR_LEN_MAX} printable characters, and no space")
        })?;
    }
    Ok(())
}

fn credentials(chap: &Chap) -> Checked {
    pair("volume.chap.user", &chap.user, "volume.chap.secret", &chap.secret)?;
    if chap.mutual_user.is_empty() && chap.mutual_secret.is_empty() {
        return Ok(());
    }
    let (user, secret) = (&chap.mutual_user, &chap.mutual_secret);
    pair("volume.chap.mutual_user", user, "volume.chap.mutual_secret", secret)?;
    // One secret for both ways lets a target be answered with its own words.
    ensure(chap.secret != chap.mutual_secret, "volume.chap.mutual_secret", || {
        "it is the same as the other secret".into()
    })
}

fn pair(user_field: &str, user: &str, secret_field: &str, secret: &str) -> Checked {
    let fits = (1..=USER_LEN_MAX).contains(&user.len()) && !user.contains(char::is_control);
    ensure(fits, user_field, || format!("it has 1 to {USER_LEN_MAX} bytes of text"))?;
    let fits = SECRET_LEN.contains(&secret.len()) && !secret.contains(char::is_control);
    ensure(fits, secret_field, || {
        format!("it has {} to {} bytes of text", SECRET_LEN.start(), SECRET_LEN.end())
    })
}
