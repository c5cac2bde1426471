//! What the quorum of a volume stands on: grants and memberships.
use proto::v1::{Member, Membership, Place, Quorum, Role, Volume, Voters};
use replication::membership::MEMBERS_MAX;
use replication::words::Grant;

use crate::catalog::check::{Checked, ensure, len, wrong};

const FIELD: &str = "volume.quorum";

pub fn check(volume: &Volume) -> Checked {
    let Some(quorum) = &volume.quorum else { return wrong(FIELD, "it is missing") };
    ensure(quorum.grant <= Grant::MAX.0, "volume.quorum.grant", || {
        format!("it is more than {}", Grant::MAX.0)
    })?;
    let role = Role::try_from(quorum.role).unwrap_or_default();
    ensure(role != Role::Unspecified, "volume.quorum.role", || {
        "it is neither primary nor secondary".into()
    })?;
    let Some(membership) = &quorum.membership else {
        return wrong("volume.quorum.membership", "it is missing");
    };
    well_formed(membership, volume)?;
    members("volume.quorum.desired", &quorum.desired, &volume.places)
}

/// The grant never goes back, and a membership that is another has a higher version: otherwise replicas
/// that have seen the newer one would refuse the volume for good.
pub fn step(old: &Volume, new: &Volume) -> Checked {
    let (old, new) = (of(old), of(new));
    ensure(new.grant >= old.grant, "volume.quorum.grant", || {
        format!("{} is below {}, which was granted", new.grant, old.grant)
    })?;
    ensure(new.holder == old.holder || new.grant > old.grant, "volume.quorum.holder", || {
        format!("node {} has grant {}; another node needs a higher one", old.holder, old.grant)
    })?;
    let (was, is) = (version(&old), version(&new));
    ensure(is >= was, "volume.quorum.membership.version", || format!("{is} is below {was}"))?;
    ensure(is > was || new.membership == old.membership, "volume.quorum.membership.version", || {
        format!("another membership than that of version {was} needs a higher one")
    })
}

fn of(volume: &Volume) -> Quorum {
    volume.quorum.clone().unwrap_or_default()
}

fn version(quorum: &Quorum) -> u64 {
    quorum.membership.as_ref().map_or(0, |membership| membership.version)
}

fn well_formed(membership: &Membership, volume: &Volume) -> Checked {
    let field = "volume.quorum.membership.voters";
    let none = Voters::default();
    let present = membership.voters.as_ref().unwrap_or(&none);
    if membership.version == 0 {
        let empty = present.members.is_empty() && present.rf == 0 && membership.next.is_none();
        return ensure(empty, "volume.quorum.membership.version", || {
            "0 means that nobody votes; the first voters have version 1".into()
        });
    }
    let places = &volume.places;
    if volume.deleting && *present == none && membership.next.is_none() {
        // What is on its way out has no votes any more, so that its replicas may be wiped.
        return Ok(());
    }
    voters(field, present, places)?;
    match &membership.next {
        Some(next) => voters("volume.quorum.membership.next", next, places),
        None => Ok(()),
    }
}

fn voters(field: &str, voters: &Voters, places: &[Place]) -> Checked {
    members(&format!("{field}.members"), &voters.members, places)?;
    let count = voters.members.len();
    ensure(count > 0, &format!("{field}.members"), || "nobody votes".into())?;
    let rf = usize::try_from(voters.rf).unwrap_or(usize::MAX);
    ensure((count..=MEMBERS_MAX).contains(&rf), &format!("{field}.rf"), || {
        format!("{rf} is not from {count}, as many as vote, to {MEMBERS_MAX}")
    })
}

fn members(field: &str, members: &[Member], places: &[Place]) -> Checked {
    len(field, "members", members.len(), MEMBERS_MAX)?;
    for (at, member) in members.iter().enumerate() {
        let field = format!("{field}[{at}]");
        let replica = member.replica;
        ensure(replica > 0, &field, || "replicas are numbered from 1".into())?;
        ensure(member.incarnation > 0, &field, || "incarnations are numbered from 1".into())?;
        let twice = members[..at].iter().any(|other| other.replica == replica);
        ensure(!twice, &field, || format!("replica {replica} is there twice"))?;
        let placed = places.iter().any(|place| place.replica == replica);
        ensure(placed, &field, || format!("replica {replica} has no place in volume.places"))?;
    }
    Ok(())
}
