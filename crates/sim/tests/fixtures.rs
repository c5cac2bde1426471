//! Pools of every version of the format that was ever kept open today, and hold what they held.
mod kept;

use sim::fixture::{make, verify};

/// Protects users of older releases from a change of the format that nobody noticed.
#[test]
fn kept_pools_of_every_version_open() {
    let mut found = 0;
    for version in 1..=engine::FORMAT_VERSION {
        for (_, left, name) in kept::all() {
            let path = kept::folder().join(format!("version-{version}/{name}.gz"));
            let image = kept::load(&path).unwrap_or_else(|error| panic!("{name}: {error}"));
            if let Err(problem) = verify(image, left) {
                panic!("{name} of version {version}: {problem}");
            }
            found += 1;
        }
    }
    println!("{found} kept pools were opened");
}

/// Protects from images that are made in another way than they are compared.
#[test]
fn a_pool_that_is_made_today_holds_the_same() {
    for (sector, left, name) in kept::all() {
        if let Err(problem) = verify(make(sector, left), left) {
            panic!("{name}: {problem}");
        }
    }
}
