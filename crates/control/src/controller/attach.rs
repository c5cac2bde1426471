//! Who may use a volume: hosts that it is attached to.
use std::sync::Arc;

use proto::v1;

use super::shape::check_proof;
use super::{Answer, Controller, now_ms};
use crate::api::types::{Attach, Detach, Volume};
use crate::api::{ApiError, Code};
use crate::steps::{StepError, reference};

/// The longest name that iSCSI allows.
const INITIATOR_MAX: usize = 223;

/// The name that a host logs in with. It follows from the name of the host, so that both sides know it.
pub fn initiator(host: &str) -> Answer<String> {
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '.';
    let name = format!("iqn.2026-11.io.pollux:host.{host}");
    match !host.is_empty() && host.chars().all(plain) && name.len() <= INITIATOR_MAX {
        true => Ok(name),
        false => Err(ApiError::invalid("host", "a host has a name of a-z, 0-9, '-' and '.'")),
    }
}

impl Controller {
    pub async fn attach_volume(self: &Arc<Self>, id: &str, to: Attach) -> Answer<Volume> {
        let found = self.find::<v1::Volume>(id)?;
        let host = self.host_named(&to.host)?;
        let initiator = initiator(&host)?;
        let this = Arc::clone(self);
        self.run(vec![(v1::Kind::Volume, found.name.clone())], async move {
            check_proof(&found, to.credential.as_ref())?;
            this.edit::<v1::Volume>(&found.name, &found.uid, |volume| {
                if volume.deleting {
                    return Err(ApiError::not_found("volume", &volume.name));
                }
                attach(volume, &to, &host, &initiator)
            })
            .await?;
            this.tell_target(&found.name).await?;
            this.volume(&found.name)
        })
        .await
    }

    pub async fn detach_volume(self: &Arc<Self>, id: &str, from: Detach) -> Answer<Volume> {
        let found = self.find::<v1::Volume>(id)?;
        let this = Arc::clone(self);
        self.run(vec![(v1::Kind::Volume, found.name.clone())], async move {
            check_proof(&found, from.credential.as_ref())?;
            this.edit::<v1::Volume>(&found.name, &found.uid, |volume| {
                volume.attachments.retain(|it| !from.host.is_empty() && it.host != from.host);
                Ok(())
            })
            .await?;
            this.tell_target(&found.name).await?;
            this.volume(&found.name)
        })
        .await
    }
}

impl Controller {
    /// The target knows who may use the volume before whoever asked is told. One that is away asks the
    /// catalog before it serves again.
    pub(super) async fn tell_target(&self, name: &str) -> Answer<()> {
        let (found, mut admin) = match self.site.holder(name).await {
            Ok(found) => found,
            Err(StepError::NotServed { .. }) => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        let holder = found.volume.quorum.as_ref().map_or(0, |quorum| quorum.holder);
        if self.presence(holder).is_away() {
            return Ok(());
        }
        let volume = Some(reference(&found.volume));
        admin.start_target(v1::StartTargetRequest { volume, take_over: false }).await?;
        Ok(())
    }
}

fn attach(volume: &mut v1::Volume, to: &Attach, host: &str, initiator: &str) -> Answer<()> {
    let name = &volume.name;
    let wanted = v1::Attachment {
        host: host.into(),
        initiator: initiator.into(),
        read_only: to.read_only,
        since_ms: now_ms(),
        shared: to.shared,
        single_writer: to.single_writer,
        stage: 0,
    };
    if let Some(there) = volume.attachments.iter().find(|it| it.host == host) {
        let same = v1::Attachment { since_ms: there.since_ms, stage: there.stage, ..wanted };
        return match *there == same {
            true => Ok(()),
            false => Err(ApiError::new(
                Code::AlreadyExists,
                format!("the volume `{name}` is attached to `{host}` already, in another way"),
            )),
        };
    }
    let in_way = |other: &&v1::Attachment| {
        let both_share = wanted.shared && other.shared;
        let both_write = !wanted.read_only && !other.read_only;
        !both_share || both_write && (wanted.single_writer || other.single_writer)
    };
    if let Some(other) = volume.attachments.iter().find(in_way) {
        let message =
            format!("the volume `{name}` is attached to `{}`: detach it first", other.host);
        return Err(ApiError::new(Code::InUse, message));
    }
    volume.attachments.push(wanted);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn to(read_only: bool, shared: bool) -> Attach {
        Attach { read_only, shared, ..Attach::default() }
    }

    fn one_writer(read_only: bool) -> Attach {
        Attach { read_only, shared: true, single_writer: true, ..Attach::default() }
    }

    #[test]
    fn a_volume_is_one_hosts_unless_it_is_shared() {
        let mut volume = v1::Volume::default();
        assert_eq!(attach(&mut volume, &to(false, false), "a", "iqn.a"), Ok(()));
        assert_eq!(attach(&mut volume, &to(false, false), "a", "iqn.a"), Ok(()));
        assert_eq!(volume.attachments.len(), 1);
        volume.attachments[0].stage = 5;
        assert_eq!(attach(&mut volume, &to(false, false), "a", "iqn.a"), Ok(()), "it is staged");
        assert_eq!(volume.attachments[0].stage, 5);
        let refused = attach(&mut volume, &to(true, false), "a", "iqn.a").expect_err("another way");
        assert_eq!(refused.code, Code::AlreadyExists);
        let refused = attach(&mut volume, &to(false, false), "b", "iqn.b").expect_err("taken");
        assert_eq!(refused.code, Code::InUse);
        let refused =
            attach(&mut volume, &to(true, true), "b", "iqn.b").expect_err("it is a's alone");
        assert_eq!(refused.code, Code::InUse);
        let mut volume = v1::Volume::default();
        assert_eq!(attach(&mut volume, &to(false, true), "a", "iqn.a"), Ok(()));
        assert_eq!(attach(&mut volume, &to(false, true), "b", "iqn.b"), Ok(()));
        assert_eq!(volume.attachments.len(), 2);
    }

    #[test]
    fn one_writer_among_many_readers() {
        let mut volume = v1::Volume::default();
        assert_eq!(attach(&mut volume, &one_writer(false), "a", "iqn.a"), Ok(()));
        assert_eq!(attach(&mut volume, &one_writer(true), "b", "iqn.b"), Ok(()));
        let refused = attach(&mut volume, &one_writer(false), "c", "iqn.c").expect_err("a writes");
        assert_eq!(refused.code, Code::InUse);
    }

    #[test]
    fn initiators_are_names_of_iscsi() {
        assert!(initiator("node-1").is_ok_and(|name| name.ends_with("host.node-1")));
        for wrong in ["", "A", "a b", "ü", &"x".repeat(300)] {
            assert!(initiator(wrong).is_err(), "{wrong}");
        }
    }
}
