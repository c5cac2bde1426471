//! Objects of the catalog as the machines know them, and back.
use std::collections::BTreeMap;

use block::ByteLen;
use frontend::scsi::words::Rights;
use proto::v1;
use proto::v1::object::Body;
use replication::catalog::{Role, VolumeObject};
use replication::constants::HOLD_DEADLINE;
use replication::membership::{MEMBERS_MAX, Member, Membership, Voters};
use replication::words::{CatalogVersion, Grant, Incarnation, NodeId, ReplicaId, Span, VolumeUid};
use thiserror::Error;

use super::Known;
use crate::records::{Access, Chap, Credentials, Logins, VolumeRecord};

/// What a swap is to bring: against which version and grant, and what.
pub type Wanted = (CatalogVersion, Grant, VolumeObject);

/// An object that this node cannot work with.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("the catalog's object `{name}` cannot be used: {what}")]
pub struct Unusable {
    pub name: String,
    pub what: &'static str,
}

pub fn known(whole: &v1::Object) -> Result<Known, Unusable> {
    let object = whole;
    let name = object.key.as_ref().map(|key| key.name.clone()).unwrap_or_default();
    let unusable = |what| Unusable { name: name.clone(), what };
    let Some(Body::Volume(volume)) = &object.body else {
        return Err(unusable("it is no volume"));
    };
    let uid = volume.uid.as_slice().try_into().map_err(|_| unusable("its uid has not 16 bytes"))?;
    let quorum = volume.quorum.as_ref().ok_or_else(|| unusable("it has no quorum"))?;
    let membership = quorum.membership.as_ref().map(membership).transpose().map_err(unusable)?;
    let object = VolumeObject {
        version: CatalogVersion(object.version),
        grant: grant(quorum.grant).map_err(unusable)?,
        holder: NodeId(quorum.holder),
        membership: membership.unwrap_or_default(),
        desired: quorum.desired.iter().map(member).collect(),
        role: match quorum.role() {
            v1::Role::Secondary => Role::Secondary,
            v1::Role::Primary | v1::Role::Unspecified => Role::Primary,
        },
        chosen: quorum.chosen,
    };
    let place = |place: &v1::Place| (ReplicaId(place.replica), NodeId(place.node));
    let pool = |place: &v1::Place| (ReplicaId(place.replica), place.pool.clone());
    Ok(Known {
        record: VolumeRecord {
            uid: VolumeUid(uid),
            name: volume.name.clone(),
            size: ByteLen(volume.size),
            block_size: ByteLen(u64::from(volume.block_size)),
            object,
            places: volume.places.iter().map(place).collect(),
            hold_deadline: match volume.hold_deadline_ms {
                0 => HOLD_DEADLINE,
                millis => Span::millis(millis),
            },
            workers: match volume.zvol_workers {
                0 => None,
                workers => usize::try_from(workers).ok(),
            },
            access: access(volume),
        },
        pools: volume.places.iter().map(pool).collect(),
        deleting: volume.deleting,
        object: Box::new(whole.clone()),
    })
}

fn access(volume: &v1::Volume) -> Access {
    let credentials = volume.chap.as_ref().map_or(Credentials::Nothing, credentials);
    Access { credentials, logins: logins(volume), stages: stages(volume) }
}

fn credentials(chap: &v1::Chap) -> Credentials {
    if chap.secret.is_empty() {
        return Credentials::Unknown;
    }
    let mutual = (!chap.mutual_user.is_empty())
        .then(|| (chap.mutual_user.clone(), chap.mutual_secret.clone()));
    Credentials::Chap(Chap { user: chap.user.clone(), secret: chap.secret.clone(), mutual })
}

/// An object without its secrets; `None`: it has none. Whoever reads it finds that there are some.
pub fn without_secrets(object: &v1::Object) -> Option<v1::Object> {
    let mut object = object.clone();
    let Some(Body::Volume(v1::Volume { chap: Some(chap), .. })) = &mut object.body else {
        return None;
    };
    let had = !chap.secret.is_empty() || !chap.mutual_secret.is_empty();
    chap.secret.clear();
    chap.mutual_secret.clear();
    had.then_some(object)
}

fn stages(volume: &v1::Volume) -> BTreeMap<String, u64> {
    let mut stages = BTreeMap::new();
    for it in volume.attachments.iter().filter(|it| !it.initiator.is_empty()) {
        let newest = stages.entry(it.initiator.clone()).or_insert(0);
        *newest = it.stage.max(*newest);
    }
    stages
}

fn logins(volume: &v1::Volume) -> Logins {
    // While a file system is made, nobody else writes: what a mkfs that was cut off left must be all there is.
    if !volume.attached_only && volume.format.is_none() {
        return match volume.allowed_initiators.is_empty() {
            true => Logins::Everybody,
            false => Logins::Named(volume.allowed_initiators.iter().cloned().collect()),
        };
    }
    let mut attached = BTreeMap::new();
    // Without a name it is a machine that does not come by iSCSI.
    for it in volume.attachments.iter().filter(|it| !it.initiator.is_empty()) {
        let rights = attached.entry(it.initiator.clone()).or_insert(Rights::Read);
        if !it.read_only {
            *rights = Rights::Write;
        }
    }
    Logins::Attached(attached)
}

fn member(member: &v1::Member) -> Member {
    Member { replica: ReplicaId(member.replica), incarnation: Incarnation(member.incarnation) }
}

/// Everything behind relies on these: what a target keeps and sends has room for so many.
fn voters(voters: &v1::Voters) -> Result<Voters, &'static str> {
    let members: Vec<Member> = voters.members.iter().map(member).collect();
    if members.len() > MEMBERS_MAX {
        return Err("it has more voters than a volume can have");
    }
    let rf = u8::try_from(voters.rf).ok();
    let fits = |rf: &u8| (members.len()..=MEMBERS_MAX).contains(&usize::from(*rf));
    let rf = rf.filter(fits).ok_or("its RF is no number of replicas that fits its voters")?;
    Ok(Voters { members, rf })
}

fn grant(grant: u64) -> Result<Grant, &'static str> {
    let fits = grant <= Grant::MAX.0;
    fits.then_some(Grant(grant)).ok_or("its grant is higher than any that can be given")
}

fn membership(membership: &v1::Membership) -> Result<Membership, &'static str> {
    let old = membership.voters.as_ref().ok_or("its membership has no voters")?;
    Ok(Membership {
        version: membership.version,
        voters: voters(old)?,
        next: membership.next.as_ref().map(voters).transpose()?,
    })
}

pub fn quorum(object: &VolumeObject) -> v1::Quorum {
    let member = |member: &Member| v1::Member {
        replica: member.replica.0,
        incarnation: member.incarnation.0,
    };
    v1::Quorum {
        grant: object.grant.0,
        holder: object.holder.0,
        membership: Some(crate::admin::membership(&object.membership)),
        desired: object.desired.iter().map(member).collect(),
        role: match object.role {
            Role::Primary => v1::Role::Primary,
            Role::Secondary => v1::Role::Secondary,
        }
        .into(),
        chosen: object.chosen,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object() -> VolumeObject {
        let member = |id| Member { replica: ReplicaId(id), incarnation: Incarnation(id * 7) };
        let members: Vec<Member> = (1..=3).map(member).collect();
        VolumeObject {
            version: CatalogVersion(9),
            grant: Grant(4),
            holder: NodeId(2),
            membership: Membership {
                version: 5,
                voters: Voters::of(&members[..2]),
                next: Some(Voters::of(&members)),
            },
            desired: members,
            role: Role::Secondary,
            chosen: true,
        }
    }

    fn stored(quorum: Option<v1::Quorum>) -> v1::Object {
        let volume = v1::Volume {
            uid: vec![3; 16],
            name: "db".into(),
            size: 1 << 20,
            block_size: 4096,
            quorum,
            places: vec![v1::Place { replica: 1, node: 8, pool: "main".into() }],
            ..v1::Volume::default()
        };
        let body = Some(Body::Volume(volume));
        v1::Object { version: 9, body, ..v1::Object::default() }
    }

    /// Protects from a quorum that the catalog changes on the way.
    #[test]
    fn an_object_comes_back_as_it_was() {
        let known = known(&stored(Some(quorum(&object())))).unwrap();
        assert_eq!(known.record.object, object());
        assert_eq!(known.record.places[&ReplicaId(1)], NodeId(8));
        assert_eq!(known.record.hold_deadline, HOLD_DEADLINE);
    }

    #[test]
    fn what_cannot_be_used_is_said() {
        let error = known(&stored(None)).unwrap_err();
        assert_eq!(error.what, "it has no quorum");
        let unusable = |change: fn(&mut VolumeObject)| {
            let mut object = object();
            change(&mut object);
            known(&stored(Some(quorum(&object)))).unwrap_err().what
        };
        let grant = unusable(|it| it.grant = Grant(Grant::MAX.0 + 1));
        assert_eq!(grant, "its grant is higher than any that can be given");
        let voters = unusable(|it| {
            let member = it.desired[0];
            it.membership.voters = Voters { members: vec![member; MEMBERS_MAX + 1], rf: 9 };
        });
        assert_eq!(voters, "it has more voters than a volume can have");
        let few = unusable(|it| it.membership.voters.rf = 1);
        assert_eq!(few, "its RF is no number of replicas that fits its voters");
        let many = unusable(|it| it.membership.voters.rf = 255);
        assert_eq!(many, few);
        let without = v1::Object { body: None, ..stored(None) };
        assert_eq!(known(&without).unwrap_err().what, "it is no volume");
    }

    /// Protects from a volume for attached machines that everybody can use.
    #[test]
    fn attachments_count_alone_when_they_count() {
        let attachment = |initiator: &str, read_only| v1::Attachment {
            host: "host".into(),
            initiator: initiator.into(),
            read_only,
            since_ms: 0,
            ..v1::Attachment::default()
        };
        let mut volume = v1::Volume {
            allowed_initiators: vec!["iqn.operator".into()],
            attachments: vec![
                attachment("iqn.a", true),
                attachment("iqn.b", false),
                attachment("iqn.a", false),
                attachment("iqn.c", true),
                attachment("", false),
            ],
            ..v1::Volume::default()
        };
        assert_eq!(logins(&volume), Logins::Named(["iqn.operator".into()].into()));
        volume.format = Some(v1::FormatMark::default());
        assert!(matches!(logins(&volume), Logins::Attached(_)), "while a file system is made");
        volume.format = None;
        volume.attached_only = true;
        let rights = [("iqn.a", Rights::Write), ("iqn.b", Rights::Write), ("iqn.c", Rights::Read)];
        let rights = rights.map(|(name, rights)| (name.to_owned(), rights));
        assert_eq!(logins(&volume), Logins::Attached(rights.into()));
        volume.attachments.clear();
        assert_eq!(logins(&volume), Logins::Attached(BTreeMap::new()));
        assert_eq!(logins(&v1::Volume::default()), Logins::Everybody);
    }
}
