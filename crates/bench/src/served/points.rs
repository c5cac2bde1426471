//! The loads at which servers are compared.
use crate::load::{Direction, Load, Order};
use crate::table::Unit;

const SMALL: usize = 4 << 10;
const LARGE: usize = 128 << 10;

#[derive(Clone, Copy, Debug)]
pub struct Point {
    pub name: &'static str,
    pub load: Load,
    pub sessions: usize,
    pub unit: Unit,
}

const fn random(name: &'static str, direction: Direction, depth: usize, sessions: usize) -> Point {
    let load = Load { direction, order: Order::Random, len: SMALL, depth };
    Point { name, load, sessions, unit: Unit::Iops }
}

const fn stream(name: &'static str, direction: Direction) -> Point {
    let load = Load { direction, order: Order::Sequential, len: LARGE, depth: 8 };
    Point { name, load, sessions: 1, unit: Unit::MegabytesPerSecond }
}

pub const POINTS: [Point; 10] = [
    random("random read, 1", Direction::Read, 1, 1),
    random("random read, 32", Direction::Read, 32, 1),
    random("random read, 4 x 32", Direction::Read, 32, 4),
    random("random write, 1", Direction::Write, 1, 1),
    random("random write, 32", Direction::Write, 32, 1),
    random("random write, 4 x 32", Direction::Write, 32, 4),
    stream("128 KiB read, 8", Direction::Read),
    stream("128 KiB write, 8", Direction::Write),
    random("write + flush, 1", Direction::WriteFlush, 1, 1),
    random("write + flush, 32", Direction::WriteFlush, 32, 1),
];

/// Writes everything once.
pub const FILL: Load =
    Load { direction: Direction::Write, order: Order::Sequential, len: LARGE, depth: 8 };

/// What a volume with a slow replica is asked, so many at once.
pub const fn paced(depth: usize) -> Load {
    Load { direction: Direction::Write, order: Order::Random, len: SMALL, depth }
}
