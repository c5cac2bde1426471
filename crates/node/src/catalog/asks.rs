//! What targets ask of the catalog.
use proto::catalog_client::{CallError, Found, Swapped};
use proto::v1;
use proto::v1::object::Body;
use proto::v1::swap_request::Change;
use replication::catalog::{CatalogAnswer, CatalogAsk, VolumeObject};
use replication::target::starting;
use replication::words::VolumeUid;

use super::copy::is_deleted;
use super::{Books, LOST, convert, is_of, volume_key};

/// A volume that a target runs for. Its name may be another's in the catalog.
#[derive(Clone, Copy, Debug)]
pub struct Of<'a> {
    pub name: &'a str,
    pub uid: VolumeUid,
}

impl Books {
    /// What a target asks. `None`: the catalog could not answer; the target asks again by itself.
    /// `first`: the run has asked nothing before.
    pub async fn answer(&self, of: Of<'_>, first: bool, ask: CatalogAsk) -> Option<CatalogAnswer> {
        let may_remember = starting::may_remember(first, &ask);
        let answered = match ask {
            CatalogAsk::Get => self.get(of).await,
            CatalogAsk::Swap { expected, grant, object } => {
                let wanted = (expected, grant, *object);
                self.swap(of, wanted).await
            }
        };
        match answered {
            // The same node may start again under its grant without the catalog (Q1). One that has lost the volume is
            // as good as none.
            Err(_) if may_remember => self.own(of),
            Ok(Some(CatalogAnswer::Missing)) if may_remember => {
                self.own(of).or(Some(CatalogAnswer::Missing))
            }
            Ok(answer) => answer,
            Err(error) => {
                tracing::warn!(volume = of.name, %error, "a target has to wait for the catalog");
                None
            }
        }
    }

    /// What is known of a volume whose grant this node has.
    fn own(&self, of: Of<'_>) -> Option<CatalogAnswer> {
        starting::from_memory(self.known(of).as_ref(), self.node)
    }

    fn known(&self, of: Of<'_>) -> Option<VolumeObject> {
        self.copy().volume_of(of.name, of.uid).map(|known| known.record.object.clone())
    }

    async fn get(&self, of: Of<'_>) -> Result<Option<CatalogAnswer>, CallError> {
        // Looked at before the catalog is asked: an answer that is older than this was not overtaken.
        let before = self.known(of);
        let found = self.client.find(&volume_key(of.name)).await?;
        Ok(self.judge(of, before.as_ref(), &found))
    }

    async fn swap(
        &self,
        of: Of<'_>,
        (expected, grant, wanted): convert::Wanted,
    ) -> Result<Option<CatalogAnswer>, CallError> {
        let key = volume_key(of.name);
        let before = self.known(of);
        let found = self.client.find(&key).await?;
        let volume = match &found {
            Found::Object(object) if is_of(object, of.uid) && object.version == expected.0 => {
                volume_with(object, grant.0)
            }
            _ => None,
        };
        let Some(volume) = volume else { return Ok(self.judge(of, before.as_ref(), &found)) };
        // Everything but the quorum stays as it is.
        let next = v1::Volume { quorum: Some(convert::quorum(&wanted)), ..volume.clone() };
        match self.client.swap(&key, expected.0, Change::Volume(next)).await? {
            Swapped::Done(object) => Ok(match self.present(&object) {
                Some(CatalogAnswer::Object(object)) => Some(CatalogAnswer::Swapped(object)),
                other => other,
            }),
            Swapped::Conflict(_) => self.get(of).await,
        }
    }

    /// What a target is told of what the catalog has under its name.
    pub(super) fn judge(
        &self,
        of: Of<'_>,
        before: Option<&VolumeObject>,
        found: &Found,
    ) -> Option<CatalogAnswer> {
        match found {
            Found::Object(object) if is_of(object, of.uid) => {
                let found = convert::known(object).ok()?.record.object;
                let answer = self.present(object)?;
                match starting::is_lost(before, &found) {
                    true => Some(self.lose(of)),
                    false => Some(answer),
                }
            }
            Found::Object(object) | Found::Deleted(object)
                if is_deleted(object, of.uid, before.map(|before| before.version)) =>
            {
                self.delete(&volume_key(of.name), object);
                Some(CatalogAnswer::Deleted)
            }
            Found::Object(_) | Found::Deleted(_) | Found::Nothing => Some(self.lose(of)),
        }
    }

    fn lose(&self, of: Of<'_>) -> CatalogAnswer {
        if self.copy().lose_volume(of.name, of.uid) {
            tracing::error!(volume = of.name, "{LOST}");
        }
        CatalogAnswer::Missing
    }

    /// An object as a target is told it; nothing if this node cannot use it, or cannot remember it first.
    fn present(&self, object: &v1::Object) -> Option<CatalogAnswer> {
        let known = self.usable(object)?;
        Some(CatalogAnswer::Object(Box::new(known.record.object)))
    }
}

/// The volume, if it has this grant.
fn volume_with(object: &v1::Object, grant: u64) -> Option<&v1::Volume> {
    let Some(Body::Volume(volume)) = &object.body else { return None };
    let present = volume.quorum.as_ref().map_or(0, |quorum| quorum.grant);
    (present == grant).then_some(volume)
}
