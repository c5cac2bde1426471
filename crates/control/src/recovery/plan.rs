//! What is brought back into a catalog, from copies of it and from what nodes know. No IO.
//!
//! The catalog stores a plan as a whole or not at all. So an object that it would refuse is none of the plan's, and is
//! refused here, alone.
use std::collections::BTreeMap;

use proto::deletion;
use proto::v1;
use proto::v1::object::Body;

use super::adopt::{Adopted, Evidence, adopt, adopt_unknown, drop_unknown_secret};
use crate::catalog::restore::{Restored, check, restore, was_deleted_before};
use crate::hex;

/// Objects that somebody has.
#[derive(Clone, Debug)]
pub struct Source {
    pub what: String,
    pub objects: Vec<v1::Object>,
}

/// What becomes of one object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    Restore,
    /// The catalog has it, or a later one.
    Keep,
    /// It cannot be brought back.
    Refuse,
}

#[derive(Clone, Debug)]
pub struct Step {
    pub kind: v1::Kind,
    pub name: String,
    pub action: Action,
    /// Where it is from, and what was changed about it; or why not.
    pub notes: Vec<String>,
}

#[derive(Clone, Debug, Default)]
pub struct Plan {
    pub steps: Vec<Step>,
    pub objects: Vec<v1::Object>,
}

type Place = (i32, String);

/// What the name of a token ends with that lost its name.
const ASIDE: &str = ".old";

/// Where an object comes from that the catalog itself has.
const CATALOG: &str = "the catalog";

#[derive(Default)]
struct Merged {
    objects: BTreeMap<Place, (v1::Object, String)>,
    /// Two objects of one name, of which nothing says that either was deleted.
    clashes: BTreeMap<Place, String>,
    /// Tokens that may have been deleted before, by the names that they would come back under.
    doubtful: BTreeMap<Place, String>,
}

impl Merged {
    /// The newer of two states of an object stays.
    fn take(&mut self, object: &v1::Object, from: &str) {
        let Some(key) = &object.key else { return };
        let place = (key.kind, key.name.clone());
        // What the catalog has goes by its own mark only.
        let is_past = |(known, whose): &&(v1::Object, String)| {
            whose != CATALOG && was_deleted_before(known, object)
        };
        let known = self.objects.get(&place).filter(|it| !is_past(it));
        let known = known.map(|(known, _)| known.clone());
        let is_doubtful = known.as_ref().is_some_and(deletion::is_full);
        let revision = object.revision;
        match restore(&crate::catalog::judge::Present { object: known }, object.clone(), revision) {
            Restored::Stored(newer) => {
                // Whether a version had to grow is the catalog's to say.
                let (version, from) = match self.objects.remove(&place) {
                    // Nothing but marks of deletions, perhaps.
                    Some((known, whose)) if known.body == newer.body => {
                        (known.version.max(object.version), whose)
                    }
                    _ => (object.version, from.into()),
                };
                self.objects.insert(place, (v1::Object { version, ..*newer }, from));
            }
            Restored::Kept => {
                // A node that has started again knows the same object without its secrets.
                if let Some((known, _)) = self.objects.get(&place)
                    && known.version == object.version
                    && lacks_secret(known)
                {
                    self.objects.insert(place, (object.clone(), from.into()));
                }
            }
            Restored::Refused(wrong) => match token_aside(object) {
                Some((aside, _)) if is_doubtful => {
                    let why = format!(
                        "{from}: a token that had the name `{}`. The last {} that were deleted under this name are known, and \
                         this may be an earlier one: make a new token if somebody needs it",
                        place.1,
                        deletion::DELETED_UIDS_MAX
                    );
                    self.doubtful.insert(aside, why);
                }
                Some((_, aside)) => self.take(&aside, from),
                None => {
                    self.clashes.insert(place, format!("{from}: {}", wrong.problem));
                }
            },
        }
    }
}

/// `present` is what the catalog has now, deleted objects included. `evidence` is by the uid of the volume.
pub fn plan(
    present: &[v1::Object],
    sources: &[Source],
    evidence: &BTreeMap<Vec<u8>, Evidence>,
    now_ms: u64,
) -> Plan {
    let mut merged = Merged::default();
    // The tokens of the catalog keep their names.
    let tokens = present.iter().filter_map(placed).filter(|((kind, _), _)| is_token(*kind));
    merged.objects.extend(tokens.map(|(place, it)| (place, (it.clone(), CATALOG.into()))));
    for source in sources {
        source.objects.iter().for_each(|object| merged.take(object, &source.what));
    }
    let there: BTreeMap<Place, &v1::Object> = present.iter().filter_map(placed).collect();
    let mut plan = Plan::default();
    for (place, (object, from)) in &merged.objects {
        if let Some(clash) = merged.clashes.get(place) {
            plan.refuse(place, clash.clone());
            continue;
        }
        let there = there.get(place).copied();
        // What the catalog has itself, with no mark of a deletion added, needs nothing.
        if from != CATALOG || there != Some(object) {
            plan.bring(place, object, from, there, evidence);
        }
    }
    for (place, why) in &merged.doubtful {
        plan.refuse(place, why.clone());
    }
    let mut uids: Vec<&[u8]> =
        merged.objects.values().filter_map(|(it, _)| volume_uid(it)).collect();
    uids.extend(present.iter().filter_map(volume_uid));
    let deleted = present.iter().chain(merged.objects.values().map(|(object, _)| object));
    uids.extend(deleted.flat_map(|it| &it.deleted_uids).map(Vec::as_slice));
    for (uid, evidence) in evidence.iter().filter(|(uid, _)| !uids.contains(&uid.as_slice())) {
        plan.bring_unknown(uid, evidence, &there, now_ms);
    }
    plan
}

fn lacks_secret(object: &v1::Object) -> bool {
    match &object.body {
        Some(Body::Volume(volume)) => volume.chap.as_ref().is_some_and(|it| it.secret.is_empty()),
        _ => false,
    }
}

/// A site that lost its catalog gets a first token anew. The one that had this name before gets another name beside it, so
/// that either can be used.
fn token_aside(object: &v1::Object) -> Option<(Place, v1::Object)> {
    let Some(Body::Token(token)) = &object.body else { return None };
    let mut aside = object.clone();
    let name = format!("{}{ASIDE}", token.name);
    aside.key.as_mut()?.name.clone_from(&name);
    aside.body = Some(Body::Token(v1::Token { name: name.clone(), ..token.clone() }));
    check(&aside).is_ok().then(|| ((v1::Kind::Token.into(), name), aside))
}

fn is_token(kind: i32) -> bool {
    kind == i32::from(v1::Kind::Token)
}

fn placed(object: &v1::Object) -> Option<(Place, &v1::Object)> {
    let key = object.key.as_ref()?;
    Some(((key.kind, key.name.clone()), object))
}

fn volume_uid(object: &v1::Object) -> Option<&[u8]> {
    match &object.body {
        Some(Body::Volume(volume)) => Some(&volume.uid),
        _ => None,
    }
}

impl Plan {
    fn say(&mut self, place: &Place, action: Action, notes: Vec<String>) {
        let kind = v1::Kind::try_from(place.0).unwrap_or_default();
        self.steps.push(Step { kind, name: place.1.clone(), action, notes });
    }

    fn refuse(&mut self, place: &Place, why: String) {
        self.say(place, Action::Refuse, vec![why]);
    }

    fn bring(
        &mut self,
        place: &Place,
        object: &v1::Object,
        from: &str,
        there: Option<&v1::Object>,
        evidence: &BTreeMap<Vec<u8>, Evidence>,
    ) {
        let none = Evidence::default();
        let uid = volume_uid(object);
        let is_kept = matches!(&object.body, Some(Body::Volume(volume)) if !volume.deleting);
        let adopted = match uid.filter(|_| is_kept) {
            Some(uid) => adopt(object, evidence.get(uid).unwrap_or(&none)),
            None => Ok(Adopted { object: beside(object, there), notes: Vec::new() }),
        };
        let Adopted { mut object, mut notes } = match adopted {
            Ok(adopted) => adopted,
            Err(why) => return self.refuse(place, why),
        };
        let present = crate::catalog::judge::Present { object: there.cloned() };
        match restore(&present, object.clone(), object.revision) {
            // Of what was deleted nothing is said.
            Restored::Kept if there.is_none_or(|there| there.body.is_none()) => {}
            Restored::Kept => self.say(place, Action::Keep, Vec::new()),
            Restored::Refused(wrong) => self.refuse(place, wrong.problem),
            Restored::Stored(_) => {
                if let Some(Body::Volume(volume)) = &mut object.body
                    && volume.format.take().is_some()
                {
                    // The volume may have been mounted and written to since that state of the object.
                    object.version += 1;
                    notes.push("without its format mark: the next mount does not format it".into());
                }
                // Only a volume that is being deleted still has such credentials: others were adopted without them.
                if let Some(Body::Volume(volume)) = &mut object.body
                    && drop_unknown_secret(volume)
                {
                    object.version += 1;
                    notes.push("its CHAP secret is not known: no host may use it".into());
                }
                if let Err(wrong) = check(&object) {
                    return self.refuse(place, wrong.to_string());
                }
                // What is left of a deleted object is brought back without a word.
                if object.body.is_some() || there.is_some_and(|there| there.body.is_some()) {
                    notes.insert(0, format!("from {from}"));
                    self.say(place, Action::Restore, notes);
                }
                self.objects.push(object);
            }
        }
    }

    fn bring_unknown(
        &mut self,
        uid: &[u8],
        evidence: &Evidence,
        there: &BTreeMap<Place, &v1::Object>,
        now_ms: u64,
    ) {
        let told = evidence.replicas.first().and_then(|(_, it)| it.volume.as_ref());
        let name = told.map_or_else(|| hex::encode(uid), |volume| volume.name.clone());
        let place = (v1::Kind::Volume.into(), name);
        let is_taken = there.get(&place).is_some_and(|object| object.body.is_some())
            || self.objects.iter().filter_map(placed).any(|(it, _)| it == place);
        if is_taken {
            return self
                .refuse(&place, "replicas of another volume of this name are on nodes".into());
        }
        match adopt_unknown(uid, evidence, now_ms) {
            Ok(Adopted { mut object, notes }) => {
                // No mark says that it was deleted. Below the version of what was deleted under its name, the catalog would
                // take its mark for dropped.
                let left = there.get(&place).map_or(0, |left| left.version);
                object.version = object.version.max(left + 1);
                if let Err(wrong) = check(&object) {
                    return self.refuse(&place, wrong.to_string());
                }
                self.say(&place, Action::Restore, notes);
                self.objects.push(object);
            }
            Err(why) => self.refuse(&place, why),
        }
    }
}

/// A node that has registered anew says itself where it is; only its mark is from before.
fn beside(object: &v1::Object, there: Option<&v1::Object>) -> v1::Object {
    let present = there.and_then(|there| there.body.as_ref());
    let (Some(Body::Node(old)), Some(Body::Node(node))) = (&object.body, present) else {
        return object.clone();
    };
    let node = v1::Node { cordoned: old.cordoned || node.cordoned, ..node.clone() };
    let version = object.version.max(there.map_or(0, |there| there.version));
    v1::Object { body: Some(Body::Node(node)), version, ..object.clone() }
}

#[cfg(test)]
mod tests;
