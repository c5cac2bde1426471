//! The stream of choices is the ground that every other determinism stands on.
use super::*;

#[test]
fn a_seed_means_the_same_choices_forever() {
    // Protects from a change of the generator that would make every seed ever reported void.
    let mut rng = Rng::new(0);
    let drawn = [rng.next_u64(), rng.next_u64(), rng.next_u64()];
    assert_eq!(drawn, [0x99ec_5f36_cb75_f2b4, 0xbf6e_1f78_4956_452a, 0x1a5f_849d_4933_e6e0]);
    assert_ne!(Rng::new(1).next_u64(), Rng::new(2).next_u64());
}

#[test]
fn bounded_draws_stay_within_their_bounds_and_reach_all_of_them() {
    // Protects from an end of a range that is never drawn, or that is drawn beyond.
    let mut rng = Rng::new(7);
    let mut seen = [false; 5];
    for _ in 0..200 {
        seen[rng.index(5)] = true;
        assert!((10..13).contains(&rng.range(10..13)));
        assert_eq!(rng.below(1), 0);
        assert!(rng.chance(1, 1));
        assert!(!rng.chance(0, 1));
    }
    assert_eq!(seen, [true; 5]);
}

#[test]
fn a_shuffle_keeps_every_thing_and_a_fill_reaches_the_last_byte() {
    // Protects from things lost in a shuffle, and from a tail that a fill leaves as zeros.
    let mut rng = Rng::new(3);
    let mut things: Vec<u32> = (0..100).collect();
    rng.shuffle(&mut things);
    assert_ne!(things, (0..100).collect::<Vec<_>>());
    things.sort_unstable();
    assert_eq!(things, (0..100).collect::<Vec<_>>());

    let mut ever = [0u8; 13];
    for _ in 0..20 {
        let mut bytes = [0u8; 13];
        rng.fill(&mut bytes);
        ever.iter_mut().zip(bytes).for_each(|(e, b)| *e |= b);
    }
    assert!(ever.iter().all(|&b| b != 0));
}

#[test]
fn a_fork_does_not_move_with_its_parent() {
    // Protects from one part of the world changing the choices of another by drawing more.
    let mut parent = Rng::new(5);
    let mut fork = parent.fork();
    let mut again = Rng::new(5);
    let mut fork_again = again.fork();
    again.next_u64();
    assert_eq!(fork.next_u64(), fork_again.next_u64());
    assert_ne!(fork.next_u64(), parent.next_u64());
}
