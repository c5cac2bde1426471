//! Protects from objects that everybody would believe, and that can only be mistakes.
use proto::v1::{
    self, Chap, Deletion, Member, Membership, Node, Place, Quorum, Role, Volume, Voters,
};

use super::*;

fn member(replica: u64) -> Member {
    Member { replica, incarnation: 1 }
}

fn voters(replicas: &[u64]) -> Option<Voters> {
    let members: Vec<Member> = replicas.iter().copied().map(member).collect();
    Some(Voters { rf: u32::try_from(members.len()).unwrap(), members })
}

fn volume() -> Volume {
    let membership = Membership { version: 3, voters: voters(&[1, 2, 3]), next: None };
    let quorum = Quorum {
        grant: 5,
        holder: 1,
        membership: Some(membership),
        desired: vec![member(1), member(2), member(4)],
        role: Role::Primary.into(),
        chosen: false,
    };
    let place = |replica| Place { replica, node: replica, pool: "ssd".into() };
    Volume {
        uid: vec![7; 16],
        name: "db".into(),
        size: 1 << 30,
        block_size: 4096,
        compression: "lz4".into(),
        quorum: Some(quorum),
        places: (1..=4).map(place).collect(),
        ..Volume::default()
    }
}

fn node() -> Node {
    let address = |port: u16| format!("10.0.0.1:{port}");
    Node {
        id: 1,
        name: "alpha".into(),
        peer_address: address(7000),
        admin_address: address(7001),
        iscsi_address: address(3260),
        ..Node::default()
    }
}

fn refused(volume: Volume) -> String {
    let refused = change(Kind::Volume, "db", 1, &Change::Volume(volume));
    refused.expect_err("it must be refused").field
}

/// A volume with one thing changed, and the field that has to be named.
type Case = (&'static str, fn(&mut Volume));

fn quorum(volume: &mut Volume) -> &mut Quorum {
    volume.quorum.as_mut().unwrap()
}

fn membership(volume: &mut Volume) -> &mut Membership {
    quorum(volume).membership.as_mut().unwrap()
}

#[test]
fn what_is_in_order_is_taken() {
    assert_eq!(change(Kind::Volume, "db", 0, &Change::Volume(volume())), Ok(()));
    assert_eq!(change(Kind::Node, "alpha", 0, &Change::Node(node())), Ok(()));
    let mut fresh = volume();
    quorum(&mut fresh).desired.clear();
    *membership(&mut fresh) = Membership::default();
    assert_eq!(change(Kind::Volume, "db", 0, &Change::Volume(fresh)), Ok(()));
    for word in ["off", "on", "gzip", "gzip-1", "gzip-9", "zle", "lzjb"] {
        let volume = Volume { compression: word.into(), ..volume() };
        assert_eq!(change(Kind::Volume, "db", 0, &Change::Volume(volume)), Ok(()), "{word}");
    }
}

#[test]
fn the_field_that_is_wrong_is_named() {
    let cases: [Case; 19] = [
        ("volume.uid", |it| it.uid = vec![1; 15]),
        ("volume.uid", |it| it.uid = vec![0; 16]),
        ("volume.name", |it| it.name = "other".into()),
        ("volume.size", |it| it.size = 0),
        ("volume.size", |it| it.size = 4095),
        ("volume.size", |it| it.size = 1 << 50),
        ("volume.size", |it| (it.size, it.block_size) = (4096, 8192)),
        ("volume.block_size", |it| it.block_size = 0),
        ("volume.block_size", |it| it.block_size = 256),
        ("volume.block_size", |it| it.block_size = 3 << 10),
        ("volume.compression", |it| it.compression = "gzip-10".into()),
        ("volume.compression", |it| it.compression = String::new()),
        ("volume.places[1].replica", |it| it.places[1].replica = 1),
        ("volume.places[1].node", |it| it.places[1].node = 0),
        ("volume.places[1].pool", |it| it.places[1].pool = "SSD".into()),
        ("volume.places[1].pool", |it| it.places[1].node = 1),
        ("volume.hold_deadline_ms", |it| it.hold_deadline_ms = 86_400_001),
        ("volume.zvol_workers", |it| it.zvol_workers = 1025),
        ("volume.allowed_initiators[0]", |it| it.allowed_initiators = vec!["a b".into()]),
    ];
    for (field, change) in cases {
        let mut volume = volume();
        change(&mut volume);
        assert_eq!(refused(volume), field);
    }
}

#[test]
fn a_quorum_that_cannot_be_is_refused() {
    let cases: [Case; 15] = [
        ("volume.quorum", |it| it.quorum = None),
        ("volume.quorum.grant", |it| quorum(it).grant = 1 << 40),
        ("volume.quorum.role", |it| quorum(it).role = 0),
        ("volume.quorum.role", |it| quorum(it).role = 9),
        ("volume.quorum.membership", |it| quorum(it).membership = None),
        ("volume.quorum.membership.version", |it| membership(it).version = 0),
        ("volume.quorum.membership.voters.members", |it| membership(it).voters = None),
        ("volume.quorum.membership.voters.members[2]", |it| {
            membership(it).voters = voters(&[1, 2, 1])
        }),
        ("volume.quorum.membership.voters.members[1]", |it| {
            membership(it).voters = voters(&[1, 9])
        }),
        ("volume.quorum.membership.next.members[0]", |it| membership(it).next = voters(&[0])),
        ("volume.quorum.membership.next.members", |it| membership(it).next = voters(&[])),
        ("volume.quorum.membership.voters.rf", |it| {
            membership(it).voters.as_mut().unwrap().rf = 2;
        }),
        ("volume.quorum.membership.voters.rf", |it| {
            membership(it).voters.as_mut().unwrap().rf = 9;
        }),
        ("volume.quorum.desired[0]", |it| quorum(it).desired[0].incarnation = 0),
        ("volume.quorum.desired", |it| quorum(it).desired = vec![member(1); 9]),
    ];
    for (field, change) in cases {
        let mut volume = volume();
        change(&mut volume);
        assert_eq!(refused(volume), field);
    }
}

#[test]
fn lists_have_a_bound() {
    let mut many = volume();
    many.allowed_initiators = vec!["iqn.2026-01.org:a".into(); 257];
    assert_eq!(refused(many), "volume.allowed_initiators");
    let mut many = volume();
    let place = |replica| Place { replica, node: replica, pool: "ssd".into() };
    many.places = (1..=17).map(place).collect();
    assert_eq!(refused(many), "volume.places");
}

#[test]
fn credentials_are_whole_and_differ() {
    let chap = |user: &str, secret: &str, mutual_user: &str, mutual_secret: &str| {
        let [user, secret, mutual_user, mutual_secret] =
            [user, secret, mutual_user, mutual_secret].map(String::from);
        let chap = Some(Chap { user, secret, mutual_user, mutual_secret });
        change(Kind::Volume, "db", 1, &Change::Volume(Volume { chap, ..volume() }))
    };
    assert_eq!(chap("me", "twelve bytes", "", ""), Ok(()));
    assert_eq!(chap("me", "twelve bytes", "you", "other secret"), Ok(()));
    for (wrong, field) in [
        (chap("", "twelve bytes", "", ""), "volume.chap.user"),
        (chap("me", "short", "", ""), "volume.chap.secret"),
        (chap("me", "twelve bytes", "you", ""), "volume.chap.mutual_secret"),
        (chap("me", "twelve bytes", "", "other secret"), "volume.chap.mutual_user"),
        (chap("me", "twelve bytes", "you", "twelve bytes"), "volume.chap.mutual_secret"),
    ] {
        let wrong = wrong.expect_err(field);
        assert_eq!(wrong.field, field);
        assert!(!wrong.to_string().contains("twelve bytes"), "a secret is never told");
    }
}

/// Protects from a catalog that goes back: replicas that saw more would refuse the volume for good.
#[test]
fn a_quorum_never_goes_back() {
    let cases: [Case; 4] = [
        ("volume.quorum.grant", |it| quorum(it).grant = 4),
        ("volume.quorum.holder", |it| quorum(it).holder = 2),
        ("volume.quorum.membership.version", |it| membership(it).version = 2),
        ("volume.quorum.membership.version", |it| membership(it).voters = voters(&[1, 2])),
    ];
    let mut fixed = vec![
        ("volume.uid", Volume { uid: vec![8; 16], ..volume() }),
        ("volume.block_size", Volume { block_size: 512, ..volume() }),
    ];
    fixed.extend(cases.map(|(field, change)| {
        let mut volume = volume();
        change(&mut volume);
        (field, volume)
    }));
    for (field, new) in fixed {
        let wrong = step(&Body::Volume(volume()), &Body::Volume(new));
        assert_eq!(wrong.expect_err(field).field, field);
    }
    let mut next = volume();
    (quorum(&mut next).grant, quorum(&mut next).holder) = (9, 2);
    (membership(&mut next).version, membership(&mut next).next) = (8, voters(&[1, 2]));
    assert_eq!(step(&Body::Volume(volume()), &Body::Volume(next)), Ok(()));
}

#[test]
fn a_node_has_a_number_and_addresses() {
    for address in ["10.0.0.1", "10.0.0.1:0", ":80", "a b:80", "host:", "host:70000", "host:+8"] {
        let node = Node { peer_address: address.into(), ..node() };
        let wrong = change(Kind::Node, "alpha", 1, &Change::Node(node)).expect_err(address);
        assert_eq!(wrong.field, "node.peer_address");
    }
    for address in ["[fd00::1]:7000", "storage-1.example.org:7000", ""] {
        let node = Node { peer_address: address.into(), ..node() };
        assert_eq!(change(Kind::Node, "alpha", 1, &Change::Node(node)), Ok(()), "{address}");
    }
    let zero = change(Kind::Node, "alpha", 1, &Change::Node(Node { id: 0, ..node() }));
    assert_eq!(zero.expect_err("nobody is 0").field, "node.id");
    let other = step(&Body::Node(node()), &Body::Node(Node { id: 2, ..node() }));
    assert_eq!(other.expect_err("it stays").field, "node.id");
}

#[test]
fn names_and_kinds_are_known() {
    let field = |kind: i32, name: &str| {
        let wrong = key(Some(Key { kind, name: name.into() }));
        wrong.err().map(|wrong| wrong.field)
    };
    let volume = Kind::Volume.into();
    let long = "v".repeat(64);
    for bad in ["", "-a", ".a", "A", "a_b", "a b", "ä", &long] {
        assert_eq!(field(volume, bad).as_deref(), Some("key.name"), "{bad}");
    }
    for good in ["a", "0", "a.b-c", "pvc-0a1b", &long[..63]] {
        assert_eq!(field(volume, good), None, "{good}");
    }
    assert_eq!(field(0, "a").as_deref(), Some("key.kind"));
    assert_eq!(field(77, "a").as_deref(), Some("key.kind"));
    assert_eq!(key(None).expect_err("there is none").field, "key");
}

#[test]
fn a_change_is_of_the_kind_that_its_key_says() {
    let wrong = change(Kind::Node, "db", 1, &Change::Volume(volume()));
    assert_eq!(wrong.expect_err("a volume is no node").field, "volume");
    let wrong = change(Kind::Volume, "alpha", 1, &Change::Node(node()));
    assert_eq!(wrong.expect_err("a node is no volume").field, "node");
    let nothing = change(Kind::Volume, "db", 0, &Change::Delete(Deletion {}));
    assert_eq!(nothing.expect_err("nothing is deleted").field, "expected_version");
}

fn clone() -> Volume {
    let of = v1::VolumeRef { name: "source".into(), uid: vec![8; 16] };
    let origin = v1::Origin {
        volume: Some(of),
        snapshot: vec![9; 16],
        snapshot_name: "monday".into(),
        at: Some(v1::Position { term: 5 << 24 | 3, seq: 70 }),
    };
    Volume { origin: Some(origin), ..volume() }
}

/// Protects from a clone whose history cannot go on, or that is taken for one of another snapshot.
#[test]
fn where_a_clone_begins_makes_sense_and_stays() {
    assert_eq!(change(Kind::Volume, "db", 0, &Change::Volume(clone())), Ok(()));
    fn origin(volume: &mut Volume) -> &mut v1::Origin {
        volume.origin.as_mut().unwrap()
    }
    let cases: [Case; 7] = [
        ("volume.origin.volume.uid", |it| origin(it).volume = None),
        ("volume.origin.volume.uid", |it| origin(it).volume.as_mut().unwrap().uid = vec![7; 16]),
        ("volume.origin.volume.name", |it| origin(it).volume.as_mut().unwrap().name.clear()),
        ("volume.origin.snapshot", |it| origin(it).snapshot.clear()),
        ("volume.origin.snapshot_name", |it| origin(it).snapshot_name.clear()),
        ("volume.origin.at", |it| origin(it).at = None),
        ("volume.quorum.grant", |it| quorum(it).grant = 4),
    ];
    for (field, change) in cases {
        let mut volume = clone();
        change(&mut volume);
        assert_eq!(refused(volume), field);
    }
    let (old, new) = (Body::Volume(clone()), Body::Volume(volume()));
    assert_eq!(step(&old, &new).expect_err("it is fixed").field, "volume.origin");
}

/// Protects from volumes that can never be deleted, and from others that lose their votes.
#[test]
fn only_what_is_deleted_is_without_votes() {
    let mut volume = volume();
    *membership(&mut volume) =
        Membership { version: 4, voters: Some(Voters::default()), next: None };
    quorum(&mut volume).desired.clear();
    assert_eq!(refused(volume.clone()), "volume.quorum.membership.voters.members");
    volume.deleting = true;
    assert_eq!(change(Kind::Volume, "db", 1, &Change::Volume(volume)), Ok(()));
}

fn snapshot() -> v1::VolumeSnapshot {
    v1::VolumeSnapshot {
        uid: vec![3; 16],
        name: "monday".into(),
        volume: Some(v1::VolumeRef { name: "db".into(), uid: vec![7; 16] }),
        ..v1::VolumeSnapshot::default()
    }
}

fn cut() -> v1::VolumeGroupSnapshot {
    let part = v1::GroupCut {
        volume: Some(v1::VolumeRef { name: "db".into(), uid: vec![7; 16] }),
        snapshot_name: "all-1".into(),
        snapshot: vec![4; 16],
        ..v1::GroupCut::default()
    };
    v1::VolumeGroupSnapshot {
        uid: vec![5; 16],
        name: "all".into(),
        cuts: vec![part],
        ..v1::VolumeGroupSnapshot::default()
    }
}

fn field_of(checked: Checked) -> String {
    checked.expect_err("it must be refused").field
}

#[test]
fn a_snapshot_stays_what_it_is() {
    let at = Some(v1::Position { term: 1, seq: 5 });
    let made = v1::VolumeSnapshot { at, size: 4096, ..snapshot() };
    assert_eq!(snapshot::check("monday", &made), Ok(()));
    assert_eq!(snapshot::step(&snapshot(), &made), Ok(()));
    assert_eq!(field_of(snapshot::check("tuesday", &made)), "snapshot.name");
    let empty = v1::VolumeSnapshot { size: 0, ..made.clone() };
    assert_eq!(field_of(snapshot::check("monday", &empty)), "snapshot.size");
    assert_eq!(field_of(snapshot::step(&made, &snapshot())), "snapshot.at");
    let gone = v1::VolumeSnapshot { deleting: true, ..made.clone() };
    assert_eq!(snapshot::step(&made, &gone), Ok(()));
    assert_eq!(field_of(snapshot::step(&gone, &made)), "snapshot.deleting");
}

#[test]
fn a_group_snapshot_is_ready_when_everything_is_cut_and_stays_so() {
    assert_eq!(group::check_snapshot("all", &cut()), Ok(()));
    let early = v1::VolumeGroupSnapshot { ready: true, ..cut() };
    assert_eq!(field_of(group::check_snapshot("all", &early)), "group_snapshot.cuts[0].at");
    let mut whole = early;
    (whole.cuts[0].at, whole.cuts[0].size) = (Some(v1::Position { term: 1, seq: 5 }), 4096);
    assert_eq!(group::check_snapshot("all", &whole), Ok(()));
    assert_eq!(group::step_snapshot(&cut(), &whole), Ok(()));
    assert!(group::step_snapshot(&whole, &cut()).is_err());
    let mut twice = cut();
    twice.cuts.push(twice.cuts[0].clone());
    assert_eq!(field_of(group::check_snapshot("all", &twice)), "group_snapshot.cuts[1]");
    let none = v1::VolumeGroupSnapshot { cuts: Vec::new(), ..cut() };
    assert_eq!(field_of(group::check_snapshot("all", &none)), "group_snapshot.cuts");
}

#[test]
fn generations_of_controllers_only_grow() {
    let reign = |generation| v1::Controller { generation, ..v1::Controller::default() };
    assert_eq!(people::controller("controller", &reign(1)), Ok(()));
    assert_eq!(field_of(people::controller("other", &reign(1))), "key.name");
    assert_eq!(people::succession(&reign(3), &reign(4)), Ok(()));
    assert_eq!(field_of(people::succession(&reign(3), &reign(3))), "controller.generation");
}
