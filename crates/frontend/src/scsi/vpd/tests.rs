use super::*;

fn told(code: u8) -> Vec<u8> {
    let identity = Identity {
        vendor: "POLLUX".into(),
        product: "VOLUME".into(),
        revision: "1".into(),
        iqn: "iqn.2024-01.org.example:db".into(),
        portal_group: 7,
    };
    let disk = Disk { block: 512, blocks: 1 << 21, granule: 8, read_only: false };
    page(code, &identity, b"0123456789abcdef", &disk).unwrap()
}

#[test]
fn every_page_that_is_listed_is_there_in_order() {
    let list = told(0);
    assert_eq!(list, [&[0, 0, 0, 8][..], &PAGES].concat());
    assert!(PAGES.is_sorted());
    for code in PAGES {
        let page = told(code);
        assert_eq!((page[0], page[1]), (0, code));
        assert_eq!(usize::from(u16::from_be_bytes([page[2], page[3]])), page.len() - 4);
    }
}

#[test]
fn the_serial_number_is_the_volume() {
    assert_eq!(&told(0x80)[4..], b"30313233343536373839616263646566");
}

/// The designators: association and kind, and the value.
fn designators() -> Vec<(u8, Vec<u8>)> {
    let page = told(0x83);
    let mut rest = &page[4..];
    let mut found = Vec::new();
    while let [_, kind, 0, len, tail @ ..] = rest {
        let (value, next) = tail.split_at(usize::from(*len));
        found.push((kind & 0x3F, value.to_vec()));
        rest = next;
    }
    assert!(rest.is_empty());
    found
}

#[test]
fn designators_name_unit_port_and_target() {
    let found = designators();
    let kinds: Vec<_> = found.iter().map(|(kind, _)| *kind).collect();
    assert_eq!(kinds, [0x03, 0x01, 0x14, 0x15, 0x18, 0x28]);
    assert_eq!((found[0].1.len(), found[0].1[0] >> 4), (8, 3));
    assert!(found[1].1.starts_with(b"POLLUX  3031"));
    assert!(found[4].1.starts_with(b"iqn.2024-01.org.example:db,t,0x0007\0"));
    assert!(found[5].1.starts_with(b"iqn.2024-01.org.example:db\0"));
    assert!(found.iter().skip(4).all(|(_, value)| value.len() % 4 == 0));
}

#[test]
fn every_bit_of_a_volumes_number_is_in_its_name() {
    let zero = locally_assigned(&[0; 16]);
    let mut names = std::collections::BTreeSet::from([zero]);
    for bit in 0..128 {
        let mut uid = [0; 16];
        uid[bit / 8] = 1 << (bit % 8);
        let name = locally_assigned(&uid);
        assert_eq!(name[0] >> 4, 3);
        names.insert(name);
    }
    assert_eq!(names.len(), 61, "sixty bits, and none at all");
}

#[test]
fn block_limits_are_those_that_commands_are_held_to() {
    let page = told(0xB0);
    assert_eq!(page.len(), 64);
    assert_eq!(page[4..8], [1, 1, 0, 8]);
    assert_eq!(page[8..12], 32768_u32.to_be_bytes());
    assert_eq!(page[20..24], (1_u32 << 20).to_be_bytes());
    assert_eq!(page[24..28], 256_u32.to_be_bytes());
    assert_eq!(page[28..36], [0, 0, 0, 8, 0x80, 0, 0, 0]);
    assert_eq!(page[36..44], 65535_u64.to_be_bytes());
    assert_eq!(page[44..], [0; 20], "no atomic writes");
}

#[test]
fn the_other_pages() {
    assert_eq!(told(0x86)[4..8], [0, 7, 1, 0]);
    assert_eq!(told(0xB1)[4..8], [0, 1, 0, 0]);
    assert_eq!(told(0xB2), [0, 0xB2, 0, 4, 0, 0xE4, 2, 0]);
}
