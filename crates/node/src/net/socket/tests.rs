//! Protects from bytes that are lost or doubled where the kernel takes a part, plain and with TLS.
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

use block::Data;
use certs::session::Sessions;
use certs::tls::Protocol;
use certs::{Authority, Identity, Validity};

use super::*;

const SCRATCH: usize = 256 << 10;

fn pair() -> (Socket, Socket) {
    let (one, other) = UnixStream::pair().unwrap();
    (Socket::new(Stream::Unix(one)), Socket::new(Stream::Unix(other)))
}

/// Sessions of two nodes of one site.
pub(crate) fn sessions() -> [Sessions; 2] {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let name = format!("pollux-socket-{}-{number}", std::process::id());
    let folder: PathBuf = std::env::temp_dir().join(name);
    let authority = Authority::make(Validity::of_authority(SystemTime::now())).unwrap();
    let made = [1, 2].map(|id| {
        let valid = Validity::of_certificate(SystemTime::now());
        let issued = authority.issue(&Name::node(id), &[], valid).unwrap();
        let identity = Identity::load(&issued.write(&folder).unwrap()).unwrap();
        Sessions::new(&identity, Protocol::Peer)
    });
    std::fs::remove_dir_all(folder).unwrap();
    made
}

fn secure_pair() -> (Socket, Socket) {
    let (one, other) = UnixStream::pair().unwrap();
    let [calling, called] = sessions();
    let (call, accept) = (calling.call(&Name::node(2)).unwrap(), called.accept().unwrap());
    (
        Socket::secured(Stream::Unix(one), call).unwrap(),
        Socket::secured(Stream::Unix(other), accept).unwrap(),
    )
}

/// All that is there, the first of it into the landing; whether it has ended.
fn take_all(socket: &mut Socket, landing: &mut [u8], scratch: usize) -> (usize, Vec<u8>, bool) {
    let (mut landed, mut rest) = (0, Vec::new());
    let mut scratch = vec![0; scratch];
    loop {
        match socket.read(&mut landing[landed..], &mut scratch).unwrap() {
            Got::Bytes { landed: there, scratch: len, .. } => {
                landed += there;
                rest.extend_from_slice(&scratch[..len]);
            }
            Got::Nothing => return (landed, rest, false),
            Got::End => return (landed, rest, true),
        }
    }
}

fn shake_hands(one: &mut Socket, other: &mut Socket) {
    for _ in 0..4 {
        for socket in [&mut *one, &mut *other] {
            socket.flush(&mut vec![0; SCRATCH]).unwrap();
            assert_eq!(take_all(socket, &mut [], SCRATCH), (0, Vec::new(), false));
        }
    }
    assert_eq!(one.peer().unwrap(), Ok(Name::node(2)));
    assert_eq!(other.peer().unwrap(), Ok(Name::node(1)));
}

fn everything_arrives(mut from: Socket, mut to: Socket, scratch: usize) {
    let mut sent = Vec::new();
    for number in 0..400_u32 {
        let len = if number % 50 == 49 { 100_000 } else { number * 7 };
        let bytes: Vec<u8> =
            (0..len).map(|at| u8::try_from((at + number) % 256).unwrap()).collect();
        sent.extend_from_slice(&bytes);
        match number % 3 {
            0 => from.push(Piece::Data(Data::copy_of(&bytes))),
            _ => from.push(Piece::Bytes(bytes)),
        }
    }
    let (mut landing, mut got) = (vec![0; 5000], Vec::new());
    while got.len() < sent.len() {
        from.flush(&mut vec![0; SCRATCH]).unwrap();
        let (landed, rest, _) = take_all(&mut to, &mut landing, scratch);
        got.extend_from_slice(&landing[..landed]);
        got.extend_from_slice(&rest);
    }
    assert!(got == sent);
    assert_eq!(from.queued(), 0);
}

#[test]
fn everything_arrives_in_order_however_the_kernel_cuts_it() {
    let (from, to) = pair();
    everything_arrives(from, to, 1000);
}

#[test]
fn everything_arrives_in_order_with_tls_as_well() {
    for scratch in [100_000, SCRATCH] {
        let (mut from, mut to) = secure_pair();
        shake_hands(&mut from, &mut to);
        everything_arrives(to, from, scratch);
    }
}

#[test]
fn a_payload_under_way_is_filled_first() {
    for is_secure in [false, true] {
        let (mut from, mut to) = if is_secure { secure_pair() } else { pair() };
        if is_secure {
            shake_hands(&mut from, &mut to);
        }
        from.push(Piece::Bytes(vec![1; 300]));
        from.push(Piece::Bytes(vec![2; 50]));
        from.flush(&mut vec![0; SCRATCH]).unwrap();
        let mut landing = [0; 300];
        let (landed, rest, _) = take_all(&mut to, &mut landing, SCRATCH);
        assert_eq!((landed, rest), (300, vec![2; 50]));
        assert_eq!(landing, [1; 300]);
    }
}

/// What was pushed before the handshake leaves by itself when it is over.
#[test]
fn the_first_words_wait_for_the_handshake() {
    let (mut from, mut to) = secure_pair();
    from.push(Piece::Bytes(b"hello".to_vec()));
    let mut got = Vec::new();
    for _ in 0..4 {
        from.flush(&mut vec![0; SCRATCH]).unwrap();
        got.extend(take_all(&mut to, &mut [], SCRATCH).1);
        to.flush(&mut vec![0; SCRATCH]).unwrap();
        take_all(&mut from, &mut [], SCRATCH);
    }
    assert_eq!(got, b"hello");
}

#[test]
fn an_end_is_told() {
    let (from, mut to) = pair();
    drop(from);
    assert_eq!(to.read(&mut [], &mut [0; 10]).unwrap(), Got::End);
}

/// A stream that was cut off without a word ends behind what arrived whole.
#[test]
fn a_stream_that_is_cut_off_loses_nothing_that_arrived() {
    let (mut from, mut to) = secure_pair();
    shake_hands(&mut from, &mut to);
    from.push(Piece::Bytes(vec![5; 20_000]));
    from.flush(&mut vec![0; SCRATCH]).unwrap();
    drop(from);
    assert_eq!(take_all(&mut to, &mut [], SCRATCH), (0, vec![5; 20_000], true));
}

#[test]
fn whoever_speaks_plainly_is_noticed() {
    let (one, other) = UnixStream::pair().unwrap();
    let [_, called] = sessions();
    let mut from = Socket::new(Stream::Unix(one));
    let mut to = Socket::secured(Stream::Unix(other), called.accept().unwrap()).unwrap();
    from.push(Piece::Bytes(b"PLXC and more".to_vec()));
    from.flush(&mut []).unwrap();
    let error = to.read(&mut [], &mut vec![0; SCRATCH]).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::InvalidData);
    assert!(error.to_string().contains("without TLS"), "{error}");
}
