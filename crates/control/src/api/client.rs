//! The calling end of the API: one request, one connection, one answer.
use std::time::Duration;

use certs::{Io, Trust};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Bytes;
use hyper::{Method, Request, StatusCode};
use hyper_util::rt::TokioIo;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::error::{ApiError, Code};
use super::types::{
    Attach, BeginFormat, Capacity, CapacityQuery, Detach, Done, EndFormat, Extents, Group,
    GroupSnapshot, Host, Members, Modify, Move, NewGroup, NewGroupSnapshot, NewHost, NewSnapshot,
    NewStage, NewToken, NewVolume, Node, Page, Pool, Proof, Resize, Rollback, Site, Snapshot,
    Stage, Token, Volume,
};

/// The longest answer that is read: a list of a thousand volumes with all that can be said of them.
const ANSWER_MAX: usize = 64 << 20;
/// The site answers within a minute, if only that it is not done yet.
const PATIENCE: Duration = Duration::from_secs(90);

/// Where the API is, and who asks.
#[derive(Clone)]
pub struct Endpoint {
    /// host:port.
    pub address: String,
    pub token: String,
    /// Whose certificate has to be shown there. `None`: it is on this machine, and speaks plainly.
    pub trust: Option<Trust>,
}

impl std::fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Endpoint").field("address", &self.address).finish_non_exhaustive()
    }
}

#[derive(Clone, Debug)]
pub struct Client {
    endpoint: Endpoint,
}

type Answer<T> = Result<T, ApiError>;

impl Client {
    pub fn new(endpoint: Endpoint) -> Client {
        Client { endpoint }
    }

    pub async fn site(&self) -> Answer<Site> {
        self.get("/v1/site").await
    }

    pub async fn volumes(&self, after: &str, limit: usize) -> Answer<Page<Volume>> {
        self.get(&format!("/v1/volumes?after={}&limit={limit}", quoted(after))).await
    }

    pub async fn volume(&self, id: &str) -> Answer<Volume> {
        self.get(&format!("/v1/volumes/{}", quoted(id))).await
    }

    pub async fn create_volume(&self, wanted: &NewVolume) -> Answer<Volume> {
        self.post("/v1/volumes", wanted).await
    }

    /// Done too if there is none.
    pub async fn delete_volume(&self, id: &str, proof: &Proof) -> Answer<Done> {
        self.post(&format!("/v1/volumes/{}/delete", quoted(id)), proof).await
    }

    pub async fn resize_volume(&self, id: &str, to: &Resize) -> Answer<Volume> {
        self.post(&format!("/v1/volumes/{}/resize", quoted(id)), to).await
    }

    pub async fn modify_volume(&self, id: &str, to: &Modify) -> Answer<Volume> {
        self.post(&format!("/v1/volumes/{}/modify", quoted(id)), to).await
    }

    pub async fn attach_volume(&self, id: &str, to: &Attach) -> Answer<Volume> {
        self.post(&format!("/v1/volumes/{}/attach", quoted(id)), to).await
    }

    /// Done too if it was not attached.
    pub async fn detach_volume(&self, id: &str, from: &Detach) -> Answer<Volume> {
        self.post(&format!("/v1/volumes/{}/detach", quoted(id)), from).await
    }

    /// For a host that has it attached, and nothing of it mounted.
    pub async fn new_stage(&self, id: &str, of: &NewStage) -> Answer<Stage> {
        self.post(&format!("/v1/volumes/{}/stages", quoted(id)), of).await
    }

    /// Answered when the site has noted it durably. `Code::InUse` if the volume has data.
    pub async fn begin_format(&self, id: &str, of: &BeginFormat) -> Answer<Done> {
        self.post(&format!("/v1/volumes/{}/begin-format", quoted(id)), of).await
    }

    /// Done too if none was begun.
    pub async fn end_format(&self, id: &str, of: &EndFormat) -> Answer<Done> {
        self.post(&format!("/v1/volumes/{}/end-format", quoted(id)), of).await
    }

    pub async fn move_volume(&self, id: &str, to: &Move) -> Answer<Volume> {
        self.post(&format!("/v1/volumes/{}/move", quoted(id)), to).await
    }

    pub async fn roll_back_volume(&self, id: &str, to: &Rollback) -> Answer<Volume> {
        self.post(&format!("/v1/volumes/{}/rollback", quoted(id)), to).await
    }

    /// Of all volumes, or of one.
    pub async fn snapshots(
        &self,
        volume: Option<&str>,
        after: &str,
        limit: usize,
    ) -> Answer<Page<Snapshot>> {
        let volume = volume.map(|id| format!("&volume={}", quoted(id))).unwrap_or_default();
        self.get(&format!("/v1/snapshots?after={}&limit={limit}{volume}", quoted(after))).await
    }

    pub async fn snapshot(&self, id: &str) -> Answer<Snapshot> {
        self.get(&format!("/v1/snapshots/{}", quoted(id))).await
    }

    pub async fn create_snapshot(&self, wanted: &NewSnapshot) -> Answer<Snapshot> {
        self.post("/v1/snapshots", wanted).await
    }

    pub async fn delete_snapshot(&self, id: &str, proof: &Proof) -> Answer<Done> {
        self.post(&format!("/v1/snapshots/{}/delete", quoted(id)), proof).await
    }

    /// What a snapshot has, or what changed since `base`, from a byte on.
    pub async fn extents(
        &self,
        id: &str,
        base: Option<&str>,
        from: u64,
        limit: u32,
    ) -> Answer<Extents> {
        let base = base.map(|id| format!("&base={}", quoted(id))).unwrap_or_default();
        let path = format!("/v1/snapshots/{}/extents", quoted(id));
        self.get(&format!("{path}?from={from}&limit={limit}{base}")).await
    }

    pub async fn groups(&self, after: &str, limit: usize) -> Answer<Page<Group>> {
        self.get(&format!("/v1/groups?after={}&limit={limit}", quoted(after))).await
    }

    pub async fn group(&self, id: &str) -> Answer<Group> {
        self.get(&format!("/v1/groups/{}", quoted(id))).await
    }

    pub async fn create_group(&self, wanted: &NewGroup) -> Answer<Group> {
        self.post("/v1/groups", wanted).await
    }

    pub async fn set_members(&self, id: &str, to: &Members) -> Answer<Group> {
        self.post(&format!("/v1/groups/{}/members", quoted(id)), to).await
    }

    /// Its volumes stay.
    pub async fn delete_group(&self, id: &str) -> Answer<Done> {
        self.post(&format!("/v1/groups/{}/delete", quoted(id)), &Proof::default()).await
    }

    pub async fn group_snapshots(&self, after: &str, limit: usize) -> Answer<Page<GroupSnapshot>> {
        self.get(&format!("/v1/group-snapshots?after={}&limit={limit}", quoted(after))).await
    }

    pub async fn group_snapshot(&self, id: &str) -> Answer<GroupSnapshot> {
        self.get(&format!("/v1/group-snapshots/{}", quoted(id))).await
    }

    pub async fn create_group_snapshot(&self, wanted: &NewGroupSnapshot) -> Answer<GroupSnapshot> {
        self.post("/v1/group-snapshots", wanted).await
    }

    pub async fn delete_group_snapshot(&self, id: &str, proof: &Proof) -> Answer<Done> {
        self.post(&format!("/v1/group-snapshots/{}/delete", quoted(id)), proof).await
    }

    pub async fn nodes(&self) -> Answer<Page<Node>> {
        self.get("/v1/nodes").await
    }

    pub async fn node(&self, id: &str) -> Answer<Node> {
        self.get(&format!("/v1/nodes/{}", quoted(id))).await
    }

    /// Whether new replicas may be placed there.
    pub async fn cordon_node(&self, id: &str, cordoned: bool) -> Answer<Node> {
        let word = if cordoned { "cordon" } else { "uncordon" };
        self.post(&format!("/v1/nodes/{}/{word}", quoted(id)), &Proof::default()).await
    }

    /// It is gone for good, and whatever it had.
    pub async fn forget_node(&self, id: &str) -> Answer<Done> {
        self.post(&format!("/v1/nodes/{}/forget", quoted(id)), &Proof::default()).await
    }

    pub async fn hosts(&self) -> Answer<Page<Host>> {
        self.get("/v1/hosts").await
    }

    pub async fn host(&self, id: &str) -> Answer<Host> {
        self.get(&format!("/v1/hosts/{}", quoted(id))).await
    }

    /// Says that it is there; also if it is known.
    pub async fn create_host(&self, host: &NewHost) -> Answer<Host> {
        self.post("/v1/hosts", host).await
    }

    /// Done too if there is none.
    pub async fn delete_host(&self, id: &str) -> Answer<Done> {
        self.post(&format!("/v1/hosts/{}/delete", quoted(id)), &Proof::default()).await
    }

    pub async fn pools(&self) -> Answer<Page<Pool>> {
        self.get("/v1/pools").await
    }

    pub async fn capacity(&self, of: &CapacityQuery) -> Answer<Capacity> {
        self.post("/v1/capacity", of).await
    }

    pub async fn tokens(&self) -> Answer<Page<Token>> {
        self.get("/v1/tokens").await
    }

    pub async fn create_token(&self, wanted: &NewToken) -> Answer<Token> {
        self.post("/v1/tokens", wanted).await
    }

    pub async fn delete_token(&self, name: &str) -> Answer<Done> {
        self.post(&format!("/v1/tokens/{}/delete", quoted(name)), &Proof::default()).await
    }

    async fn get<T: DeserializeOwned>(&self, path: &str) -> Answer<T> {
        self.call(Method::GET, path, Bytes::new()).await
    }

    async fn post<T: DeserializeOwned>(&self, path: &str, body: &impl Serialize) -> Answer<T> {
        let body = serde_json::to_vec(body).map_err(|error| strange(error.to_string()))?;
        self.call(Method::POST, path, body.into()).await
    }

    async fn call<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: Bytes,
    ) -> Answer<T> {
        let answered = tokio::time::timeout(PATIENCE, self.exchange(method, path, body)).await;
        let (status, bytes) = answered.map_err(|_| self.away("it does not answer"))??;
        match status.is_success() {
            true => {
                serde_json::from_slice(&bytes).map_err(|error| strange(format!("{path}: {error}")))
            }
            false => Err(serde_json::from_slice(&bytes).unwrap_or_else(|_| {
                strange(format!("{path}: {status}: is that the API of a site?"))
            })),
        }
    }

    async fn exchange(
        &self,
        method: Method,
        path: &str,
        body: Bytes,
    ) -> Answer<(StatusCode, Bytes)> {
        let away = |error: &dyn std::fmt::Display| self.away(&error.to_string());
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header("host", &self.endpoint.address)
            .header("authorization", format!("Bearer {}", self.endpoint.token))
            .header("content-type", "application/json")
            .body(Full::new(body))
            .map_err(|error| strange(error.to_string()))?;
        let stream = self.connect().await?;
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
            .await
            .map_err(|e| away(&e))?;
        // It ends when the answer was read, or with the error that the answer has too.
        tokio::spawn(connection);
        let answer =
            sender.send_request(request).await.map_err(|error| match error.is_parse() {
                // What a server of TLS answers to plain words is no HTTP.
                true if self.endpoint.trust.is_none() => away(&"it speaks TLS: give its `ca.crt`"),
                _ => away(&error),
            })?;
        let status = answer.status();
        let body = Limited::new(answer.into_body(), ANSWER_MAX).collect().await;
        Ok((status, body.map_err(|error| away(&error))?.to_bytes()))
    }

    async fn connect(&self) -> Answer<Box<dyn Io>> {
        let Endpoint { address, trust, .. } = &self.endpoint;
        certs::http::connect(address, trust.as_ref()).await.map_err(|e| self.away(&e.to_string()))
    }

    fn away(&self, why: &str) -> ApiError {
        let at = &self.endpoint.address;
        ApiError::new(Code::Unavailable, format!("the site at {at} cannot be reached: {why}"))
    }
}

fn strange(why: String) -> ApiError {
    ApiError::new(Code::Internal, format!("the site's answer is not understood: {why}"))
}

/// A part of a path or a query.
fn quoted(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                quoted.push(char::from(byte));
            }
            _ => quoted.push_str(&format!("%{byte:02X}")),
        }
    }
    quoted
}
