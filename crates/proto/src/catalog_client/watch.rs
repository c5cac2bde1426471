//! A watch that outlives its connections.
use std::time::Duration;

use tokio::sync::mpsc;
use tonic::Streaming;
use tonic::transport::Channel;

use crate::catalog_client::error::CallError;
use crate::catalog_client::progress::Progress;
use crate::v1::catalog_client::CatalogClient;
use crate::v1::{Event, Object, WatchRequest};

/// Between two tries; doubled each time up to the last. A catalog that restarts is back within a second,
/// and a hundred nodes that ask once a second are nothing to it.
const PAUSE: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// News that wait to be taken. When they are not, the catalog waits.
const WAITING_MAX: usize = 64;

/// What a watch tells.
#[derive(Clone, Debug, PartialEq)]
pub enum News {
    /// What follows, up to [`News::Current`], is all there is: whatever is not named again is gone. The
    /// first news, and again if the catalog does not know what this watch has seen.
    Everything,
    /// It was made or changed, or deleted: then it has no body.
    Object(Box<Object>),
    /// Everything up to this revision was told.
    Current { revision: u64 },
    /// What is known may be old. Told once; what follows are news from a new connection.
    Lost { reason: String },
}

/// News from the catalog; ends when it is dropped.
#[derive(Debug)]
pub struct Watch {
    news: mpsc::Receiver<News>,
}

impl Watch {
    pub(super) fn begin(grpc: CatalogClient<Channel>, request: WatchRequest) -> Watch {
        let (told, news) = mpsc::channel(WAITING_MAX);
        let watcher =
            Watcher { grpc, request, progress: Progress::default(), told, is_lost: false };
        tokio::spawn(watcher.go_on());
        Watch { news }
    }

    /// The next news. It can be dropped before it is done, and nothing is lost.
    pub async fn next(&mut self) -> News {
        let news = self.news.recv().await;
        news.expect("a watcher goes on as long as somebody listens")
    }
}

struct Watcher {
    grpc: CatalogClient<Channel>,
    request: WatchRequest,
    progress: Progress,
    told: mpsc::Sender<News>,
    /// The last that was told is that nothing is heard.
    is_lost: bool,
}

/// Why a connection came to its end.
enum End {
    /// Nobody listens any more.
    Dropped,
    Lost(CallError),
}

impl Watcher {
    async fn go_on(mut self) {
        let mut pause = PAUSE;
        loop {
            let End::Lost(error) = self.connection().await else { return };
            if !self.is_lost {
                self.is_lost = true;
                // Nonsense comes again at once, so it is no reason to ask at once.
                pause = if error.may_pass() { PAUSE } else { PAUSE_MAX };
                if self.told.send(News::Lost { reason: error.to_string() }).await.is_err() {
                    return;
                }
            }
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = self.told.closed() => return,
            }
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    /// One connection, from its beginning to its end.
    async fn connection(&mut self) -> End {
        self.request.after = self.progress.connect();
        let told = self.told.clone();
        let mut grpc = self.grpc.clone();
        let opened = tokio::select! {
            opened = grpc.watch(self.request.clone()) => opened,
            () = told.closed() => return End::Dropped,
        };
        let mut events = match opened {
            Ok(events) => events.into_inner(),
            Err(status) => return End::Lost(CallError::from(&status)),
        };
        loop {
            let event = tokio::select! {
                event = next(&mut events) => event,
                () = told.closed() => return End::Dropped,
            };
            let news = match event.and_then(|event| self.make_of(event)) {
                Ok(news) => news,
                Err(error) => return End::Lost(error),
            };
            self.is_lost = false;
            if let Some(news) = news
                && told.send(news).await.is_err()
            {
                return End::Dropped;
            }
        }
    }

    fn make_of(&mut self, event: Event) -> Result<Option<News>, CallError> {
        self.progress.take(event).map_err(|nonsense| {
            self.progress.forget();
            CallError::strange(nonsense.0)
        })
    }
}

async fn next(events: &mut Streaming<Event>) -> Result<Event, CallError> {
    match events.message().await {
        Ok(Some(event)) => Ok(event),
        Ok(None) => Err(CallError::Unreachable { reason: "it ended the watch".into() }),
        Err(status) => Err(CallError::from(&status)),
    }
}
