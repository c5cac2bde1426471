//! The order of commands: CmdSN, ExpCmdSN, MaxCmdSN.
//!
//! Invariant: what an initiator was allowed to send stays allowed. The upper end moves only when a
//! command is finished, so that at most `size` of them are under way.
use std::collections::BTreeMap;

use super::line::Span;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Its turn now, or once those before it have come.
    Inside,
    /// To be ignored: not allowed yet, or here already.
    Outside,
}

#[derive(Debug)]
pub struct Window<T> {
    next: u32,
    size: u32,
    /// Counted commands that are not finished.
    open: u32,
    /// What came before its turn.
    held: BTreeMap<u32, T>,
}

impl<T> Window<T> {
    pub fn new(first: u32, size: u32) -> Window<T> {
        Window { next: first, size, open: 0, held: BTreeMap::new() }
    }

    pub fn span(&self) -> Span {
        let room = self.size - self.open;
        let max_cmd_sn = self.next.wrapping_add(room).wrapping_sub(1);
        Span { exp_cmd_sn: self.next, max_cmd_sn }
    }

    pub fn place(&self, cmd_sn: u32) -> Place {
        let ahead = cmd_sn.wrapping_sub(self.next);
        match ahead < self.size - self.open && !self.held.contains_key(&cmd_sn) {
            true => Place::Inside,
            false => Place::Outside,
        }
    }

    /// Takes what has come at its place. What has its turn now is to be fetched with `turn`.
    pub fn put(&mut self, cmd_sn: u32, item: T) {
        if self.place(cmd_sn) == Place::Inside {
            self.held.insert(cmd_sn, item);
        }
    }

    /// The next in order, if it has come.
    pub fn turn(&mut self) -> Option<T> {
        let item = self.held.remove(&self.next)?;
        self.next = self.next.wrapping_add(1);
        Some(item)
    }

    /// Whether something waits for what comes before it.
    pub fn has_gap(&self) -> bool {
        !self.held.is_empty()
    }

    /// A command that had its turn counts until it is finished.
    pub fn open(&mut self) {
        assert!(self.open < self.size, "a command had its turn that was not allowed");
        self.open += 1;
    }

    pub fn finish(&mut self) {
        assert!(self.open > 0, "a command is finished that was not open");
        self.open -= 1;
    }
}

/// Whether `a` is numbered before `b`; numbers go round.
pub fn is_before(a: u32, b: u32) -> bool {
    (1..1 << 31).contains(&b.wrapping_sub(a))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(window: &Window<char>) -> (u32, u32) {
        let span = window.span();
        (span.exp_cmd_sn, span.max_cmd_sn)
    }

    #[test]
    fn the_end_moves_when_a_command_is_finished() {
        let mut window = Window::new(u32::MAX, 2);
        assert_eq!(span(&window), (u32::MAX, 0));
        window.put(u32::MAX, 'a');
        assert_eq!(window.turn(), Some('a'));
        window.open();
        assert_eq!(span(&window), (0, 0));
        window.put(0, 'b');
        assert_eq!(window.turn(), Some('b'));
        window.open();
        assert_eq!(span(&window), (1, 0));
        assert_eq!(window.place(1), Place::Outside);
        window.finish();
        assert_eq!((span(&window), window.place(1)), ((1, 1), Place::Inside));
    }

    #[test]
    fn what_comes_early_waits_and_what_comes_twice_is_ignored() {
        let mut window = Window::new(7, 4);
        window.put(9, 'c');
        window.put(8, 'b');
        assert_eq!((window.turn(), window.place(8)), (None, Place::Outside));
        window.put(8, 'x');
        window.put(7, 'a');
        let order: Vec<char> = std::iter::from_fn(|| window.turn()).collect();
        assert_eq!(order, ['a', 'b', 'c']);
        for outside in [9, 6, 14] {
            assert_eq!(window.place(outside), Place::Outside);
        }
    }

    #[test]
    fn numbers_go_round() {
        assert!(is_before(u32::MAX, 3));
        assert!(!is_before(3, u32::MAX));
        assert!(!is_before(3, 3));
    }
}
