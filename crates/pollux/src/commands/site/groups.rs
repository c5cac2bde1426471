//! `pollux group`.
use anyhow::Result;
use comfy_table::Table;
use control::api::Client;
use control::api::types::{
    Group as Found, GroupSnapshot as FoundSnapshot, Members, NewGroup, NewGroupSnapshot, Proof,
};
use serde::Serialize;

use super::{PAGE, credential, deleted, or_dash, snapshots, yes_no};
use crate::cli::site::{Group, GroupSnapshot};
use crate::clock;
use crate::render::{self, Answer, Output};

pub async fn run(client: &Client, command: Group, output: Output) -> Result<()> {
    match command {
        Group::List => {
            let all = super::all(async |after| client.groups(&after, PAGE).await).await?;
            render::show(&Rows(all), output)
        }
        Group::Get { name } => show(client.group(&name).await?, output),
        Group::Create { name, volumes } => {
            let wanted = NewGroup { name, members: volumes, ..NewGroup::default() };
            show(client.create_group(&wanted).await?, output)
        }
        Group::Delete { name } => {
            client.group(&name).await?;
            client.delete_group(&name).await?;
            deleted(name, output)
        }
        Group::Members { name, volumes, add, remove } => {
            let members = match volumes.is_empty() {
                true => changed(&client.group(&name).await?, add, &remove),
                false => volumes,
            };
            show(client.set_members(&name, &Members { members }).await?, output)
        }
        Group::Snapshot(command) => run_snapshot(client, command, output).await,
    }
}

/// By uid where somebody is in already: a name may be another's meanwhile.
fn changed(group: &Found, add: Vec<String>, remove: &[String]) -> Vec<String> {
    let goes = |name: &String, uid: &String| remove.contains(name) || remove.contains(uid);
    let stay = group.members.iter().filter(|it| !goes(&it.name, &it.uid));
    let mut members: Vec<String> = stay.clone().map(|it| it.uid.clone()).collect();
    let is_in = |id: &String| stay.clone().any(|it| it.name == *id || it.uid == *id);
    members.extend(add.into_iter().filter(|id| !is_in(id)));
    members
}

async fn run_snapshot(client: &Client, command: GroupSnapshot, output: Output) -> Result<()> {
    match command {
        GroupSnapshot::List => {
            let all = super::all(async |after| client.group_snapshots(&after, PAGE).await).await?;
            render::show(&SnapshotRows(all), output)
        }
        GroupSnapshot::Get { name } => {
            render::show(&OneSnapshot(client.group_snapshot(&name).await?), output)
        }
        GroupSnapshot::Create { name, group, volumes, chap } => {
            let credential = credential(&chap)?;
            let wanted = NewGroupSnapshot {
                name,
                group,
                volumes,
                credential,
                ..NewGroupSnapshot::default()
            };
            render::show(&OneSnapshot(client.create_group_snapshot(&wanted).await?), output)
        }
        GroupSnapshot::Delete { name, chap } => {
            client.group_snapshot(&name).await?;
            client.delete_group_snapshot(&name, &Proof { credential: credential(&chap)? }).await?;
            deleted(name, output)
        }
    }
}

fn show(group: Found, output: Output) -> Result<()> {
    render::show(&One(group), output)
}

#[derive(Debug, Serialize)]
#[serde(transparent)]
struct Rows(Vec<Found>);

impl Answer for Rows {
    fn table(&self) -> Table {
        let mut table = render::plain(&["NAME", "VOLUMES", "CREATED"]);
        for it in &self.0 {
            let members: Vec<&str> = it.members.iter().map(|it| it.name.as_str()).collect();
            table.add_row([
                it.name.clone(),
                or_dash(&members.join(",")),
                clock::utc(it.created_ms),
            ]);
        }
        table
    }
}

#[derive(Debug, Serialize)]
#[serde(transparent)]
struct One(Found);

impl Answer for One {
    fn table(&self) -> Table {
        Rows(vec![self.0.clone()]).table()
    }
}

#[derive(Debug, Serialize)]
#[serde(transparent)]
struct SnapshotRows(Vec<FoundSnapshot>);

impl Answer for SnapshotRows {
    fn table(&self) -> Table {
        let header = ["NAME", "GROUP", "VOLUMES", "CREATED", "READY", "WRITES WAITED"];
        let mut table = render::plain(&header);
        for it in &self.0 {
            let volumes: Vec<&str> = it.snapshots.iter().map(|it| it.volume.as_str()).collect();
            table.add_row([
                it.name.clone(),
                or_dash(it.group.as_deref().unwrap_or_default()),
                or_dash(&volumes.join(",")),
                clock::utc(it.created_ms),
                yes_no(it.ready),
                format!("{} us", it.hold_us),
            ]);
        }
        table
    }
}

#[derive(Debug, Serialize)]
#[serde(transparent)]
struct OneSnapshot(FoundSnapshot);

impl Answer for OneSnapshot {
    fn table(&self) -> Table {
        SnapshotRows(vec![self.0.clone()]).table()
    }

    fn text(&self) -> String {
        let parts = snapshots::Rows(self.0.snapshots.clone()).table();
        format!("{}\n\n{}", self.table().trim_fmt(), parts.trim_fmt())
    }
}

#[cfg(test)]
mod tests {
    use control::api::types::Reference;

    use super::*;

    #[test]
    fn members_come_and_go_by_name_or_uid() {
        let member = |name: &str| Reference { name: name.into(), uid: format!("uid-{name}") };
        let group = Found {
            name: "shop".into(),
            uid: "1".into(),
            title: "shop".into(),
            created_ms: 0,
            members: vec![member("a"), member("b"), member("c")],
            parameters: [].into(),
        };
        let add = ["d", "a", "uid-c"].map(String::from).to_vec();
        let members = changed(&group, add, &["b".into(), "uid-x".into()]);
        assert_eq!(members, ["uid-a", "uid-c", "d"]);
        assert_eq!(changed(&group, Vec::new(), &["uid-a".into()]), ["uid-b", "uid-c"]);
    }
}
