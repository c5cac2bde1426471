//! Protects from a command line that asks a site for something else than was typed, or hides what it said.
mod false_api;
mod local;

use serde_json::{Value, json};

use false_api::FalseApi;

fn state(health: &str) -> Value {
    json!({
        "health": health, "reason": "ReplicaAway", "message": "node-3 is away", "sinceMs": 1,
        "next": "it catches up when it is back", "advice": "start node-3"
    })
}

fn copy(node: &str, mode: &str, progress: Option<f64>) -> Value {
    let mut copy = json!({
        "replica": 1, "node": node, "pool": "main", "mode": mode, "votes": mode == "Healthy", "lag": 0
    });
    if let Some(progress) = progress {
        copy["progress"] = progress.into();
    }
    copy
}

fn volume(health: &str, third: Value) -> Value {
    json!({
        "name": "db", "uid": "0123", "title": "db", "size": 1 << 30, "blockSize": 4096,
        "compression": "off", "replicas": 3, "holdDeadlineMs": 60000, "zvolWorkers": 0,
        "createdMs": 1, "attachedOnly": false, "state": state(health),
        "target": {
            "node": "node-1", "serving": true, "iqn": "iqn.x:db", "iscsi": "", "nbd": "127.0.0.1:10801"
        },
        "copies": [copy("node-1", "Healthy", None), copy("node-2", "Healthy", None), third]
    })
}

fn degraded() -> Value {
    volume("Degraded", copy("node-3", "Rebuilding", Some(0.25)))
}

fn healthy() -> Value {
    volume("Healthy", copy("node-3", "Healthy", None))
}

#[test]
fn volumes_are_shown_to_people_and_programs() {
    let api = FalseApi::new();
    api.says(
        "GET /v1/volumes?after=&limit=500",
        200,
        json!({ "items": [healthy()], "next": "db" }),
    );
    let mut other = degraded();
    other["name"] = "web".into();
    api.says("GET /v1/volumes?after=db&limit=500", 200, json!({ "items": [other] }));
    let table = api.succeeds(&["volume", "list"]);
    let lines: Vec<&str> = table.lines().map(str::trim).collect();
    assert_eq!(lines.len(), 3, "both parts of the list: {table}");
    assert!(lines[1].starts_with("db") && lines[1].contains("Healthy"), "{table}");
    assert!(lines[2].contains("2 of 3") && lines[2].contains("node-3 is away"), "{table}");
    assert_eq!(api.asked()[0].token, "Bearer open-sesame");

    let said: Value =
        serde_json::from_str(&api.succeeds(&["volume", "list", "-o", "json"])).unwrap();
    let mut expected = healthy();
    // What the site need not say is said here.
    for empty in ["parameters", "accessible", "attachments"] {
        expected[empty] = if empty == "parameters" { json!({}) } else { json!([]) };
    }
    assert_eq!(said[0], expected);
    let yaml = api.succeeds(&["volume", "list", "-o", "yaml"]);
    assert!(yaml.contains("\n  name: web\n") && yaml.contains("node: node-1"), "{yaml}");
}

#[test]
fn what_is_typed_is_what_is_asked_for() {
    let api = FalseApi::new();
    api.says("POST /v1/volumes", 200, healthy());
    let words = "volume create db --size 2GiB --replicas 2 --block-size 8KiB --compression lz4 \
                 --hold-deadline 2m --pool fast --accessible zone=a --spread rack --from-snapshot monday";
    api.succeeds(&words.split_whitespace().collect::<Vec<_>>());
    let body = &api.asked()[0].body;
    let expected = json!({
        "name": "db", "size": 2u64 << 30, "sizeLimit": null, "blockSize": 8192, "compression": "lz4",
        "replicas": 2, "holdDeadlineMs": 120_000, "zvolWorkers": null, "pools": ["fast"],
        "accessible": [{ "zone": "a" }], "preferred": [], "spread": "rack",
        "source": { "kind": "snapshot", "id": "monday" }, "attachedOnly": false, "chap": null,
        "group": null, "parameters": {}
    });
    assert_eq!(*body, expected);
    for (words, what, field, value) in [
        ("volume resize db 3GiB", "resize", "size", json!(3u64 << 30)),
        ("volume scale db 5", "modify", "replicas", json!(5)),
        ("volume attach db --host h1 --shared", "attach", "shared", json!(true)),
        ("volume detach db", "detach", "host", json!("")),
        ("volume move db --to node-2", "move", "node", json!("node-2")),
        ("volume rollback db --to monday", "rollback", "snapshot", json!("monday")),
    ] {
        api.says(&format!("POST /v1/volumes/db/{what}"), 200, healthy());
        api.succeeds(&words.split_whitespace().collect::<Vec<_>>());
        let asked = api.asked().pop().unwrap();
        assert_eq!(asked.what, format!("POST /v1/volumes/db/{what}"));
        assert_eq!(asked.body[field], value, "{words}");
    }
}

#[test]
fn what_the_site_refuses_is_said_in_its_words() {
    let api = FalseApi::new();
    let refusal = json!({ "code": "inUse", "message": "`db` is attached to h1: detach it first" });
    let error = api.fails(&["volume", "delete", "db"]);
    assert_eq!(error, "error: there is no such thing\n", "whoever types a name means something");
    api.says("GET /v1/volumes/db", 200, healthy());
    api.says("POST /v1/volumes/db/delete", 409, refusal);
    let error = api.fails(&["volume", "delete", "db"]);
    assert_eq!(error, "error: `db` is attached to h1: detach it first\n");
    let usage = api.run(&["volume", "modify", "db"]);
    assert_eq!(usage.status.code(), Some(2), "nothing is to be changed");
    let usage = api.run(&["explain", "nonsense", "db"]);
    assert_eq!(usage.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&usage.stderr).contains("write volume, snapshot, node, pool"));
}

#[test]
fn a_site_that_is_away_is_named() {
    let mut api = FalseApi::new();
    api.address = "127.0.0.1:1".into();
    let error = api.fails(&["site"]);
    assert!(error.contains("the site at 127.0.0.1:1 cannot be reached"), "{error}");
}

#[test]
fn whoever_waits_sees_what_goes_on_and_ends_when_it_is_done() {
    let api = FalseApi::new();
    let busy = json!({ "code": "busy", "message": "ask again" });
    api.says("POST /v1/volumes", 503, busy).says("POST /v1/volumes", 200, degraded());
    for said in [degraded(), volume("Degraded", copy("node-3", "Rebuilding", Some(0.9))), healthy()]
    {
        api.says("GET /v1/volumes/db", 200, said);
    }
    let output = api.run(&["volume", "create", "db", "--wait"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let lines = String::from_utf8(output.stderr).unwrap();
    assert_eq!(
        lines, "75 %, db is Degraded: node-3 is away; node-3: Rebuilding; to do: start node-3\n",
        "not a line a look"
    );
    assert!(String::from_utf8_lossy(&output.stdout).contains("Healthy"));

    let api = FalseApi::new();
    api.says("POST /v1/volumes/db/resize", 200, degraded());
    let mut growing = degraded();
    growing["wantedSize"] = (2u64 << 30).into();
    api.says("GET /v1/volumes/db", 200, growing);
    let error = api.fails(&["volume", "resize", "db", "2GiB", "--wait", "--timeout", "1s"]);
    assert!(
        error.contains("not done within 1 second") && error.contains("pollux explain"),
        "{error}"
    );

    let api = FalseApi::new();
    api.says("POST /v1/volumes/db/delete", 200, json!({}));
    api.says("GET /v1/volumes/db", 200, degraded());
    api.says("GET /v1/volumes/db", 404, json!({ "code": "notFound", "message": "gone" }));
    assert_eq!(api.succeeds(&["volume", "delete", "db", "--wait"]), "db is deleted\n");
}

#[test]
fn whatever_has_the_name_is_explained() {
    let api = FalseApi::new();
    api.says("GET /v1/volumes/db", 200, degraded());
    api.says("GET /v1/pools", 200, json!({ "items": [] }));
    let text = api.succeeds(&["explain", "db"]);
    for part in [
        "volume db is Degraded (ReplicaAway): node-3 is away",
        "25 % done",
        "to do      start node-3",
    ] {
        assert!(text.contains(part), "{part:?} is not in {text}");
    }
    let json: Value =
        serde_json::from_str(&api.succeeds(&["explain", "volume", "db", "-o", "json"])).unwrap();
    assert_eq!(
        (&json[0]["kind"], &json[0]["state"]["advice"]),
        (&"volume".into(), &"start node-3".into())
    );
    let error = api.fails(&["explain", "web"]);
    assert!(error.contains("there is no volume, snapshot, node or pool `web`"), "{error}");
    let error = api.fails(&["explain", "node", "db"]);
    assert!(error.contains("there is no node `db`"), "{error}");
}

#[test]
fn the_rest_of_a_site_can_be_asked_for() {
    let api = FalseApi::new();
    let node = json!({
        "name": "node-1", "id": 1, "state": state("Healthy"), "topology": { "zone": "a" }, "cordoned": true,
        "admin": "a:1", "peers": "a:2", "iscsi": "", "nbd": "", "replicas": 3, "targets": 1
    });
    api.says("GET /v1/nodes/node-1", 200, node.clone());
    api.says("GET /v1/nodes", 200, json!({ "items": [node] }));
    assert!(api.succeeds(&["node", "list"]).contains("zone=a"));
    let forgotten = api.fails(&["node", "forget", "node-1"]);
    assert!(forgotten.contains("nothing was changed"), "{forgotten}");
    api.says("POST /v1/nodes/node-1/forget", 200, json!({}));
    assert_eq!(api.succeeds(&["node", "forget", "node-1", "--yes"]), "node-1 is forgotten\n");
    let host = json!({
        "name": "worker-1", "initiator": "iqn.worker-1", "topology": { "zone": "a" }, "createdMs": 1,
        "seenMs": 86_400_001, "volumes": ["db"]
    });
    api.says("GET /v1/hosts", 200, json!({ "items": [host] }));
    api.says("GET /v1/hosts/worker-1", 200, host);
    let hosts = api.succeeds(&["host", "list"]);
    assert!(hosts.contains("worker-1") && hosts.contains("zone=a"), "{hosts}");
    let shown = api.succeeds(&["host", "get", "worker-1"]);
    assert!(shown.contains("iqn.worker-1") && shown.contains("1970-01-02"), "{shown}");
    api.says("POST /v1/hosts/worker-1/delete", 200, json!({}));
    assert_eq!(api.succeeds(&["host", "delete", "worker-1"]), "worker-1 is deleted\n");
    api.says("POST /v1/tokens", 200, json!({
        "name": "ci", "role": "editor", "createdMs": 1, "expiresMs": 86_400_001, "token": "pollux_x"
    }));
    let made = api.succeeds(&["token", "create", "ci", "--role", "editor", "--lasts", "1d"]);
    assert!(made.contains("pollux_x") && made.contains("1970-01-02"), "{made}");
    assert_eq!(api.asked().pop().unwrap().body["lastsSeconds"], 86_400);
    let extents = |offset: u64, next: Option<u64>| {
        let mut part = json!({ "extents": [{ "offset": offset, "len": 4096 }], "size": 1 << 20 });
        if let Some(next) = next {
            part["next"] = next.into();
        }
        part
    };
    api.says(
        "GET /v1/snapshots/tue/extents?from=0&limit=10000&base=mon",
        200,
        extents(0, Some(8192)),
    );
    api.says(
        "GET /v1/snapshots/tue/extents?from=8192&limit=10000&base=mon",
        200,
        extents(8192, None),
    );
    let ranges = api.succeeds(&["snapshot", "extents", "tue", "--since", "mon"]);
    assert_eq!(ranges.lines().count(), 3, "{ranges}");
}

#[test]
fn shells_learn_the_words() {
    let api = FalseApi::new();
    for shell in ["bash", "zsh", "fish"] {
        assert!(api.succeeds(&["completions", shell]).contains("group"), "{shell}");
    }
}
