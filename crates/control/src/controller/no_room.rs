//! Why there are too few nodes for replicas, in words for whoever asked: what is needed, what is there, and why each other
//! node does not qualify.
use std::fmt;

use block::ByteLen;

/// Nodes that are named for one reason; the rest are counted.
const NAMED: usize = 5;

/// Why a node gets no replica.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unfit {
    /// It holds one of the volume already.
    Holds,
    Away,
    Unknown,
    Cordoned,
    PoolFailed {
        pool: String,
    },
    /// It has no pool that is open, or none of those that were asked for.
    NoPool,
    /// The topology that was asked for leaves it out.
    Elsewhere,
    /// What its pools have left for volumes.
    Full {
        left: u64,
    },
}

/// There are too few nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoRoom {
    /// Nodes that are needed, beside those that hold a replica already.
    pub need: usize,
    /// Bytes that each of them has to have.
    pub size: u64,
    /// Names of nodes that qualify.
    pub fit: Vec<String>,
    /// All others.
    pub unfit: Vec<(String, Unfit)>,
}

impl NoRoom {
    fn names(&self, is_so: impl Fn(&Unfit) -> bool) -> Vec<&str> {
        let found = self.unfit.iter().filter(|(_, why)| is_so(why));
        found.map(|(name, _)| name.as_str()).collect()
    }

    /// What is there, and why that is not enough; in this order.
    fn reasons(&self) -> Vec<String> {
        let all = self.fit.len() + self.unfit.len();
        let mut reasons = Vec::new();
        let holders = self.names(|why| *why == Unfit::Holds).len();
        if holders > 0 {
            let verb = if holders == 1 { "holds" } else { "hold" };
            reasons.push(format!("{holders} of {} already {verb} a replica", nodes(all)));
        }
        let mut state = |is_so: &dyn Fn(&Unfit) -> bool, what: &str| {
            let names = self.names(is_so);
            if !names.is_empty() {
                let verb = if names.len() == 1 { "is" } else { "are" };
                reasons.push(format!("{} {verb} {what}", list(&names)));
            }
        };
        state(&|why| *why == Unfit::Away, "offline");
        state(&|why| *why == Unfit::Unknown, "not heard of yet");
        state(&|why| *why == Unfit::Cordoned, "cordoned");
        state(&|why| *why == Unfit::Elsewhere, "not where the volume may be");
        for (name, why) in &self.unfit {
            match why {
                Unfit::PoolFailed { pool } => {
                    reasons.push(format!("the pool `{pool}` of `{name}` has failed"));
                }
                Unfit::NoPool => reasons.push(format!("`{name}` has no open pool for it")),
                Unfit::Full { left } => reasons.push(format!(
                    "`{name}` has room for {} of {}",
                    ByteLen(*left),
                    ByteLen(self.size)
                )),
                _ => {}
            }
        }
        reasons
    }

    fn advice(&self) -> &'static str {
        let is_full = self.unfit.iter().any(|(_, why)| matches!(why, Unfit::Full { .. }));
        match is_full {
            true => "add pools or nodes, delete volumes, or ask for fewer replicas",
            false => "start or add nodes, or ask for fewer replicas",
        }
    }
}

fn nodes(count: usize) -> String {
    format!("{count} node{}", if count == 1 { "" } else { "s" })
}

fn list(names: &[&str]) -> String {
    let shown: Vec<String> = names.iter().take(NAMED).map(|name| format!("`{name}`")).collect();
    match names.len().saturating_sub(NAMED) {
        0 => shown.join(" and "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}

impl fmt::Display for NoRoom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let holders = self.names(|why| *why == Unfit::Holds).len();
        let more = if holders > 0 { " more" } else { "" };
        let need = self.need;
        write!(f, "needs {need}{more} node{}", if need == 1 { "" } else { "s" })?;
        if self.fit.is_empty() && self.unfit.is_empty() {
            f.write_str(", and the site has none")?;
        } else if !self.fit.is_empty() {
            let names: Vec<&str> = self.fit.iter().map(String::as_str).collect();
            let verb = if names.len() == 1 { "qualifies" } else { "qualify" };
            write!(f, ", and only {} {verb}", list(&names))?;
        }
        let reasons = self.reasons();
        if !reasons.is_empty() {
            write!(f, ": {}", reasons.join(", "))?;
        }
        write!(f, "; {}", self.advice())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unfit(all: &[(&str, Unfit)]) -> Vec<(String, Unfit)> {
        all.iter().map(|(name, why)| ((*name).into(), why.clone())).collect()
    }

    #[test]
    fn it_says_what_is_needed_what_is_there_and_why_that_is_not_enough() {
        let missing = NoRoom {
            need: 1,
            size: 4096,
            fit: Vec::new(),
            unfit: unfit(&[
                ("node-1", Unfit::Holds),
                ("node-2", Unfit::Holds),
                ("node-3", Unfit::Away),
            ]),
        };
        assert_eq!(
            missing.to_string(),
            "needs 1 more node: 2 of 3 nodes already hold a replica, `node-3` is offline; start or add nodes, \
             or ask for fewer replicas"
        );
        let full = NoRoom {
            need: 3,
            size: 10 << 30,
            fit: vec!["node-1".into()],
            unfit: unfit(&[
                ("node-2", Unfit::Full { left: 1 << 30 }),
                ("node-3", Unfit::Cordoned),
                ("node-4", Unfit::PoolFailed { pool: "main".into() }),
            ]),
        };
        assert_eq!(
            full.to_string(),
            "needs 3 nodes, and only `node-1` qualifies: `node-3` is cordoned, `node-2` has room for 1 GiB of \
             10 GiB, the pool `main` of `node-4` has failed; add pools or nodes, delete volumes, \
             or ask for fewer replicas"
        );
        let none = NoRoom { need: 1, size: 1, fit: Vec::new(), unfit: Vec::new() };
        assert!(none.to_string().starts_with("needs 1 node, and the site has none;"), "{none}");
    }
}
