//! Clones: a volume that begins as a snapshot of another, on the same nodes and in the same pools.
//!
//! The steps of making one, each of which can be said again: the intent, with the origin and the places;
//! the mark in the sequence of the source, which keeps the snapshot; the replicas; their votes. The
//! steps back are the same in reverse, and the object goes last.
use std::time::{Duration, Instant};

use futures_util::future::try_join_all;
use proto::v1;
use replication::words::Grant;
use tonic::Code;

use super::create::{has_voters, has_votes, nobody, present};
use super::replicas::PAUSE;
use super::{Admin, Found, Manner, Site, StepError, faults, reference};

/// How long a replica that is a little behind may take to have the snapshot. One that is far behind
/// costs less when its copy catches up beside it.
const BEHIND: Duration = Duration::from_secs(5);

/// A clone that is wanted.
#[derive(Clone, Debug)]
pub struct NewClone {
    pub name: String,
    /// Of the volume that is made, unless the same was asked for before.
    pub uid: [u8; 16],
    pub source: String,
    /// By its name.
    pub snapshot: String,
    /// As large as the snapshot unless given.
    pub size: Option<u64>,
}

/// What there is at a place.
enum Made {
    /// It began as the snapshot.
    Copy(v1::Member),
    /// Its node had not the snapshot: it began empty, and catches up.
    Empty(v1::Member),
    /// Its node does not answer.
    Away,
}

impl Site {
    pub async fn clone_volume(&self, wanted: &NewClone) -> Result<Found, StepError> {
        let found = match self.volume(&wanted.name).await? {
            Some(found) if is_same(&found.volume, wanted) => found,
            Some(_) => return Err(StepError::VolumeExists { name: wanted.name.clone() }),
            None => self.intend_clone(wanted).await?,
        };
        if found.volume.deleting {
            return Err(StepError::Deleting { name: wanted.name.clone() });
        }
        self.make_clone(&found).await
    }

    /// The mark, the replicas and the votes of a clone that is intended.
    pub async fn make_clone(&self, found: &Found) -> Result<Found, StepError> {
        self.fault(faults::CLONE_INTENDED).await;
        if has_votes(&found.volume) {
            return Ok(found.clone());
        }
        self.mark(found).await?;
        self.fault(faults::CLONE_MARKED).await;
        match self.make_copies(found).await {
            Ok(made) => Ok(made),
            Err(error) => Err(match self.kept(&found.volume).await {
                Err(gone @ (StepError::NoVolume { .. } | StepError::Deleting { .. })) => {
                    self.take_back(found).await?;
                    gone
                }
                Ok(_) | Err(_) => error,
            }),
        }
    }

    /// Its mark is there: from now on somebody has to take it away.
    async fn make_copies(&self, clone: &Found) -> Result<Found, StepError> {
        let found = self.kept(&clone.volume).await?;
        let until = Instant::now() + BEHIND;
        let places = found.volume.places.iter();
        let made = try_join_all(places.map(|place| self.make_copy(&found, place, until))).await?;
        self.fault(faults::COPY_MADE).await;
        self.give_votes(&found, &made).await
    }

    /// It was deleted while it was made: what was made behind the deletion goes too, and the mark with it.
    async fn take_back(&self, clone: &Found) -> Result<(), StepError> {
        for place in &clone.volume.places {
            // While its object is there, only who knows the newest may wipe.
            let found = self.volume(&clone.volume.name).await?;
            let found = found.filter(|found| found.volume.uid == clone.volume.uid);
            let version = found.map_or(clone.version, |found| found.version);
            let current = Found { version, volume: clone.volume.clone() };
            self.wipe(&current, place.replica).await?;
        }
        self.unmark(clone).await
    }

    async fn intend_clone(&self, wanted: &NewClone) -> Result<Found, StepError> {
        let volume = self.plan_clone(wanted).await?;
        self.intend(&volume).await
    }

    /// What is to be stored. Everything that can be wrong is looked at before.
    pub async fn plan_clone(&self, wanted: &NewClone) -> Result<v1::Volume, StepError> {
        let (source, mut admin) = self.served(&wanted.source).await?;
        let snapshot = snapshot_named(&mut admin, &source, &wanted.snapshot).await?;
        let has = self.size_of(&source, &snapshot).await?;
        let size = wanted.size.unwrap_or(has);
        if size < has {
            return Err(StepError::Smaller { size, has });
        }
        let volume = intended(wanted, &source.volume, &snapshot, size);
        if volume.places.is_empty() {
            return Err(StepError::NoVotes { name: wanted.source.clone() });
        }
        Ok(volume)
    }

    /// The node whose target serves the volume.
    async fn served(&self, name: &str) -> Result<(Found, Admin), StepError> {
        let (found, mut admin) = self.holder(name).await?;
        if found.volume.deleting {
            return Err(StepError::Deleting { name: name.into() });
        }
        let request = v1::GetTargetRequest { volume: Some(reference(&found.volume)) };
        let target = match admin.get_target(request).await {
            Ok(target) => target.into_inner(),
            Err(status) if status.code() == Code::NotFound => {
                return Err(StepError::NotServed { name: name.into() });
            }
            Err(status) => return Err(status.into()),
        };
        match target.serving {
            true => Ok((found, admin)),
            false => {
                let why = target.held_because.unwrap_or_else(|| "its target is not ready".into());
                Err(StepError::NotServing { name: name.into(), why })
            }
        }
    }

    /// The size of the volume at a snapshot, as any of those knows it who have it.
    pub async fn size_of(&self, source: &Found, snapshot: &v1::Snapshot) -> Result<u64, StepError> {
        let unknown = || StepError::NoSnapshot {
            volume: source.volume.name.clone(),
            snapshot: snapshot.name.clone(),
        };
        let mut last = unknown();
        for place in places_of_voters(&source.volume) {
            let request = v1::GetReplicaSnapshotRequest {
                volume: Some(reference(&source.volume)),
                snapshot: snapshot.uid.clone(),
            };
            let mut admin = self.admin(&self.node_of_id(place.node).await?)?;
            match admin.get_replica_snapshot(request).await {
                Ok(found) if found.get_ref().at == snapshot.position => {
                    return Ok(found.into_inner().size);
                }
                Ok(_) => {}
                Err(status) if status.code() == Code::NotFound => {}
                Err(status) => last = status.into(),
            }
        }
        Err(last)
    }

    /// From now on the snapshot stays. Who deletes the source marks that first and looks for clones then, so
    /// one of both sees the other.
    async fn mark(&self, clone: &Found) -> Result<(), StepError> {
        let name = &clone.volume.name;
        let origin = clone.volume.origin.clone().unwrap_or_default();
        let of = origin.volume.clone().unwrap_or_default();
        let (source, mut admin) = self.served(&of.name).await?;
        if source.volume.uid != of.uid {
            return Err(StepError::OriginGone { name: name.clone(), source_name: of.name });
        }
        let request = v1::MarkCloneRequest {
            volume: Some(of.clone()),
            snapshot: origin.snapshot.clone(),
            clone: clone.volume.uid.clone(),
        };
        let Err(status) = admin.mark_clone(request).await else { return Ok(()) };
        match status.code() {
            Code::NotFound => {
                // Another of its name, or of another history, is not what was to be cloned.
                let all = snapshots_of(&mut admin, &source).await?;
                let is_it = |it: &v1::Snapshot| {
                    it.uid == origin.snapshot && it.position.is_some() && it.position == origin.at
                };
                if !all.iter().any(is_it) {
                    // Deleted since it was looked for: it will never be made.
                    self.delete_this(&clone.volume, Manner::ByHand).await?;
                    let (volume, snapshot) = (of.name, origin.snapshot_name);
                    return Err(StepError::NoSnapshot { volume, snapshot });
                }
            }
            // Its source has no room for the mark: it is not made as long as that is so.
            Code::ResourceExhausted => {
                self.delete_this(&clone.volume, Manner::ByHand).await?;
            }
            _ => {}
        }
        Err(status.into())
    }

    async fn make_copy(
        &self,
        clone: &Found,
        place: &v1::Place,
        until: Instant,
    ) -> Result<Made, StepError> {
        let volume = &clone.volume;
        let mut admin = self.admin(&self.node_of_id(place.node).await?)?;
        let member = |incarnation| v1::Member { replica: place.replica, incarnation };
        loop {
            let request = super::create::request(volume, place, volume.origin.clone());
            let status = match admin.create_replica(request).await {
                Ok(made) => return Ok(Made::Copy(member(made.into_inner().incarnation))),
                Err(status) => status,
            };
            match status.code() {
                Code::NotFound | Code::Unavailable if Instant::now() < until => {
                    tokio::time::sleep(PAUSE).await;
                }
                Code::NotFound => break,
                Code::Unavailable => return Ok(Made::Away),
                // Made by the same step before it was interrupted: as the snapshot, or empty.
                Code::AlreadyExists => {
                    let there = present(&mut admin, volume).await?.ok_or(status)?;
                    let at = volume.origin.as_ref().and_then(|origin| origin.at);
                    return Ok(match there.held == at {
                        true => Made::Copy(member(there.incarnation)),
                        false => Made::Empty(member(there.incarnation)),
                    });
                }
                _ => return Err(status.into()),
            }
        }
        self.make_replica(clone, place).await.map(Made::Empty)
    }

    /// Only those vote who have the content, and those must be as many as a write would need. The
    /// others get their votes from the target when they have caught up. Where a node was away the place
    /// stays: something may be there.
    async fn give_votes(&self, found: &Found, made: &[Made]) -> Result<Found, StepError> {
        let copy = |made: &Made| match made {
            Made::Copy(member) => Some(*member),
            Made::Empty(_) | Made::Away => None,
        };
        let any = |made: &Made| match made {
            Made::Copy(member) | Made::Empty(member) => Some(*member),
            Made::Away => None,
        };
        let members: Vec<v1::Member> = made.iter().filter_map(copy).collect();
        let desired: Vec<v1::Member> = made.iter().filter_map(any).collect();
        let need = made.len() / 2 + 1;
        if members.len() < need {
            let (name, have) = (found.volume.name.clone(), members.len());
            return Err(StepError::TooFewCopies { name, have, need });
        }
        self.change_kept(&found.volume, |volume| {
            if !has_votes(volume) {
                let rf = u32::try_from(members.len()).unwrap_or(u32::MAX);
                let voters = Some(v1::Voters { members: members.clone(), rf });
                let quorum = volume.quorum.get_or_insert_default();
                quorum.membership = Some(v1::Membership { version: 1, voters, next: None });
                quorum.desired = desired.clone();
            }
            Ok(())
        })
        .await
    }

    /// The clone's content is gone: its snapshot may go too.
    pub(super) async fn unmark(&self, clone: &Found) -> Result<(), StepError> {
        let origin = clone.volume.origin.clone().unwrap_or_default();
        let Some(of) = origin.volume else { return Ok(()) };
        let source = self.volume(&of.name).await?.filter(|source| source.volume.uid == of.uid);
        // A source without votes has no sequence any more.
        if !source.is_some_and(|source| has_voters(&source.volume)) {
            return Ok(());
        }
        let clone_uid = clone.volume.uid.clone();
        let unmarked = async {
            let (_, mut admin) = self.holder(&of.name).await?;
            let request = v1::UnmarkCloneRequest { volume: Some(of.clone()), clone: clone_uid };
            admin.unmark_clone(request).await?;
            Ok::<(), StepError>(())
        };
        unmarked.await.map_err(|why| StepError::MarkLeft {
            name: clone.volume.name.clone(),
            source_name: of.name.clone(),
            why: why.to_string(),
        })
    }

    /// Refuses while volumes were cloned from this one, or from one snapshot of it.
    pub(super) async fn without_clones(
        &self,
        of: &v1::Volume,
        snapshot: Option<&[u8]>,
    ) -> Result<(), StepError> {
        let is_of = |origin: &v1::Origin| {
            origin.volume.as_ref().is_some_and(|volume| volume.uid == of.uid)
                && snapshot.is_none_or(|snapshot| origin.snapshot == snapshot)
        };
        let all = self.volumes().await?.into_iter().map(|found| found.volume);
        // One whose replicas are gone or on their way out needs nothing any more.
        let all = all.filter(|volume| !volume.deleting || has_voters(volume));
        let clones = all.filter(|volume| volume.origin.as_ref().is_some_and(is_of));
        let names: Vec<String> = clones.map(|volume| volume.name).collect();
        match names.is_empty() {
            true => Ok(()),
            false => Err(StepError::HasClones { clones: names.join(", ") }),
        }
    }
}

async fn snapshot_named(
    admin: &mut Admin,
    volume: &Found,
    name: &str,
) -> Result<v1::Snapshot, StepError> {
    let all = snapshots_of(admin, volume).await?;
    all.into_iter().find(|snapshot| snapshot.name == name).ok_or_else(|| StepError::NoSnapshot {
        volume: volume.volume.name.clone(),
        snapshot: name.into(),
    })
}

async fn snapshots_of(admin: &mut Admin, volume: &Found) -> Result<Vec<v1::Snapshot>, StepError> {
    let request = v1::ListSnapshotsRequest { volume: Some(reference(&volume.volume)) };
    Ok(admin.list_snapshots(request).await?.into_inner().snapshots)
}

/// Where the voters of a volume are.
fn places_of_voters(volume: &v1::Volume) -> impl Iterator<Item = &v1::Place> {
    let membership = volume.quorum.as_ref().and_then(|quorum| quorum.membership.as_ref());
    let voters = membership.and_then(|membership| membership.voters.as_ref());
    let members = voters.map(|voters| voters.members.as_slice()).unwrap_or_default();
    let votes = |place: &&v1::Place| members.iter().any(|it| it.replica == place.replica);
    volume.places.iter().filter(votes)
}

/// It is used as its source is: whoever may not use that, may not use a copy of it either. Its first
/// grant is above that of the snapshot, so that its terms go on where the history ends.
fn intended(
    wanted: &NewClone,
    source: &v1::Volume,
    snapshot: &v1::Snapshot,
    size: u64,
) -> v1::Volume {
    let places = (1..).zip(places_of_voters(source));
    let places = places.map(|(replica, place)| v1::Place { replica, ..place.clone() });
    let term = snapshot.position.map_or(0, |at| at.term);
    v1::Volume {
        uid: wanted.uid.to_vec(),
        name: wanted.name.clone(),
        size,
        quorum: Some(v1::Quorum {
            grant: Grant::of(block::Term(term)).0,
            role: v1::Role::Primary.into(),
            membership: Some(nobody()),
            ..v1::Quorum::default()
        }),
        places: places.collect(),
        origin: Some(v1::Origin {
            volume: Some(reference(source)),
            snapshot: snapshot.uid.clone(),
            snapshot_name: snapshot.name.clone(),
            at: snapshot.position,
        }),
        attachments: Vec::new(),
        title: String::new(),
        wanted_size: 0,
        ..source.clone()
    }
}

/// The same call again.
fn is_same(found: &v1::Volume, wanted: &NewClone) -> bool {
    let Some(origin) = &found.origin else { return false };
    origin.volume.as_ref().is_some_and(|volume| volume.name == wanted.source)
        && origin.snapshot_name == wanted.snapshot
        && wanted.size.is_none_or(|size| size <= found.size)
}
