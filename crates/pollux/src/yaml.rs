//! Answers as YAML, for people who keep them in files.
//!
//! Only what JSON can say, in blocks. A text stands without quotes only where nobody, of YAML 1.1 or 1.2,
//! takes it for something else.
use serde_json::Value;

/// Without a newline at its end.
pub fn text(value: &Value) -> String {
    let mut lines = String::new();
    node(value, 0, &mut lines);
    lines.trim_end().to_owned()
}

/// What stands behind `key:` or `-`, with the newline.
fn node(value: &Value, depth: usize, out: &mut String) {
    match value {
        Value::Array(items) if !items.is_empty() => {
            for item in items {
                indent(depth, out);
                out.push('-');
                beside(item, depth, out);
            }
        }
        Value::Object(pairs) if !pairs.is_empty() => {
            for (at, (key, value)) in pairs.iter().enumerate() {
                // The first one may stand behind a dash.
                if at > 0 || !out.ends_with("- ") {
                    indent(depth, out);
                }
                out.push_str(&scalar(key));
                out.push(':');
                within(value, depth, out);
            }
        }
        other => {
            out.push_str(&plain(other));
            out.push('\n');
        }
    }
}

/// An item, behind its dash.
fn beside(item: &Value, depth: usize, out: &mut String) {
    if has_lines(item) && item.is_array() {
        out.push('\n');
    } else {
        out.push(' ');
    }
    node(item, depth + 1, out);
}

/// A value, behind its key.
fn within(value: &Value, depth: usize, out: &mut String) {
    out.push(if has_lines(value) { '\n' } else { ' ' });
    node(value, depth + 1, out);
}

fn has_lines(value: &Value) -> bool {
    match value {
        Value::Array(items) => !items.is_empty(),
        Value::Object(pairs) => !pairs.is_empty(),
        _ => false,
    }
}

fn indent(depth: usize, out: &mut String) {
    out.push_str(&"  ".repeat(depth));
}

fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => scalar(text),
        // `null`, `true`, numbers, `[]` and `{}` are the same in both languages.
        other => other.to_string(),
    }
}

/// What YAML 1.1 takes for something else than text, in any case.
const WORDS: [&str; 9] = ["null", "true", "false", "yes", "no", "on", "off", "y", "n"];

fn scalar(text: &str) -> String {
    let first = |c: char| c.is_ascii_alphabetic() || c == '/' || c == '_';
    let more = |c: char| c.is_ascii_alphanumeric() || "_-./ ,()".contains(c);
    let bare = text.starts_with(first)
        && text.chars().all(more)
        && !text.ends_with(' ')
        && !WORDS.contains(&text.to_ascii_lowercase().as_str());
    match bare {
        true => text.to_owned(),
        false => quoted(text),
    }
}

/// As JSON has it, and what YAML does not let stand is escaped too.
fn quoted(text: &str) -> String {
    let mut quoted = String::from('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            '\n' => quoted.push_str("\\n"),
            '\t' => quoted.push_str("\\t"),
            c if c.is_control() || "\u{2028}\u{2029}\u{feff}\u{fffe}\u{ffff}".contains(c) => {
                quoted.push_str(&format!("\\u{:04x}", u32::from(c)));
            }
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn objects_and_lists_stand_in_blocks() {
        let value = json!({
            "copies": [{ "lag": 0, "node": "node-1" }, { "node": "node-2", "tags": ["a", ["b"]] }],
            "empty": [], "none": null, "of": { "deep": { "x": 1.5 } }, "pairs": {},
        });
        let expected = "\
copies:
  - lag: 0
    node: node-1
  - node: node-2
    tags:
      - a
      -
        - b
empty: []
none: null
of:
  deep:
    x: 1.5
pairs: {}";
        assert_eq!(text(&value), expected);
        assert_eq!(text(&json!([])), "[]");
        assert_eq!(text(&json!([{ "a": 1, "b": [] }, "c"])), "- a: 1\n  b: []\n- c");
    }

    /// Protects from text that comes back as a number, a truth, a comment or another line.
    #[test]
    fn text_that_could_be_something_else_is_quoted() {
        for odd in [
            "",
            "1",
            "1e3",
            "0x1f",
            "-",
            "- a",
            "~",
            "null",
            "No",
            "TRUE",
            "y",
            "a: b",
            "a #b",
            "#a",
            "a ",
            " a",
            "*a",
            "&a",
            "!a",
            "%a",
            "@a",
            "`a",
            "{",
            "[a]",
            "?",
            "a\nb",
            "'",
            "\"",
            "|",
            "2026-01-01",
            "10:20:30",
            ".inf",
            "ä",
            "a:",
            "=",
            "<<",
        ] {
            let quoted = text(&json!(odd));
            assert!(quoted.starts_with('"') && quoted.ends_with('"'), "{odd:?}: {quoted}");
            assert!(!quoted.contains('\n'), "{odd:?}: {quoted}");
            assert_eq!(text(&json!({ odd: 1 })), format!("{quoted}: 1"));
        }
        assert_eq!(text(&json!("a\"\\\n\t\u{1}\u{7f}\u{85}")), r#""a\"\\\n\t\u0001\u007f\u0085""#);
        for plain in ["db", "/dev/sda", "one of 3 replicas is away, and node-2 (1.2.3) too"] {
            assert_eq!(text(&json!(plain)), plain);
        }
    }
}
