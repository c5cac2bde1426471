//! One cut over several volumes (Q10): hold all, cut all, release all; then wait for the cuts.
//!
//! Nothing is cut before everybody holds, and nobody is released before everything is cut. So a write that was
//! acknowledged before any other was sent is in the cut whenever the other is. A hold that broke by itself, on a
//! target that was slow or started anew, is told by its release, and spoils the whole.
use std::time::Instant;

use futures_util::future::{join_all, try_join_all};
use proto::v1;
use tonic::Streaming;

use super::{Answer, Controller};
use crate::api::{ApiError, Code};
use crate::steps::{Admin, faults};

/// A volume that is cut, and the snapshot that is made of it.
#[derive(Clone, Debug)]
pub struct Member {
    pub volume: v1::VolumeRef,
    pub spec: v1::SnapshotSpec,
}

/// What came of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cut {
    /// In the order of members.
    pub at: Vec<v1::Position>,
    /// From the first hold that was asked for to the last release that was answered.
    pub hold_us: u64,
}

/// A cut that has its place, and is not durable yet.
type Begun = Streaming<v1::CutResponse>;

/// Where a member is held.
struct Hold<'a> {
    member: &'a Member,
    admin: Admin,
    token: u64,
}

fn broken(member: &Member, why: impl std::fmt::Display) -> ApiError {
    let name = &member.volume.name;
    let message =
        format!("there is no common moment: the hold of `{name}` broke: {why}; ask again");
    ApiError::new(Code::Unavailable, message)
}

impl Controller {
    /// All members at one moment, durable; or an error, and whatever was cut is worth nothing.
    pub(super) async fn cut(&self, members: &[Member]) -> Answer<Cut> {
        let mut bytes = [0; 8];
        certs::random(&mut bytes);
        let token = u64::from_be_bytes(bytes);
        let holds = try_join_all(members.iter().map(|member| self.ready_to_hold(member, token)));
        // Everything that takes time is found out before writes wait.
        let holds = holds.await?;
        let begun = Instant::now();
        let cuts = self.hold_and_cut(&holds).await;
        let released = join_all(holds.iter().map(Hold::release)).await;
        let hold_us = u64::try_from(begun.elapsed().as_micros()).unwrap_or(u64::MAX);
        self.site.fault(faults::CUT_RELEASED).await;
        // Also when it is in vain: what was cut can be taken away only when it is there.
        let cuts = holds.iter().zip(cuts?).map(|(hold, cut)| hold.durable(cut));
        let at: Answer<Vec<v1::Position>> = join_all(cuts).await.into_iter().collect();
        released.into_iter().collect::<Answer<Vec<()>>>()?;
        self.site.fault(faults::CUT_DURABLE).await;
        Ok(Cut { at: at?, hold_us })
    }

    async fn ready_to_hold<'a>(&self, member: &'a Member, token: u64) -> Answer<Hold<'a>> {
        let (found, admin) = self.ready_target(&member.volume.name).await?;
        match found.volume.uid == member.volume.uid {
            true => Ok(Hold { member, admin, token }),
            false => Err(ApiError::not_found("volume", &member.volume.name)),
        }
    }

    /// What became of each cut; `Err`: not all were held, and nothing was cut.
    async fn hold_and_cut(&self, holds: &[Hold<'_>]) -> Answer<Vec<Answer<Begun>>> {
        let lasts_us = u64::try_from(self.settings.hold.as_micros()).unwrap_or(u64::MAX);
        try_join_all(holds.iter().map(|hold| hold.hold(lasts_us))).await?;
        self.site.fault(faults::CUT_HELD).await;
        let cuts = join_all(holds.iter().map(Hold::cut)).await;
        self.site.fault(faults::CUT_MADE).await;
        Ok(cuts)
    }
}

impl Hold<'_> {
    fn volume(&self) -> Option<v1::VolumeRef> {
        Some(self.member.volume.clone())
    }

    async fn hold(&self, lasts_us: u64) -> Answer<()> {
        let request = v1::HoldRequest { volume: self.volume(), token: self.token, lasts_us };
        let held = self.admin.clone().hold(request).await;
        held.map(|_| ()).map_err(|status| broken(self.member, status.message()))
    }

    /// Answered when the cut has its place in the sequence.
    async fn cut(&self) -> Answer<Begun> {
        let spec = Some(self.member.spec.clone());
        let request = v1::CutRequest { volume: self.volume(), token: self.token, spec };
        let broke = |status: tonic::Status| broken(self.member, status.message());
        let mut answers = self.admin.clone().cut(request).await.map_err(broke)?.into_inner();
        match answers.message().await.map_err(broke)? {
            Some(_) => Ok(answers),
            None => Err(broken(self.member, "no answer")),
        }
    }

    /// Whether it held until now.
    async fn release(&self) -> Answer<()> {
        let request = v1::ReleaseRequest { volume: self.volume(), token: self.token };
        match self.admin.clone().release(request).await {
            Ok(released) if released.get_ref().unbroken => Ok(()),
            Ok(_) => Err(broken(self.member, "it had ended before it was released")),
            Err(status) => Err(broken(self.member, status.message())),
        }
    }

    async fn durable(&self, cut: Answer<Begun>) -> Answer<v1::Position> {
        let mut cut = cut?;
        loop {
            let answer = cut.message().await.map_err(ApiError::from)?;
            match answer {
                Some(v1::CutResponse { at: Some(at), durable: true }) => return Ok(at),
                Some(_) => {}
                None => return Err(broken(self.member, "the cut did not become durable")),
            }
        }
    }
}
