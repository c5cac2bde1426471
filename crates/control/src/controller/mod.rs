//! The controller of a site: makes what is to be out of what is.
//!
//! Whatever is asked for is stored in the catalog first, as an intent; then it is done, step by step
//! ([`crate::steps`]); then what came of it is stored. A crash in between leaves an intent, and [`care`] finishes
//! or undoes it: it looks at every object once a second and does what [`need`] says, whoever began it.
//!
//! | module | duty |
//! |---|---|
//! | `volumes`, `shape`, `targets` | what is asked for volumes, and who serves them |
//! | `relief` | moves a target whose node cannot reach a quorum |
//! | `attach`, `stages`, `hosts` | who may use volumes, and since which loss |
//! | `format` | who may make a file system on a volume |
//! | `snapshots`, `groups`, `cut` | snapshots, groups, and the cut over several volumes |
//! | `nodes`, `tokens` | nodes and pools; who may use the API |
//! | `care`, `need` | level-triggered: what everything needs next |
//! | `placement`, `room`, `no_room` | where replicas go, what is left, and why it is not enough |
//! | `presence`, `beats`, `books` | what is known of nodes, and of the catalog |
//! | `busy` | one operation at a time for each object |
//! | `view`, `states` | objects as the API tells them, and how they are |
mod attach;
mod beats;
pub mod books;
mod busy;
mod care;
mod cut;
mod errors;
mod format;
mod groups;
mod hosts;
mod names;
pub mod need;
mod no_room;
mod nodes;
mod placement;
pub mod presence;
pub mod relief;
mod room;
mod shape;
mod snapshots;
mod stages;
mod states;
mod targets;
mod tokens;
mod view;
mod volumes;

use std::future::Future;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use certs::Identity;
use proto::catalog_client::Swapped;
use proto::v1;
use tokio::task::JoinSet;

use crate::api::{ApiError, Code};
use crate::steps::faults::Faults;
use crate::steps::{Site, StepError};

pub use attach::initiator;
pub use placement::NODE_KEY;

use books::{Books, Kept, Known};
use busy::{Busy, Thing};
use care::Worries;
use presence::{Presence, Pulse};
use states::Chronicle;

#[derive(Clone, Debug)]
pub struct Settings {
    /// Between two beats of a node.
    pub beat: Duration,
    /// A node that says nothing for so long is away: its targets move.
    pub away_after: Duration,
    /// A node that is away for so long has its replicas replaced.
    pub grace: Duration,
    /// What is promised to volumes may be so much of what pools have, in percent.
    pub overcommit_percent: u64,
    /// How long a caller waits for something to be done; it goes on by itself then.
    pub patience: Duration,
    /// How long a group may be held.
    pub hold: Duration,
    /// For people: where it runs.
    pub host: String,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            beat: Duration::from_secs(1),
            // Five beats: a machine that is only busy misses one or two.
            away_after: Duration::from_secs(5),
            // Longer than a reboot.
            grace: Duration::from_secs(600),
            overcommit_percent: 200,
            // Less than the clients of CSI wait.
            patience: Duration::from_secs(50),
            hold: Duration::from_secs(2),
            host: String::new(),
        }
    }
}

pub struct Controller {
    site: Site,
    books: Arc<Books>,
    pulse: Pulse,
    busy: Arc<Busy>,
    worries: Mutex<Worries>,
    chronicle: Mutex<Chronicle>,
    settings: Settings,
    generation: u64,
    since_ms: u64,
}

/// A controller that runs; it stops when this is dropped.
pub struct Running {
    pub controller: Arc<Controller>,
    _tasks: JoinSet<()>,
}

/// The one object of its kind.
const CONTROLLER: &str = "controller";

/// Takes the site over: from now on nodes obey no earlier controller.
pub async fn begin(
    catalog: &str,
    identity: Option<Identity>,
    settings: Settings,
    faults: Faults,
) -> Result<Running, StepError> {
    let site = Site::new(catalog, identity)?;
    let since_ms = now_ms();
    let generation = succeed(&site, &settings.host, since_ms).await?;
    let books = Arc::new(Books::default());
    let told = Arc::clone(&books);
    let site = site.controlled(generation, faults, Some(Arc::new(move |it| told.put(it))));
    let watch = site.client().watch(v1::Kind::Unspecified, None);
    let mut changes = books.changes();
    let mut tasks = JoinSet::new();
    tasks.spawn(Arc::clone(&books).follow(watch));
    // Nothing is answered for before everything is known.
    let known = changes.wait_for(|count| *count > 0).await;
    known.expect("the books outlive whoever reads them");
    let controller = Arc::new(Controller {
        site,
        books,
        pulse: Pulse::new(settings.away_after),
        busy: Arc::default(),
        worries: Mutex::default(),
        chronicle: Mutex::default(),
        settings,
        generation,
        since_ms,
    });
    tasks.spawn(beats::ask_all(Arc::clone(&controller)));
    tasks.spawn(care::take(Arc::clone(&controller)));
    Ok(Running { controller, _tasks: tasks })
}

/// The generation that this controller has, and nobody else.
async fn succeed(site: &Site, host: &str, since_ms: u64) -> Result<u64, StepError> {
    let key = v1::Key { kind: v1::Kind::Controller.into(), name: CONTROLLER.into() };
    loop {
        let present = site.client().get(&key).await?;
        let version = present.as_ref().map_or(0, |object| object.version);
        let body = present.as_ref().and_then(|object| object.body.as_ref());
        let last = body.and_then(v1::Controller::of).map_or(0, |last| last.generation);
        // Above what nodes may have heard before a backup of the catalog was restored.
        let generation = since_ms.max(last + 1);
        let next = v1::Controller { generation, host: host.into(), since_ms };
        if let Swapped::Done(_) = site.client().swap(&key, version, next.change()).await? {
            return Ok(generation);
        }
    }
}

type Answer<T> = Result<T, ApiError>;

impl Controller {
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// Whether this controller still is the last.
    fn may_act(&self) -> Answer<()> {
        match self.is_superseded() {
            false => Ok(()),
            true => Err(ApiError::new(
                Code::Unavailable,
                "another controller has taken the site over: ask that one",
            )),
        }
    }

    fn is_superseded(&self) -> bool {
        let last = self.books.get::<v1::Controller>(CONTROLLER);
        last.is_some_and(|last| last.generation > self.generation)
    }

    /// Does something that was asked for, while nobody else works on these objects. It goes on when
    /// whoever asked goes away.
    async fn run<T: Send + 'static>(
        self: &Arc<Self>,
        things: Vec<Thing>,
        work: impl Future<Output = Answer<T>> + Send + 'static,
    ) -> Answer<T> {
        self.may_act()?;
        let claimed = self.busy.claim(&things).await;
        let claim = claimed.map_err(|(kind, name)| ApiError::busy(noun(kind), &name))?;
        // What takes longer than this waits for something that does not come. It is given up as by a
        // crash: care finishes or undoes it, and what else the objects need can be done.
        let limit = 2 * self.settings.patience;
        let task = tokio::spawn(async move {
            let _claim = claim;
            let late = |_| ApiError::new(Code::Unavailable, "it took too long, and was given up");
            tokio::time::timeout(limit, work).await.map_err(late)?
        });
        match tokio::time::timeout(self.settings.patience, task).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(error)) => Err(ApiError::new(Code::Internal, error.to_string())),
            Err(_) => {
                let name = things.first().map_or("", |(_, name)| name);
                let message = format!("`{name}` takes longer, and goes on by itself: ask again");
                Err(ApiError::new(Code::Busy, message))
            }
        }
    }

    fn presence(&self, node: u64) -> Presence {
        self.pulse.presence(node, Instant::now())
    }

    /// Whether each node that the catalog has is here or away.
    fn has_heard_of_all(&self) -> bool {
        let nodes = self.books.all::<v1::Node>();
        nodes.iter().all(|node| self.presence(node.id) != Presence::Unknown)
    }

    /// An object that is about to be changed. Not a volume that nodes know better than the catalog.
    fn find<T: Kept>(&self, id: &str) -> Answer<Known<T>> {
        let found = self.look_up::<T>(id)?;
        if T::KIND == v1::Kind::Volume {
            self.uid_not_lost(found.name(), found.uid())?;
        }
        Ok(found)
    }

    /// An object that is only read.
    fn look_up<T: Kept>(&self, id: &str) -> Answer<Known<T>> {
        match self.books.get(id) {
            Some(found) => Ok(found),
            None if T::KIND == v1::Kind::Volume => {
                self.id_not_lost(id)?;
                Err(ApiError::not_found(T::NOUN, id))
            }
            None => Err(ApiError::not_found(T::NOUN, id)),
        }
    }

    /// Stores an object if the catalog has this version of it; `None`: it has another.
    async fn swap<T: Kept>(&self, version: u64, body: T) -> Answer<Option<v1::Object>> {
        let key = v1::Key { kind: T::KIND.into(), name: body.name().into() };
        self.swap_to(&key, version, body.change()).await
    }

    async fn remove<T: Kept>(&self, version: u64, name: &str) -> Answer<Option<v1::Object>> {
        let key = v1::Key { kind: T::KIND.into(), name: name.into() };
        let change = v1::swap_request::Change::Delete(v1::Deletion {});
        self.swap_to(&key, version, change).await
    }

    async fn swap_to(
        &self,
        key: &v1::Key,
        version: u64,
        change: v1::swap_request::Change,
    ) -> Answer<Option<v1::Object>> {
        match self.site.client().swap(key, version, change).await? {
            Swapped::Done(object) => {
                self.books.put(&object);
                Ok(Some(object))
            }
            Swapped::Conflict(_) => Ok(None),
        }
    }

    /// The object as the catalog has it now, not as it was told a moment ago.
    async fn fresh<T: Kept>(&self, name: &str) -> Answer<Option<(u64, T)>> {
        let key = v1::Key { kind: T::KIND.into(), name: name.into() };
        let found = self.site.client().get(&key).await?;
        found.iter().for_each(|object| self.books.put(object));
        Ok(found.and_then(|object| {
            let body = object.body.as_ref().and_then(T::of)?.clone();
            Some((object.version, body))
        }))
    }

    /// Changes an object that is there, as often as somebody else is faster.
    async fn edit<T: Kept>(
        &self,
        name: &str,
        uid: &[u8],
        change: impl Fn(&mut T) -> Answer<()>,
    ) -> Answer<T> {
        loop {
            let found = self.fresh::<T>(name).await?.filter(|(_, body)| body.uid() == uid);
            let (version, mut body) = found.ok_or_else(|| ApiError::not_found(T::NOUN, name))?;
            change(&mut body)?;
            if self.swap(version, body.clone()).await?.is_some() {
                return Ok(body);
            }
        }
    }
}

fn noun(kind: v1::Kind) -> &'static str {
    match kind {
        v1::Kind::Volume => v1::Volume::NOUN,
        v1::Kind::Node => v1::Node::NOUN,
        v1::Kind::Snapshot => v1::VolumeSnapshot::NOUN,
        v1::Kind::Group => v1::VolumeGroup::NOUN,
        v1::Kind::GroupSnapshot => v1::VolumeGroupSnapshot::NOUN,
        v1::Kind::Controller => v1::Controller::NOUN,
        v1::Kind::Token => v1::Token::NOUN,
        v1::Kind::Host => v1::Host::NOUN,
        v1::Kind::Unspecified => "object",
    }
}

fn now_ms() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(now.as_millis()).unwrap_or(u64::MAX)
}
