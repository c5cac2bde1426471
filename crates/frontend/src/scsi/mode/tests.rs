use super::*;
use crate::scsi::sense::Field;

const DISK: Disk = Disk { block: 512, blocks: 2048, granule: 8, read_only: false };

fn query(page: u8, values: Values) -> ModeSense {
    ModeSense { long: false, without_blocks: true, long_blocks: false, values, page, subpage: 0 }
}

fn list(pages: &[&[u8]]) -> Vec<u8> {
    [&[0; 4][..], &pages.concat()].concat()
}

#[test]
fn all_pages_are_each_page_in_turn() {
    let mode = Mode::default();
    for values in [Values::Current, Values::Changeable, Values::Default] {
        let one = |page| sense(&mode, &DISK, &query(page, values)).unwrap()[4..].to_vec();
        assert_eq!(one(ALL), PAGES.map(one).concat());
    }
    let all = sense(&mode, &DISK, &query(ALL, Values::Current)).unwrap();
    assert_eq!(usize::from(all[0]) + 1, all.len());
    assert_eq!(all[1..4], [0, 0x10, 0]);
}

#[test]
fn headers_and_block_descriptors_have_two_lengths_each() {
    let mode = Mode::default();
    let mut ask = ModeSense { without_blocks: false, ..query(CACHING, Values::Current) };
    let short = sense(&mode, &DISK, &ask).unwrap();
    assert_eq!(short[..12], [31, 0, 0x10, 8, 0, 0, 8, 0, 0, 0, 2, 0]);
    ask.long = true;
    let long = sense(&mode, &DISK, &ask).unwrap();
    assert_eq!(long[..8], [0, 34, 0, 0x10, 0, 0, 0, 8]);
    assert_eq!(long[8..], short[4..]);
    ask.long_blocks = true;
    let longer = sense(&mode, &DISK, &ask).unwrap();
    assert_eq!(longer[..8], [0, 42, 0, 0x10, 1, 0, 0, 16]);
    assert_eq!(longer[8..24], [0, 0, 0, 0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0, 2, 0]);
    let large = Disk { blocks: 1 << 33, ..DISK };
    ask.long_blocks = false;
    assert_eq!(sense(&mode, &large, &ask).unwrap()[8..12], [0xFF; 4]);
}

#[test]
fn what_there_is_not_is_refused() {
    let mode = Mode::default();
    let refused = |query| sense(&mode, &DISK, &query).unwrap_err().code;
    assert_eq!(refused(query(ALL, Values::Saved)), Code::SAVING_NOT_SUPPORTED);
    assert_eq!(refused(query(0x05, Values::Current)), Code::INVALID_FIELD_IN_CDB);
    let subpage = ModeSense { subpage: 1, ..query(CONTROL, Values::Current) };
    assert_eq!(refused(subpage), Code::INVALID_FIELD_IN_CDB);
    let all = ModeSense { subpage: 0xFF, ..query(ALL, Values::Current) };
    assert!(sense(&mode, &DISK, &all).is_ok());
}

#[test]
fn every_switch_is_set_and_told() {
    let mode = Mode::default();
    let (mut caching, mut control) = (mode.page(CACHING), mode.page(CONTROL));
    caching[WCE.0] &= !WCE.1;
    for switch in [D_SENSE, SWP, TAS] {
        control[switch.0] |= switch.1;
    }
    let new = parse(mode, &DISK, false, &list(&[&caching, &control])).unwrap();
    let all = Mode {
        write_cache: false,
        descriptor_sense: true,
        write_protected: true,
        tells_aborted: true,
    };
    assert_eq!(new, all);
    let told = sense(&new, &DISK, &query(ALL, Values::Current)).unwrap();
    assert_eq!(told[2], 0x90);
    assert_eq!(parse(mode, &DISK, false, &[&[0; 4], &told[4..]].concat()), Ok(all));
    let back = sense(&new, &DISK, &query(ALL, Values::Default)).unwrap();
    assert_eq!(parse(new, &DISK, false, &[&[0; 4], &back[4..]].concat()), Ok(mode));
}

#[test]
fn nothing_else_may_change() {
    let mode = Mode::default();
    for code in PAGES {
        let (page, free) = (mode.page(code), changeable(code));
        for at in 2..page.len() {
            for bit in 0..8 {
                let mut changed = page.clone();
                changed[at] ^= 1 << bit;
                let result = parse(mode, &DISK, false, &list(&[&changed]));
                if free[at] & (1 << bit) != 0 {
                    assert!(result.is_ok());
                } else {
                    let field = Some(Field::List { byte: u16::try_from(4 + at).unwrap() });
                    assert_eq!(result.unwrap_err().field, field);
                }
            }
        }
    }
}

#[test]
fn block_descriptors_may_say_what_is_so() {
    let mode = Mode::default();
    let with = |blocks: &[u8]| {
        let mut list = vec![0, 0, 0, u8::try_from(blocks.len()).unwrap()];
        list.extend(blocks);
        parse(mode, &DISK, false, &list).map_err(|sense| sense.code)
    };
    for good in
        [[0, 0, 8, 0, 0, 0, 2, 0], [0, 0, 0, 0, 0, 0, 2, 0], [255, 255, 255, 255, 0, 0, 2, 0]]
    {
        assert_eq!(with(&good), Ok(mode));
    }
    for wrong in [&[0, 0, 9, 0, 0, 0, 2, 0][..], &[0, 0, 8, 0, 0, 0, 16, 0], &[0; 4]] {
        assert_eq!(with(wrong), Err(Code::INVALID_FIELD_IN_LIST));
    }
    let mut long = vec![0, 0, 0, 0, 1, 0, 0, 16];
    long.extend(blocks(&DISK, true));
    assert_eq!(parse(mode, &DISK, true, &long), Ok(mode));
}

#[test]
fn lists_that_end_early_or_name_other_pages_are_refused() {
    let mode = Mode::default();
    let good = list(&[&mode.page(CACHING), &mode.page(CONTROL)]);
    for len in 1..good.len() {
        if [4, 24].contains(&len) {
            continue;
        }
        let result = parse(mode, &DISK, false, &good[..len]);
        assert_eq!(result.unwrap_err().code, Code::LIST_LENGTH, "{len}");
    }
    assert_eq!(parse(mode, &DISK, false, &[]), Ok(mode));
    for page in [&[0x05, 0x0A][..], &[0x48, 0, 0, 0], &[0x88, 0x12]] {
        let result = parse(mode, &DISK, false, &list(&[page]));
        assert_eq!(result.unwrap_err().code, Code::INVALID_FIELD_IN_LIST);
    }
    let mut odd = mode.page(CONTROL);
    odd[1] = 4;
    odd.truncate(6);
    let result = parse(mode, &DISK, false, &list(&[&odd]));
    assert_eq!(result.unwrap_err().code, Code::INVALID_FIELD_IN_LIST);
}
