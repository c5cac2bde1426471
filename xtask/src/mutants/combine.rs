//! All mutants of a sample in one build; `POLLUX_MUTANT` chooses one of them when a program starts.
//!
//! Building is most of what a mutant costs. So a function gets a body for each of its mutants beside its own,
//! and a `match` in front. What cannot be built that way (a `const fn`, an `impl Trait` of two types) is
//! found by the lines of the compiler's errors, and is tried alone.
use std::collections::BTreeMap;
use std::fmt::Write;
use std::ops::Range;

use super::sample::{Mutant, Place, Span};

/// The variable that chooses a mutant, by its number.
pub const CHOICE: &str = "POLLUX_MUTANT";

/// What the bodies ask, at the end of each crate's `lib.rs`.
pub const CHOOSER: &str = r#"
pub(crate) fn mutant_under_test() -> usize {
    static CHOSEN: std::sync::OnceLock<usize> = std::sync::OnceLock::new();
    let chosen = || std::env::var("POLLUX_MUTANT").ok().and_then(|it| it.parse().ok());
    *CHOSEN.get_or_init(|| chosen().unwrap_or(usize::MAX))
}
"#;

/// Lines of a combined file, counted from 1, and the mutants that an error there speaks against.
pub type Blame = (Range<usize>, Vec<usize>);

/// A file with several bodies for some of its functions.
pub struct Combined {
    pub source: String,
    /// Wider ranges come behind those within them.
    pub blame: Vec<Blame>,
    /// Mutants that no body can be made for.
    pub left_out: Vec<usize>,
}

/// `mutants` are those of this file, with their numbers.
pub fn combine(source: &str, mutants: &[(usize, &Mutant)]) -> Combined {
    let mut bodies: BTreeMap<(usize, usize), Vec<(usize, &Mutant)>> = BTreeMap::new();
    let mut left_out = Vec::new();
    for (number, mutant) in mutants {
        match body_of(source, mutant) {
            Some(body) => bodies.entry((body.start, body.end)).or_default().push((*number, mutant)),
            None => left_out.push(*number),
        }
    }
    let mut out = Combined { source: String::new(), blame: Vec::new(), left_out };
    let mut done = 0;
    for ((start, end), mutants) in bodies {
        if start < done {
            // A function within one that has mutants.
            out.left_out.extend(mutants.iter().map(|(number, _)| *number));
            continue;
        }
        out.source.push_str(&source[done..start]);
        out.add_bodies(source, start..end, &mutants);
        done = end;
    }
    out.source.push_str(&source[done..]);
    out.blame.sort_by_key(|(lines, _)| lines.len());
    out
}

impl Combined {
    fn line(&self) -> usize {
        1 + self.source.matches('\n').count()
    }

    fn add_bodies(&mut self, source: &str, body: Range<usize>, mutants: &[(usize, &Mutant)]) {
        let first = self.line();
        self.source.push_str("{ match crate::mutant_under_test() {\n");
        for (number, mutant) in mutants {
            let line = self.line();
            let changed = changed(source, &body, mutant);
            writeln!(self.source, "{number} => {changed}").expect("text takes everything");
            self.blame.push((line..self.line(), vec![*number]));
        }
        write!(self.source, "_ => {}\n}} }}", &source[body]).expect("text takes everything");
        let all = mutants.iter().map(|(number, _)| *number).collect();
        self.blame.push((first..self.line() + 1, all));
    }

    /// Which mutants an error at a line speaks against.
    pub fn blamed(&self, line: usize) -> Option<&[usize]> {
        let found = self.blame.iter().find(|(lines, _)| lines.contains(&line));
        found.map(|(_, numbers)| numbers.as_slice())
    }
}

/// A body with what the mutant changes.
fn changed(source: &str, body: &Range<usize>, mutant: &Mutant) -> String {
    let (from, to) = bytes(source, &mutant.span).expect("its body was found");
    format!("{}{}{}", &source[body.start..from], mutant.replacement, &source[to..body.end])
}

/// The bytes of the body of a mutant's function, with its braces.
fn body_of(source: &str, mutant: &Mutant) -> Option<Range<usize>> {
    let (start, end) = bytes(source, &mutant.function.as_ref()?.span)?;
    let (from, to) = bytes(source, &mutant.span)?;
    let open = start + opening_brace(&source[start..end])?;
    (open < from && to < end && source[..end].ends_with('}')).then_some(open..end)
}

fn bytes(source: &str, span: &Span) -> Option<(usize, usize)> {
    Some((offset(source, span.start)?, offset(source, span.end)?))
}

/// Lines and columns are counted from 1, columns in characters.
fn offset(source: &str, place: Place) -> Option<usize> {
    let line = source.split_inclusive('\n').nth(place.line - 1)?;
    let before = line.as_ptr().addr() - source.as_ptr().addr();
    let column = line.char_indices().map(|(at, _)| at).chain([line.len()]).nth(place.column - 1)?;
    Some(before + column)
}

/// The first brace behind a function's signature, passing over comments, texts and brackets.
fn opening_brace(function: &str) -> Option<usize> {
    let mut depth = 0;
    let mut rest = function;
    while let Some(next) = rest.chars().next() {
        let at = function.len() - rest.len();
        let skipped = match next {
            '/' if rest.starts_with("//") => rest.find('\n')? + 1,
            '"' => 2 + rest[1..].find('"')?,
            '(' | '[' => {
                depth += 1;
                1
            }
            ')' | ']' => {
                depth -= 1;
                1
            }
            '{' if depth == 0 => return Some(at),
            other => other.len_utf8(),
        };
        rest = &rest[skipped..];
    }
    None
}

#[cfg(test)]
mod tests {
    use super::super::sample::Function;
    use super::*;

    const SOURCE: &str = "/// A {brace}.\n#[must_use = \"{\"]\nfn f(a: [u8; 2]) -> bool {\n    \
                          a[0] == a[1]\n}\n\nfn g() {}\n";

    fn span(from: (usize, usize), to: (usize, usize)) -> Span {
        let place = |(line, column)| Place { line, column };
        Span { start: place(from), end: place(to) }
    }

    fn mutant(span_of: Span, replacement: &str) -> Mutant {
        Mutant {
            name: "m".into(),
            package: "engine".into(),
            file: "src/lib.rs".into(),
            diff: String::new(),
            function: Some(Function { span: span((1, 1), (5, 2)) }),
            span: span_of,
            replacement: replacement.into(),
        }
    }

    #[test]
    fn a_function_gets_a_body_for_each_mutant_and_keeps_its_own() {
        let operator = mutant(span((4, 10), (4, 12)), "!=");
        let whole = mutant(span((4, 5), (4, 17)), "true");
        let combined = combine(SOURCE, &[(3, &operator), (8, &whole)]);
        assert!(combined.left_out.is_empty());
        let text = &combined.source;
        assert!(text.contains("3 => {\n    a[0] != a[1]\n}"), "{text}");
        assert!(text.contains("8 => {\n    true\n}"), "{text}");
        assert!(text.contains("_ => {\n    a[0] == a[1]\n}"), "{text}");
        assert!(text.starts_with("/// A {brace}.\n#[must_use = \"{\"]\nfn f"), "{text}");
        assert!(text.ends_with("\n\nfn g() {}\n"), "{text}");
    }

    #[test]
    fn an_error_speaks_against_the_mutant_of_its_line_or_all_of_the_function() {
        let operator = mutant(span((4, 10), (4, 12)), "!=");
        let whole = mutant(span((4, 5), (4, 17)), "true");
        let combined = combine(SOURCE, &[(3, &operator), (8, &whole)]);
        let line = |wanted: &str| {
            let found = combined.source.lines().position(|line| line.contains(wanted));
            1 + found.expect("it is there")
        };
        assert_eq!(combined.blamed(line("!=")), Some([3].as_slice()));
        assert_eq!(combined.blamed(line("true")), Some([8].as_slice()));
        assert_eq!(combined.blamed(line("mutant_under_test")), Some([3, 8].as_slice()));
        assert_eq!(combined.blamed(line("fn g")), None);
    }

    #[test]
    fn a_mutant_without_a_function_is_left_out() {
        let alone = Mutant { function: None, ..mutant(span((4, 10), (4, 12)), "!=") };
        assert_eq!(combine(SOURCE, &[(3, &alone)]).left_out, [3]);
    }
}
