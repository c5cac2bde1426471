//! Protects from content that is lost, doubled or read by others, however the wire is cut.
use rustls::crypto::CryptoProvider;
use rustls::{CipherSuiteCommon, SupportedCipherSuite, Tls13CipherSuite};

use super::*;
use crate::provider::provider;
use crate::scratch::{Scratch, authority, issue};

/// Both ends, and what each has got.
struct Pair {
    ends: [Session; 2],
    /// On the way to each.
    wires: [Vec<u8>; 2],
    got: [Vec<u8>; 2],
    cut: usize,
}

fn sessions() -> (Sessions, Sessions) {
    let (authority, scratch) = (authority(), Scratch::new());
    let of = |id| {
        let folder = issue(&authority, &Name::node(id), scratch.path());
        Sessions::new(&Identity::load(&folder).unwrap(), Protocol::Peer)
    };
    (of(1), of(2))
}

impl Pair {
    fn new(one: &Sessions, two: &Sessions, cut: usize) -> Pair {
        let ends = [one.call(&Name::node(2)).unwrap(), two.accept().unwrap()];
        let mut pair = Pair { ends, wires: [vec![], vec![]], got: [vec![], vec![]], cut };
        pair.ends[0].receive(&mut [], |_| {}, &mut pair.wires[1]).unwrap();
        pair
    }

    /// Carries everything that is on its way.
    fn carry(&mut self) -> Result<(), SessionError> {
        while let Some(to) = (0..2).find(|to| !self.wires[*to].is_empty()) {
            let all = std::mem::take(&mut self.wires[to]);
            for part in all.chunks(self.cut) {
                let mut wire = [self.ends[to].rest(), part].concat();
                let got = &mut self.got[to];
                let take = |content: &[u8]| got.extend_from_slice(content);
                self.ends[to].receive(&mut wire, take, &mut self.wires[1 - to])?;
            }
        }
        Ok(())
    }

    fn send(&mut self, from: usize, content: &[u8]) {
        let mut wire = vec![0; content.len() + SEALED_MORE];
        let len = self.ends[from].seal(content, &mut wire).unwrap();
        self.wires[1 - from].extend_from_slice(&wire[..len]);
    }
}

#[test]
fn content_arrives_in_order_however_the_wire_is_cut() {
    let (one, two) = sessions();
    for cut in [1, 3, 100, 4096, usize::MAX] {
        let mut pair = Pair::new(&one, &two, cut);
        pair.carry().unwrap();
        assert!(pair.ends.iter().all(Session::is_ready));
        assert_eq!(pair.ends[0].peer(), Ok(Name::node(2)));
        assert_eq!(pair.ends[1].peer(), Ok(Name::node(1)));
        let mut sent = [Vec::new(), Vec::new()];
        for number in 0..40_usize {
            let content = vec![u8::try_from(number).unwrap(); number * 400 + 1];
            pair.send(number % 2, &content);
            sent[1 - number % 2].extend_from_slice(&content);
        }
        pair.carry().unwrap();
        assert!(pair.got == sent, "cut at {cut}");
    }
}

/// Protects from a stream that ends, or goes on with worn keys, after so many records.
#[test]
fn keys_change_by_themselves_in_a_long_stream() {
    let (authority, scratch) = (authority(), Scratch::new());
    let of = |id| {
        let folder = issue(&authority, &Name::node(id), scratch.path());
        let identity = Identity::load(&folder).unwrap();
        let client = tls::client_by(&identity, Protocol::Peer, soon_worn());
        Sessions { client, server: tls::server_by(&identity, Protocol::Peer, soon_worn()) }
    };
    let mut pair = Pair::new(&of(1), &of(2), 1000);
    pair.carry().unwrap();
    for _ in 0..1000 {
        pair.send(0, &[7; 100]);
        pair.send(1, &[8; 100]);
        pair.carry().unwrap();
    }
    assert_eq!(pair.got, [vec![8; 100_000], vec![7; 100_000]]);
}

/// Keys are good for 16 records.
fn soon_worn() -> Arc<CryptoProvider> {
    let suites = provider().cipher_suites.clone();
    let suite = suites.iter().find_map(SupportedCipherSuite::tls13).unwrap();
    let suite = Tls13CipherSuite {
        common: CipherSuiteCommon {
            suite: suite.common.suite,
            hash_provider: suite.common.hash_provider,
            confidentiality_limit: 16,
        },
        hkdf_provider: suite.hkdf_provider,
        aead_alg: suite.aead_alg,
        quic: None,
    };
    let cipher_suites = vec![SupportedCipherSuite::Tls13(Box::leak(Box::new(suite)))];
    Arc::new(CryptoProvider { cipher_suites, ..(*provider()).clone() })
}

#[test]
fn a_caller_who_is_refused_is_told_why() {
    let (one, _) = sessions();
    let (_, stranger) = sessions();
    let mut pair = Pair::new(&one, &stranger, usize::MAX);
    let error = pair.carry().unwrap_err();
    assert!(error.to_string().contains("UnknownIssuer"), "{error}");
    let error = pair.carry().unwrap_err();
    assert!(matches!(error, SessionError::Refused(AlertDescription::UnknownCA)), "{error}");
}

#[test]
fn nothing_is_sealed_before_the_handshake_is_over() {
    let (one, _) = sessions();
    let mut session = one.call(&Name::node(2)).unwrap();
    session.receive(&mut [], |_| {}, &mut Vec::new()).unwrap();
    assert!(session.seal(b"content", &mut [0; 200]).is_err());
}

/// Protects from memory that whoever has proved nothing can have for the asking.
#[test]
fn a_message_without_end_is_not_collected() {
    let (one, _) = sessions();
    let mut session = one.accept().unwrap();
    // A ClientHello of 16 MiB, in records of 16 KiB.
    let mut record = vec![22, 3, 1, 0x40, 0, 1, 0xff, 0xff, 0xff];
    record.resize(5 + 0x4000, 0);
    let mut got = Ok(Received::Open);
    for _ in 0..4 {
        let mut wire = [session.rest(), &record].concat();
        got = session.receive(&mut wire, |_| {}, &mut Vec::new());
        if got.is_err() {
            break;
        }
    }
    assert!(got.is_err());
}

/// Protects from a process that ends over what a stranger sends, or that trusts a session after it failed.
#[test]
fn garbage_fails_a_session_for_good() {
    let (one, two) = sessions();
    for garbage in
        [&b"PLXA no TLS at all"[..], &[22, 3, 3, 0, 4, 9, 9, 9, 9], &[21, 3, 3, 0, 2, 2, 40]]
    {
        for mut session in [one.call(&Name::node(2)).unwrap(), two.accept().unwrap()] {
            session.receive(&mut [], |_| {}, &mut Vec::new()).unwrap();
            let mut answer = Vec::new();
            session.receive(&mut garbage.to_vec(), |_| {}, &mut answer).unwrap_err();
            assert!(answer.is_empty() || answer[0] == 21, "an alert");
            let again = session.receive(&mut garbage.to_vec(), |_| {}, &mut answer);
            assert!(matches!(again, Err(SessionError::Failed)));
            assert!(!session.is_ready() && session.seal(b"content", &mut [0; 200]).is_err());
        }
    }
    // In the middle of a session.
    let mut pair = Pair::new(&one, &two, usize::MAX);
    pair.carry().unwrap();
    pair.send(0, &[1; 100]);
    pair.wires[1][20] ^= 1;
    pair.carry().unwrap_err();
    assert!(pair.got[1].is_empty() && !pair.ends[1].is_ready());
}
