//! Nodes that meet with certificates: served and got over as without, and strangers stay outside.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on says so by its line")]
use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result, ensure};
use certs::session::{CONTENT_MAX, SEALED_MORE, Session, Sessions};
use certs::tls::Protocol;
use certs::{Authority, Identity, Name, Validity};
use rig::links::Network;
use rig::load::{Load, Plan};
use rig::operator::Operator;
use rig::site::{MIB, Rig, Wires, node_name};

const VOLUME: &str = "secret";
const HEALTHY: Duration = Duration::from_secs(60);
/// Longer than any deadline for a greeting.
const REFUSED: Duration = Duration::from_secs(8);

/// A load that goes on whatever strangers do, and a node that dies and comes back under it.
#[test]
fn a_site_with_certificates() {
    site_with_certificates().unwrap();
}

fn site_with_certificates() -> Result<()> {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("peers_tls");
    let mut rig = Rig::start_on(Wires::Tls, &folder, &[256 * MIB; 3], Network::loopback())?;
    let operator = rig.operator()?;
    operator.create(VOLUME, 64 * MIB, 4096, &[1, 2, 3])?;
    let load = Load::start(plan(), rig.finder(VOLUME)?);
    load.wait_acks(100, HEALTHY)?;

    reached(&operator, 2, &[1, 2, 3], "")?;
    rig.kill9(3);
    load.wait_acks(300, HEALTHY)?;
    reached(&operator, 2, &[1, 2], "cannot be connected to")?;
    rig.restart(3)?;
    operator.wait_healthy(VOLUME, 3, HEALTHY)?;
    reached(&operator, 2, &[1, 2, 3], "")?;
    strangers(&mut rig)?;
    another_authority(&mut rig, &operator)?;

    load.wait_acks(100, HEALTHY)?;
    let mut rested = load.rest()?;
    rested.verify()?;
    ensure!(rested.report.errors.is_empty(), "{:?}", rested.report);
    println!("{:?}", rested.report);
    Ok(())
}

/// Which replicas a target on this node would reach, and why not the others. The stream of the target that serves goes on.
fn reached(operator: &Operator, node: u64, expected: &[u64], why: &str) -> Result<()> {
    let told = operator.ask(async |site| {
        let found = site.known(VOLUME).await?;
        let volume = Some(control::steps::reference(&found.volume));
        let request = proto::v1::ReachReplicasRequest { volume, replicas: vec![1, 2, 3] };
        let node = site.node_of_id(node).await?;
        Ok(site.admin(&node)?.reach_replicas(request).await?.into_inner())
    })?;
    ensure!(told.reached == expected, "{told:?}");
    let unreached: Vec<&str> = told.unreached.iter().map(|it| it.reason.as_str()).collect();
    ensure!(unreached.len() == 3 - expected.len(), "{told:?}");
    ensure!(unreached.iter().all(|reason| reason.contains(why)), "{told:?}");
    Ok(())
}

fn plan() -> Plan {
    Plan {
        volume: VOLUME.into(),
        block: 4096,
        first: 0,
        blocks: 4096,
        writers: 4,
        seed: 7,
        rest: Duration::from_millis(2),
    }
}

/// Somebody with a certificate of this authority.
fn sessions(authority: &Authority, name: &Name, protocol: Protocol) -> Result<Sessions> {
    let folder = std::env::temp_dir().join(format!("pollux-stranger-{}", std::process::id()));
    let valid = Validity::of_certificate(SystemTime::now());
    let issued = authority.issue(name, &[], valid)?.write(&folder)?;
    let identity = Identity::load(&issued);
    fs::remove_dir_all(folder)?;
    Ok(Sessions::new(&identity?, protocol))
}

/// A connection to a door, carried by hand.
struct Knock {
    stream: TcpStream,
    session: Session,
}

impl Knock {
    fn at(door: SocketAddr, sessions: &Sessions, whom: &Name) -> Result<Knock> {
        let mut stream = TcpStream::connect(door)?;
        stream.set_read_timeout(Some(REFUSED))?;
        let mut session = sessions.call(whom)?;
        let mut hello = Vec::new();
        session.receive(&mut [], |_| {}, &mut hello)?;
        stream.write_all(&hello)?;
        Ok(Knock { stream, session })
    }

    /// Until the other side has something to say, or ends.
    fn hear(&mut self) -> Result<Vec<u8>> {
        let mut content = Vec::new();
        while content.is_empty() {
            let mut wire = self.session.rest().to_vec();
            let rest = wire.len();
            wire.resize(rest + CONTENT_MAX, 0);
            let got = self.stream.read(&mut wire[rest..])?;
            ensure!(got > 0, "it has closed");
            let mut answer = Vec::new();
            let take = |bytes: &[u8]| content.extend_from_slice(bytes);
            let heard = self.session.receive(&mut wire[..rest + got], take, &mut answer);
            self.stream.write_all(&answer)?;
            heard?;
            if self.session.is_ready() && content.is_empty() && !answer.is_empty() {
                break;
            }
        }
        Ok(content)
    }

    fn say(&mut self, content: &[u8]) -> Result<()> {
        let mut wire = vec![0; content.len() + SEALED_MORE];
        let len = self.session.seal(content, &mut wire)?;
        Ok(self.stream.write_all(&wire[..len])?)
    }
}

/// A call as a node of this number, for a volume that nobody has.
fn call(from: u64) -> Vec<u8> {
    let mut call = b"PLXC".to_vec();
    call.extend([1, 0, 0, 0]);
    call.extend(from.to_le_bytes());
    call.extend([9; 16]);
    call.extend(1_u64.to_le_bytes());
    call.extend([0; 8]);
    call
}

fn strangers(rig: &mut Rig) -> Result<()> {
    let (door, whom) = (rig.peers(1), Name::node(1));
    let ours = Authority::open(&rig.certificates())?;
    let theirs = Authority::make(Validity::of_authority(SystemTime::now()))?;
    let refused = |rig: &mut Rig, words: &[&str]| {
        let line = rig.node(1).wait_log(0, &[&["a peer is refused"], words].concat(), REFUSED)?;
        println!("{line}");
        anyhow::Ok(())
    };

    // One of the site calls as another one.
    let mut impostor = Knock::at(door, &sessions(&ours, &Name::node(3), Protocol::Peer)?, &whom)?;
    impostor.hear()?;
    impostor.say(&call(2))?;
    let told = impostor.hear()?;
    ensure!(told.starts_with(b"PLXA"), "an answer of the protocol: {told:?}");
    refused(rig, &["it calls as node 2, and its certificate is that of node-3"])?;

    // One of the site that is no node.
    let operator = sessions(&ours, &"operator".parse()?, Protocol::Peer)?;
    let mut operator = Knock::at(door, &operator, &whom)?;
    operator.hear()?;
    operator.say(&call(2))?;
    operator.hear()?;
    refused(rig, &["its certificate is that of operator"])?;

    // One of the site at the wrong door.
    let admin = sessions(&ours, &Name::node(2), Protocol::Grpc)?;
    let error = Knock::at(door, &admin, &whom)?.hear().unwrap_err();
    ensure!(error.to_string().contains("NoApplicationProtocol"), "{error}");
    refused(rig, &["protocol"])?;

    // One of another site does not take us, and says so.
    let stranger = sessions(&theirs, &Name::node(2), Protocol::Peer)?;
    let error = Knock::at(door, &stranger, &whom)?.hear().unwrap_err();
    ensure!(error.to_string().contains("UnknownIssuer"), "{error}");
    refused(rig, &["it refuses us (UnknownCA"])?;

    // One without TLS.
    let mut plain = TcpStream::connect(door)?;
    plain.set_read_timeout(Some(REFUSED))?;
    plain.write_all(&call(2))?;
    let mut end = Vec::new();
    let _ = plain.read_to_end(&mut end);
    refused(rig, &["it speaks without TLS"])
}

/// A node whose certificate is of another authority is refused by the one that it takes itself, and the
/// others go on without it.
fn another_authority(rig: &mut Rig, operator: &Operator) -> Result<()> {
    let theirs = Authority::make(Validity::of_authority(SystemTime::now()))?;
    let dir = rig.certificates();
    let valid = Validity::of_certificate(SystemTime::now());
    let elsewhere = rig.folder().join("elsewhere");
    let other = theirs.issue(&Name::node(3), &[], valid)?.write(&elsewhere)?;
    // It trusts the site, and the site does not trust it.
    let (own, kept) = (dir.join(node_name(3)), rig.folder().join("kept"));
    let mut both = fs::read(other.join("ca.crt"))?;
    both.extend(fs::read(own.join("ca.crt"))?);
    fs::write(other.join("ca.crt"), both)?;
    fs::rename(&own, &kept)?;
    fs::rename(&other, &own)?;
    let since = [1, 3].map(|id| rig.node(id).logged());
    rig.restart(3)?;
    let line = rig.node(1).wait_log(
        since[0],
        &["a peer cannot be spoken with", "UnknownIssuer", "node=3"],
        REFUSED,
    )?;
    println!("{line}");
    let line = rig.node(3).wait_log(since[1], &["a peer is refused", "UnknownCA"], REFUSED)?;
    println!("{line}");
    fs::rename(&own, &other)?;
    fs::rename(&kept, &own)?;
    rig.restart(3)?;
    operator.wait_healthy(VOLUME, 3, HEALTHY).context("after its certificate is its own again")?;
    Ok(())
}

/// TLS at a door that is plain is noticed by both sides.
#[test]
fn a_node_without_certificates_among_others() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("peers_plain");
    let mut rig =
        Rig::start_on(Wires::Plain, &folder, &[128 * MIB; 1], Network::loopback()).unwrap();
    let ours = Authority::make(Validity::of_authority(SystemTime::now())).unwrap();
    let sessions = sessions(&ours, &Name::node(2), Protocol::Peer).unwrap();
    let mut knock = Knock::at(rig.peers(1), &sessions, &Name::node(1)).unwrap();
    knock.hear().unwrap_err();
    rig.node(1).wait_log(0, &["a peer is refused", "it speaks TLS"], REFUSED).unwrap();
}
