//! An API that answers from a table and remembers what it was asked; and a driver over it.
use std::collections::{HashMap, VecDeque};
use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, Method, StatusCode, Uri};
use control::api::{ApiError, Code};
use control::csi::{Host, Machine, Options, Part, Site, serve};
use serde_json::{Value, json};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tonic::transport::{Channel, Endpoint};

pub const TOKEN: &str = "secret-of-the-driver";

/// What was asked: method and path with its query, and the body.
#[derive(Clone, Debug, PartialEq)]
pub struct Asked {
    pub line: String,
    pub body: Value,
}

#[derive(Default)]
struct Table {
    /// By method and path. The last answer stays.
    answers: HashMap<String, VecDeque<(u16, Value)>>,
    asked: Vec<Asked>,
}

#[derive(Clone, Default)]
pub struct FalseApi {
    table: Arc<Mutex<Table>>,
}

impl FalseApi {
    /// Answers `what`, such as `GET /v1/site`, with this from now on, after what was to be answered before.
    pub fn answer(&self, what: &str, with: Value) -> &FalseApi {
        self.put(what, 200, with)
    }

    pub fn refuse(&self, what: &str, with: &ApiError) -> &FalseApi {
        self.forget(what);
        self.put(what, 400, serde_json::to_value(with).unwrap())
    }

    fn put(&self, what: &str, status: u16, with: Value) -> &FalseApi {
        let mut table = self.table.lock().unwrap();
        table.answers.entry(what.into()).or_default().push_back((status, with));
        self
    }

    pub fn forget(&self, what: &str) {
        self.table.lock().unwrap().answers.remove(what);
    }

    /// Everything that was asked since the last time.
    pub fn asked(&self) -> Vec<Asked> {
        std::mem::take(&mut self.table.lock().unwrap().asked)
    }

    pub fn count(&self) -> usize {
        self.table.lock().unwrap().asked.len()
    }

    fn respond(
        &self,
        method: &Method,
        uri: &Uri,
        headers: &HeaderMap,
        body: &[u8],
    ) -> (u16, Value) {
        let mut table = self.table.lock().unwrap();
        let line = format!("{method} {uri}");
        table.asked.push(Asked { line, body: serde_json::from_slice(body).unwrap_or_default() });
        let told = headers.get("authorization").and_then(|value| value.to_str().ok());
        if told != Some(&format!("Bearer {TOKEN}")) {
            let error = ApiError::new(Code::Unauthenticated, "this token is not known");
            return (401, serde_json::to_value(error).unwrap());
        }
        let what = format!("{method} {}", uri.path());
        match table.answers.get_mut(&what) {
            Some(queue) if queue.len() > 1 => queue.pop_front().unwrap(),
            Some(queue) => queue[0].clone(),
            None => (404, serde_json::to_value(ApiError::not_found("thing", uri.path())).unwrap()),
        }
    }

    async fn start(&self) -> String {
        let respond = async |State(api): State<FalseApi>,
                             method: Method,
                             uri: Uri,
                             headers: HeaderMap,
                             body: Bytes| {
            let (status, body) = api.respond(&method, &uri, &headers, &body);
            (StatusCode::from_u16(status).unwrap(), body.to_string())
        };
        let router = Router::new().fallback(respond).with_state(self.clone());
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        address
    }
}

/// Which part of a driver.
#[derive(Clone, Copy, Debug)]
pub enum Mode {
    Controller,
    Node,
    All,
}

/// A driver that runs, and the API behind it.
pub struct Driver {
    pub api: FalseApi,
    pub channel: Channel,
    pub folder: PathBuf,
    stop: Option<oneshot::Sender<()>>,
    ended: Option<JoinHandle<()>>,
}

impl Driver {
    pub async fn start(mode: Mode) -> Driver {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("pollux-driver-{}-{number}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        fs::create_dir(&folder).unwrap();
        fs::write(folder.join("token"), format!("{TOKEN}\n")).unwrap();
        let api = FalseApi::default();
        api.answer("POST /v1/hosts", host());
        let token_file = folder.join("token");
        let site = Site { api: api.start().await, token_file, trust: None };
        let place = [("zone".to_owned(), "a".to_owned())].into();
        let host = Host { name: "worker-1".into(), place };
        // Nothing is attached here: there is nobody who could be reached.
        let state = folder.join("attachments");
        let on_machine = attach::Host { state, program: "/nonexistent".into() };
        let machine = Machine { host: on_machine, way: None, ca: None };
        let part = match mode {
            Mode::Controller => Part::Controller(site),
            Mode::Node => Part::Node(site, host, machine),
            Mode::All => Part::All(site, host, machine),
        };
        let options = Options { part, socket: folder.join("csi.sock") };
        let (stop, stopped) = oneshot::channel::<()>();
        let (is_ready, ready) = oneshot::channel();
        let ended = tokio::spawn(async move {
            let tell = |_: &std::path::Path| is_ready.send(()).map_err(|()| unreachable!());
            let stop = async {
                let _ = stopped.await;
            };
            serve(&options, tell, stop).await.unwrap();
        });
        ready.await.unwrap();
        let endpoint = format!("unix:{}", folder.join("csi.sock").display());
        let channel = Endpoint::from_shared(endpoint).unwrap().connect().await.unwrap();
        Driver { api, channel, folder, stop: Some(stop), ended: Some(ended) }
    }

    pub async fn stop(&mut self) {
        let _ = self.stop.take().unwrap().send(());
        self.ended.take().unwrap().await.unwrap();
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

pub const VOLUME: &str = "00000000000000000000000000000a01";
pub const OTHER: &str = "00000000000000000000000000000a02";
pub const SNAPSHOT: &str = "00000000000000000000000000000b01";
pub const LATER: &str = "00000000000000000000000000000b02";
pub const GROUP: &str = "00000000000000000000000000000c01";

/// What a machine becomes that says that it is there.
fn host() -> Value {
    json!({
        "name": "worker-1", "initiator": "iqn.w", "topology": {}, "createdMs": 1, "seenMs": 1,
    })
}

pub fn volume(uid: &str) -> Value {
    json!({
        "name": "pvc-1", "uid": uid, "title": "pvc-1", "size": 1 << 30, "blockSize": 4096,
        "compression": "off", "replicas": 3, "holdDeadlineMs": 60000, "zvolWorkers": 0,
        "createdMs": 1, "attachedOnly": true,
        "attachments": [
            {"host": "worker-1", "initiator": "iqn.w", "readOnly": false, "sinceMs": 1}
        ],
        "state": {
            "health": "Degraded", "reason": "ReplicaAway", "message": "One is away.",
            "sinceMs": 1, "next": "", "advice": ""
        },
        "target": {
            "node": "node-1", "serving": true, "iqn": "iqn.t", "iscsi": "10.0.0.1:3260", "nbd": ""
        },
    })
}

pub fn snapshot(uid: &str, created_ms: u64) -> Value {
    json!({
        "name": format!("s-{uid}"), "uid": uid, "title": "s", "volume": "pvc-1", "volumeUid": VOLUME,
        "createdMs": created_ms, "ready": true, "size": 1 << 20, "blockSize": 4096,
    })
}

pub fn group_snapshot() -> Value {
    let mut second = snapshot(LATER, 5);
    second["volumeUid"] = OTHER.into();
    json!({
        "name": "g-1", "uid": GROUP, "title": "g-1", "createdMs": 5, "ready": true, "holdUs": 1,
        "snapshots": [snapshot(SNAPSHOT, 5), second],
    })
}
