//! What the catalog has, kept in memory by watching it.
//!
//! Read often, by everybody; written by the watch, and by the controller's own swaps, so that whoever
//! changed something sees it changed. A version never goes back.
use std::collections::{BTreeMap, HashMap};
use std::marker::PhantomData;
use std::ops::Deref;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use proto::catalog_client::{News, Watch};
use proto::v1;
use proto::v1::object::Body;
use proto::v1::swap_request::Change;
use tokio::sync::watch;

use super::names::named;

/// A kind of object.
pub trait Kept: Clone {
    const KIND: v1::Kind;
    /// What people call it.
    const NOUN: &'static str;
    fn of(body: &Body) -> Option<&Self>;
    fn change(self) -> Change;
    fn name(&self) -> &str;
    fn uid(&self) -> &[u8];
}

macro_rules! kept {
    ($type:ty, $kind:ident, $noun:literal, $arm:ident, $name:expr, $uid:expr) => {
        impl Kept for $type {
            const KIND: v1::Kind = v1::Kind::$kind;
            const NOUN: &'static str = $noun;

            fn of(body: &Body) -> Option<&Self> {
                match body {
                    Body::$arm(it) => Some(it),
                    _ => None,
                }
            }

            fn change(self) -> Change {
                Change::$arm(self)
            }

            fn name(&self) -> &str {
                let name: fn(&Self) -> &str = $name;
                name(self)
            }

            fn uid(&self) -> &[u8] {
                let uid: fn(&Self) -> &[u8] = $uid;
                uid(self)
            }
        }
    };
}

kept!(v1::Volume, Volume, "volume", Volume, |it| &it.name, |it| &it.uid);
kept!(v1::Node, Node, "node", Node, |it| &it.name, |_| &[]);
kept!(v1::VolumeSnapshot, Snapshot, "snapshot", Snapshot, |it| &it.name, |it| &it.uid);
kept!(v1::VolumeGroup, Group, "group", Group, |it| &it.name, |it| &it.uid);
kept!(
    v1::VolumeGroupSnapshot,
    GroupSnapshot,
    "group snapshot",
    GroupSnapshot,
    |it| &it.name,
    |it| &it.uid
);
kept!(v1::Controller, Controller, "controller", Controller, |_| "controller", |_| &[]);
kept!(v1::Token, Token, "token", Token, |it| &it.name, |_| &[]);
kept!(v1::Host, Host, "host", Host, |it| &it.name, |_| &[]);

/// An object of the catalog whose kind is known.
#[derive(Clone, Debug)]
pub struct Known<T> {
    object: Arc<v1::Object>,
    kind: PhantomData<T>,
}

impl<T: Kept> Known<T> {
    fn of(object: &Arc<v1::Object>) -> Option<Known<T>> {
        T::of(object.body.as_ref()?)?;
        Some(Known { object: Arc::clone(object), kind: PhantomData })
    }

    pub fn version(&self) -> u64 {
        self.object.version
    }
}

impl<T: Kept> Deref for Known<T> {
    type Target = T;

    fn deref(&self) -> &T {
        let body = self.object.body.as_ref().and_then(T::of);
        body.expect("it was looked at when it was made")
    }
}

type Name = (i32, String);

#[derive(Default)]
struct State {
    /// Those without a body were deleted by this process, and the watch has not told so yet.
    objects: BTreeMap<Name, Arc<v1::Object>>,
    names: HashMap<(i32, Vec<u8>), String>,
    /// While the watch tells everything anew: what was told.
    anew: Option<BTreeMap<Name, Arc<v1::Object>>>,
}

pub struct Books {
    state: Mutex<State>,
    /// Counts changes; 0 until everything is known.
    changed: watch::Sender<u64>,
}

impl Default for Books {
    fn default() -> Books {
        Books { state: Mutex::default(), changed: watch::Sender::new(0) }
    }
}

impl Books {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// By its name, by its uid in hex, or by its title.
    pub fn get<T: Kept>(&self, id: &str) -> Option<Known<T>> {
        let state = self.state();
        let kind = i32::from(T::KIND);
        let by_name = state.objects.get(&(kind, id.to_owned())).and_then(Known::of);
        let by_uid = || {
            let uid = crate::hex::decode(id)?;
            let name = state.names.get(&(kind, uid))?;
            state.objects.get(&(kind, name.clone())).and_then(Known::of)
        };
        let by_title = || {
            let name = named(id).ok().filter(|named| !named.title.is_empty())?.name;
            state.objects.get(&(kind, name)).and_then(Known::of)
        };
        by_name.or_else(by_uid).or_else(by_title)
    }

    /// All of a kind, in the order of names.
    pub fn all<T: Kept>(&self) -> Vec<Known<T>> {
        let kind = i32::from(T::KIND);
        let state = self.state();
        let range = state.objects.range((kind, String::new())..(kind + 1, String::new()));
        range.filter_map(|(_, object)| Known::of(object)).collect()
    }

    pub fn node(&self, id: u64) -> Option<Known<v1::Node>> {
        self.all::<v1::Node>().into_iter().find(|node| node.id == id)
    }

    /// Told of every change.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    /// What a swap of this process left.
    pub fn put(&self, object: &v1::Object) {
        let Some(name) = name_of(object) else { return };
        self.state().put(name, Arc::new(object.clone()));
        self.changed.send_modify(|count| *count += 1);
    }

    /// Follows the catalog for ever.
    pub async fn follow(self: Arc<Books>, mut watch: Watch) {
        loop {
            let news = watch.next().await;
            self.take(news);
        }
    }

    fn take(&self, news: News) {
        let mut state = self.state();
        match news {
            News::Everything => state.anew = Some(BTreeMap::new()),
            News::Object(object) => {
                let Some(name) = name_of(&object) else { return };
                let object = Arc::new(*object);
                match &mut state.anew {
                    Some(anew) => {
                        anew.insert(name, object);
                    }
                    None => state.told(name, object),
                }
            }
            News::Current { .. } => state.replace(),
            News::Lost { .. } => return,
        }
        let is_known = state.anew.is_none();
        drop(state);
        if is_known {
            self.changed.send_modify(|count| *count += 1);
        }
    }
}

impl State {
    fn put(&mut self, name: Name, object: Arc<v1::Object>) {
        if let Some(anew) = &mut self.anew
            && anew.get(&name).is_none_or(|known| known.version < object.version)
        {
            anew.insert(name.clone(), Arc::clone(&object));
        }
        if self.objects.get(&name).is_some_and(|known| known.version >= object.version) {
            return;
        }
        if let Some(uid) = self.objects.get(&name).and_then(|known| uid_of(known)) {
            self.names.remove(&(name.0, uid));
        }
        if let Some(uid) = uid_of(&object) {
            self.names.insert((name.0, uid), name.1.clone());
        }
        self.objects.insert(name, object);
    }

    /// The watch has no news of what came before this.
    fn told(&mut self, name: Name, object: Arc<v1::Object>) {
        let (is_gone, version) = (object.body.is_none(), object.version);
        self.put(name.clone(), object);
        if is_gone && self.objects.get(&name).is_some_and(|known| known.version <= version) {
            self.objects.remove(&name);
        }
    }

    fn replace(&mut self) {
        let Some(anew) = self.anew.take() else { return };
        self.objects.clear();
        self.names.clear();
        for (name, object) in anew {
            self.told(name, object);
        }
    }
}

fn name_of(object: &v1::Object) -> Option<Name> {
    object.key.as_ref().map(|key| (key.kind, key.name.clone()))
}

fn uid_of(object: &v1::Object) -> Option<Vec<u8>> {
    let uid = match object.body.as_ref()? {
        Body::Volume(it) => &it.uid,
        Body::Snapshot(it) => &it.uid,
        Body::Group(it) => &it.uid,
        Body::GroupSnapshot(it) => &it.uid,
        Body::Node(_) | Body::Controller(_) | Body::Token(_) | Body::Host(_) => return None,
    };
    Some(uid.clone())
}
