//! The object of a volume, as its replicas confirm it. No IO.
//!
//! A copy of the catalog may be older than what replicas have seen: another node may have the grant since, or other
//! replicas the votes. What is brought back must not be below that, or the replicas refuse it. Rules: the membership
//! is the highest that a quorum of its own voters has applied; its version and the grant are above whatever was seen,
//! unless a target serves with exactly that grant, which then goes on. A replica is where its content was found, whatever
//! the copy says: numbers of replicas are given again.
use block::Term;
use proto::v1;
use proto::v1::object::Body;
use replication::words::Grant;

/// What nodes say of one volume.
#[derive(Clone, Debug, Default)]
pub struct Evidence {
    /// By the number of the node.
    pub replicas: Vec<(u64, v1::Replica)>,
    pub targets: Vec<v1::TargetStatus>,
}

/// An object that may be brought back, and what was changed about it.
#[derive(Clone, Debug, PartialEq)]
pub struct Adopted {
    pub object: v1::Object,
    pub notes: Vec<String>,
}

fn grant_of(term: u64) -> u64 {
    Grant::of(Term(term)).0
}

impl Evidence {
    fn seen_grant(&self) -> u64 {
        let promised = self.replicas.iter().map(|(_, it)| grant_of(it.promised_term));
        let served = self.targets.iter().map(|it| grant_of(it.term));
        promised.chain(served).max().unwrap_or(0)
    }

    fn seen_version(&self) -> u64 {
        self.replicas.iter().map(|(_, it)| it.membership_version).max().unwrap_or(0)
    }

    fn applied(&self) -> Option<&v1::Membership> {
        let applied = self.replicas.iter().filter_map(|(_, it)| it.membership.as_ref());
        applied.max_by_key(|membership| membership.version)
    }

    /// How many of a set answered, and how many are its quorum.
    fn quorum(&self, voters: &v1::Voters) -> (usize, usize) {
        let here = |member: &&v1::Member| {
            self.replicas.iter().any(|(_, it)| it.incarnation == member.incarnation)
        };
        let needed = usize::try_from(voters.rf).unwrap_or(usize::MAX) / 2 + 1;
        (voters.members.iter().filter(here).count(), needed)
    }

    /// Where the content of a member was found: in its listed place, if it is there too.
    fn place_of(&self, member: &v1::Member, listed: Option<&v1::Place>) -> Option<v1::Place> {
        let found = self.replicas.iter().filter(|(_, it)| it.incarnation == member.incarnation);
        let places = found.map(|(node, it)| {
            // A pool that is not told is the listed one, on the same node.
            let listed = listed.filter(|listed| listed.node == *node && it.pool.is_empty());
            let pool = listed.map_or(&it.pool, |listed| &listed.pool).clone();
            v1::Place { replica: member.replica, node: *node, pool }
        });
        let places: Vec<v1::Place> = places.collect();
        places.iter().find(|place| Some(*place) == listed).or(places.first()).cloned()
    }

    fn confirm(&self, membership: &v1::Membership) -> Result<(), String> {
        for voters in membership.voters.iter().chain(&membership.next) {
            let (here, needed) = self.quorum(voters);
            if here < needed {
                return Err(format!(
                    "{here} of its replicas answer and {needed} are needed to know what is true of it: start the nodes that \
                     have the others, and say it again"
                ));
            }
        }
        Ok(())
    }
}

/// A volume of which an object is left.
pub fn adopt(known: &v1::Object, evidence: &Evidence) -> Result<Adopted, String> {
    let mut object = known.clone();
    let Some(Body::Volume(volume)) = &mut object.body else {
        return Err("its object is no volume".into());
    };
    let mut notes = Vec::new();
    if drop_unknown_secret(volume) {
        notes.push(
            "its CHAP secret is not known: no host may use it until it is attached anew".into(),
        );
    }
    let quorum = volume.quorum.get_or_insert_default();
    let membership = quorum.membership.get_or_insert_default();
    let (seen_grant, seen_version) = (evidence.seen_grant(), evidence.seen_version());
    if let Some(applied) = evidence.applied().filter(|it| it.version > membership.version) {
        evidence.confirm(applied)?;
        notes.push(format!("membership {} of its replicas", applied.version));
        *membership = applied.clone();
        quorum.desired = applied.voters.clone().unwrap_or_default().members;
    }
    if seen_version > membership.version {
        evidence.confirm(membership)?;
        membership.version = seen_version + 1;
        notes.push(format!(
            "version {} of the membership: {seen_version} was seen",
            membership.version
        ));
    }
    if seen_grant > quorum.grant {
        let membership = quorum.membership.clone().unwrap_or_default();
        evidence.confirm(&membership)?;
        let serves = |it: &&v1::TargetStatus| it.serving && grant_of(it.term) == seen_grant;
        (quorum.grant, quorum.holder) = match evidence.targets.iter().find(serves) {
            Some(target) => (seen_grant, target.node),
            None => (seen_grant + 1, 0),
        };
        notes.push(format!("grant {}: {seen_grant} was promised", quorum.grant));
    }
    notes.extend(place_members(&mut volume.places, quorum, evidence)?);
    if !notes.is_empty() {
        object.version += 1;
    }
    Ok(Adopted { object, notes })
}

/// Takes credentials away whose secret is not known, as in what a node remembers, and all hosts with them: without
/// credentials every host that the volume is attached to could log in. Whether there were any.
pub fn drop_unknown_secret(volume: &mut v1::Volume) -> bool {
    let is_unknown = volume.chap.as_ref().is_some_and(|chap| chap.secret.is_empty());
    if is_unknown {
        (volume.chap, volume.attached_only) = (None, true);
        volume.attachments.clear();
    }
    is_unknown
}

/// A volume of which only replicas are left. Who may use it is not known, so nobody may until an operator says.
pub fn adopt_unknown(uid: &[u8], evidence: &Evidence, now_ms: u64) -> Result<Adopted, String> {
    let applied = evidence.applied().ok_or("none of its replicas has a membership")?;
    evidence.confirm(applied)?;
    let (_, first) = evidence.replicas.first().ok_or("it has no replicas")?;
    let name = first.volume.as_ref().map(|it| it.name.clone()).unwrap_or_default();
    let voters = applied.voters.clone().unwrap_or_default();
    let quorum = v1::Quorum {
        membership: Some(v1::Membership { version: 0, ..applied.clone() }),
        desired: voters.members.clone(),
        role: v1::Role::Primary.into(),
        ..v1::Quorum::default()
    };
    let volume = v1::Volume {
        uid: uid.to_vec(),
        name: name.clone(),
        size: evidence.replicas.iter().map(|(_, it)| it.size).max().unwrap_or(0),
        block_size: first.block_size,
        compression: first.compression.clone(),
        quorum: Some(quorum),
        replicas: voters.rf,
        created_ms: now_ms,
        attached_only: true,
        ..v1::Volume::default()
    };
    let key = Some(v1::Key { kind: v1::Kind::Volume.into(), name });
    let body = Some(Body::Volume(volume));
    let object = v1::Object { key, version: 1, body, ..v1::Object::default() };
    let mut adopted = adopt(&object, evidence)?;
    adopted.notes.push(
        "made of its replicas alone: its credentials, initiators, attachments and origin are not known, and no host may use \
         it until it is attached"
            .into(),
    );
    Ok(adopted)
}

/// Every member has a place: where its content was found, otherwise the one that is listed. What was changed about listed
/// places of members. The catalog takes one replica in a pool: where a member is, no other place stays.
fn place_members(
    places: &mut Vec<v1::Place>,
    quorum: &v1::Quorum,
    evidence: &Evidence,
) -> Result<Vec<String>, String> {
    let mut notes = Vec::new();
    let membership = quorum.membership.as_ref();
    let voters = membership.into_iter().flat_map(|it| it.voters.iter().chain(&it.next));
    let members = voters.flat_map(|voters| &voters.members);
    let mut placed: Vec<v1::Place> = Vec::new();
    let mut unseen: Vec<&v1::Member> = Vec::new();
    for member in members.chain(&quorum.desired) {
        // Most members vote and are wanted.
        if placed.iter().any(|place| place.replica == member.replica) {
            continue;
        }
        let listed = places.iter_mut().find(|place| place.replica == member.replica);
        let Some(found) = evidence.place_of(member, listed.as_deref()) else {
            unseen.push(member);
            continue;
        };
        match listed {
            Some(listed) if *listed == found => {}
            Some(listed) => {
                notes.push(format!(
                    "replica {} is in pool `{}` of node {}, not in pool `{}` of node {}",
                    member.replica, found.pool, found.node, listed.pool, listed.node
                ));
                *listed = found.clone();
            }
            None => places.push(found.clone()),
        }
        placed.push(found);
    }
    // Their nodes did not answer. The listed place is all that is known, unless another member was found there.
    for member in unseen {
        let mut listed = places.iter().filter(|place| place.replica == member.replica);
        match listed.find(|listed| !placed.iter().any(|it| is_same_pool(it, listed))) {
            Some(listed) => placed.push(listed.clone()),
            None if placed.iter().any(|place| place.replica == member.replica) => {}
            None => {
                return Err(format!(
                    "replica {} votes or is wanted, and it is not known where it is: start its node",
                    member.replica
                ));
            }
        }
    }
    let is_free = |place: &v1::Place| !placed.iter().any(|it| is_same_pool(it, place));
    places.retain(|place| placed.contains(place) || is_free(place));
    Ok(notes)
}

fn is_same_pool(one: &v1::Place, other: &v1::Place) -> bool {
    (one.node, &one.pool) == (other.node, &other.pool)
}

#[cfg(test)]
mod tests;
