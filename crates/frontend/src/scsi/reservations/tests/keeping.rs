//! Reservations as the volume keeps them.
use super::*;

fn samples() -> Vec<Reservations> {
    let mut samples = vec![Reservations::default(), Book::of_three().0];
    for kind in [1, 3, 5, 6, 7, 8] {
        let mut book = Book::of_three();
        book.with(2, ReserveOut::Reserve, kind, 0).unwrap();
        samples.push(book.0);
    }
    samples
}

#[test]
fn what_is_kept_is_read_back() {
    for sample in samples() {
        assert_eq!(decode(&encode(&sample)), Ok(sample));
    }
    assert_eq!(decode(&[]), Ok(Reservations::default()));
}

#[test]
fn every_prefix_and_every_suffix_is_refused() {
    for sample in samples() {
        let bytes = encode(&sample);
        for len in 1..bytes.len() {
            assert!(decode(&bytes[..len]).is_err(), "{len} of {}", bytes.len());
        }
        let more = [bytes, vec![0]].concat();
        assert_eq!(decode(&more), Err(BadReservations::Length));
    }
}

#[test]
fn contradictions_are_refused() {
    let good = encode(&samples()[2]);
    let with = |changes: &[(usize, u8)]| {
        let mut bytes = good.clone();
        for (at, byte) in changes {
            bytes[*at] = *byte;
        }
        decode(&bytes)
    };
    assert!(with(&[]).is_ok());
    assert_eq!(with(&[(0, 2)]), Err(BadReservations::Version { found: 2 }));
    for changes in [
        &[(5, 2)][..],
        &[(6, 2)],
        &[(6, 0)],
        &[(8, 3)],
        &[(6, 7)],
        &[(7, 0xFF), (8, 0xFF)],
        &[(18, 0)],
        &[(26, 0xFF)],
    ] {
        let refused = matches!(with(changes), Err(BadReservations::Contradiction { .. }));
        assert!(refused, "{changes:?}: {:?}", with(changes));
    }
    let twice = Reservations {
        registered: vec![Registration { port: port(1), key: Key(1) }; 2],
        ..Reservations::default()
    };
    assert!(decode(&encode(&twice)).is_err());
}

#[test]
fn garbage_is_refused_without_a_panic() {
    let mut state = 0x9E37_79B9_7F4A_7C15_u64;
    for round in 0..20_000_usize {
        let good = encode(&samples()[round % 8]);
        let mut bytes = good.clone();
        for _ in 0..1 + round % 4 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let [a, b, ..] = state.to_be_bytes();
            let at = usize::from(a) * bytes.len() / 256;
            bytes[at] = b;
        }
        if let Ok(read) = decode(&bytes) {
            assert_eq!(encode(&read), bytes, "what is read is what was written");
        }
    }
}
