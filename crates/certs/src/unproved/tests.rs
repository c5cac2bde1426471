//! Protects from connections that say nothing and lock others out, and from newcomers that push others out as they come.
use super::*;

const LIMITS: Limits = Limits { handshakes: 2, unproved: 3, proved: 2 };

fn block_on<T>(work: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    runtime.block_on(work)
}

/// Whether one more may come in now.
async fn has_room(unproved: &Unproved) -> bool {
    tokio::time::timeout(Duration::from_millis(50), unproved.room()).await.is_ok()
}

async fn is_evicted(place: &mut Place) -> bool {
    tokio::time::timeout(Duration::from_millis(10), place.evicted()).await.is_ok()
}

#[test]
fn the_oldest_goes_but_not_before_it_could_speak() {
    block_on(async {
        let unproved = Unproved::new(LIMITS);
        let mut first = unproved.enter();
        let mut second = unproved.enter();
        assert!(!has_room(&unproved).await, "both are young");
        unproved.room().await;
        let third = unproved.enter();
        assert!(is_evicted(&mut first).await, "the oldest handshake");
        assert!(!is_evicted(&mut second).await);
        assert_eq!(unproved.counts(), (2, 2, 0));
        third.greeted();
        second.greeted();
        assert!(has_room(&unproved).await);
        let fourth = unproved.enter();
        assert_eq!(unproved.counts(), (1, 3, 0));
        assert!(third.proof().accept(), "it proves itself");
        assert!(has_room(&unproved).await, "and makes room");
        drop(fourth);
        assert_eq!(unproved.counts(), (0, 1, 1));
    });
}

/// Protects from a panic: servers ask a connection again after it has given an error.
#[test]
fn an_eviction_is_told_as_often_as_is_asked() {
    block_on(async {
        let unproved = Unproved::new(LIMITS);
        let mut first = unproved.enter();
        let _second = unproved.enter();
        unproved.room().await;
        let _third = unproved.enter();
        for _ in 0..3 {
            assert!(is_evicted(&mut first).await);
        }
        assert!(!first.proof().accept(), "it is too late");
    });
}

#[test]
fn handshakes_do_not_push_out_those_that_have_got_further() {
    block_on(async {
        let unproved = Unproved::new(LIMITS);
        let mut old = unproved.enter();
        old.greeted();
        let mut half: Vec<Place> = (0..2).map(|_| unproved.enter()).collect();
        unproved.room().await;
        let _new = unproved.enter();
        assert!(!is_evicted(&mut old).await, "it is older, and past its handshake");
        assert!(is_evicted(&mut half[0]).await);
    });
}

#[test]
fn proved_connections_are_bounded_and_stay() {
    block_on(async {
        let unproved = Unproved::new(LIMITS);
        let mut places = Vec::new();
        for _ in 0..2 {
            let place = unproved.enter();
            assert!(place.proof().accept());
            assert!(place.proof().accept(), "said twice");
            places.push(place);
        }
        let late = unproved.enter();
        assert!(!late.proof().accept(), "there are too many");
        let proof = places[0].proof();
        assert!(!is_evicted(&mut places[0]).await);
        drop(places);
        assert!(late.proof().accept(), "places come back");
        assert!(!proof.accept(), "its connection is gone");
        drop(late);
        assert_eq!(unproved.counts(), (0, 0, 0));
    });
}
