//! Counting what passed: libtest's own result lines, and checks of ours.
use std::fmt;
use std::ops::AddAssign;

use serde::Serialize;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Totals {
    pub passed: u64,
    pub failed: u64,
    pub skipped: u64,
}

impl Totals {
    /// One check that is not a libtest test.
    pub fn of_check(passed: bool) -> Totals {
        Totals { passed: u64::from(passed), failed: u64::from(!passed), skipped: 0 }
    }

    /// The sum over all test binaries of a `cargo test` run.
    ///
    /// A run that exits badly without a failed test (it did not compile, or a binary aborted)
    /// counts as one failure, and so does one that ran no test at all.
    pub fn of_libtest(output: &str, exited_well: bool) -> Totals {
        let mut totals = Totals::default();
        for line in output.lines() {
            if let Some(result) = line.trim().strip_prefix("test result: ") {
                totals += Totals::of_result_line(result);
            }
        }
        if totals.failed == 0 && (!exited_well || totals.passed == 0) {
            totals.failed = 1;
        }
        totals
    }

    /// What a program of ours counted, if its last line is such as ours are.
    pub fn of_summary(output: &str) -> Option<Totals> {
        let mut parts = output.trim_end().lines().next_back()?.split(", ");
        let mut count = |word: &str| parts.next()?.strip_suffix(word)?.trim_end().parse().ok();
        let totals = Totals {
            passed: count("passed")?,
            failed: count("failed")?,
            skipped: count("skipped")?,
        };
        parts.next().is_none().then_some(totals)
    }

    fn of_result_line(result: &str) -> Totals {
        let count = |word: &str| {
            result
                .split([';', '.'])
                .filter_map(|part| part.trim().strip_suffix(word))
                .find_map(|number| number.trim().parse().ok())
                .unwrap_or(0)
        };
        Totals { passed: count("passed"), failed: count("failed"), skipped: count("ignored") }
    }

    /// Something ran, and nothing failed.
    pub fn is_success(self) -> bool {
        self.failed == 0 && self.passed > 0
    }
}

impl AddAssign for Totals {
    fn add_assign(&mut self, other: Totals) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.skipped += other.skipped;
    }
}

impl fmt::Display for Totals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} passed, {} failed, {} skipped", self.passed, self.failed, self.skipped)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TWO_BINARIES: &str = "\
running 3 tests
test a ... ok
test b ... ignored
test c ... ok

test result: ok. 2 passed; 0 failed; 1 ignored; 0 measured; 7 filtered out; finished in 0.00s

     Running unittests src/lib.rs
running 2 tests
test result: FAILED. 1 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out; finished in 1.25s
";

    #[test]
    fn result_lines_of_all_binaries_are_summed() {
        let totals = Totals::of_libtest(TWO_BINARIES, false);
        assert_eq!(totals.to_string(), "3 passed, 1 failed, 1 skipped");
        assert!(!totals.is_success());
    }

    #[test]
    fn what_a_test_prints_about_itself_is_not_counted() {
        let output = "the test result: ok. 5 passed; 0 failed\n\
                      test result: ok. 1 passed; 0 failed; 0 ignored";
        assert_eq!(Totals::of_libtest(output, true).passed, 1);
    }

    #[test]
    fn a_run_that_did_not_compile_or_aborted_is_a_failure() {
        let totals = Totals::of_libtest("error[E0308]: mismatched types", false);
        assert_eq!(totals.to_string(), "0 passed, 1 failed, 0 skipped");
        let one_of_two = "test result: ok. 2 passed; 0 failed; 0 ignored\nrunning 1 test\n";
        assert_eq!(Totals::of_libtest(one_of_two, false).failed, 1);
    }

    #[test]
    fn a_run_without_a_test_is_a_failure() {
        let empty = "running 0 tests\ntest result: ok. 0 passed; 0 failed; 0 ignored";
        assert!(!Totals::of_libtest(empty, true).is_success());
        assert!(!Totals::default().is_success());
    }

    #[test]
    fn the_summary_of_a_program_of_ours_is_its_last_line() {
        let totals = Totals { passed: 41, failed: 1, skipped: 2 };
        assert_eq!(Totals::of_summary(&format!("failed: a\n{totals}\n")), Some(totals));
        for other in ["", "41 passed, 1 failed", "41 passed, 1 failed, 2 skipped\nkilled"] {
            assert_eq!(Totals::of_summary(other), None, "{other}");
        }
    }

    #[test]
    fn a_coloured_result_line_is_read_too() {
        let line = "test result: \u{1b}[32mok\u{1b}(B\u{1b}[m. 4 passed; 0 failed; 2 ignored; 0";
        let totals = Totals::of_libtest(line, true);
        assert_eq!(totals.to_string(), "4 passed, 0 failed, 2 skipped");
    }
}
