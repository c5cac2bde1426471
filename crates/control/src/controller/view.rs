//! Objects as the API tells them: what the catalog has, with what is seen of it.
use std::time::Instant;

use proto::v1;

use super::books::{Kept, Known};
use super::groups::parts;
use super::states::{self, Seen, mode};
use super::{Answer, Controller, now_ms};
use crate::api::ApiError;
use crate::api::types::{
    Attachment, Copy, Format, Group, GroupSnapshot, Page, Pairs, Reference, Site, Snapshot, Source,
    State, Target, Volume,
};
use crate::hex;

/// What a page has unless told.
const PAGE: usize = 500;

impl Controller {
    pub fn site(&self) -> Site {
        Site {
            version: env!("CARGO_PKG_VERSION").into(),
            generation: self.generation,
            since_ms: self.since_ms,
            nodes: self.books.all::<v1::Node>().len() as u64,
            volumes: self.books.all::<v1::Volume>().len() as u64,
            ready: !self.is_superseded() && self.pulse.is_settled(Instant::now()),
        }
    }

    pub fn volume(&self, id: &str) -> Answer<Volume> {
        Ok(self.show_volume(&*self.look_up::<v1::Volume>(id)?))
    }

    pub fn volumes(&self, after: &str, limit: usize) -> Page<Volume> {
        page(self.books.all::<v1::Volume>(), after, limit, |it| self.show_volume(it))
    }

    /// What the holder said of its target last.
    pub(super) fn target_of(&self, volume: &v1::Volume) -> Option<v1::TargetStatus> {
        let holder = volume.quorum.as_ref()?.holder;
        let (_, targets) = self.pulse.targets(holder)?;
        targets.get(&volume.uid).cloned()
    }

    pub(super) fn volume_state(
        &self,
        volume: &v1::Volume,
        target: Option<&v1::TargetStatus>,
    ) -> State {
        let trouble = self.trouble(v1::Kind::Volume, &volume.name);
        let now = Instant::now();
        let state = states::of_volume(
            volume,
            &Seen {
                now,
                grace: self.settings.grace,
                presence: &|node| self.pulse.presence(node, now),
                node_name: &|node| self.node_name(node),
                target,
                trouble: trouble.as_deref(),
            },
        );
        self.dated("volume", &hex::encode(&volume.uid), state)
    }

    pub(super) fn dated(&self, kind: &'static str, id: &str, state: State) -> State {
        let mut chronicle =
            self.chronicle.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let since_ms = chronicle.since(kind, id, &state.reason, now_ms());
        State { since_ms, ..state }
    }

    pub(super) fn node_name(&self, id: u64) -> String {
        self.books.node(id).map_or_else(|| format!("node {id}"), |node| node.name.clone())
    }

    fn show_volume(&self, volume: &v1::Volume) -> Volume {
        let target = self.target_of(volume);
        let state = self.volume_state(volume, target.as_ref());
        let placement = volume.placement.clone().unwrap_or_default();
        Volume {
            name: volume.name.clone(),
            uid: hex::encode(&volume.uid),
            title: title(&volume.title, &volume.name),
            size: volume.size,
            wanted_size: Some(volume.wanted_size).filter(|wanted| *wanted > volume.size),
            block_size: volume.block_size,
            compression: volume.compression.clone(),
            replicas: volume.replicas,
            hold_deadline_ms: volume.hold_deadline_ms,
            zvol_workers: volume.zvol_workers,
            created_ms: volume.created_ms,
            source: volume.origin.as_ref().map(|origin| self.source(origin)),
            parameters: volume.parameters.clone(),
            accessible: placement.accessible.into_iter().map(|segment| segment.pairs).collect(),
            chap_user: volume.chap.as_ref().map(|chap| chap.user.clone()),
            attached_only: volume.attached_only,
            attachments: volume.attachments.iter().map(attachment).collect(),
            format: volume.format.as_ref().map(format),
            state,
            target: self.show_target(volume, target.as_ref()),
            copies: self.copies(volume, target.as_ref()),
        }
    }

    /// A snapshot that nobody sees was made for a copy of the whole volume.
    fn source(&self, origin: &v1::Origin) -> Source {
        let uid = hex::encode(&origin.snapshot);
        let snapshot = self.books.get::<v1::VolumeSnapshot>(&uid);
        match snapshot.is_some_and(|it| !it.owner.is_empty()) {
            true => {
                let of = origin.volume.clone().unwrap_or_default();
                Source::Volume { id: hex::encode(&of.uid) }
            }
            false => Source::Snapshot { id: uid },
        }
    }

    fn show_target(
        &self,
        volume: &v1::Volume,
        target: Option<&v1::TargetStatus>,
    ) -> Option<Target> {
        let holder = volume.quorum.as_ref().map_or(0, |quorum| quorum.holder);
        let node = self.books.node(holder)?;
        let is_here = self.presence(holder).is_here();
        Some(Target {
            node: node.name.clone(),
            serving: is_here && target.is_some_and(|target| target.serving),
            iqn: format!("iqn.2026-11.io.pollux:{}", volume.name),
            iscsi: node.iscsi_address.clone(),
            nbd: node.nbd_address.clone(),
        })
    }

    fn copies(&self, volume: &v1::Volume, target: Option<&v1::TargetStatus>) -> Vec<Copy> {
        let peers = target.map(|target| target.peers.as_slice()).unwrap_or_default();
        let copy = |place: &v1::Place| {
            let is_it = |it: &&v1::PeerStatus| {
                it.member.is_some_and(|member| member.replica == place.replica)
            };
            let peer = peers.iter().find(is_it);
            let progress = peer.and_then(|it| it.progress.as_ref()).filter(|it| it.of > 0);
            let is_away = self.presence(place.node).is_away();
            Copy {
                replica: place.replica,
                node: self.node_name(place.node),
                pool: place.pool.clone(),
                mode: match peer {
                    Some(_) if is_away => "Offline".into(),
                    Some(peer) => mode(peer.standing()).into(),
                    None => "Unknown".into(),
                },
                votes: peer.is_some_and(|it| it.votes),
                lag: peer.map_or(0, |it| it.lag),
                progress: progress.map(|it| it.at as f64 / it.of as f64),
                reason: peer.and_then(|it| it.reason.clone()).unwrap_or_default(),
            }
        };
        volume.places.iter().map(copy).collect()
    }

    pub fn snapshot(&self, id: &str) -> Answer<Snapshot> {
        let found = self.find::<v1::VolumeSnapshot>(id)?;
        match is_seen(&found) {
            true => Ok(self.show_snapshot(&found)),
            false => Err(ApiError::not_found("snapshot", id)),
        }
    }

    pub fn snapshots(&self, volume: Option<&str>, after: &str, limit: usize) -> Page<Snapshot> {
        let of = volume.map(|id| self.books.get::<v1::Volume>(id).map(|it| it.uid.clone()));
        let mut all = self.books.all::<v1::VolumeSnapshot>();
        all.retain(|it| {
            let is_of = |uid: &Option<Vec<u8>>| {
                let has = it.volume.as_ref().map(|volume| &volume.uid);
                uid.is_some() && uid.as_ref() == has
            };
            is_seen(it) && of.as_ref().is_none_or(is_of)
        });
        page(all, after, limit, |it| self.show_snapshot(it))
    }

    pub(super) fn show_snapshot(&self, snapshot: &v1::VolumeSnapshot) -> Snapshot {
        let of = snapshot.volume.clone().unwrap_or_default();
        let volume = self.books.get::<v1::Volume>(&of.name).filter(|it| it.uid == of.uid);
        let named = !snapshot.group_snapshot.is_empty();
        Snapshot {
            name: snapshot.name.clone(),
            uid: hex::encode(&snapshot.uid),
            title: title(&snapshot.title, &snapshot.name),
            volume: of.name,
            volume_uid: hex::encode(&of.uid),
            created_ms: snapshot.created_ms,
            ready: snapshot.at.is_some(),
            size: snapshot.size,
            block_size: volume.map_or(0, |it| it.block_size),
            group_snapshot: named.then(|| snapshot.group_snapshot.clone()),
            group_snapshot_uid: named.then(|| hex::encode(&snapshot.group_snapshot_uid)),
            parameters: snapshot.parameters.clone(),
        }
    }

    pub fn group(&self, id: &str) -> Answer<Group> {
        Ok(show_group(&*self.find::<v1::VolumeGroup>(id)?))
    }

    pub fn groups(&self, after: &str, limit: usize) -> Page<Group> {
        page(self.books.all::<v1::VolumeGroup>(), after, limit, show_group)
    }

    pub fn group_snapshot(&self, id: &str) -> Answer<GroupSnapshot> {
        let found = self.find::<v1::VolumeGroupSnapshot>(id)?;
        match found.deleting {
            false => Ok(self.show_group_snapshot(&found)),
            true => Err(ApiError::not_found("group snapshot", id)),
        }
    }

    pub fn group_snapshots(&self, after: &str, limit: usize) -> Page<GroupSnapshot> {
        let mut all = self.books.all::<v1::VolumeGroupSnapshot>();
        all.retain(|it| !it.deleting);
        let known = all.clone();
        page(all, after, limit, |it| {
            let it = known.iter().find(|known| known.uid == it.uid);
            self.show_group_snapshot(it.expect("it is of this list"))
        })
    }

    fn show_group_snapshot(&self, snapshot: &Known<v1::VolumeGroupSnapshot>) -> GroupSnapshot {
        let parts = parts(self, snapshot);
        GroupSnapshot {
            name: snapshot.name.clone(),
            uid: hex::encode(&snapshot.uid),
            title: title(&snapshot.title, &snapshot.name),
            created_ms: snapshot.created_ms,
            group: Some(snapshot.group.clone()).filter(|group| !group.is_empty()),
            // It is whole for others when all its parts can be found.
            ready: snapshot.ready && parts.len() == snapshot.cuts.len(),
            snapshots: parts.iter().map(|it| self.show_snapshot(it)).collect(),
            hold_us: snapshot.hold_us,
            parameters: snapshot.parameters.clone(),
        }
    }
}

fn is_seen(snapshot: &v1::VolumeSnapshot) -> bool {
    !snapshot.deleting && snapshot.owner.is_empty()
}

fn title(title: &str, name: &str) -> String {
    if title.is_empty() { name.into() } else { title.into() }
}

fn attachment(of: &v1::Attachment) -> Attachment {
    Attachment {
        host: of.host.clone(),
        initiator: of.initiator.clone(),
        read_only: of.read_only,
        since_ms: of.since_ms,
    }
}

fn format(of: &v1::FormatMark) -> Format {
    Format {
        file_system: of.file_system.clone(),
        host: of.host.clone(),
        stage: of.stage,
        since_ms: of.since_ms,
        verified: of.verified,
    }
}

fn show_group(group: &v1::VolumeGroup) -> Group {
    let member =
        |it: &v1::VolumeRef| Reference { name: it.name.clone(), uid: hex::encode(&it.uid) };
    Group {
        name: group.name.clone(),
        uid: hex::encode(&group.uid),
        title: title(&group.title, &group.name),
        created_ms: group.created_ms,
        members: group.members.iter().map(member).collect(),
        parameters: Pairs::clone(&group.parameters),
    }
}

/// A part of a list: those behind a name.
fn page<T: Kept, S>(
    all: Vec<Known<T>>,
    after: &str,
    limit: usize,
    show: impl Fn(&T) -> S,
) -> Page<S> {
    let limit = if limit == 0 { PAGE } else { limit.min(PAGE) };
    let from = all.partition_point(|it| it.name() <= after);
    let part = &all[from..all.len().min(from + limit)];
    let next = part.last().filter(|_| from + limit < all.len()).map(|it| it.name().to_owned());
    Page { items: part.iter().map(|it| show(it)).collect(), next }
}
