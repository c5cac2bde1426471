use super::*;

#[test]
fn rows_of_one_operation_code_stand_together_and_are_told_apart() {
    for pair in TABLE.windows(2) {
        let order = |row: &Row| (row.opcode, row.action);
        assert!(order(&pair[0]) < order(&pair[1]));
        let same = pair[0].opcode == pair[1].opcode;
        assert!(!same || (pair[0].action.is_some() && pair[1].action.is_some()));
    }
    for row in TABLE {
        assert!(rows(row.opcode).iter().any(|found| found.action == row.action));
    }
    assert!(rows(0xFF).is_empty());
}

#[test]
fn every_row_is_found_by_its_command_and_refuses_bits_that_it_has_not() {
    for row in TABLE {
        let mut cdb = [0; 16];
        cdb[0] = row.opcode;
        cdb[1] = row.action.unwrap_or(0);
        let (found, op) = find(&cdb).unwrap();
        assert_eq!((found.opcode, found.action), (row.opcode, row.action));
        assert!(op.is_ok(), "{:02X}", row.opcode);
        let last = usize::from(row.len) - 1;
        let mut naca = cdb;
        naca[last] = 4;
        let (_, refused) = find(&naca).unwrap();
        assert_eq!(refused, Err(Sense::cdb_bit(u16::from(row.len) - 1, 2)));
        for at in usize::from(row.len)..16 {
            let mut after = cdb;
            after[at] = 0xFF;
            assert!(find(&after).unwrap().1.is_ok(), "what is behind a CDB is not part of it");
        }
        for (at, bit) in (1..u16::from(row.len)).flat_map(|at| (0..8).map(move |bit| (at, bit))) {
            let byte = usize::from(at);
            let mut wrong = cdb;
            wrong[byte] |= 1 << bit;
            let has = row.mask.to_be_bytes()[byte] & (1 << bit) != 0;
            if !has {
                let refused = find(&wrong).unwrap().1;
                assert_eq!(refused, Err(Sense::cdb_bit(at, bit)), "{:02X}", row.opcode);
            }
        }
    }
}

fn query(options: u8, opcode: u8, action: u16) -> Result<Vec<u8>, Sense> {
    report(&Opcodes { options, opcode, action, timeouts: false })
}

#[test]
fn all_commands_are_reported_with_and_without_timeouts() {
    for (timeouts, len) in [(false, 8), (true, 20)] {
        let all = report(&Opcodes { options: 0, opcode: 0, action: 0, timeouts }).unwrap();
        assert_eq!(all.len(), 4 + TABLE.len() * len);
        assert_eq!(all[..4], long(TABLE.len() * len));
        for (row, told) in TABLE.iter().zip(all[4..].chunks(len)) {
            let flags = u8::from(row.action.is_some()) + 2 * u8::from(timeouts);
            let action = row.action.unwrap_or(0);
            assert_eq!(told[..8], [row.opcode, 0, 0, action, 0, flags, 0, row.len]);
            assert!(!timeouts || told[8..10] == [0, 0x0A]);
        }
    }
}

#[test]
fn one_command_is_reported_with_its_bits() {
    let read = [0, 3, 0, 10, 0x28, 0x1A, 0xFF, 0xFF, 0xFF, 0xFF, 0x1F, 0xFF, 0xFF, 0];
    assert_eq!(query(1, 0x28, 0).unwrap(), read);
    assert_eq!(query(3, 0x28, 0).unwrap(), read);
    let capacity = query(2, 0x9E, 0x10).unwrap();
    assert_eq!(capacity[..6], [0, 3, 0, 16, 0x9E, 0x10]);
    assert_eq!(query(3, 0x9E, 0x10).unwrap(), capacity);
    let with = Opcodes { options: 1, opcode: 0x28, action: 0, timeouts: true };
    let with = report(&with).unwrap();
    assert_eq!((with[1], with.len()), (0x83, 14 + 12));
}

#[test]
fn what_is_not_supported_is_said_so_and_wrong_questions_are_refused() {
    let not_supported = Ok(vec![0, 1, 0, 0]);
    assert_eq!(query(1, 0xFF, 0), not_supported);
    assert_eq!(query(2, 0x9E, 0x1F), not_supported);
    assert_eq!(query(2, 0xFF, 0), not_supported);
    assert_eq!(query(3, 0x9E, 0x1F), not_supported);
    assert_eq!(query(3, 0x28, 1), not_supported);
    for wrong in [query(1, 0x9E, 0x10), query(2, 0x28, 0), query(4, 0x28, 0)] {
        assert_eq!(wrong, Err(Sense::cdb_bit(2, 2)));
    }
}
