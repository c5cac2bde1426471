//! Hundreds of right histories pass, and every quirk of a server is found soon.
use super::server::Quirk;
use super::world::{Plan, World};

const LASTS_US: u64 = 20_000_000;

fn plan(seed: u64) -> Plan {
    Plan {
        volumes: 1 + usize::from(seed % 4 == 3) * 2,
        ordered_group: seed % 4 == 3,
        power_losses: if seed.is_multiple_of(2) { 0 } else { 2 },
        rollbacks: seed.is_multiple_of(3),
        lasts_us: LASTS_US,
    }
}

/// Thousands where somebody has the time.
fn seeds() -> u64 {
    std::env::var("POLLUX_SIM_SEEDS").ok().and_then(|seeds| seeds.parse().ok()).unwrap_or(400)
}

#[test]
fn what_is_right_is_never_called_wrong() {
    let mut requests = 0;
    let mut losses = 0;
    for seed in 0..seeds() {
        let plan = plan(seed);
        let mut world = World::new(seed, &plan, None);
        if let Err(violation) = world.run(plan.lasts_us) {
            panic!("seed {seed}: {violation}");
        }
        let counters = world.clients.counters();
        requests += counters["reads done"] + counters["writes done"];
        losses += counters.get("stagings anew").unwrap_or(&0);
    }
    assert!(requests > seeds() * 300, "a test of little work proves little: {requests}");
    assert!(losses > seeds() / 4, "losses were told: {losses}");
}

/// In how many of so many seeds it is found.
fn found(quirk: Quirk, seeds: u64, change: impl Fn(&mut Plan)) -> u64 {
    let found = |seed: &u64| {
        let mut plan = plan(*seed);
        change(&mut plan);
        World::new(*seed, &plan, Some(quirk)).run(plan.lasts_us).is_err()
    };
    let found = (0..seeds).filter(found).count() as u64;
    println!("{quirk:?}: {found} of {seeds}");
    found
}

fn alone(plan: &mut Plan) {
    plan.power_losses = 0;
    plan.rollbacks = false;
}

#[test]
fn wrong_reads_and_writes_are_found() {
    for quirk in [
        Quirk::StaleReads,
        Quirk::LosesWrites,
        Quirk::AcksBeforeApplying,
        Quirk::AppliesRefused,
        Quirk::TearsSectors,
        Quirk::TakesBack,
        Quirk::KeepsOldRequests,
        Quirk::SnapshotsLate,
    ] {
        assert!(found(quirk, 20, alone) > 10, "{quirk:?}");
    }
}

#[test]
fn wrong_losses_are_found() {
    let losses = |plan: &mut Plan| plan.power_losses = 2;
    for quirk in [
        Quirk::ForgetsFlushed,
        Quirk::LosesSilently,
        Quirk::LetsOldStagesIn,
        Quirk::RaisesFalseHold,
    ] {
        assert!(found(quirk, 20, losses) > 8, "{quirk:?}");
    }
}

#[test]
fn a_rollback_of_one_half_is_found() {
    let rollbacks = |plan: &mut Plan| plan.rollbacks = true;
    assert!(found(Quirk::RollsBackHalf, 20, rollbacks) > 8);
}

#[test]
fn a_loose_cut_of_a_group_is_found() {
    let group = |plan: &mut Plan| {
        alone(plan);
        plan.volumes = 3;
        plan.ordered_group = true;
    };
    assert!(found(Quirk::CutsLoosely, 20, group) > 10);
}
