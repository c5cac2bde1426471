//! Every call of the API in one table: who may, what it takes and gives. The server and the OpenAPI
//! document are made of it.
use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::routing::{MethodRouter, get, post};
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Serialize};

use super::error::ApiError;
use super::extract::{Body, Id, Params};
use super::types::{
    Attach, BeginFormat, Capacity, CapacityQuery, Detach, Done, EndFormat, Extents, Group,
    GroupSnapshot, Host, Members, Modify, Move, NewGroup, NewGroupSnapshot, NewHost, NewSnapshot,
    NewStage, NewToken, NewVolume, Node, Page, Pool, Proof, Resize, Role, Rollback, Site, Snapshot,
    Stage, Token, Volume,
};
use crate::controller::Controller;

pub type Shared = Arc<Controller>;
type Answer<T> = Result<Json<T>, ApiError>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    Get,
    Post,
}

/// One call.
pub struct Route {
    pub verb: Verb,
    pub path: &'static str,
    /// Who may call it: this role, or a higher one.
    pub role: Role,
    pub summary: &'static str,
    /// What it takes: a body, or parameters of the query.
    pub takes: Option<Shape>,
    pub gives: Shape,
    pub serve: MethodRouter<Shared>,
}

/// The schema of a type.
pub type Shape = fn(&mut SchemaGenerator) -> Schema;

fn shape<T: JsonSchema>() -> Shape {
    |generator| generator.subschema_for::<T>()
}

/// A part of a list.
#[derive(Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Part {
    /// Only names behind this one.
    #[serde(default)]
    pub after: String,
    /// At most so many; 0: as many as the site likes.
    #[serde(default)]
    pub limit: usize,
}

#[derive(Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SnapshotPart {
    /// Only snapshots of this volume.
    #[serde(default)]
    pub volume: Option<String>,
    #[serde(default)]
    pub after: String,
    #[serde(default)]
    pub limit: usize,
}

#[derive(Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ExtentPart {
    /// The earlier snapshot that it is compared with.
    #[serde(default)]
    pub base: Option<String>,
    /// Only what is at this byte, or behind it.
    #[serde(default)]
    pub from: u64,
    #[serde(default)]
    pub limit: u32,
}

fn reads<T: JsonSchema>(
    path: &'static str,
    summary: &'static str,
    takes: Option<Shape>,
    serve: MethodRouter<Shared>,
) -> Route {
    let gives = shape::<T>();
    Route { verb: Verb::Get, path, role: Role::Viewer, summary, takes, gives, serve }
}

fn writes<B: JsonSchema, T: JsonSchema>(
    path: &'static str,
    summary: &'static str,
    serve: MethodRouter<Shared>,
) -> Route {
    let (takes, gives) = (Some(shape::<B>()), shape::<T>());
    Route { verb: Verb::Post, path, role: Role::Editor, summary, takes, gives, serve }
}

fn admin(route: Route) -> Route {
    Route { role: Role::Admin, ..route }
}

fn viewer(route: Route) -> Route {
    Route { role: Role::Viewer, ..route }
}

/// All calls.
pub fn table() -> Vec<Route> {
    let mut all = site();
    all.extend(hosts());
    all.extend(volumes());
    all.extend(snapshots());
    all.extend(groups());
    all
}

/// An answer of what is in memory.
macro_rules! seen {
    (|$site:ident $(, $arg:ident : $type:ty)*| $answer:expr) => {
        get(async |State($site): State<Shared> $(, $arg: $type)*| -> Answer<_> { Ok(Json($answer)) })
    };
}

/// Something that is done.
macro_rules! done {
    (|$site:ident, $($arg:pat_param => $type:ty),+| $answer:expr) => {
        post(async |State($site): State<Shared>, $($arg: $type),+| -> Answer<_> {
            Ok(Json($answer.await?))
        })
    };
}

fn site() -> Vec<Route> {
    vec![
        reads::<Site>("/v1/site", "Who controls the site", None, seen!(|site| site.site())),
        reads::<Page<Node>>("/v1/nodes", "All nodes", None, seen!(|site| site.nodes())),
        reads::<Node>("/v1/nodes/{id}", "A node", None, seen!(|site, id: Id| site.node(&id.0)?)),
        admin(writes::<Done, Node>(
            "/v1/nodes/{id}/cordon",
            "No new replicas are placed on the node",
            done!(|site, Id(id) => Id| site.cordon_node(&id, true)),
        )),
        admin(writes::<Done, Node>(
            "/v1/nodes/{id}/uncordon",
            "New replicas may be placed on the node",
            done!(|site, Id(id) => Id| site.cordon_node(&id, false)),
        )),
        admin(writes::<Done, Done>(
            "/v1/nodes/{id}/forget",
            "The node is gone for good, and whatever it had",
            done!(|site, Id(id) => Id| site.forget_node(&id)),
        )),
        reads::<Page<Pool>>("/v1/pools", "All pools", None, seen!(|site| site.pools())),
        viewer(writes::<CapacityQuery, Capacity>(
            "/v1/capacity",
            "How much room there is",
            post(async |State(site): State<Shared>, Body(of): Body<CapacityQuery>| -> Answer<_> {
                Ok(Json(site.capacity(&of)?))
            }),
        )),
        admin(reads::<Page<Token>>("/v1/tokens", "All tokens", None, seen!(|site| site.tokens()))),
        admin(writes::<NewToken, Token>(
            "/v1/tokens",
            "Makes a token, and shows it this once",
            done!(|site, Body(asked) => Body<NewToken>| site.create_token(asked)),
        )),
        admin(writes::<Done, Done>(
            "/v1/tokens/{id}/delete",
            "The token is worth nothing any more",
            done!(|site, Id(id) => Id| site.delete_token(&id)),
        )),
    ]
}

fn hosts() -> Vec<Route> {
    vec![
        reads::<Page<Host>>(
            "/v1/hosts",
            "All hosts that are no nodes",
            None,
            seen!(|site| site.hosts()),
        ),
        writes::<NewHost, Host>(
            "/v1/hosts",
            "A host says that it is there",
            done!(|site, Body(asked) => Body<NewHost>| site.create_host(asked)),
        ),
        reads::<Host>("/v1/hosts/{id}", "A host", None, seen!(|site, id: Id| site.host(&id.0)?)),
        writes::<Done, Done>(
            "/v1/hosts/{id}/delete",
            "Forgets a host to which nothing is attached",
            done!(|site, Id(id) => Id| site.delete_host(&id)),
        ),
    ]
}

fn volumes() -> Vec<Route> {
    vec![
        reads::<Page<Volume>>(
            "/v1/volumes",
            "Volumes, in the order of their names",
            Some(shape::<Part>()),
            seen!(|site, part: Params<Part>| site.volumes(&part.0.after, part.0.limit)),
        ),
        writes::<NewVolume, Volume>(
            "/v1/volumes",
            "Makes a volume, and answers when it is served",
            done!(|site, Body(asked) => Body<NewVolume>| site.create_volume(asked)),
        ),
        reads::<Volume>(
            "/v1/volumes/{id}",
            "A volume",
            None,
            seen!(|site, id: Id| site.volume(&id.0)?),
        ),
        writes::<Proof, Done>(
            "/v1/volumes/{id}/delete",
            "Deletes a volume and its content",
            done!(|site, Id(id) => Id, Body(proof) => Body<Proof>| site.delete_volume(&id, proof)),
        ),
        writes::<Resize, Volume>(
            "/v1/volumes/{id}/resize",
            "Grows a volume",
            done!(|site, Id(id) => Id, Body(to) => Body<Resize>| site.resize_volume(&id, to)),
        ),
        writes::<Modify, Volume>(
            "/v1/volumes/{id}/modify",
            "Changes what can be changed; the site follows",
            done!(|site, Id(id) => Id, Body(to) => Body<Modify>| site.modify_volume(&id, to)),
        ),
        writes::<Attach, Volume>(
            "/v1/volumes/{id}/attach",
            "Lets a host use a volume",
            done!(|site, Id(id) => Id, Body(to) => Body<Attach>| site.attach_volume(&id, to)),
        ),
        writes::<Detach, Volume>(
            "/v1/volumes/{id}/detach",
            "Lets a host, or all of them, use a volume no more",
            done!(|site, Id(id) => Id, Body(from) => Body<Detach>| site.detach_volume(&id, from)),
        ),
        writes::<NewStage, Stage>(
            "/v1/volumes/{id}/stages",
            "Numbers a new use of a volume, by a host that it is attached to",
            done!(|site, Id(id) => Id, Body(of) => Body<NewStage>| site.new_stage(&id, of)),
        ),
        writes::<BeginFormat, Done>(
            "/v1/volumes/{id}/begin-format",
            "Notes that a host makes a file system; refused if the volume has data",
            done!(|site, Id(id) => Id, Body(of) => Body<BeginFormat>| site.begin_format(&id, of)),
        ),
        writes::<EndFormat, Done>(
            "/v1/volumes/{id}/end-format",
            "The file system is made, or the volume is used in another way",
            done!(|site, Id(id) => Id, Body(of) => Body<EndFormat>| site.end_format(&id, of)),
        ),
        writes::<Move, Volume>(
            "/v1/volumes/{id}/move",
            "Has another node serve a volume",
            done!(|site, Id(id) => Id, Body(to) => Body<Move>| site.move_volume(&id, to)),
        ),
        writes::<Rollback, Volume>(
            "/v1/volumes/{id}/rollback",
            "Takes a volume back to a snapshot of it",
            done!(|site, Id(id) => Id, Body(to) => Body<Rollback>| site.roll_back_volume(&id, to)),
        ),
    ]
}

fn snapshots() -> Vec<Route> {
    vec![
        reads::<Page<Snapshot>>(
            "/v1/snapshots",
            "Snapshots, in the order of their names",
            Some(shape::<SnapshotPart>()),
            seen!(|site, part: Params<SnapshotPart>| {
                let SnapshotPart { volume, after, limit } = &part.0;
                site.snapshots(volume.as_deref(), after, *limit)
            }),
        ),
        writes::<NewSnapshot, Snapshot>(
            "/v1/snapshots",
            "Takes a snapshot of a volume",
            done!(|site, Body(asked) => Body<NewSnapshot>| site.create_snapshot(asked)),
        ),
        reads::<Snapshot>(
            "/v1/snapshots/{id}",
            "A snapshot",
            None,
            seen!(|site, id: Id| site.snapshot(&id.0)?),
        ),
        writes::<Proof, Done>(
            "/v1/snapshots/{id}/delete",
            "Deletes a snapshot",
            done!(|site, Id(id) => Id, Body(proof) => Body<Proof>| site.delete_snapshot(&id, proof)),
        ),
        reads::<Extents>(
            "/v1/snapshots/{id}/extents",
            "What a snapshot has, or what changed since an earlier one",
            Some(shape::<ExtentPart>()),
            get(
                async |State(site): State<Shared>,
                       Id(id): Id,
                       Params(part): Params<ExtentPart>|
                       -> Answer<_> {
                    let ExtentPart { base, from, limit } = part;
                    Ok(Json(site.extents(&id, base.as_deref(), from, limit).await?))
                },
            ),
        ),
    ]
}

fn groups() -> Vec<Route> {
    vec![
        reads::<Page<Group>>(
            "/v1/groups",
            "Groups, in the order of their names",
            Some(shape::<Part>()),
            seen!(|site, part: Params<Part>| site.groups(&part.0.after, part.0.limit)),
        ),
        writes::<NewGroup, Group>(
            "/v1/groups",
            "Makes a group of volumes",
            done!(|site, Body(asked) => Body<NewGroup>| site.create_group(asked)),
        ),
        reads::<Group>(
            "/v1/groups/{id}",
            "A group",
            None,
            seen!(|site, id: Id| site.group(&id.0)?),
        ),
        writes::<Members, Group>(
            "/v1/groups/{id}/members",
            "Says which volumes are in a group",
            done!(|site, Id(id) => Id, Body(to) => Body<Members>| site.set_members(&id, to)),
        ),
        writes::<Done, Done>(
            "/v1/groups/{id}/delete",
            "Deletes a group; its volumes stay",
            done!(|site, Id(id) => Id| site.delete_group(&id)),
        ),
        reads::<Page<GroupSnapshot>>(
            "/v1/group-snapshots",
            "Group snapshots, in the order of their names",
            Some(shape::<Part>()),
            seen!(|site, part: Params<Part>| site.group_snapshots(&part.0.after, part.0.limit)),
        ),
        writes::<NewGroupSnapshot, GroupSnapshot>(
            "/v1/group-snapshots",
            "Takes a snapshot of several volumes at one moment",
            done!(|site, Body(asked) => Body<NewGroupSnapshot>| site.create_group_snapshot(asked)),
        ),
        reads::<GroupSnapshot>(
            "/v1/group-snapshots/{id}",
            "A group snapshot",
            None,
            seen!(|site, id: Id| site.group_snapshot(&id.0)?),
        ),
        writes::<Proof, Done>(
            "/v1/group-snapshots/{id}/delete",
            "Deletes a group snapshot and all its parts",
            done!(|site, Id(id) => Id, Body(proof) => Body<Proof>| site.delete_group_snapshot(&id, proof)),
        ),
    ]
}
