use super::*;

fn arrival(ttt: u32, data_sn: u32, offset: u32, len: u32) -> Arrival {
    Arrival { itt: 5, ttt, data_sn, offset, len }
}

fn with_room(len: u32, first: u32, unasked: Option<u32>) -> Gather {
    let mut gather = Gather::new(len, first, unasked);
    gather.room = Room::Full(Buf::zeroed(len as usize));
    gather.has_turn = true;
    gather
}

#[test]
fn a_command_without_data_waits_for_its_turn_only() {
    let mut gather = Gather::new(0, 0, None);
    assert!(!gather.is_done() && !gather.is_starved() && !gather.awaits());
    gather.has_turn = true;
    assert!(gather.is_done());
    let empty = Buf::zeroed(0).into_data();
    assert!(gather.take(&empty).is_empty());
}

#[test]
fn nothing_is_asked_for_before_it_can_be_kept() {
    let mut gather = Gather::new(100, 0, None);
    assert!(gather.is_starved());
    gather.has_turn = true;
    assert!(!gather.may_ask(1));
    gather.grow(Buf::zeroed(100));
    assert!(!gather.is_starved() && gather.may_ask(1));
    let burst = gather.ask(60, 1);
    assert_eq!((burst.offset, burst.len), (0, 60));
    assert!(!gather.may_ask(1) && gather.may_ask(2));
    assert!(gather.awaits() && !gather.is_done());
}

#[test]
fn bursts_are_in_order() {
    let mut gather = with_room(100, 0, None);
    gather.ask(60, 1);
    gather.ask(60, 2);
    assert_eq!(
        gather.incoming(arrival(2, 0, 60, 40)),
        Err(ProtocolError::WrongTransferTag { itt: 5, ttt: 2 })
    );
    assert_eq!(gather.incoming(arrival(1, 0, 0, 60)), Ok(true));
    assert_eq!(gather.arrived(5, 1, 60, true), Ok(()));
    assert_eq!(gather.incoming(arrival(2, 0, 60, 40)), Ok(true));
    assert_eq!(gather.arrived(5, 2, 40, true), Ok(()));
    assert!(gather.is_done());
}

#[test]
fn a_command_that_failed_takes_what_is_on_its_way() {
    let mut gather = with_room(100, 10, Some(50));
    gather.failure = Some(Failure::DataLost);
    assert!(!gather.is_done());
    // Whatever is in it.
    assert_eq!(gather.incoming(arrival(NO_TAG, 9, 99, 1 << 20)), Ok(false));
    assert_eq!(gather.place(0, 10), None);
    assert_eq!(gather.arrived(5, NO_TAG, 1 << 20, true), Ok(()));
    assert!(gather.is_done() && !gather.may_ask(1));
}

#[test]
fn what_came_first_stays_when_there_is_more_room() {
    let mut gather = Gather::new(100, 10, None);
    gather.room = Room::Part(Buf::copy_of(&[7; 10]));
    assert!(gather.place(0, 11).is_none());
    gather.place(9, 1).expect("the last byte").fill(8);
    gather.grow(Buf::zeroed(100));
    assert_eq!(gather.place(0, 12).expect("room").to_vec(), [7, 7, 7, 7, 7, 7, 7, 7, 7, 8, 0, 0]);
}

#[test]
fn senses_are_as_the_standard_has_them() {
    for (failure, key, code, qualifier) in [
        (Failure::NotSupported, 5, 0x20, 0),
        (Failure::TooLong, 5, 0x24, 0),
        (Failure::UnexpectedData, 0x0b, 0x0c, 0x0c),
        (Failure::WrongAmount, 0x0b, 0x0c, 0x0d),
        (Failure::DataLost, 0x0b, 0x47, 0x05),
    ] {
        let response = failure.response();
        assert_eq!(response.status, Status::CheckCondition);
        let sense = response.sense;
        assert_eq!((sense.len(), sense[0], sense[7]), (18, 0x70, 10));
        assert_eq!((sense[2], sense[12], sense[13]), (key, code, qualifier));
    }
}
