//! Files and functions stay short enough to be read at once.

use crate::report::Report;
use crate::sources::Sources;

/// Lines of a file: where a warning asks for a second noun.
const FILE_LINES_WARN: usize = 400;
/// Lines of a file: more is an error.
const FILE_LINES_MAX: usize = 600;
/// Lines of a function, signature and braces included, that bring a warning.
const FUNCTION_LINES_WARN: usize = 70;

/// Counts the lines of each Rust file and of each function in it.
pub fn check(sources: &Sources) -> Report {
    let mut report = Report::default();
    for (path, text) in sources.matching("", ".rs") {
        let lines = text.lines().count();
        if lines > FILE_LINES_MAX {
            report.error(format!("{path}: {lines} lines, at most {FILE_LINES_MAX}"));
        } else if lines > FILE_LINES_WARN {
            report.warning(format!("{path}: {lines} lines, aim below {FILE_LINES_WARN}"));
        }
        for (line, name, length) in functions(text) {
            if length > FUNCTION_LINES_WARN {
                report.warning(format!("{path}:{line}: `{name}` has {length} lines, aim below {FUNCTION_LINES_WARN}"));
            }
        }
    }
    report
}

/// Line, name and length of each function. Relies on rustfmt: the closing brace stands at the signature's indent.
fn functions(text: &str) -> Vec<(usize, &str, usize)> {
    let lines: Vec<&str> = text.lines().collect();
    let mut found = Vec::new();
    for (start, line) in lines.iter().enumerate() {
        let Some(name) = function_name(line) else { continue };
        let indent = line.len() - line.trim_start().len();
        let end = lines[start..].iter().position(|line| {
            line.len() - line.trim_start().len() == indent
                && (line.trim() == "}" || line.ends_with("}") && line.contains("fn "))
                || line.len() - line.trim_start().len() == indent && line.ends_with(';')
        });
        if let Some(end) = end {
            found.push((start + 1, name, end + 1));
        }
    }
    found
}

fn function_name(line: &str) -> Option<&str> {
    let mut words = line.trim_start();
    for prefix in ["pub(crate) ", "pub(super) ", "pub ", "const ", "async ", "unsafe ", "extern \"C\" "] {
        words = words.strip_prefix(prefix).unwrap_or(words);
    }
    let rest = words.strip_prefix("fn ")?;
    rest.split(['(', '<']).next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_function_is_measured_from_its_signature_to_its_brace() {
        let text = "impl A {\n    pub fn first(&self) {\n        body();\n    }\n\n    fn second() {}\n}\n";
        assert_eq!(functions(text), [(2, "first", 3), (6, "second", 1)]);
    }

    #[test]
    fn a_declaration_without_a_body_ends_with_its_line() {
        assert_eq!(functions("trait A {\n    fn b(&self);\n    fn c(&self);\n}\n"), [(2, "b", 1), (3, "c", 1)]);
    }

    #[test]
    fn a_long_file_warns_and_a_longer_one_fails() {
        let check_lines = |count: usize| check(&Sources::of(&[("crates/a/src/b.rs", &"//\n".repeat(count))]));
        assert!(check_lines(400).warnings().is_empty());
        assert_eq!(check_lines(401).warnings().len(), 1);
        assert!(check_lines(600).is_clean());
        assert!(!check_lines(601).is_clean());
    }

    #[test]
    fn a_long_function_warns() {
        let text = format!("fn long() {{\n{}}}\n", "    step();\n".repeat(69));
        assert_eq!(check(&Sources::of(&[("crates/a/src/b.rs", &text)])).warnings().len(), 1);
    }
}
